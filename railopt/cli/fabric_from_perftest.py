"""`railopt fabric-from-perftest`: measured NIC rates -> a fabric file."""

from __future__ import annotations

import argparse
import sys

from railopt.cli.common import note, print_json
from railopt.cli.launching import whole
from railopt.errors import InputError
from railopt.runtime.perftest import fabric_from, read

EPILOG = """measure each NIC against a fast peer, one report a NIC, named by node and rail:
  ib_write_bw -d mlx5_0 --report_gbits --out_json --out_json_file=node0_rail0.json PEER
example:
  railopt fabric-from-perftest node*_rail*.json -o fabric.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports", nargs="+", metavar="REPORT.json", help="perftest reports, e.g. node0_rail3.json"
    )
    parser.add_argument("--gpus", type=whole(1), help="GPUs a node (default: as many as rails)")
    parser.add_argument(
        "-o", "--output", metavar="FABRIC.toml", help="where to save it (default: stdout)"
    )
    parser.add_argument("--json", action="store_true", help="print the fabric as JSON")
    parser.add_argument("--force", action="store_true", help="replace the file of -o if it exists")


def run(args: argparse.Namespace) -> int:
    if args.force and not args.output:
        raise InputError("--force can't act: it is for a file named with -o")
    fabric = fabric_from(read(args.reports), args.gpus)
    if args.output:
        fabric.save(args.output, force=args.force)
        note(f"saved {args.output}: {fabric.nodes} nodes x {fabric.rails} rails")
    if args.json:
        print_json({**fabric.header(), "tx": fabric.tx, "rx": fabric.rx})
    elif not args.output:
        sys.stdout.write(fabric.to_toml())
    return 0
