"""Exact cover: choose loads from a list so that every job is carried, each rail once.

Sets of loads are bit masks, 64 loads per word.  Each node branches on the type of job with the
fewest usable loads (Knuth's rule); a load that has failed is not used again below the same node, so
no combination is met twice.  Nor is a load tried that could be fuller with another job left, added
or in place of a smaller one, when it is the only load left to carry the job branched on.  If there
is a cover with it, there is one with the fuller load, met here or with a load that failed before.

The kernels of fill.py inline this code, and numba's cache of them does not see changes here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import SearchLimit, kernel, part

FOUND, REFUTED, GAVE_UP = 1, 0, -1
NEVER = np.int64(1) << np.int64(62)  # more than any load wastes


class CoverLoads(NamedTuple):
    """The loads to choose from, by rising waste.

    sizes    int64 [types], bytes of a job of each type;  counts int64 [types], how many there are
    table    int16 [loads, types], how many jobs of each type a load has
    wastes   int64 [loads] rising: what its rail could carry besides, capacity - sum
    classes  int64 [loads], the class of rails (those of one capacity) that a load belongs to
    rails    int64 [classes], how many rails each class has
    """

    sizes: Array
    counts: Array
    table: Array
    wastes: Array
    classes: Array
    rails: Array


class Masks(NamedTuple):
    """Sets of loads, uint64 [..., words], that the search intersects.

    more       [rows, words]: row first_row[t] + k are the loads with more than k jobs of type t
    first_row  int64 [types + 1]
    of_class   [classes, words]
    loose      bool [loads]: which waste enough that any job at all could be added, or take the
               place of a smaller one
    """

    more: Array
    first_row: Array
    of_class: Array
    loose: Array


class Stack(NamedTuple):
    """The branch that the search is in, one row per level: what is still there before its choice.

    usable   uint64 [levels, words], loads that may be chosen;  reach int64, words with bits at most
    choices  uint64 [levels, words], those yet to be tried;  at int64, the first word to look at
    branch   int64, the type of job branched on
    left     int64 [levels, types], jobs not carried;  free int64 [levels, classes], rails not used
    room     int64, what the loads of all rails not used may waste together
    """

    usable: Array
    reach: Array
    choices: Array
    at: Array
    branch: Array
    left: Array
    free: Array
    room: Array


@part
def popcount(x: Any) -> Any:
    """How many bits of a uint64 are set; signed, since numba adds int64 and uint64 as floats."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x += x >> np.uint64(8)  # sums of bytes; a product would wrap, of which numpy warns
    x += x >> np.uint64(16)
    x += x >> np.uint64(32)
    return np.int64(x & np.uint64(127))


@part
def masks_of(loads: CoverLoads) -> Masks:
    """The masks of a list of loads."""
    table, counts = loads.table, loads.counts
    words = (table.shape[0] + 63) // 64
    first_row = np.zeros(counts.size + 1, np.int64)
    first_row[1:] = np.cumsum(counts)
    more = np.zeros((first_row[-1], words), np.uint64)
    of_class = np.zeros((loads.rails.size, words), np.uint64)
    for load in range(table.shape[0]):
        word, bit = load >> 6, np.uint64(1) << np.uint64(load & 63)
        of_class[loads.classes[load], word] |= bit
        for t in range(counts.size):
            for k in range(table[load, t]):
                more[first_row[t] + k, word] |= bit
    loose = loose_loads(loads.sizes, table, loads.wastes)
    return Masks(more, first_row, of_class, loose)


@part
def loose_loads(sizes: Array, table: Array, wastes: Array) -> Array:
    """`Masks.loose`."""
    loose = np.zeros(wastes.size, np.bool_)
    for v in range(sizes.size):
        step = NEVER
        for u in range(sizes.size):
            if sizes[u] > sizes[v]:
                step = min(step, sizes[u] - sizes[v])
        for load in range(wastes.size):
            loose[load] |= wastes[load] >= sizes[v] or (table[load, v] > 0 and wastes[load] >= step)
    return loose


@part
def stack_of(loads: CoverLoads, budget: int, levels: int) -> Stack:
    """An empty branch: all loads usable, all jobs left, all rails free."""
    number = loads.table.shape[0]
    words = (number + 63) // 64
    stack = Stack(
        np.zeros((levels, words), np.uint64),
        np.zeros(levels, np.int64),
        np.zeros((levels, words), np.uint64),
        np.zeros(levels, np.int64),
        np.zeros(levels, np.int64),
        np.zeros((levels, loads.counts.size), np.int64),
        np.zeros((levels, loads.rails.size), np.int64),
        np.zeros(levels, np.int64),
    )
    for load in range(number):
        stack.usable[0, load >> 6] |= np.uint64(1) << np.uint64(load & 63)
    stack.left[0], stack.free[0] = loads.counts, loads.rails
    stack.reach[0], stack.room[0] = words, budget
    return stack


