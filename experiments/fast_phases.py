"""A schedule as flows over ports with dependencies: its phases run one by one on the simulator.

`simulate(schedule.plan())` lets every chunk cross scale-up and rail at once (cut-through), which is
what the pipelined kind does.  FAST and its ablation store and forward: bytes rest on a proxy GPU
between balance, wire and redistribution.  Here each of these is a flow of its own:
`simulate(phases(schedule))`.

Ports: transmit NICs (node * rails + rail), receive NICs, then out of each GPU's scale-up link, then
into it.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError
from railopt.schedule import KINDS, Schedule
from railopt.sim import Flows


def phases(schedule: Schedule, *, alpha_out_ps: int = 0) -> Flows:
    """The flows of a schedule that stores and forwards (every kind but pipelined, which has no
    phases).  A group is balance, wire or redistribution of a stage, or what stays inside servers;
    tracks are rails, and behind them one for scale-up.
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
    return Flows(
        np.concatenate([fabric.tx.ravel(), fabric.rx.ravel(), np.full(2 * count, fabric.scaleup)]),
        2 * np.arange(len(wire) + 1),
        path.T.ravel().astype(np.int32),
        np.concatenate([bytes_ for _, bytes_, _ in columns]),
        latency_ps=np.where(wire, alpha_out_ps, 0),
        group=np.concatenate([group for _, _, group in columns]).astype(np.int32),
        needs=np.array(needs, np.int32).reshape(-1, 2),
        track=np.where(wire, path[0] % rails, rails).astype(np.int32),
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
