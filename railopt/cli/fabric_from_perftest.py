"""`railopt fabric-from-perftest`: measured NIC rates -> a fabric file."""

from __future__ import annotations

import argparse
import sys

from railopt.cli.common import add_output_arguments, note, print_json
from railopt.runtime.perftest import fabric_from, read

EPILOG = """measure each NIC against a fast peer, one report a NIC, named by node and rail:
  ib_write_bw -d mlx5_0 --report_gbits --out_json --out_json_file=node0_rail0.json PEER
example:
  railopt fabric-from-perftest node*_rail*.json -o fabric.toml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports", nargs="+", metavar="REPORT.json", help="perftest reports, e.g. node0_rail3.json"
    )
    parser.add_argument("--gpus", type=int, help="GPUs a node (default: as many as rails)")
    parser.add_argument(
        "-o", "--output", metavar="FABRIC.toml", help="where to save it (default: stdout)"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    fabric = fabric_from(read(args.reports), args.gpus)
    if args.output:
        fabric.save(args.output, force=args.force)
        note(f"saved {args.output}: {fabric.nodes} nodes x {fabric.rails} rails")
    if args.json:
        print_json({**fabric.header(), "tx": fabric.tx, "rx": fabric.rx})
    elif not args.output:
        sys.stdout.write(fabric.to_toml())
    return 0