@part
def rarest(masks: Masks, stack: Stack, level: int) -> tuple[int, int]:
    """(type of job left with the fewest usable loads, how many); type -1 where no job is left."""
    usable, left, more = stack.usable[level], stack.left[level], masks.more
    reach, kind, fewest = stack.reach[level], -1, 64 * usable.size + 1
    for t in range(left.size):
        if left[t]:
            row, found = masks.first_row[t], 0
            for w in range(reach):
                found += popcount(usable[w] & more[row, w])
                if found >= fewest:
                    break
            if found < fewest:
                kind, fewest = t, found
                if fewest == 0:
                    break
    return kind, fewest


@part
def next_choice(stack: Stack, level: int) -> int:
    """The next load to try at a level, taken from its choices; -1 where none is left."""
    choices, w = stack.choices[level], stack.at[level]
    while w < stack.reach[level] and choices[w] == 0:
        w += 1
    stack.at[level] = w
    if w == stack.reach[level]:
        return -1
    bit = choices[w] & (~choices[w] + np.uint64(1))
    choices[w] ^= bit
    return (w << 6) + popcount(bit - np.uint64(1))


@part
def could_be_fuller(sizes: Array, load: Array, keep: int, left: Array, waste: int) -> bool:
    """Whether a job left fits into `waste`, alone or in place of a smaller one of the load that is
    not of type `keep`.
    """
    for u in range(sizes.size):
        if left[u] and sizes[u] <= waste:
            return True
    for v in range(sizes.size):
        if load[v] and v != keep:
            for u in range(sizes.size):
                if left[u] and sizes[v] < sizes[u] <= sizes[v] + waste:
                    return True
    return False


@part
def _at_most(rising: Array, limit: int) -> int:
    """How many of rising numbers are at most `limit`."""
    low, high = 0, rising.size
    while low < high:
        middle = (low + high) >> 1
        if rising[middle] <= limit:
            low = middle + 1
        else:
            high = middle
    return low


@part
def descend(loads: CoverLoads, masks: Masks, stack: Stack, level: int, load: int) -> None:
    """Choose a load: what is usable and free at the next level, whose `left` is known; afterwards
    the load is not usable at this level any more.
    """
    below, own_class = level + 1, loads.classes[load]
    usable, table, more = stack.usable[below], loads.table, masks.more
    for c in range(loads.rails.size):
        stack.free[below, c] = stack.free[level, c]
    stack.free[below, own_class] -= 1
    stack.room[below] = stack.room[level] - loads.wastes[load]
    affordable = _at_most(loads.wastes, stack.room[below])
    reach = min(stack.reach[level], (affordable + 63) >> 6)
    stack.reach[below] = reach
    for w in range(reach):
        usable[w] = stack.usable[level, w]
    if affordable & 63 and affordable >> 6 < reach:
        usable[affordable >> 6] &= (np.uint64(1) << np.uint64(affordable & 63)) - np.uint64(1)
    for t in range(loads.counts.size):
        if table[load, t]:
            row = masks.first_row[t] + stack.left[below, t]
            for w in range(reach):
                usable[w] &= ~more[row, w]
    if stack.free[below, own_class] == 0:
        for w in range(reach):
            usable[w] &= ~masks.of_class[own_class, w]
    stack.usable[level, load >> 6] ^= np.uint64(1) << np.uint64(load & 63)


@kernel(nogil=True, search=SearchLimit(2, 30_000, lambda found: found[0] == GAVE_UP))
def search(loads: CoverLoads, budget: int, max_steps: int, chosen: Array) -> tuple[int, int]:
    """(FOUND, REFUTED or GAVE_UP, nodes); `chosen` int64 [sum(rails)] gets the loads of a cover, -1
    for an idle rail.

    budget     what the loads of a cover waste together at most
    max_steps  words of masks to look at, some tenths of a nanosecond each, before it gives up
    """
    types, depth = loads.counts.size, chosen.size
    masks, stack = masks_of(loads), stack_of(loads, budget, depth + 1)
    for place in range(depth):
        chosen[place] = -1
    level, nodes, steps, fresh = 0, 0, 0, True
    while level >= 0:
        if fresh:
            nodes += 1
            steps += stack.reach[level] * (types + 8) + 64
            if steps > max_steps:
                return GAVE_UP, nodes
            kind, usable = rarest(masks, stack, level)
            if kind < 0:
                return FOUND, nodes
            if usable == 0 or level == depth:
                level -= 1
                fresh = False
                continue
            for w in range(stack.reach[level]):
                stack.choices[level, w] = (
                    stack.usable[level, w] & masks.more[masks.first_row[kind], w]
                )
            stack.at[level], stack.branch[level] = 0, kind
        load = next_choice(stack, level)
        chosen[level] = load
        fresh = False
        if load < 0:
            level -= 1
            continue
        branch, left = stack.branch[level], stack.left[level + 1]
        for t in range(types):
            left[t] = stack.left[level, t] - loads.table[load, t]
        if (
            stack.left[level, branch] == 1
            and masks.loose[load]
            and could_be_fuller(loads.sizes, loads.table[load], branch, left, loads.wastes[load])
        ):
            steps += 64
            continue
        descend(loads, masks, stack, level, load)
        level += 1
        fresh = True
    return REFUTED, nodes
