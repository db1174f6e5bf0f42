"""EPLB's interface (github.com/deepseek-ai/EPLB): load of each expert -> where its replicas go, or
which of them move in a map that is there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Int32s
from railopt.base.errors import InputError
from railopt.base.kernels import kernel
from railopt.moe.placement.packing import check, loads_of, packed
from railopt.moe.placement.repair import FEW, FewMoves, repaired_map


def rebalance(
    weight: npt.ArrayLike,
    replicas: int,
    groups: int,
    nodes: int,
    gpus: int,
    old: npt.ArrayLike | None = None,
    few: FewMoves = FEW,
) -> tuple[Int32s, Int32s, Int32s]:
    """Where replicas go.

    weight    [layers, experts], any load statistic, none negative
    replicas  physical experts per layer, from `experts` to `experts * gpus`
    groups    expert groups that stay on one node each (hierarchical).  Where they do not divide the
              experts, or the nodes not the groups, or the GPUs not the replicas, or a node would
              hold an expert twice on a GPU: the global policy, which knows neither
    nodes     nodes; `gpus` counts all GPUs, as EPLB does
    old       int [layers, replicas], beyond EPLB's interface: the map that is there, -1 for an
              empty slot, which is then repaired with few moves
    few       how far it is repaired

    Returns phy2log int32 [layers, replicas] (slots in GPU order), log2phy int32 [layers, experts,
    most copies] padded with -1, and logcnt int32 [layers, experts].

        >>> from railopt.moe.placement.replicate import rebalance
        >>> loads = [[90, 10, 20, 40]]
        >>> phy2log, _, logcnt = rebalance(loads, replicas=6, groups=1, nodes=1, gpus=2)
        >>> phy2log.tolist(), logcnt.tolist()
        ([[0, 3, 2, 0, 3, 1]], [[2, 1, 1, 2]])
    """
    loads = loads_of(weight)
    experts = loads.shape[1]
    check(experts, replicas, groups, nodes, gpus)
    if replicas > experts * gpus:
        raise InputError(
            f"{replicas} replicas of {experts} experts on {gpus} GPUs: at most {experts * gpus}, "
            f"since no GPU holds an expert twice"
        )
    sizes = replicas, groups, nodes, gpus
    phy2log = packed(loads, *sizes) if old is None else repaired_map(loads, old, sizes, few)
    log2phy, logcnt = _inverse(phy2log, experts)
    return phy2log, log2phy, logcnt


@kernel
def _inverse(phy2log: Int32s, experts: int) -> tuple[Int32s, Int32s]:
    """log2phy and logcnt."""
    layers, replicas = phy2log.shape
    logcnt = np.zeros((layers, experts), np.int32)
    for layer in range(layers):
        for slot in range(replicas):
            logcnt[layer, phy2log[layer, slot]] += 1
    log2phy, copy = np.full((layers, experts, logcnt.max()), -1, np.int32), np.zeros_like(logcnt)
    for layer in range(layers):
        for slot in range(replicas):
            expert = phy2log[layer, slot]
            log2phy[layer, expert, copy[layer, expert]] = slot
            copy[layer, expert] += 1
    return log2phy, logcnt
