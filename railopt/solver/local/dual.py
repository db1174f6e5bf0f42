"""Integer weights that refute capacities C of the rails: all jobs weigh more than the rails hold,

    sum over jobs of w > sum over rails of max { w(load) : size(load) <= C }.

Weights come from Martello and Toth's L2 (1990) and Fekete and Schepers' u(k) (2001), which are dual
feasible functions, or as the prices of the configuration LP (`lp.py`).  The exact knapsack below
decides whether they refute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import kernel, part

PRICING_NODES = 4_000_000  # of the knapsack's search
NODES_A_SECOND = 20_000_000
STAGES = 32  # the largest k of u(k)
WIDE = 2.0**62  # products beyond this are compared in 128 bits
MOST = np.int64(2**63 - 1)
TABLE = 1 << 21  # jobs x capacity up to which a knapsack is solved sum by sum
SUMS_A_NODE = 64  # of these that take as long as a node of the search


@kernel
def known_weights(sizes: Array, rails: int, capacity: int, weights: Array) -> bool:
    """Whether L2 or a u(k) refutes `capacity`; then `weights` int64 [n] says how.

    Sizes descend; rails * capacity and their sum are below 2**62.

        L2:    w(p) = C if p > C - e, p if e <= p <= C - e, else 0, for each size e <= C / 2
        u(k):  w(p) = k p where (k + 1) p is a multiple of C, else C floor((k + 1) p / C)
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
                break
        if total > rails * capacity:
            for i in range(n):
                weights[i] = 0 if i > e else capacity if sizes[i] > capacity - small else sizes[i]
            return True
    largest = MOST // max(sizes.sum(), rails * capacity) - 1  # k beyond which a product might wrap
    for k in range(1, min(STAGES, largest) + 1):
        total = 0
        for i in range(n):
            scaled = (k + 1) * sizes[i]
            weights[i] = k * sizes[i] if scaled % capacity == 0 else scaled // capacity * capacity
            total += weights[i]
        if total > rails * capacity * k:
            return True
    return False


@kernel
def known_bound(sizes: Array, rails: int, low: int, high: int) -> int:
    """The least capacity in [low, high + 1] that bisection with `known_weights` does not refute."""
    weights = np.empty(sizes.size, np.int64)
    while low <= high:
        middle = (low + high) // 2
        if known_weights(sizes, rails, middle, weights):
            low = middle + 1
        else:
            high = middle - 1
    return low


@kernel
def product_at_most(a: int, b: int, c: int, d: int) -> bool:
    """a * b <= c * d, exactly, of integers from 0 to 2**63 - 1: in floats where these are sure,
    else in 128 bits, as (high, low) words of 64.
    """
    left, right = float(a) * float(b), float(c) * float(d)
    if left < right * (1 - 1e-14):
        return True
    if left * (1 - 1e-14) > right:
        return False
    high_left, low_left = _wide_product(np.uint64(a), np.uint64(b))
    high_right, low_right = _wide_product(np.uint64(c), np.uint64(d))
    return high_left < high_right or (high_left == high_right and low_left <= low_right)


