"""The same run for htsim: its flows as `.cm`, the fabric as `.topo`, to be repeated packet by
packet.

One htsim node is one NIC, id = rail * nodes + node; scale-up links are not part of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from railopt.base.arrays import check_targets, write_atomic
from railopt.base.errors import InputError, printable
from railopt.files.formats import Connection, format_cm
from railopt.model.fabric import Fabric
from railopt.sim.flows import Flows
from railopt.sim.timeline import Timeline

FILES = "run.cm", "fabric.topo"
ONE_TRIGGER = (
    "a .cm connection waits for one trigger only: export staged plans with a barrier a stage"
)


def check_export(
    fabric: Fabric,
    folder: str | Path,
    *,
    faults: bool = False,
    phases: bool = False,
    barriers: bool = True,
    force: bool = False,
) -> None:
    """Refuse what htsim does not have, and files that can't be written, before a run.

    phases    bytes move inside nodes before and after they cross the rails
    barriers  each stage waits for all of the one before
    """
    if faults:
        raise InputError("htsim has no NICs that change during a run: export it without faults")
    if phases:
        raise InputError("htsim has no scale-up links: export the run with scale-up ignored")
    if not barriers:
        raise InputError(ONE_TRIGGER)
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
        raise InputError(ONE_TRIGGER)
    nics = fabric.nodes * fabric.rails
    node, rail = np.divmod(flows.path[flows.first[:-1]], fabric.rails)
    to, target = np.divmod(flows.path[flows.first[:-1] + 1] - nics, fabric.rails)
    ends = zip(
        (rail * fabric.nodes + node).tolist(),
        (target * fabric.nodes + to).tolist(),
        flows.size.tolist(),
        flows.group.tolist(),
        strict=True,
    )
    return format_cm(
        nics,
        [
            Connection(
                src,
                dst,
                size,
                trigger=stage or None,
                done_trigger=stage + 1 if stage + 1 < stages else None,
            )
            for src, dst, size, stage in ends
        ],
    )
