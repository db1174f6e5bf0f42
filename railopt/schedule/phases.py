"""A schedule as flows over ports with dependencies: what a simulator needs to run its phases one by
one.

`simulate(schedule.plan())` lets every chunk cross scale-up and rail at once (cut-through), which is
what the pipelined kind does.  FAST and its ablation store and forward: bytes rest on a proxy GPU
between balance, wire and redistribution.  Here each of these is a flow of its own:
`simulate(railopt.sim.Flows(**phases(schedule)._asdict()))`.

Ports: transmit NICs (node * rails + rail), receive NICs, then out of each GPU's scale-up link, then
into it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError
from railopt.schedule.kinds import KINDS
from railopt.schedule.value import Schedule


class Phases(NamedTuple):
    """Columns of a simulation's `Flows`.

    capacity    int64 [ports], bytes per second
    first, path int64 [flows + 1], int32: the two ports of each flow
    size        int64 [flows], bytes
    latency_ps  int64 [flows]: the start-up of its phase
    group       int32 [flows]: balance, wire or redistribution of a stage, or what stays inside
                servers
    needs       int32 [E, 2]: group needs[e, 0] starts when needs[e, 1] is delivered
    track       int32 [flows]: rail for the wire, as many as there are for scale-up
    """

    capacity: Ints
    first: Ints
    path: npt.NDArray[np.int32]
    size: Ints
    latency_ps: Ints
    group: npt.NDArray[np.int32]
    needs: npt.NDArray[np.int32]
    track: npt.NDArray[np.int32]


def phases(schedule: Schedule, *, alpha_out_ps: int = 0) -> Phases:
    """The flows of a schedule that stores and forwards (every kind but pipelined, which has no
    phases).
    """
    if KINDS[schedule.kind].chunked:
        raise InputError(
            "a pipelined schedule has no phases: simulate its plan, chunks cut through"
        )
    fabric, m, count = schedule.fabric, schedule.fabric.gpus, len(schedule.traffic.bytes)
    stage, rail, src, dst, _, size = (column.astype(np.int64) for column in schedule.pieces())
    if not KINDS[schedule.kind].barriers:
        stage[:] = 0
    rails = fabric.rails
    owner = rail * m // rails
    here, there = src // m * m + owner, dst // m * m + owner
    moves = [
        _sums(stage, src, here, size),
        _sums(stage, src // m * rails + rail, dst // m * rails + rail, size),
        _sums(stage, there, dst, size),
    ]
    node = np.arange(count) // m
    g, h = np.nonzero(np.where(node[:, None] == node, schedule.traffic.bytes, 0))
    apart = g != h
    inside = (
        np.zeros(np.count_nonzero(apart), np.int64),
        g[apart],
        h[apart],
        schedule.traffic.bytes[g, h][apart],
    )
    groups, needs = _groups(schedule)
    nics = fabric.nodes * rails
    out, into = 2 * nics, 2 * nics + count
    ports = [(out, into), (0, nics), (out, into), (out, into)]
    columns = [
        (np.stack([a + p, b + q]), bytes_, groups[phase][at])
        for phase, ((at, a, b, bytes_), (p, q)) in enumerate(
            zip([*moves, inside], ports, strict=True)
        )
    ]
    lengths = [len(bytes_) for _, bytes_, _ in columns]
    wire = np.repeat([False, True, False, False], lengths)
    path = np.concatenate([ends for ends, _, _ in columns], axis=1)
    return Phases(
        np.concatenate([fabric.tx.ravel(), fabric.rx.ravel(), np.full(2 * count, fabric.scaleup)]),
        2 * np.arange(len(wire) + 1),
        path.T.ravel().astype(np.int32),
        np.concatenate([bytes_ for _, bytes_, _ in columns]),
        np.where(wire, alpha_out_ps, 0),
        np.concatenate([group for _, _, group in columns]).astype(np.int32),
        np.array(needs, np.int32).reshape(-1, 2),
        np.where(wire, path[0] % rails, rails).astype(np.int32),
    )


def _sums(stage: Ints, source: Ints, target: Ints, size: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """(stage, source, target, bytes) of what moves between different GPUs, one row each."""
    moving = source != target
    span = int(max(source.max(initial=0), target.max(initial=0))) + 1
    keys, row = np.unique(
        (stage[moving] * span + source[moving]) * span + target[moving], return_inverse=True
    )
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, row, size[moving])
    return keys // span**2, keys // span % span, keys % span, sums


def _groups(schedule: Schedule) -> tuple[list[Array], list[tuple[int, int]]]:
    """The group of each stage's balance, wire and redistribution and of what stays inside, and what
    each needs.
    """
    stages, kind = schedule.stages, KINDS[schedule.kind]
    if not stages:  # only what stays inside servers moves
        return [np.zeros(1, np.int64)] * 4, []
    number = np.arange(max(stages, 1))
    if not kind.barriers:
        zero = np.zeros_like(number)
        return [zero, zero + 1, zero + 2, zero + 1], [(1, 0), (2, 1)]
    wire, after = stages + number, 2 * stages + number
    chain = [(first + s, first + s - 1) for first in (stages, 2 * stages) for s in range(1, stages)]
    chain += [(2 * stages + s, stages + s) for s in range(stages)]
    if kind.overlap == "both":
        chain += [(stages + s, s) for s in range(stages)] + [(s, s - 1) for s in range(1, stages)]
        return [number, wire, after, np.array([3 * stages])], chain
    return [np.zeros_like(number), wire, after, np.array([stages])], [*chain, (stages, 0)]
