"""Files from one format into another, by suffix, in lower or upper case.

Traffic: `.npz` (railopt; numpy's with one array is read too), `.npy`, `.csv`, `.cm` (htsim),
anything else is an nccl-tests alltoallv matrix.
Plans (`.npz`) become `.cm`, or `.et`: Chakra execution traces, one file per NIC.
Fabrics: `.toml` (railopt) and `.topo` (htsim), and the topology of one node
(`railopt.model.topology`), which becomes a fabric of many.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from railopt.answers import chakra
from railopt.base.arrays import kind_of, total
from railopt.base.errors import InputError, printable
from railopt.base.units import format_bytes
from railopt.model.fabric import Fabric, described
from railopt.model.plan import Plan
from railopt.model.topology import describes_node
from railopt.model.traffic import Traffic
from railopt.model.workloads import traffic_from

FABRICS = (".toml", ".topo")
PICTURES = (".svg", ".png", ".pdf", ".html")
NO_TRAFFIC = (".et", ".xml", ".json", ".jsonl", ".yaml", ".yml", ".pt", ".parquet", *PICTURES)
"""Suffixes that mean other things."""


class Converted(NamedTuple):
    """The paths that were written, and in words what was assumed of a node's topology, or what the
    format has no place for.
    """

    paths: list[Path]
    assumed: tuple[str, ...] = ()


def own_kind(source: str | os.PathLike[str]) -> str | None:
    """ "fabric", "plan" or "traffic" for a file that says its own size; None for anything else."""
    suffix = Path(source).suffix.lower()
    kind = "fabric" if suffix in FABRICS else kind_of(source) if suffix == ".npz" else None
    return kind if kind in ("fabric", "plan", "traffic") else None


def convert(
    source: str | os.PathLike[str] | Traffic,
    target: str | os.PathLike[str],
    fabric: Fabric | None = None,
    *,
    nodes: int | None = None,
    link: str | None = None,
    force: bool = False,
) -> Converted:
    """Write what `source` is (a file, a workload's spec, or traffic) as `target`'s suffix says.

    `fabric` is what foreign traffic and workloads are read for, 8 nodes x 8 rails by default; a
    file that says so itself (a fabric, a plan, traffic in `.npz`) takes none.  The topology of one
    node takes how many `nodes` there are, and perhaps the `link` rate of its NICs.
    """
    if isinstance(source, Traffic):
        if not (fabric is None and nodes is None and link is None):
            raise InputError("traffic has its own size: give no fabric, nodes or link with it")
        _check_traffic_suffix(target)
        return _written(source, target, force)
    text, suffix = os.fspath(source), Path(target).suffix.lower()
    node = describes_node(text)
    fabric_in, fabric_out = node or Path(text).suffix.lower() in FABRICS, suffix in FABRICS
    if fabric_in != fabric_out:
        raise InputError(
            f"{printable(target)}: a fabric is written as .toml or .topo"
            if fabric_in
            else f"{printable(target)}: a fabric comes from a .toml or .topo file or the topology "
            f"of a node, not from {printable(text)}"
        )
    if not fabric_in and not (nodes is None and link is None):
        raise InputError(f"{printable(text)}: nodes and link are for the topology of one node")
    kind = "fabric" if fabric_in else own_kind(text)
    if kind not in ("plan", "fabric"):
        _check_traffic_suffix(target)
    if fabric is not None and kind is not None:
        raise InputError(f"{printable(text)} is a {kind} of its own size: give no fabric with it")
    if kind == "fabric":
        made = described(text, nodes=nodes, link=link)
        made.fabric.save(target, force=force)
        lost = _without_node(made.fabric) if suffix == ".topo" else ()
        return Converted([Path(target)], (*(made.assumed if node else ()), *lost))
    if kind == "plan":
        if suffix not in (".cm", ".et"):
            raise InputError(f"{printable(target)}: a plan is written as .cm or .et")
        plan = Plan.read(text)
        if suffix == ".et":
            return Converted(chakra.save(plan, target, force=force))
        plan.save(target, force=force)
        return Converted([Path(target)])
    own = kind == "traffic"
    traffic = Traffic.read(text) if own else traffic_from(text, fabric or Fabric.uniform())
    return _written(traffic, target, force)


def _written(traffic: Traffic, target: str | os.PathLike[str], force: bool) -> Converted:
    traffic.save(target, force=force)
    inside = total(traffic.bytes) - total(traffic.node_matrix)
    if Path(target).suffix.lower() == ".cm" and inside:
        said = f"{format_bytes(inside)} inside nodes left out: a .cm has NICs alone"
        return Converted([Path(target)], (said,))
    return Converted([Path(target)])


def _check_traffic_suffix(target: str | os.PathLike[str]) -> None:
    """Refuse a suffix that means other things than traffic."""
    suffix = Path(target).suffix.lower()
    if suffix in (*NO_TRAFFIC, *FABRICS):
        raise InputError(
            f"{printable(target)}: traffic is written as text, .csv, .npy, .npz or .cm, not as "
            f"{suffix}"
        )


def _without_node(fabric: Fabric) -> tuple[str, ...]:
    """What of a fabric a `.topo` does not say, and reading it back gets wrong."""
    usual = Fabric.uniform(fabric.nodes, fabric.rails)
    lost = [name for name in ("gpus", "scaleup") if getattr(fabric, name) != getattr(usual, name)]
    lost += ["inside"] if fabric.inside is not None else []
    said = [f"{', '.join(lost)} left out: a .topo has NICs and switches alone"] if lost else []
    if fabric.leaves is not None:
        said.append("leaves are written as such, so that they read back as rails")
    elif fabric.spine is None:
        said.append("a spine added, an uplink a node: htsim has no leaf without one")
    return tuple(said)
