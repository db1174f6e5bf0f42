"""`railopt devices`: the RDMA devices of this node and the rails they would be."""

from __future__ import annotations

import argparse
from functools import partial

from railopt.base.units import parse_integer
from railopt.cli.common import add_format_arguments, output_of, print_json
from railopt.cli.launching import devices_of
from railopt.runtime.verbs.devices import COLUMNS, device_rows, list_devices, rail_map

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
    parser.add_argument(
        "--ib-port",
        type=partial(parse_integer, low=1, high=255),
        default=1,
        help="port of every device",
    )
    add_format_arguments(parser)


def run(args: argparse.Namespace) -> int:
    named = devices_of(args)
    found = list_devices()
    rails = rail_map(named, found, args.ib_port)
    if args.format == "json":
        print_json({"devices": [device.as_dict() for device in found], "rails": rails})
        return 0
    out = output_of(args)
    out.table(COLUMNS, device_rows(found, rails, args.ib_port))
    out.say(f"# rail map: --ib-dev {','.join(rails) or '(no active port)'}")
    return 0
