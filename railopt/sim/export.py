"""The same run for htsim: its flows as `.cm`, the fabric as `.topo`, to be repeated packet by
packet.

One htsim node is one NIC, id = rail * nodes + node; scale-up links are not part of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from railopt.arrays import write_atomic
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.formats import Connection, format_cm, format_topo
from railopt.sim.timeline import Timeline


def export_htsim(timeline: Timeline, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write `run.cm` and `fabric.topo`; the paths.  What htsim can't express is refused."""
    if timeline.fabric is None:
        raise InputError(
            "only plans and direct traffic can be written for htsim: this job has no fabric"
        )
    texts = {"run.cm": _connections(timeline), "fabric.topo": _topology(timeline.fabric)}
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomic(target / name, text, force=force)
    return [target / name for name in texts]


def _connections(timeline: Timeline) -> str:
    job, fabric = timeline.job, timeline.fabric
    assert fabric is not None
    if job.changes:
        raise InputError("htsim has no NICs that change during a run: export it without faults")
    stages = job.groups
    in_turn = np.stack([np.arange(1, stages), np.arange(stages - 1)], axis=1)
    if len(job.needs) and not np.array_equal(job.needs, in_turn):
        raise InputError(
            "a .cm connection waits for one trigger only: export staged plans with a barrier a "
            "stage"
        )
    nics = fabric.nodes * fabric.rails
    node, rail = np.divmod(job.path[job.first[:-1]], fabric.rails)
    to, target = np.divmod(job.path[job.first[:-1] + 1] - nics, fabric.rails)
    ends = zip(
        (rail * fabric.nodes + node).tolist(),
        (target * fabric.nodes + to).tolist(),
        job.size.tolist(),
        job.group.tolist(),
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


def _topology(fabric: Fabric) -> str:
    rate = int(fabric.tx[0, 0])
    if not fabric.is_uniform or rate * 8 % 10**9:
        raise InputError(
            "a .topo has one link rate in whole Gb/s: this fabric has unequal, dead or fractional "
            "NICs"
        )
    if fabric.spine is not None and fabric.spine.rate != rate:
        raise InputError(
            "a .topo for htsim is written with uplinks as fast as the NICs: this spine is not"
        )
    uplinks = None if fabric.spine is None else fabric.spine.uplinks
    return format_topo(
        fabric.nodes, fabric.rails, rate * 8 // 10**9, fabric.latency_ps // 2000, uplinks
    )
