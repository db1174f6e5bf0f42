"""Assignments in which no rail exceeds its capacity, where there is little or no slack.

`resplit` repairs an assignment: the last rail to be done and another share a pool of their jobs
anew, optimally.  `fill` builds one: rail after rail gets the largest job left and a random set of
others that fills it up; the last rails are left to an exact search (`complete`).
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import below, kernel, part, shuffle
from railopt.solver.local.cover import FOUND, CoverLoads, search
from railopt.solver.local.subsets import POOL, best_subset
from railopt.solver.local.window import (
    classed,
    codes_fit,
    half_sums,
    interleaved,
    list_loads,
)

FILL_LOADS, FILL_STEPS = 32_768, 30_000_000  # of the exact search for the last rails of a filling


@kernel
def resplit(
    sizes: Array,
    capacities: Array,
    speeds: Array,
    rounds: int,
    width: int,
    assignment: Array,
    loads: Array,
    draws: Array,
) -> bool:
    """Re-split the rail that is done last with the first, then with random ones, until none is
    above its capacity; at most `rounds` times, pools of `width` jobs.

    Changes `assignment` int64 [n] and `loads` int64 [rails]; never makes the later of two rails
    later.  Speeds float64 [rails] only choose where to look.
    """
    rails, buffers = loads.size, np.empty((6, 1 << ((width + 1) // 2)), np.int64)
    jobs, pool, failures = np.empty(sizes.size, np.int64), np.empty(width, np.int64), 0
    for _ in range(rounds):
        full = int(np.argmax(loads / speeds))
        if (loads <= capacities).all():
            return True
        other = below(draws, rails) if failures else int(np.argmin(loads / speeds))
        if other == full:
            failures += 1
            continue
        # of two speeds either may be the one that ends just before they would together
        turned = speeds[full] != speeds[other] and below(draws, 2) == 0
        first, second = (other, full) if turned else (full, other)
        both, length = loads[full] + loads[other], 0
        for job in range(sizes.size):
            if assignment[job] == full or assignment[job] == other:
                jobs[length] = job
                length += 1
        shuffle(draws, jobs, length)
        length = min(length, width)
        kept = loads[first]
        for i in range(length):
            pool[i] = sizes[jobs[i]]
            if assignment[jobs[i]] == first:
                kept -= pool[i]
        share = speeds[first] / (speeds[first] + speeds[second])
        most = max(capacities[first], np.int64(np.ceil(both * share)))
        least = both - max(capacities[second], np.int64(np.ceil(both * (1.0 - share))))
        total, mask = best_subset(pool, length, max(0, least - kept), most - kept, buffers)
        before = loads[full] / speeds[full]
        later = max((kept + total) / speeds[first], (both - kept - total) / speeds[second])
        failures = 0 if total >= 0 and later < before else failures + 1
        if failures > 12 * rails:
            return False
        # an equal split is taken too: other jobs give other sums
        if total >= 0 and later <= before:
            for i in range(length):
                assignment[jobs[i]] = first if (mask >> i) & 1 else second
            loads[first], loads[second] = kept + total, both - kept - total
    return bool((loads <= capacities).all())


@part
def fill_with_largest(
    sizes: Array,
    rest: Array,
    capacity: int,
    share: int,
    reserved: int,
    buffers: Array,
    taken: Array,
    draws: Array,
) -> int:
    """Fill a rail with the first, the largest, of the jobs `rest` and a random set of the others
    that wastes at most `share`, the `reserved` smallest left out; marked in `taken` bool [n].
    Returns the waste, -1 where that failed.
    """
    others, pool = rest[1:].copy(), np.empty(POOL, np.int64)
    need, length = capacity - sizes[rest[0]], 0
    shuffle(draws, others, others.size - reserved)
    for job in others[: max(0, others.size - reserved)]:
        if length < POOL and sizes[job] <= need:
            pool[length], others[length] = sizes[job], job
            length += 1
    total, mask = best_subset(pool, length, need - share, need, buffers)
    if total < need - share:
        return -1
    taken[rest[0]] = True
    for i in range(length):
        if (mask >> i) & 1:
            taken[others[i]] = True
    return need - total


@part
def fill_rail(
    sizes: Array,
    rest: Array,
    capacity: int,
    slack: int,
    rails: int,
    buffers: Array,
    taken: Array,
    draws: Array,
) -> int:
    """Fill the first of the `rails` left from the jobs `rest`, by falling size, marked in `taken`;
    returns its waste, -1 where it could not be filled.

    It may waste its even share of the slack that is left, more if that fails, the last but one all
    of it.
    """
    first = 0
    while first < rest.size and sizes[rest[first]] > capacity:
        first += 1
    if first == rest.size:
        return capacity if capacity <= slack else -1
    for attempt in range(12):
        share = slack if rails == 2 else max(slack // rails, slack * (attempt - 5) // 6)
        reserved = rest.size * max(0, 7 - attempt) // 14  # small jobs are worth most at the end
        waste = fill_with_largest(
            sizes, rest[first:], capacity, share, reserved, buffers, taken, draws
        )
        if waste >= 0:
            return waste
    return -1


@kernel
def fill(
    sizes: Array, capacities: Array, keep: int, width: int, draws: Array, assignment: Array
) -> bool:
    """One random attempt at an `assignment` int64 [n] within capacities int64 [rails], in the order
    in which they are filled; whether it succeeded.

    sizes   int64 [n], descending
    keep    rails, the last ones, that are left to the exact search
    width   jobs in a pool whose subsets fill a rail
    """
    buffers, filled = np.empty((6, 1 << ((width + 1) // 2)), np.int64), capacities.size - keep
    rest, taken = np.arange(sizes.size), np.zeros(sizes.size, np.bool_)
    slack = capacities.sum() - sizes.sum()
    for rail in range(filled):
        if rest.size:
            rails, room = capacities.size - rail, capacities[rail]
            waste = fill_rail(sizes, rest, room, slack, rails, buffers, taken, draws)
            if waste < 0:
                return False
            slack -= waste
            left = 0
            for job in rest:
                if taken[job]:
                    assignment[job] = rail
                else:
                    rest[left] = job
                    left += 1
            rest = rest[:left]
    part = np.zeros(rest.size, np.int64)
    if rest.size and not complete(sizes[rest], capacities[filled:], FILL_LOADS, FILL_STEPS, part):
        return False
    for i in range(rest.size):
        assignment[rest[i]] = filled + part[i]
    return True


@kernel
def complete(
    sizes: Array, capacities: Array, max_loads: int, max_steps: int, rail_of: Array
) -> bool:
    """Exact search for an assignment of few jobs within the capacities; gives up beyond its
    limits.
    """
    slack = capacities.sum() - sizes.sum()
    if slack < 0 or capacities.size == 1:
        rail_of[:] = 0
        return slack >= 0
    types, counts = interleaved(sizes)
    if not codes_fit(counts):
        return False
    middle, high = (types.size + 1) // 2, capacities.max()
    left = half_sums(types[:middle], counts[:middle], high, 1 << 17)
    right = half_sums(types[middle:], counts[middle:], high, 1 << 17)
    if left.sums.size == 0 or right.sums.size == 0:
        return False
    distinct, rails, class_of = classed(capacities)
    few, wastes, classes, table = list_loads(left, right, counts, distinct, slack, max_loads)
    if not few or wastes.size == 0:
        return False
    chosen = np.empty(capacities.size, np.int64)
    loads = CoverLoads(types, counts, table, wastes, classes, rails)
    status, _ = search(loads, slack, max_steps, chosen)
    if status == FOUND:
        spread(sizes, types, table, on_rails(chosen, classes, class_of), rail_of)
    return status == FOUND


@kernel
def on_rails(chosen: Array, classes: Array, class_of: Array) -> Array:
    """int64 [rails]: the load of each rail, -1 where it is idle, from those that a cover chose."""
    load_of = np.full(class_of.size, -1, np.int64)
    for load in chosen:
        rail = 0
        while load >= 0 and (load_of[rail] >= 0 or class_of[rail] != classes[load]):
            rail += 1
        if load >= 0:
            load_of[rail] = load
    return load_of


@kernel
def spread(sizes: Array, types: Array, table: Array, chosen: Array, rail_of: Array) -> None:
    """The rail of each job from the loads that a cover chose, one per rail."""
    for t in range(types.size):
        job = 0
        for rail in range(chosen.size):
            if chosen[rail] >= 0:
                for _ in range(table[chosen[rail], t]):
                    while sizes[job] != types[t]:
                        job += 1
                    rail_of[job] = rail
                    job += 1
