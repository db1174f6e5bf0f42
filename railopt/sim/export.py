"""The same run for htsim: its flows as `.cm`, the fabric as `.topo`, to be repeated packet by
packet.

One htsim node is one NIC, id = rail * nodes + node; scale-up links are not part of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from railopt.base.arrays import check_targets, write_atomic
from railopt.base.errors import InputError, printable
from railopt.files.formats import format_stages
from railopt.model.fabric import Fabric
from railopt.sim.flows import Flows
from railopt.sim.timeline import Timeline

FILES = "run.cm", "fabric.topo"


def check_export(
    fabric: Fabric,
    folder: str | Path,
    *,
    faults: bool = False,
    phases: bool = False,
    force: bool = False,
) -> None:
    """Refuse what htsim does not have, and files that can't be written, before a run.

    phases    bytes move inside nodes before and after they cross the rails
    """
    if faults:
        raise InputError("htsim has no NICs that change during a run: export it without faults")
    if phases:
        raise InputError("htsim has no scale-up links: export the run with scale-up ignored")
    fabric.to_topo()
    _make_folder(Path(folder))
    check_targets(*(Path(folder, name) for name in FILES), force=force)


def export_htsim(timeline: Timeline, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write `run.cm` and `fabric.topo`; the paths.  What htsim can't express is refused."""
    if timeline.fabric is None:
        raise InputError(
            "only plans and direct traffic can be written for htsim: these flows have no fabric"
        )
    flows, fabric = timeline.flows, timeline.fabric
    phases = int(flows.track.max(initial=0)) >= fabric.rails
    check_export(fabric, folder, faults=bool(flows.changes), phases=phases, force=force)
    paths = [Path(folder, name) for name in FILES]
    for path, text in zip(paths, (_connections(flows, fabric), fabric.to_topo()), strict=True):
        write_atomic(path, text, force=force)
    return paths


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not the name of a folder"
        raise InputError(f"{printable(folder)}: can't be made: {why}") from error


def _connections(flows: Flows, fabric: Fabric) -> str:
    stages = flows.groups
    in_turn = np.stack([np.arange(1, stages), np.arange(stages - 1)], axis=1)
    if len(flows.needs) and not np.array_equal(flows.needs, in_turn):
        raise InputError(
            "a .cm connection waits for one trigger only: export staged plans with a barrier a "
            "stage"
        )
    nics = fabric.nodes * fabric.rails
    node, rail = np.divmod(flows.path[flows.first[:-1]], fabric.rails)
    to, target = np.divmod(flows.path[flows.first[:-1] + 1] - nics, fabric.rails)
    ends = rail * fabric.nodes + node, target * fabric.nodes + to
    return format_stages(nics, *ends, flows.size, flows.group)
