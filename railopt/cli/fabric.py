"""`railopt fabric show`: what a fabric's description says of a node, and what it leaves open."""

from __future__ import annotations

import argparse

from railopt.answers.outliers import outlier_lines, outliers
from railopt.base.errors import InputError
from railopt.cli import common
from railopt.report.node import node_figure, node_lines

EPILOG = """FABRIC is a description (.toml), a .topo of htsim, or the topology of one node: the XML
of NCCL_TOPO_DUMP_FILE, or what nvidia-smi topo -m prints; without it, options describe the fabric.
NICs that are dead or at least 5 % below the median come first, the slowest on top.

example:
  railopt fabric show fabric.toml
  railopt fabric show topo.xml --figure node.svg
  railopt fabric show --rails 4 --gpus 8 --json"""


SHOWN = 20  # slow NICs that are named
IDLE = (common.Idle("force width title", without=["figure"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["show"], help="draw a node and list what was assumed")
    parser.add_argument(
        "path", metavar="FABRIC", nargs="?", help="fabric description, as --fabric takes it"
    )
    parser.add_argument(
        "--node",
        type=common.integer,
        default=0,
        help="the node whose NIC rates are shown (default 0)",
    )
    parser.add_argument(
        "--figure", metavar="FILE", help=f"draw it into a file: {common.FORMATS_HELP}"
    )
    common.add_figure_arguments(parser)
    common.add_fabric_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    if args.path is not None and args.fabric is not None:
        raise InputError("FABRIC and --fabric contradict each other: give one of them")
    args.fabric = args.path if args.fabric is None else args.fabric
    width = common.figure_width(args, "figure")
    fabric, assumed = common.described_by(args, one_node=True)
    drawn, found = node_lines(fabric, args.node), outliers(fabric)
    if args.figure is not None:
        figure = node_figure(fabric, args.node, common.title_of(args), width=width)
        common.save_drawing(args, "figure", figure)
    if args.json:
        rates = {"tx": fabric.tx[args.node], "rx": fabric.rx[args.node]}
        node = {**fabric.node.as_dict(), "owner": fabric.node.owner}
        names = {"hosts": fabric.hosts, "devices": fabric.devices}
        slow = {"outliers": [nic.as_dict() for nic in found]}
        common.print_json(
            {**fabric.header(), **names, "inside": node, **rates, **slow, "assumed": assumed}
        )
        return 0
    for text in outlier_lines(found, SHOWN):
        print(text)
    print(f"nodes: {fabric.nodes}, GPUs per node: {fabric.gpus}, rails: {fabric.rails}")
    print("\n".join(drawn))
    if (fabric.tx != fabric.tx[args.node]).any() or (fabric.rx != fabric.rx[args.node]).any():
        host = f" ({fabric.hosts[args.node]})" if fabric.hosts else ""
        print(f"rates are those of node {args.node}{host}: other nodes have others")
    print("found and assumed:")
    for text in assumed:
        print(f"  {text}")
    return 0
