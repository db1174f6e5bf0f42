"""`railopt convert`: between formats, by suffix."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from railopt.answers.convert import convert
from railopt.base.arrays import check_targets
from railopt.cli import common
from railopt.model.topology import describes_node
from railopt.model.traffic import Traffic, trace_file

EPILOG = """Traffic: .npz (railopt, or numpy's with one array), .npy, .csv, .cm (htsim), anything
else is an nccl-tests alltoallv matrix.
Plans (.npz) become .cm, or .et: Chakra execution traces, one file per NIC: NAME.0.et, NAME.1.et...,
and beside them what ASTRA-sim needs; NAME.md says how it is run.
Fabrics: .toml (railopt) and .topo (htsim); the topology of one node (NCCL_TOPO_DUMP_FILE,
nvidia-smi topo -m) becomes a fabric of --nodes such nodes.
Of a routing trace with layer=all or step=all, each dispatch has a file: NAME.step-3.layer-2.csv...

example:
  railopt convert moe:skew=0.8,seed=1 matrix.txt --nodes 8 --rails 8
  railopt convert bytes.csv matrix.txt --nodes 8 --rails 8
  railopt convert trace.npz:step=3,layer=2,model=deepseek-v3 bytes.csv --nodes 8
  railopt convert trace.npz:layer=all,model=deepseek-v3 bytes.csv --nodes 8
  railopt convert matrix.txt traffic.cm --nodes 8 --rails 8
  railopt convert plan.npz plan.cm
  railopt convert plan.npz plan.et
  railopt convert fabric.toml fabric.topo
  railopt convert topo.xml fabric.toml --nodes 8"""


def _topology(args: argparse.Namespace) -> str:
    return "a node's topology" if describes_node(args.input) else ""


IDLE = (common.Idle("fabric rails gpus degrade", beside=[_topology]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input",
        metavar="IN",
        help="a fabric (.toml, .topo, the topology of a node), a plan (.npz), or traffic: "
        + common.BYTES_HELP,
    )
    parser.add_argument(
        "output", metavar="OUT", help="the file to write; its suffix says the format"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    common.add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    size: dict[str, Any] = {}
    sources: dict[str, str | Traffic] = {args.output: args.input}
    if trace_file(args.input):
        sources = _dispatches(common.recorded_from(args.input, common.fabric_from(args)), args)
    elif describes_node(args.input):
        size = {"nodes": args.nodes, "link": args.link}
    else:
        size = {"fabric": common.fabric_from(args) if common.fabric_given(args) else None}
    made = [convert(one, target, **size, force=args.force) for target, one in sources.items()]
    for text in dict.fromkeys(text for one in made for text in one.assumed):
        common.note(text)
    written = [path for one in made for path in one.paths]
    more = f" and {len(written) - 1} more" if len(written) > 1 else ""
    common.note(f"saved {written[0]}{more}")
    return 0


def _dispatches(found: dict[str, Traffic], args: argparse.Namespace) -> dict[str, str | Traffic]:
    """Each dispatch by the file that it is written to: OUT, or with its name before the suffix."""
    if len(found) == 1:
        return {args.output: next(iter(found.values()))}
    out = Path(args.output)
    named = {
        str(
            out.with_name(f"{out.stem}.{name.replace(', ', '.').replace(' ', '-')}{out.suffix}")
        ): one
        for name, one in found.items()
    }
    check_targets(*named, force=args.force)
    return {**named}
