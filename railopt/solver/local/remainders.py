"""One node whose chunks are mostly of one size, the cap of cut traffic: its rails, of any
capacities, filled to the last unit by the few others.

On a rail of capacity C that takes other chunks of sum s, caps of size P fill what is left but for
(C - s) mod P: the rail's waste.  All rails together may waste `sum of C - total` and no more.
So rails and others are dealt into groups at random, one chunk of a group exchanged for another's
where its sum could not fill the rails, and a group's chunks go to its rails in the way that wastes
least: a chunk set that wastes little of a rail is rare, so that few pairs of them have to be looked
at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Ints
from railopt.base.draws import below, seeded, shuffle
from railopt.base.kernels import kernel, part

MOST = 96  # other chunks: with more of them the plain search has all the freedom it needs
MAX_TYPES = 80
GROUP, SHARED, MOST_SHARED = 4, 12, 13  # rails of a group; chunks that they share out, at most
FEW = 128  # sets of a group's chunks that may waste little enough of a rail
FAIR = 70  # per cent of its fair waste by which a group's may differ: far from it few can be filled
STIRRED = 4  # pairs that change places between two tries
NEVER = 1 << 60  # the waste of what can't be
LARGEST = 1 << 62  # what all rooms together stay below, so that no sum wraps


class CapFill(NamedTuple):
    """Rails to be filled; sizes and rooms in units of the sizes' common divisor.

    sizes    int64 [n], descending;  cap: the most frequent
    order    int64: the others, in the order in which groups take them
    turn     int64 [rails]: the rails, in the order of the groups
    rooms    int64 [rails]: what is left of each rail
    barred   bool [n, rails]: where one of the others may not lie
    rail     int64 [n], the rail of each chunk
    draws    int64 [1], the state of the random numbers
    """

    sizes: Array
    cap: int
    order: Array
    turn: Array
    rooms: Array
    barred: Array
    rail: Array
    draws: Array


class GroupWays(NamedTuple):
    """What the chunks that a group shares can do, by set of them (an index of 2 ** MOST_SHARED).

    sums       int64 [sets]: of the sizes;  residue int64 [sets]: of these, mod the cap
    few        int64 [2, sets]: sets that waste little of a rail, and what they waste
    waste      int64 [2, sets]: the least that a set wastes of the group's first rails, and of its
               last; `NEVER`, also between two groups, where it is not among the `listed`
    on_first   int64 [2, sets]: the part of it on the first of these
    listed     int64 [2, sets]: the sets that can lie on these rails
    """

    sums: Array
    residue: Array
    few: Array
    waste: Array
    on_first: Array
    listed: Array


def suits(sizes: Ints, rails: int) -> bool:
    """Many chunks a rail, but of few sizes: loads are long, yet mostly caps, so that the
    configuration LP stays easy to price.
    """
    types = len(np.unique(sizes))
    return 12 * rails < len(sizes) and types <= MAX_TYPES and 2 * types < len(sizes)


def filled(
    sizes: Ints, capacities: Ints, tries: int, seed: int, barred: Bools | None = None
) -> Ints | None:
    """The rail of each size (descending, bytes) on rails of these capacities (bytes), none above
    its own; None where no try succeeds.

    barred   bool [n, rails]: where a chunk may not lie, unless it is one of the caps
    """
    unit = int(np.gcd.reduce(sizes))
    sizes, rooms = sizes // unit, capacities // unit
    if len(rooms) < 3 or not int(sizes.sum()) <= sum(rooms.tolist()) < LARGEST:
        return None
    cap, caps = most_frequent(sizes)
    if caps < len(rooms) or not 2 <= len(sizes) - caps <= MOST:
        return None
    if barred is None:
        barred = np.zeros((len(sizes), len(rooms)), np.bool_)
    rail = np.zeros(len(sizes), np.int64)
    return rail if _fill(sizes, cap, rooms, barred, tries, seed, rail) else None


def most_frequent(sizes: Ints) -> tuple[int, int]:
    """(size, how many) of the longest run."""
    starts = np.flatnonzero(np.diff(sizes, prepend=-1))
    runs = np.diff(starts, append=len(sizes))
    longest = runs.argmax()
    return int(sizes[starts[longest]]), int(runs[longest])


@kernel
def _fill(
    sizes: Array, cap: int, capacities: Array, barred: Array, tries: int, seed: int, rail: Array
) -> bool:
    """`filled` in units of the sizes' common divisor, into `rail` int64 [n]; `cap` is the most
    frequent of them.
    """
    slack = capacities.sum() - sizes.sum()
    draws, sets = seeded(seed), 1 << MOST_SHARED
    ways = GroupWays(
        np.zeros(sets, np.int64),
        np.zeros(sets, np.int64),
        np.empty((2, sets), np.int64),
        np.full((2, sets), NEVER, np.int64),
        np.empty((2, sets), np.int64),
        np.empty((2, sets), np.int64),
    )
    order, turn = np.flatnonzero(sizes != cap), np.arange(capacities.size)
    task = CapFill(sizes, cap, order, turn, capacities.copy(), barred, rail, draws)
    shuffle(draws, order, order.size)
    for _ in range(tries):
        _stir(draws, order)
        _stir(draws, turn)
        for n in range(capacities.size):
            task.rooms[n] = capacities[n]
        if _deal(task, slack, ways) and _add_caps(sizes, capacities, cap, rail):
            return True
    return False


@part
def _stir(draws: Array, items: Array) -> None:
    """Some pairs change places: enough for another try, and shorter than a shuffle."""
    for _ in range(STIRRED):
        i, j = below(draws, items.size), below(draws, items.size)
        items[i], items[j] = items[j], items[i]


@part
def _deal(task: CapFill, slack: int, ways: GroupWays) -> bool:
    """One try: the others to the rails, group by group, after those that are more than the groups
    can share out went anywhere; whether no more than `slack` is wasted.
    """
    order, rails = task.order, task.turn.size
    groups = -(-rails // GROUP)
    most = _tolerable(slack, rails, task.cap)
    dealt = groups * min(SHARED, order.size // groups, _enough(most, task.cap))
    if not _scatter(task, order[dealt:]):
        return False
    end = 0
    for g in range(groups):
        first, last = g * rails // groups, (g + 1) * rails // groups
        begin, to_come = end, (groups - 1 - g) * MOST_SHARED
        end = min(max(dealt * last // rails, dealt - to_come), begin + MOST_SHARED)
        shared = order[begin:end]
        room, one = task.rooms[task.turn[first:last]].sum(), most
        fair = slack * (last - first) // (rails - first)
        if slack < task.cap:  # then the group wastes the rest of its room, or is not filled
            rest = _even(task, shared, order[end:dealt], room, fair)
            if rest < 0:
                return False
            one = min(most, rest)
        if room < task.sizes[shared].sum():
            return False
        slack -= _share(task, shared, task.turn[first:last], (one, fair, slack), ways)
        if slack < 0:
            return False
    return True


@part
def _even(task: CapFill, shared: Array, later: Array, room: int, fair: int) -> int:
    """What a group wastes of its room beside caps, if that is about fair, or becomes so where one
    of its chunks is exchanged for a later one; else -1.
    """
    sizes, near = task.sizes, 1 + fair * FAIR // 100
    rest = (room - sizes[shared].sum()) % task.cap
    if abs(rest - fair) <= near:
        return int(rest)
    for i in range(shared.size):
        for j in range(later.size):
            after = (rest + sizes[shared[i]] - sizes[later[j]]) % task.cap
            if abs(after - fair) <= near:
                shared[i], later[j] = later[j], shared[i]
                return int(after)
    return -1


@part
def _tolerable(slack: int, rails: int, cap: int) -> int:
    """What one rail may waste: all, or, of much, a few times its share."""
    return min(slack, max(1, cap // 32, 3 * slack // rails))


@part
def _enough(most: int, cap: int) -> int:
    """How many chunks have about `FEW` sets that waste at most `most` of a rail."""
    count = 6
    while count < SHARED and (most + 1) << count < FEW * cap:
        count += 1
    return count


@part
def _scatter(task: CapFill, chunks: Array) -> bool:
    """Chunks to any rails, those with more room more often; whether they fit."""
    for i in range(chunks.size):
        n, x = 0, below(task.draws, task.rooms.sum())
        while x >= task.rooms[n]:
            n, x = n + 1, x - task.rooms[n]
        task.rail[chunks[i]] = n
        task.rooms[n] -= task.sizes[chunks[i]]
        if task.rooms[n] < 0 or task.barred[chunks[i], n]:
            return False
    return True


@part
def _share(
    task: CapFill, shared: Array, rails: Array, wastes: tuple[int, int, int], ways: GroupWays
) -> int:
    """Share chunks out among the at most `GROUP` rails of a group; what is wasted, `NEVER` where no
    way is found.

    wastes   the most of one rail; what is fair for the group, to which the way found comes
             closest; the most of it
    """
    sums, residue, everything = ways.sums, ways.residue, (1 << shared.size) - 1
    for i in range(shared.size):
        half, size = 1 << i, task.sizes[shared[i]]
        rest = size % task.cap
        for chosen in range(half):
            sums[half + chosen] = sums[chosen] + size
            both = residue[chosen] + rest
            residue[half + chosen] = both if both < task.cap else both - task.cap
    middle, (one, fair, most) = (rails.size + 1) // 2, wastes
    firsts = _best_of_two(task, shared, rails[:middle], one, ways, np.int64(0))
    last = 0 if _same_rails(task, shared, rails[:middle], rails[middle:]) else 1
    lasts = np.int64(0)
    if last and firsts:
        lasts = _best_of_two(task, shared, rails[middle:], one, ways, np.int64(1))
    found, best = NEVER, 0
    for chosen in ways.listed[0, :firsts]:
        waste = ways.waste[0, chosen] + ways.waste[last, everything ^ chosen]
        if waste <= most and abs(waste - fair) < abs(found - fair):
            found, best = waste, chosen
    if found <= most:
        for i in range(shared.size):
            here = bool((best >> i) & 1)
            chosen = ways.on_first[0, best] if here else ways.on_first[last, everything ^ best]
            second = 0 if (chosen >> i) & 1 else 1
            task.rail[shared[i]] = rails[second if here else middle + second]
    for half, length in ((0, firsts), (1, lasts)):
        for chosen in ways.listed[half, :length]:
            ways.waste[half, chosen] = NEVER
    return found


@part
def _same_rails(task: CapFill, shared: Array, some: Array, others: Array) -> bool:
    """Whether the chunks can do with some rails, in turn, what they can with others."""
    if some.size != others.size:
        return False
    for i in range(some.size):
        here, there = some[i], others[i]
        if task.rooms[here] != task.rooms[there]:
            return False
        for chunk in shared:
            if task.barred[chunk, here] != task.barred[chunk, there]:
                return False
    return True


@part
def _best_of_two(
    task: CapFill, shared: Array, rails: Array, most: int, ways: GroupWays, half: int
) -> int:
    """Fill `waste[half]` and `on_first[half]` for one rail or two, or none; how many sets are
    `listed[half]`.
    """
    few, none = ways.few, np.int64(0)
    if rails.size == 0:
        return _list(ways, half, none, none, none, none)
    first, length = _little(task, shared, rails[0], most, ways, none), none
    if rails.size == 1:
        for i in range(first):
            length = _list(ways, half, length, few[0, i], few[1, i], few[0, i])
        return int(length)
    same = _same_rails(task, shared, rails[:1], rails[1:])
    last = first if same else _little(task, shared, rails[1], most, ways, first)
    for i in range(first):
        for j in range(i if same else first, last):
            if few[0, i] & few[0, j] == 0:
                waste = few[1, i] + few[1, j]
                length = _list(ways, half, length, few[0, i] | few[0, j], waste, few[0, i])
    return int(length)


@part
def _list(ways: GroupWays, half: int, length: int, chosen: int, waste: int, on_first: int) -> int:
    """Keep a set, the first `length` listed, if it wastes less than it is known to; how many are
    listed then.
    """
    before = ways.waste[half, chosen]
    if waste < before:
        ways.waste[half, chosen], ways.on_first[half, chosen] = waste, on_first
    if before < NEVER:
        return length
    ways.listed[half, length] = chosen
    return length + 1


@part
def _little(task: CapFill, shared: Array, rail: int, most: int, ways: GroupWays, start: int) -> int:
    """Write the sets that may lie on a rail and waste at most `most` of it into `few` from `start`
    on; where they end.
    """
    sums, residue, few, room = ways.sums, ways.residue, ways.few, task.rooms[rail]
    end, rest, stop, kept_off = start, room % task.cap, start + few.shape[1] // 2, 0
    for i in range(shared.size):
        kept_off |= int(task.barred[shared[i], rail]) << i
    for chosen in range(1 << shared.size):
        waste = rest - residue[chosen]
        if waste < 0:
            waste += task.cap
        if waste <= most and sums[chosen] <= room and chosen & kept_off == 0 and end < stop:
            few[0, end], few[1, end] = chosen, waste
            end += 1
    return end


@part
def _add_caps(sizes: Array, capacities: Array, cap: int, rail: Array) -> bool:
    """The caps into the rooms that the others left, rail after rail; False where the others
    overfill one.
    """
    rooms, n = capacities.copy(), 0
    for i in range(sizes.size):
        if sizes[i] != cap:
            rooms[rail[i]] -= sizes[i]
    if rooms.min() < 0:
        return False
    for i in range(sizes.size):
        if sizes[i] == cap:
            while rooms[n] < cap:
                n += 1
            rail[i] = n
            rooms[n] -= cap
    return True
