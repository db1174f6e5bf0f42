"""Perfect packing: assignments in which no rail exceeds a given capacity, when there is little or no slack.

`resplit` repairs an assignment: the fullest rail and another share a pool of their jobs anew, optimally.
`fill_rails` builds one: rail after rail gets the largest job left and a random set of others that fills it up; the
last few rails, which decide, are left to an exact search (`fit`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from railopt.solver.local.cover import FOUND, search
from railopt.solver.local.subsets import POOL, best_subset, shuffle
from railopt.solver.local.window import codes_fit, count_window, half_sums, interleaved, list_window


@njit(cache=True)
def resplit(sizes: Any, assignment: Any, loads: Any, target: int, rounds: int, width: int) -> bool:
    """Re-split the fullest rail with the emptiest, then with random ones, until none exceeds `target`.

    width: jobs in a pool.  Changes `assignment` and `loads`; never makes the fuller of two rails fuller.
    """
    rails, buffers = loads.size, np.empty((6, 1 << ((width + 1) // 2)), np.int64)
    jobs, pool, failures = np.empty(sizes.size, np.int64), np.empty(width, np.int64), 0
    for _ in range(rounds):
        full = np.argmax(loads)
        if loads[full] <= target:
            return True
        other = np.argmin(loads) if failures == 0 else np.random.randint(0, rails)
        if other == full:
            failures += 1
            continue
        both, length = loads[full] + loads[other], 0
        for job in range(sizes.size):
            if assignment[job] == full or assignment[job] == other:
                jobs[length] = job
                length += 1
        shuffle(jobs, length)
        length = min(length, width)
        kept = loads[full]
        for i in range(length):
            pool[i] = sizes[jobs[i]]
            if assignment[jobs[i]] == full:
                kept -= pool[i]
        goal = max(target, (both + 1) // 2)
        total, mask = best_subset(pool, length, max(0, both - goal - kept), goal - kept, buffers)
        fuller = max(kept + total, both - kept - total)
        failures = 0 if total >= 0 and fuller < loads[full] else failures + 1
        if failures > 12 * rails:
            return False
        if total >= 0 and fuller <= loads[full]:  # an equal split is taken too: other jobs give other sums
            for i in range(length):
                assignment[jobs[i]] = full if (mask >> i) & 1 else other
            loads[full], loads[other] = kept + total, both - kept - total
    return loads.max() <= target


@njit(cache=True)
def fill_rails(sizes: Any, rails: int, capacity: int, keep: int, width: int, assignment: Any, rest: Any) -> Any:
    """(jobs left in `rest`, slack left), after filling all but `keep` rails; -1 jobs where a rail could not be filled.

    A rail may waste its even share of the slack that is left, more if that fails, the last but one all of it.
    """
    buffers = np.empty((6, 1 << ((width + 1) // 2)), np.int64)
    left, slack = sizes.size, rails * capacity - sizes.sum()
    pool, places = np.empty(POOL, np.int64), np.empty(sizes.size, np.int64)
    taken = np.zeros(sizes.size, np.bool_)
    for i in range(left):
        rest[i] = i
    for rail in range(rails - keep):
        done = False
        for attempt in range(12):
            taken[:left] = False
            taken[0] = True
            need = capacity - sizes[rest[0]]
            if need < 0:
                return -1, slack
            for i in range(left - 1):
                places[i] = i + 1
            shuffle(places, left - 1)
            share = slack if rails - rail == 2 else max(slack // (rails - rail), slack * (attempt - 5) // 12)
            length, reserved = 0, left * max(0, 7 - attempt) // 14  # small jobs are worth most on the last rails
            for i in range(left - 1):
                if length < POOL and places[i] < left - reserved and not taken[places[i]] and sizes[rest[places[i]]] <= need:
                    pool[length] = sizes[rest[places[i]]]
                    places[length] = places[i]
                    length += 1
            total, mask = best_subset(pool, length, need - share, need, buffers)
            if total >= need - share:
                for i in range(length):
                    if (mask >> i) & 1:
                        taken[places[i]] = True
                slack -= need - total
                done = True
                break
        if not done:
            return -1, slack
        k = 0
        for i in range(left):
            if taken[i]:
                assignment[rest[i]] = rail
            else:
                rest[k] = rest[i]
                k += 1
        left = k
        if left == 0:
            return 0, slack
    return left, slack


@njit(cache=True)
def complete(sizes: Any, rails: int, capacity: int, max_loads: int, max_steps: int, rail_of: Any) -> bool:
    """Exact search for an assignment of few jobs within `capacity`; gives up beyond its limits."""
    slack = rails * capacity - sizes.sum()
    if slack < 0 or rails == 1:
        rail_of[:] = 0
        return slack >= 0
    types, counts = interleaved(sizes)
    if not codes_fit(counts):
        return False
    middle = (types.size + 1) // 2
    sums_a, codes_a = half_sums(types[:middle], counts[:middle], capacity, 1 << 17)
    sums_b, codes_b = half_sums(types[middle:], counts[middle:], capacity, 1 << 17)
    if sums_a.size == 0 or sums_b.size == 0:
        return False
    low = max(1, capacity - slack)
    found = count_window(sums_a, sums_b, low, capacity, max_loads)
    if found > max_loads or found == 0:
        return False
    sums, table = list_window(sums_a, codes_a, sums_b, codes_b, counts, low, capacity, found)
    order, chosen = np.argsort(capacity - sums, kind="mergesort"), np.empty(rails, np.int64)
    table = table[order]
    wastes, one_class = (capacity - sums)[order], np.zeros(found, np.int64)
    status, _ = search(table, wastes, one_class, counts, np.array([rails]), slack, max_steps, chosen)
    if status == FOUND:
        spread(sizes, types, table, chosen, rail_of)
    return status == FOUND


@njit(cache=True)
def spread(sizes: Any, types: Any, table: Any, chosen: Any, rail_of: Any) -> None:
    """The rail of each job from the loads that a cover chose, one a rail."""
    for t in range(types.size):
        job = 0
        for rail in range(chosen.size):
            if chosen[rail] >= 0:
                for _ in range(table[chosen[rail], t]):
                    while sizes[job] != types[t]:
                        job += 1
                    rail_of[job] = rail
                    job += 1


@njit(cache=True)
def fit(sizes: Any, rails: int, capacity: int, keep: int, width: int, rounds: int, assignment: Any) -> bool:
    """Random fillings of all but `keep` rails, the others searched exactly; True with an `assignment` within capacity."""
    rest, part = np.empty(sizes.size, np.int64), np.empty(sizes.size, np.int64)
    for _ in range(rounds):
        left, slack = fill_rails(sizes, rails, capacity, keep, width, assignment, rest)
        if left < 0 or slack < 0:
            continue
        if left == 0 or complete(sizes[rest[:left]], keep, capacity, 32_768, 30_000_000, part):
            for i in range(left):
                assignment[rest[i]] = rails - keep + part[i]
            return True
    return False
