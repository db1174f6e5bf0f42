"""Integer weights that refute capacities C of the rails: all jobs weigh more than the rails hold,

    sum over jobs of w > sum over rails of max { w(load) : size(load) <= C }.

Weights are the prices of the configuration LP (`lp.py`), rounded.  The exact knapsack below decides
whether they refute.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import SearchLimit, kernel

PRICING_NODES = 4_000_000  # of the knapsack's search
NODES_A_SECOND = 20_000_000
SURE = 1 - 1e-9  # a product in floats that is less by this factor is less indeed


@kernel
def smallest_from(sizes: Array) -> Array:
    """int64 [n]: the least of sizes[i:]."""
    least = sizes.copy()
    for i in range(sizes.size - 2, -1, -1):
        least[i] = min(least[i], least[i + 1])
    return least


@kernel(search=SearchLimit(5, 10_000, lambda found: not found[1]))
def heaviest_load(
    sizes: Array,
    counts: Array,
    weights: Array,
    capacity: int,
    enough: int,
    max_nodes: int,
    load: Array,
) -> tuple[int, bool]:
    """(weight, complete): the heaviest load within `capacity`, or `enough` where none is heavier;
    the heaviest found where `max_nodes` were not enough.

    Branch and bound over types by falling weight per size: what is left of the capacity is worth at
    most room * weight / size of the next type, in floats with a margin beyond their rounding, so
    that no load is lost.  `load` int64 [types] gets the set of a heavier load.  Weights together
    stay below 2**50.
    """
    order = np.argsort(-weights / sizes, kind="mergesort")
    order = order[weights[order] > 0]
    density = weights[order] / sizes[order]
    size_of, worth_of, count_of = sizes[order], weights[order], counts[order]
    taken, smallest = np.zeros(order.size, np.int64), smallest_from(size_of)
    room, weight, best, nodes, i = capacity, 0, enough, 0, 0
    while True:
        while i < order.size and room >= smallest[i]:  # fill up greedily while it can still win
            at = np.uint64(i)  # unsigned: numba does not ask whether it counts from the end
            size, worth, fitting = size_of[at], worth_of[at], count_of[at]
            if room * density[at] < (best - weight + 1) * SURE:
                break
            if fitting * size > room:  # a division takes as long as all the rest
                fitting = room // size if fitting > 1 else 0
            taken[at] = fitting
            room -= fitting * size
            weight += fitting * worth
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
        while i >= 0 and taken[np.uint64(i)] == 0:
            i -= 1
        if i < 0:
            return best, True
        taken[i] -= 1
        room += size_of[i]
        weight -= worth_of[i]
        i += 1


def refuting_weights(
    sizes: Ints, counts: Ints, weights: Ints, rails: Ints, capacities: Ints, left_s: float
) -> bool:
    """Whether these weights of the types refute that rails[k] rails of capacities[k] hold all jobs
    (exact; False also where the search is too long, for itself or for the seconds left).
    """
    left, load = int((weights * counts).sum()), np.zeros(len(sizes), np.int64)
    nodes = min(PRICING_NODES, int(NODES_A_SECOND * max(left_s, 0.0) / len(rails)))
    for k in range(len(rails) - 1, -1, -1):
        if left <= 0:
            return False
        # the first class, which comes last, may hold whatever the others leave
        enough = (left - 1) // int(rails[0]) if k == 0 else 0
        weight, complete = heaviest_load(
            sizes, counts, weights, int(capacities[k]), enough, nodes, load
        )
        if not complete:
            return False
        left -= int(weight) * int(rails[k])
    return left > 0
