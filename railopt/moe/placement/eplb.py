"""EPLB as DeepSeek describes it (github.com/deepseek-ai/EPLB), plainly: what planners are held
against.

    groups on nodes   heaviest group first to the lightest node with room
    replicas          each further one to the expert with the largest load a replica
    GPUs              heaviest replica first to the lightest GPU with room

Two replicas of one expert may share a GPU, so that the result is a map and no `Placement`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Floats, Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.placement.packing import check, loads_of


def eplb(weight: npt.ArrayLike, replicas: int, groups: int, nodes: int, gpus: int) -> Int32s:
    """phy2log int32 [layers, replicas], slots in GPU order, of loads weight [layers, experts];
    `gpus` counts all GPUs and divides `replicas`.

    Groups that do not divide the experts, or nodes that do not divide the groups: the global
    policy, which knows neither.
    """
    loads = loads_of(weight)
    check(loads.shape[1], replicas, groups, nodes, gpus)
    if replicas % gpus:
        raise InputError(f"{replicas} replicas on {gpus} GPUs: EPLB puts the same number on each")
    if loads.shape[1] % groups or groups % nodes or replicas % nodes:
        groups = nodes = 1
    return np.stack([_layer(row, replicas, groups, nodes, gpus) for row in loads])


def _layer(load: Floats, replicas: int, groups: int, nodes: int, gpus: int) -> Int32s:
    node_of = _pack(load.reshape(groups, -1).sum(axis=1), nodes).repeat(len(load) // groups)
    parts = []
    for node in range(nodes):
        mine = np.flatnonzero(node_of == node)
        count = np.ones(len(mine), np.int64)
        for _ in range(replicas // nodes - len(mine)):
            count[np.argmax(load[mine] / count)] += 1
        replica = np.repeat(np.arange(len(mine)), count)
        where = _pack((load[mine] / count)[replica], gpus // nodes)
        parts.append(mine[replica[np.argsort(where, kind="stable")]])
    return np.concatenate(parts).astype(np.int32)


def _pack(loads: Floats, bins: int) -> Ints:
    """int64 [items]: the bin of each, the same number in every bin."""
    where, total = np.empty(len(loads), np.int64), np.zeros(bins)
    free = np.full(bins, len(loads) // bins)
    for item in np.argsort(-loads, kind="stable"):
        lightest = int(np.argmin(total))
        where[item] = lightest
        total[lightest] += loads[item]
        free[lightest] -= 1
        if not free[lightest]:
            total[lightest] = np.inf
    return where
