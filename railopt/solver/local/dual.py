"""Integer weights that refute a capacity: all jobs weigh more than N rails of that capacity can
hold.

Weights come from Martello and Toth's L2 (1990) and Fekete and Schepers' u(k) (2001), which are dual
feasible functions,
or as the prices of the configuration LP (`lp.py`).  The exact knapsack below decides whether they
refute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
PRICING_NODES = 4_000_000


@njit(cache=True)
def known_weights(sizes: Any, rails: int, capacity: int, weights: Any) -> bool:
    """Whether L2 or a u(k) refutes `capacity`; then `weights` int64 [n] says how.  Sizes
    descend.
    """
    n = sizes.size
    for e in range(n - 1, -1, -1):
        small = sizes[e]
        if 2 * small > capacity:
            break
        total = 0
        for i in range(e + 1):
            total += capacity if sizes[i] > capacity - small else sizes[i]
        if total > rails * capacity:
            for i in range(n):
                weights[i] = 0 if i > e else capacity if sizes[i] > capacity - small else sizes[i]
            return True
    for k in range(1, 33):
        total = 0
        for i in range(n):
            scaled = (k + 1) * sizes[i]
            weights[i] = k * sizes[i] if scaled % capacity == 0 else scaled // capacity * capacity
            total += weights[i]
        if total > rails * capacity * k:
            return True
    return False


@njit(cache=True)
def known_bound(sizes: Any, rails: int, low: int, high: int) -> int:
    """The least capacity in [low, high + 1] that bisection with `known_weights` does not refute."""
    weights = np.empty(sizes.size, np.int64)
    while low <= high:
        middle = (low + high) // 2
        if known_weights(sizes, rails, middle, weights):
            low = middle + 1
        else:
            high = middle - 1
    return low


@njit(cache=True)
def heaviest_load(
    sizes: Any, counts: Any, weights: Any, capacity: int, enough: int, max_nodes: int, load: Any
) -> Any:
    """(weight, complete): the heaviest load of at most `capacity`, or `enough` where none is
    heavier.

    Branch and bound over types by falling weight per size; `load` int64 [types] gets the set of a
    heavier load. The search ends early, complete or not, once it has found one.
    """
    order = np.argsort(-weights / sizes)
    while order.size and weights[order[-1]] == 0:
        order = order[:-1]
    taken = np.zeros(order.size, np.int64)
    room, weight, best, nodes, i = capacity, 0, enough, 0, 0
    while True:
        while i < order.size:  # fill up greedily while it can still win
            t = order[i]
            if weight * sizes[t] + room * weights[t] <= best * sizes[t]:
                break
            taken[i] = min(counts[t], room // sizes[t])
            room -= taken[i] * sizes[t]
            weight += taken[i] * weights[t]
            i += 1
        if weight > best:
            best = weight
            load[:] = 0
            for k in range(i):
                load[order[k]] = taken[k]
        nodes += 1
        if nodes > max_nodes:
            return best, False
        i -= 1
        while i >= 0 and taken[i] == 0:
            i -= 1
        if i < 0:
            return best, True
        t = order[i]
        taken[i] -= 1
        room += sizes[t]
        weight -= weights[t]
        i += 1


def refuting_weights(sizes: Ints, counts: Ints, weights: Ints, rails: int, capacity: int) -> bool:
    """Whether these weights of the types refute the capacity (exact; False also where the search is
    too long).
    """
    total = int((weights * counts).sum())
    if total <= 0:
        return False
    weight, complete = heaviest_load(
        sizes,
        counts,
        weights,
        capacity,
        (total - 1) // rails,
        PRICING_NODES,
        np.zeros(len(sizes), np.int64),
    )
    return bool(complete and weight * rails < total)
