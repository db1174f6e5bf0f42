"""EPLB's documented steps, plainly: what `replicate` is held against, in a test and in a
benchmark.
"""

from __future__ import annotations

import numpy as np


def pack(loads: np.ndarray, bins: int) -> np.ndarray:
    """Heaviest first to the lightest bin with room, the same number in each."""
    where, total, free = (
        np.empty(len(loads), int),
        np.zeros(bins),
        np.full(bins, len(loads) // bins),
    )
    for i in np.argsort(-loads, kind="stable"):
        target = min(np.flatnonzero(free), key=lambda b: total[b])
        where[i], total[target], free[target] = target, total[target] + loads[i], free[target] - 1
    return where


def plain_eplb(
    row: np.ndarray, replicas: int, groups: int, nodes: int, gpus: int
) -> tuple[float, int]:
    """(max/mean, duplicates on a GPU) for one layer: pack groups on nodes, replicate the heaviest,
    pack replicas on GPUs.
    """
    groups, parts = (groups, nodes) if groups % nodes == 0 else (1, 1)
    node_of = pack(row.reshape(groups, -1).sum(axis=1), parts).repeat(len(row) // groups)
    loads, twins = [], 0
    for part in range(parts):
        mine = row[node_of == part]
        count = np.ones(len(mine), int)
        for _ in range(replicas // parts - len(mine)):
            count[np.argmax(mine / count)] += 1
        expert = np.repeat(np.arange(len(mine)), count)
        where = pack((mine / count)[expert], gpus // parts)
        loads += np.bincount(where, weights=(mine / count)[expert]).tolist()
        twins += len(expert) - len(set(zip(where.tolist(), expert.tolist(), strict=True)))
    return max(loads) / float(np.mean(loads)), twins
