"""Perfect packing: assignments in which no rail exceeds its capacity, when there is little or no
slack.

`resplit` repairs an assignment: the last rail to be done and another share a pool of their jobs
anew, optimally. `fill_rails` builds one: rail after rail gets the largest job left and a random set
of others that fills it up, or as few others as do (`few_more`), so that many are left for the last
rails; these decide, and are left to an exact search (`fit`).  The filling has by then used up what
fits best, so it is only where a walk begins: filled rails exchange their jobs for those left, and
the last ones are searched again and again.

Callers see to it that the capacities together stay below 2**62, so that no sum here wraps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.solver.local.cover import FOUND, Loads, search
from railopt.solver.local.subsets import POOL, best_subset, shuffle
from railopt.solver.local.window import (
    Bounds,
    classed,
    codes_fit,
    half_sums,
    interleaved,
    list_loads,
)

PAIRS = 0.75  # of the rails beside caps, where two jobs are tried before three
WALK = 2  # exchanges of each filled rail on a walk, on average


class Sharing(NamedTuple):
    """Whose loads are re-split, and until when: no rail above `capacities` int64 [rails].

    sizes    int64 [n];  speeds float64 [rails], which only choose where to look
    rounds   re-splits at most;  width: jobs in a pool
    """

    sizes: Array
    capacities: Array
    speeds: Array
    rounds: int
    width: int


@kernel
def resplit(sharing: Sharing, assignment: Array, loads: Array) -> bool:
    """Re-split the rail that is done last with the first, then with random ones, until none is
    above its capacity.

    Changes `assignment` and `loads`; never makes the later of two rails later.
    """
    sizes, capacities, speeds, width = (
        sharing.sizes,
        sharing.capacities,
        sharing.speeds,
        sharing.width,
    )
    rails, buffers = loads.size, np.empty((6, 1 << ((width + 1) // 2)), np.int64)
    jobs, pool, failures = np.empty(sizes.size, np.int64), np.empty(width, np.int64), 0
    for _ in range(sharing.rounds):
        full = int(np.argmax(loads / speeds))
        if (loads <= capacities).all():
            return True
        other = np.random.randint(0, rails) if failures else int(np.argmin(loads / speeds))
        if other == full:
            failures += 1
            continue
        # of two speeds either may be the one that ends just before they would together
        turned = speeds[full] != speeds[other] and np.random.random() < 0.5
        first, second = (other, full) if turned else (full, other)
        both, length = loads[full] + loads[other], 0
        for job in range(sizes.size):
            if assignment[job] == full or assignment[job] == other:
                jobs[length] = job
                length += 1
        shuffle(jobs, length)
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
def few_more(sizes: Array, jobs: Array, count: int, need: int, share: int, taken: Array) -> int:
    """`need` less the sum of two, else three, of jobs[:count] that fill it but for `share`; -1
    where none do.

    Sizes fall.  Marks them as `taken`: a random choice that likes large ones.
    """
    best, waste, first, second, third = -1.0, -1, -1, -1, -1
    for i in range(-1, count - 2):
        room, j, k = need if i < 0 else need - sizes[jobs[i]], i + 1, count - 1
        while j < k:
            total = sizes[jobs[j]] + sizes[jobs[k]]
            if total > room:
                j += 1
                continue
            if total >= room - share:
                score = sizes[jobs[k]] * (0.5 + np.random.random())
                if score > best:
                    best, waste, first, second, third = score, room - total, i, j, k
            k -= 1
        if i < 0 and best >= 0.0:
            break
    if waste >= 0:
        taken[jobs[second]] = taken[jobs[third]] = True
        if first >= 0:
            taken[jobs[first]] = True
    return waste


class Filling(NamedTuple):
    """What is to be filled, and how.

    sizes       int64 [n], descending
    capacities  int64 [rails], in the unit of the sizes, in the order in which they are filled
    keep        rails, the last ones, that are left to the exact search
    width       jobs in a pool whose subsets fill a rail
    sparse      with few jobs a rail where possible
    cap         where most jobs are of one size, that: such jobs are not what is scarce; else 0
    """

    sizes: Array
    capacities: Array
    keep: int
    width: int
    sparse: bool
    cap: int


class Scratch(NamedTuple):
    """The buffers of one filling: `rest` int64 [n], the jobs left, first `left` of them, largest
    first; `taken` bool [n], those chosen for the rail at work.
    """

    rest: Array
    taken: Array
    places: Array
    pool: Array
    buffers: Array


@part
def scratch_of(filling: Filling) -> Scratch:
    """Buffers, with all jobs left."""
    jobs = filling.sizes.size
    return Scratch(
        np.arange(jobs),
        np.zeros(jobs, np.bool_),
        np.empty(jobs, np.int64),
        np.empty(POOL, np.int64),
        np.empty((6, 1 << ((filling.width + 1) // 2)), np.int64),
    )


class Room(NamedTuple):
    """A rail to be filled from `rest[first:left]`, the jobs left that fit at all: its capacity, and
    what it may waste.
    """

    first: int
    left: int
    capacity: int
    share: int


@part
def fill_sparsely(filling: Filling, scratch: Scratch, room: Room, attempt: int) -> int:
    """Fill a rail with few of the jobs left, marked as `taken`; returns what it wastes, -1 where
    that failed.

    The first two attempts take any jobs, since two or three that fill a rail are rare.  The others
    set the largest, and the next ones as far as three others could not do without; those after two
    of them a random one besides.
    """
    sizes, rest, taken, jobs = filling.sizes, scratch.rest, scratch.taken, scratch.places
    need, head, count, left = room.capacity, room.first, 0, room.left
    while (
        attempt > 1
        and head < left
        and (head == room.first or (head + 2 < left and need > sizes[rest[head : head + 3]].sum()))
    ):
        need -= sizes[rest[head]]
        taken[rest[head]] = True
        head += 1
    if attempt > 3 and head < left:
        extra = rest[np.random.randint(head, left)]
        need -= sizes[extra]
        taken[extra] = True
    for job in rest[head:left]:
        if not taken[job] and sizes[job] <= need:
            jobs[count] = job
            count += 1
    waste = few_more(sizes, jobs, count, need, room.share if attempt % 2 else 0, taken)
    if waste < 0:
        taken[:] = False
    return waste


@part
def fill_beside_caps(filling: Filling, scratch: Scratch, room: Room) -> int:
    """Fill a rail with caps and two of the other jobs left, now and then or where none can with
    three, marked as `taken`; returns what it wastes, -1 where that failed.

    It wastes no more than a random part of its share, which is all slack that is left: to the last
    rails a job more is worth more than a unit of slack.
    """
    sizes, cap, taken, jobs = filling.sizes, filling.cap, scratch.taken, scratch.places
    count, caps = 0, 0
    for job in scratch.rest[room.first : room.left]:
        if sizes[job] == cap:
            caps += 1
        else:
            jobs[count] = job
            count += 1
    share, best, waste, own = np.random.randint(0, room.share + 1), 1.0, -1, 0
    first, second, third = -1, -1, -1
    for i in range(-1 if np.random.random() < PAIRS else 0, count):
        if i == 0 and waste >= 0:
            break
        for j in range(i + 1, count):
            need = room.capacity - sizes[jobs[j]] - (sizes[jobs[i]] if i >= 0 else 0)
            for k in range(j + 1, count):
                left = need - sizes[jobs[k]]
                if left >= 0 and left % cap <= share and left // cap <= caps:
                    score = np.random.random()
                    if score < best:
                        best, waste, own = score, left % cap, left // cap
                        first, second, third = i, j, k
    if waste >= 0:
        taken[jobs[second]] = taken[jobs[third]] = True
        if first >= 0:
            taken[jobs[first]] = True
    for job in scratch.rest[room.first : room.left]:
        if own > 0 and sizes[job] == cap:
            taken[job] = True
            own -= 1
    return waste


@part
def fill_fully(filling: Filling, scratch: Scratch, room: Room, reserved: int) -> int:
    """Fill a rail with the largest job left and a random set of others that wastes at most its
    share, the `reserved` smallest left out; marked as `taken`.  Returns the waste, -1 where that
    failed.
    """
    sizes, rest, places, pool = filling.sizes, scratch.rest, scratch.places, scratch.pool
    largest, others = rest[room.first], room.left - room.first - 1
    need, length = room.capacity - sizes[largest], 0
    for i in range(others):
        places[i] = rest[room.first + 1 + i]
    shuffle(places, others - reserved)
    for job in places[: max(0, others - reserved)]:
        if length < POOL and sizes[job] <= need:
            pool[length], places[length] = sizes[job], job
            length += 1
    total, mask = best_subset(pool, length, need - room.share, need, scratch.buffers)
    if total < need - room.share:
        return -1
    scratch.taken[largest] = True
    for i in range(length):
        if (mask >> i) & 1:
            scratch.taken[places[i]] = True
    return need - total


@part
def fill_rail(filling: Filling, scratch: Scratch, left: int, slack: int, rail: int) -> int:
    """Fill a rail, sparsely where asked for and possible; returns its waste, -1 where it could not
    be filled.

    It may waste its even share of the slack that is left, more if that fails, the last but one all
    of it.
    """
    capacity, rails = filling.capacities[rail], filling.capacities.size - rail
    even, first = slack // rails, 0
    while first < left and filling.sizes[scratch.rest[first]] > capacity:
        first += 1
    if first == left:
        return capacity if capacity <= slack else -1
    if filling.cap:
        waste = fill_beside_caps(filling, scratch, Room(first, left, capacity, slack))
        if waste >= 0:
            return waste
    elif filling.sparse:
        for attempt in range(24):
            share = -(-slack // rails) if attempt == 1 else even  # rounded up for these few
            waste = fill_sparsely(filling, scratch, Room(first, left, capacity, share), attempt)
            if waste >= 0:
                return waste
    for attempt in range(12):
        sixths = attempt - 5  # slack * sixths // 6, without a product that could wrap
        share = slack if rails == 2 else max(even, slack // 6 * sixths + slack % 6 * sixths // 6)
        reserved = left * max(0, 7 - attempt) // 14  # small jobs are worth most on the last rails
        waste = fill_fully(filling, scratch, Room(first, left, capacity, share), reserved)
        if waste >= 0:
            return waste
    return -1


@part
def fill_rails(filling: Filling, scratch: Scratch, assignment: Array) -> tuple[int, int]:
    """(jobs left, first in `scratch.rest`; slack left), after filling all but `keep` rails; -1 jobs
    where a rail could not be filled.
    """
    sizes, rest, taken = filling.sizes, scratch.rest, scratch.taken
    left, slack = sizes.size, filling.capacities.sum() - sizes.sum()
    for i in range(left):
        rest[i] = i
    for rail in range(filling.capacities.size - filling.keep):
        if left == 0:
            break
        waste = fill_rail(filling, scratch, left, slack, rail)
        if waste < 0:
            return -1, slack
        slack -= waste
        k = 0
        for job in rest[:left]:
            if taken[job]:
                assignment[job] = rail
                taken[job] = False
            else:
                rest[k] = job
                k += 1
        left = k
    return left, slack


@part
def exchange(filling: Filling, scratch: Scratch, rail: int, assignment: Array) -> bool:
    """Let a filled rail change its jobs for as many of those left, or its own, that make the same
    load: all but three at random, and these, or two, such that they do.  It keeps its own where
    none do, and where it has fewer than three; whether any changed.
    """
    sizes, jobs, taken = filling.sizes, scratch.places, scratch.taken
    count, need, heads = 0, 0, -3
    for job in range(sizes.size):
        if assignment[job] == rail:
            need += sizes[job]
            heads += 1
        if assignment[job] == rail or assignment[job] < 0:
            jobs[count] = job
            count += 1
    for _ in range(heads):
        place = np.random.randint(0, count)
        head = jobs[place]
        need -= sizes[head]
        count -= 1
        for i in range(place, count):
            jobs[i] = jobs[i + 1]
        jobs[count] = head
    if heads < 0 or few_more(sizes, jobs, count, need, 0, taken) < 0:
        return False
    changed = False
    for i in range(count + heads):
        chosen = i >= count or taken[jobs[i]]
        changed |= chosen != (assignment[jobs[i]] == rail)
        assignment[jobs[i]] = rail if chosen else -1
        taken[jobs[i]] = False
    return changed


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
    bounds = Bounds(distinct, slack, np.zeros(distinct.size, np.int64), 0)
    few, costs, wastes, classes, table = list_loads(left, right, counts, bounds, max_loads)
    if not few or wastes.size == 0:
        return False
    chosen = np.empty(capacities.size, np.int64)
    loads = Loads(types, counts, table, costs, wastes, classes, rails)
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


@kernel
def fill_up(filling: Filling, assignment: Array) -> bool:
    """A random filling of all but `keep` rails, `assignment` int64 [n] -1 for the jobs left;
    whether they could be filled.
    """
    assignment[:] = -1
    left, slack = fill_rails(filling, scratch_of(filling), assignment)
    return left >= 0 and slack >= 0


@kernel
def fit(filling: Filling, walks: int, assignment: Array) -> bool:
    """Search the kept rails of a filling exactly: as they are, or after each of some walks, on
    which the filled rails exchange their jobs for those left.  True with an `assignment` within
    capacity.
    """
    scratch, part = scratch_of(filling), np.empty(filling.sizes.size, np.int64)
    rest, settled = scratch.rest, filling.capacities.size - filling.keep
    exchanges = WALK * settled if walks else 0
    for walk in range(walks if exchanges else 1):
        changed = walk == 0
        for _ in range(exchanges):
            changed |= exchange(filling, scratch, np.random.randint(0, settled), assignment)
        if not changed:
            continue  # the last search has shown that this does not fit
        left = 0
        for job in range(assignment.size):
            if assignment[job] < 0:
                rest[left] = job
                left += 1
        jobs = filling.sizes[rest[:left]]
        if left == 0 or complete(jobs, filling.capacities[settled:], 32_768, 30_000_000, part):
            for i in range(left):
                assignment[rest[i]] = settled + part[i]
            return True
    return False
