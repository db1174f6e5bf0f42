"""`railopt devices`: the RDMA devices of this node and the rails they would be."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from railopt.cli.common import print_json, table
from railopt.runtime.verbs.devices import list_devices, rail_map

EPILOG = """examples:
  railopt devices
  railopt devices --rails mlx5_0,mlx5_3,mlx5_4,mlx5_5 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rails",
        "--ib-dev",
        dest="devices",
        metavar="DEV,DEV,...",
        help="devices in rail order (default: those with an active port, in PCI order)",
    )
    parser.add_argument("--ib-port", type=int, default=1, help="port of every device (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    devices = list_devices()
    rails = rail_map(args.devices.split(",") if args.devices else None, devices, args.ib_port)
    if args.json:
        print_json({"devices": [asdict(d) for d in devices], "rails": rails})
        return 0
    rows = []
    for device in devices:
        for port in device.ports:
            rail = (
                rails.index(device.name)
                if device.name in rails and port.number == args.ib_port
                else "-"
            )
            gids = [f"{g.index}={g.gid} ({g.kind})" for g in port.gids]
            rows.append(
                [
                    rail,
                    device.name,
                    port.number,
                    port.state,
                    port.rate,
                    port.link_layer,
                    device.pci,
                    device.numa,
                    ",".join(device.interfaces) or "-",
                    "; ".join(gids) or "-",
                ]
            )
    rows.sort(key=lambda row: (row[0] == "-", row[0]))
    table(
        ["rail", "device", "port", "state", "rate", "link layer", "pci", "numa", "netdev", "gids"],
        rows,
    )
    print(f"# rail map: --rails {','.join(rails) or '(no active port)'}")
    return 0
