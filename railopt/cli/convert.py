"""`railopt convert`: between formats, by suffix."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path

from railopt.arrays import kind_of, read_text, write_atomic
from railopt.cli.common import TRAFFIC_HELP, add_fabric_arguments, fabric_from, note, traffic_from
from railopt.errors import InputError
from railopt.fabric import Fabric, Spine
from railopt.formats import format_topo, parse_topo
from railopt.plans import Plan

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
    source, target = Path(args.input).suffix, Path(args.output).suffix
    if source in (".toml", ".topo"):
        _convert_fabric(args.input, args.output, force=args.force)
    elif source == ".npz" and target == ".cm" and kind_of(args.input) == "plan":
        write_atomic(args.output, Plan.load(args.input).to_cm(), force=args.force)
    elif target in (".toml", ".topo"):
        raise InputError(
            f"{args.output}: a fabric comes from a .toml or .topo file, not from {args.input}"
        )
    else:
        traffic_from(args.input, fabric_from(args)).save(args.output, force=args.force)
    note(f"saved {args.output}")
    return 0


def _convert_fabric(source: str, target: str, *, force: bool) -> None:
    fabric = topology_fabric(source) if source.endswith(".topo") else Fabric.read(source)
    if target.endswith(".toml"):
        fabric.save(target, force=force)
    elif target.endswith(".topo"):
        write_atomic(target, fabric_topology(fabric), force=force)
    else:
        raise InputError(f"{target}: a fabric is written as .toml or .topo")


def topology_fabric(path: str) -> Fabric:
    """A two-tier htsim topology, one leaf a rail, as a Fabric; a path up and down one leaf is two
    of its hops.
    """
    found = parse_topo(read_text(path), Path(path).name)
    return Fabric.uniform(
        found.nodes,
        found.rails,
        f"{found.gbps}Gb/s",
        latency=f"{2 * found.latency_ns}ns",
        spine=Spine(found.uplinks, found.gbps * 10**9 // 8),
    )


def fabric_topology(fabric: Fabric) -> str:
    """The `.topo` of a healthy fabric with one rate in whole Gb/s; htsim's files can't say more."""
    rate = Fraction(int(fabric.tx[0, 0]) * 8, 10**9)
    if not fabric.is_uniform or rate.denominator != 1:
        raise InputError(
            "a .topo knows one link speed in whole Gb/s: this fabric has slow, dead or odd NICs"
        )
    return format_topo(
        fabric.nodes,
        fabric.rails,
        rate.numerator,
        fabric.latency_ps // 2000,
        fabric.spine.uplinks if fabric.spine else None,
    )
