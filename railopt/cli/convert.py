"""`railopt convert`: between formats, by suffix."""

from __future__ import annotations

import argparse

from railopt.cli.common import (
    TRAFFIC_HELP,
    add_fabric_arguments,
    fabric_from,
    fabric_given,
    note,
)
from railopt.conversion import convert

EPILOG = """Traffic: .npz (railopt), .cm (htsim), anything else is an nccl-tests alltoallv matrix.
Plans (.npz) become .cm.  Fabrics: .toml (railopt) and .topo (htsim).

example:
  railopt convert moe:skew=0.8,seed=1 matrix.txt --nodes 8 --rails 8
  railopt convert matrix.txt traffic.cm --nodes 8 --rails 8
  railopt convert plan.npz plan.cm
  railopt convert fabric.toml fabric.topo"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input",
        metavar="IN",
        help=f"a fabric (.toml, .topo), a plan (.npz), or traffic: {TRAFFIC_HELP}",
    )
    parser.add_argument(
        "output", metavar="OUT", help="the file to write; its suffix says the format"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    fabric = fabric_from(args) if fabric_given(args) else None
    convert(args.input, args.output, fabric, force=args.force)
    note(f"saved {args.output}")
    return 0
