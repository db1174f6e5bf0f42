"""`railopt fabric`: what a fabric's description says of a node; the same for NCCL; whether it is
wired like that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from railopt.answers.outliers import outlier_lines, outliers
from railopt.base.arrays import read_text, write_atomic
from railopt.base.errors import CheckFailed, InputError, printable
from railopt.base.units import format_rate
from railopt.cli import common
from railopt.model.fabric import Fabric
from railopt.model.topology import MAX_BYTES, Node, read_node
from railopt.report.node import node_figure, node_lines

EPILOG = """FABRIC is a description (.toml), a .topo of htsim, or the topology of one node: the XML
of NCCL_TOPO_DUMP_FILE, or what nvidia-smi topo -m prints; without it, options describe the fabric.
NICs that are dead or at least 5 % below the median come first, the slowest on top.

examples:
  railopt fabric show fabric.toml
  railopt fabric show topo.xml --figure node.svg
  railopt fabric show --rails 4 --gpus 8 --json
  railopt fabric nccl measured.toml --node 3 --topology gpu04.xml -o topo.xml
  railopt fabric check fabric.toml --wired dumps/gpu*.xml --measured measured.toml

"nccl" writes an NCCL_TOPO_FILE with the speeds of a node, from its own dump if --topology is one,
and prints the variables that make NCCL keep to the rails.  "check" compares a fabric that names
its devices with the dumps of its nodes, each named by its host (or node3.xml), and with measured
rates: swapped cables, NICs on another rail or GPU, slow ones; exit code 4 if there are any."""


SHOWN = 20  # slow NICs that are named
IDLE = (
    common.Idle("figure", beside=["action!=show"]),
    common.Idle("wired measured", without=["action=check"]),
    common.Idle("topology output", without=["action=nccl"]),
    common.Idle("node", beside=["action=check"]),
    common.Idle("fabric", beside=["path"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=list(ACTIONS),
        help="draw a node and list what was assumed; describe it for NCCL; compare it with dumps",
    )
    parser.add_argument(
        "path", metavar="FABRIC", nargs="?", help="fabric description, as --fabric takes it"
    )
    parser.add_argument("--node", type=common.integer, default=0, help="whose NIC rates count")
    parser.add_argument("-o", "--output", metavar="XML", help="nccl: the topology file")
    parser.add_argument("--topology", metavar="XML", help="nccl: the node's own dump")
    parser.add_argument("--wired", metavar="XML", nargs="+", help="check: dumps of the nodes")
    parser.add_argument("--measured", metavar="TOML", help="check: of fabric-from-perftest")
    common.add_figure_arguments(parser, "show: draw it")
    common.add_fabric_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    common.add_force_argument(parser, "figure", "output")


def run(args: argparse.Namespace) -> int:
    args.fabric = args.path if args.fabric is None else args.fabric
    return ACTIONS[args.action](args)


def _check(args: argparse.Namespace) -> int:
    """What is not as planned; exit code 4 if anything is."""
    from railopt.answers.wiring import check_wiring, unnumbered

    if args.wired is None and args.measured is None:
        raise InputError("expected --wired, --measured or both: there is nothing to compare with")
    planned = common.described_by(args).fabric
    wired: dict[int, Node] = {}
    for path in args.wired or ():
        node = _node_named(path, planned)
        if node in wired:
            raise InputError(f"{printable(path)}: a second file of {planned.node_name(node)}")
        wired[node] = read_node(path)
    measured = None if args.measured is None else Fabric.read(args.measured)
    found = check_wiring(planned, wired, measured)
    if args.wired and len(wired) < planned.nodes:
        common.note(f"{planned.nodes - len(wired)} of {planned.nodes} nodes have no file")
    blind = unnumbered(planned, wired)
    if blind:
        common.note(f"{blind} of {len(wired)} files have NICs of no rail: cables not compared")
    if args.json:
        common.print_json({"mismatches": [one.as_dict() for one in found]})
    else:
        for one in found:
            print(f"{planned.node_name(one.node)} {one.device}: {one.what}")
        whole = len(wired) == planned.nodes and not blind
        good = "wired as planned" if whole else "no difference in what was compared"
        print(f"{len(found)} differences" if found else good)
    return CheckFailed.exit_code if found else 0


def _node_named(path: str, planned: Fabric) -> int:
    """The node of a file that is named by its host, or `node3`."""
    stem = Path(path).stem
    if stem in planned.hosts:
        return planned.hosts.index(stem)
    digits = stem.removeprefix("node")
    if stem != digits and digits.isdecimal() and int(digits) < planned.nodes:
        return int(digits)
    raise InputError(f"{printable(path)}: expected a file named by a host of the plan, or node0")


def _nccl(args: argparse.Namespace) -> int:
    """The variables, and with -o the topology file of a node."""
    from railopt.answers.wiring import variables
    from railopt.model.topology.writing import format_dump, with_speeds

    fabric = common.described_by(args).fabric
    if not 0 <= args.node < fabric.nodes:
        raise InputError(f"--node {args.node}: expected one of {fabric.nodes} nodes")
    found = variables(fabric, args.output, args.node)
    rates = np.minimum(fabric.tx[args.node], fabric.rx[args.node]).tolist()
    if args.topology is not None:
        if not fabric.devices:
            raise InputError("the fabric names no devices: add devices = [...] in rail order")
        text, name = read_text(args.topology, MAX_BYTES), printable(args.topology)
        made = with_speeds(text, name, fabric.node, rates, fabric.devices)
    else:
        made = format_dump(fabric.node, rates, fabric.scaleup, fabric.devices)
    unequal = np.flatnonzero(fabric.tx[args.node] != fabric.rx[args.node]).tolist()
    if unequal:
        names = ", ".join(fabric.nic_name(args.node, rail) for rail in unequal)
        common.note(f"{names}: send and receive rates differ; NCCL has one speed, the lower")
    if args.output is not None:
        write_atomic(args.output, made.text, force=args.force)
        for said in made.lost:
            common.note(said)
        common.note(f"saved {args.output}")
    if args.json:
        common.print_json({"variables": [one._asdict() for one in found], "lost": list(made.lost)})
        return 0
    for one in found:
        print(f"# {one.why}\nexport {one.name}={one.value}")
    return 0


def _show(args: argparse.Namespace) -> int:
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
    if fabric.leaves is not None:
        one, count = fabric.leaves, fabric.leaves.count(fabric.nodes, fabric.rails)
        below = f"{one.nodes} nodes x {one.rails} rails below each"
        above = f"{one.uplinks} uplinks of {format_rate(one.rate)}, {one.way}"
        print(f"leaves: {count}, {below}, {above}; plans count NICs, not uplinks")
    print("\n".join(drawn))
    if (fabric.tx != fabric.tx[args.node]).any() or (fabric.rx != fabric.rx[args.node]).any():
        host = f" ({fabric.hosts[args.node]})" if fabric.hosts else ""
        print(f"rates are those of node {args.node}{host}: other nodes have others")
    print("found and assumed:")
    for text in assumed:
        print(f"  {text}")
    return 0


ACTIONS = {"show": _show, "nccl": _nccl, "check": _check}
