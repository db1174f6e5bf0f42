"""Two rails of a node share many of their chunks anew, to the last byte where that can be.

A walk of moves and swaps ends near the capacities; what is then left is a matter of sums.  Of the
chunks that two rails of a node carry, some are drawn, and meeting in the middle finds those whose
sum brings both rails within their capacities (`best_subset`).  The far ends, which mostly have room
to spare, only judge what is found.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import below, kernel, part, seeded
from railopt.solver.coupled.search_kernels import (
    Cell,
    SearchState,
    Walk,
    draw,
    far_change,
    put,
    shift,
    worst,
)
from railopt.solver.local.subsets import best_subset

DRAWN = 24  # chunks that two rails share: 2 ** 12 sums on each side of the middle


@kernel
def resplit(state: SearchState, rounds: int, seed: int) -> None:
    """Relieve overloaded cells in at most `rounds` rounds, each of which lets one of them and
    another rail of its node share some of their chunks anew; none costs.
    """
    nodes = state.load.shape[1]
    walk = Walk(
        np.zeros(state.size.size, np.int32),
        np.empty(DRAWN, np.int32),
        np.empty(nodes, np.int64),
        np.zeros(nodes, np.int64),
        seeded(seed),
    )
    pool, buffers = np.empty(DRAWN, np.int64), np.empty((6, 1 << (DRAWN // 2)), np.int64)
    for _ in range(rounds):
        most, cell = worst(state, walk.draws, True)
        if most <= 0:
            return
        rails = state.load.shape[2]
        there = (cell.rail + 1 + below(walk.draws, max(rails - 1, 1))) % rails
        if there != cell.rail and state.weight[cell.side, cell.node, there] > 0:
            chosen = walk.chosen[: draw(state, walk, cell, there)]
            _share(state, walk, cell, there, chosen, pool, buffers)


@part
def _share(
    state: SearchState,
    walk: Walk,
    cell: Cell,
    there: int,
    chosen: Array,
    pool: Array,
    buffers: Array,
) -> None:
    """Let the chosen chunks change between `cell.rail` and `there` as best meets their capacities,
    unless that costs.
    """
    side, node, here = cell
    size, rail = state.size, state.rail
    kept = state.load[side, node, here]
    for i in range(chosen.size):
        pool[i] = size[chosen[i]]
        if rail[chosen[i]] == here:
            kept -= pool[i]
    low, high = _window(state, cell, there)
    total, mask = best_subset(pool, chosen.size, low - kept, high - kept, buffers)
    if total < 0:
        return
    for i in range(chosen.size):  # the mask of those that lie here becomes that of those that move
        if rail[chosen[i]] == here:
            mask ^= np.int64(1) << i
    change = shift(state, side, node, here, there, state.load[side, node, here] - kept - total)
    if change + far_change(state, walk, cell, there, chosen, mask) <= 0:
        for i in range(chosen.size):
            if (mask >> i) & 1:
                put(state, chosen[i], there if rail[chosen[i]] == here else here)


@part
def _window(state: SearchState, cell: Cell, there: int) -> tuple[int, int]:
    """The bytes, from and to, with which neither `cell.rail` nor `there` is overloaded; where they
    are too many, what overloads both by the same weight.
    """
    side, node, here = cell
    load, capacity, weight = state.load[side, node], state.capacity[side, node], state.weight
    high, low = capacity[here], load[here] + load[there] - capacity[there]
    if low > high:
        share = weight[side, node, there] / (weight[side, node, here] + weight[side, node, there])
        high += np.int64((low - high) * share)
        low = high
    return low, high