@part
def _wide_product(a: Any, b: Any) -> tuple[Any, Any]:
    """(high, low) words uint64 of a product of two uint64."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    low, middle = a_low * b_low, a_high * b_low
    middle += low >> half
    cross = (middle & mask) + a_low * b_high
    return a_high * b_high + (middle >> half) + (cross >> half), (cross << half) | (low & mask)


@kernel
def by_sums(counts: Array, capacity: int, max_nodes: int) -> bool:
    """Whether going through all sums up to `capacity` is cheap, and no dearer than `max_nodes`."""
    work = float(counts.sum()) * float(capacity)
    return work <= min(float(TABLE), float(max_nodes) * SUMS_A_NODE)


@kernel
def smallest_from(sizes: Array) -> Array:
    """int64 [n]: the least of sizes[i:]."""
    least = sizes.copy()
    for i in range(sizes.size - 2, -1, -1):
        least[i] = min(least[i], least[i + 1])
    return least


@kernel
def heaviest_load(
    sizes: Array,
    counts: Array,
    weights: Array,
    capacity: int,
    enough: int,
    max_nodes: int,
    load: Array,
) -> tuple[int, bool]:
    """(weight, complete): the heaviest load within `capacity`, or `enough` where none is heavier.

    Branch and bound over types by falling weight per size: what is left of the capacity is worth at
    most room * weight / size of the next type.  Where that takes longer than going through all
    sums up to the capacity, these decide.  `load` int64 [types] gets the set of a heavier load.
    Complete or not, it is the heaviest found.  Weights together stay below 2**50.
    """
    order = np.argsort(-weights / sizes)
    order = order[weights[order] > 0]
    tabled = by_sums(counts, capacity, max_nodes)
    max_nodes = counts.sum() * capacity // SUMS_A_NODE if tabled else max_nodes
    size_of, worth_of, count_of = sizes[order], weights[order], counts[order]
    taken, smallest = np.zeros(order.size, np.int64), smallest_from(size_of)
    room, weight, best, nodes, i = capacity, 0, enough, 0, 0
    heavy = max(float((weights * counts).sum()), float(enough))
    wide = heavy * max(float(sizes.max()), float(capacity)) >= WIDE / 2
    while True:
        while i < order.size and room >= smallest[i]:  # fill up greedily while it can still win
            at = np.uint64(i)  # unsigned: numba does not ask whether it counts from the end
            size, worth, fitting = size_of[at], worth_of[at], count_of[at]
            if wide:
                if weight <= best and product_at_most(room, worth, best - weight, size):
                    break
            elif weight * size + room * worth <= best * size:
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
            if not tabled:
                return best, False
            return _among_sums(sizes, counts, weights, capacity, best, load), True
        i -= 1
        while i >= 0 and taken[np.uint64(i)] == 0:
            i -= 1
        if i < 0:
            return best, True
        taken[i] -= 1
        room += size_of[i]
        weight -= worth_of[i]
        i += 1


@part
def _among_sums(
    sizes: Array, counts: Array, weights: Array, capacity: int, best: int, load: Array
) -> int:
    """The weight of the heaviest load, by `heaviest_loads`, and its set in `load`; `best` where
    none is heavier.
    """
    heaviest, loads = heaviest_loads(sizes, counts, weights, capacity, best)
    if heaviest.max() > best:
        load[:] = loads[np.argmax(heaviest)]
    return max(best, heaviest.max())


@kernel
def heaviest_loads(
    sizes: Array, counts: Array, weights: Array, capacity: int, enough: int
) -> tuple[Array, Array]:
    """(weights int64 [types], loads int64 [types, types]): for each type the heaviest load of at
    most `capacity` of which it is the last, 0 where that is no heavier than `enough`.

    Job by job over all sums c: best'[c] = max(best[c], best[c - size] + weight).
    """
    jobs, kinds = 0, np.empty(counts.sum(), np.int64)
    for t in range(sizes.size):
        for _ in range(counts[t] if weights[t] > 0 and sizes[t] <= capacity else 0):
            kinds[jobs] = t
            jobs += 1
    best = np.zeros((jobs + 1, capacity + 1), np.int64)
    heaviest, loads = np.zeros(sizes.size, np.int64), np.zeros((sizes.size, sizes.size), np.int64)
    for job in range(jobs):
        last, without, having = kinds[job], best[job], best[job + 1]
        size, weight = sizes[last], weights[last]
        having[:size] = without[:size]
        for c in range(capacity + 1 - size):
            having[size + c] = max(without[size + c], without[c] + weight)
        if without[capacity - size] + weight <= max(enough, heaviest[last]):
            continue
        heaviest[last], room, loads[last] = without[capacity - size] + weight, capacity - size, 0
        loads[last, last] = 1
        for other in range(job - 1, -1, -1):
            if best[other + 1, room] > best[other, room]:
                loads[last, kinds[other]] += 1
                room -= sizes[kinds[other]]
    return heaviest, loads


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
