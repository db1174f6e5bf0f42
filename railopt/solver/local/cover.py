"""Exact cover: choose loads from a list so that every job is carried, each rail once.

Loads are rows `table[load, type]` sorted by waste (capacity - sum) with the class of rails they
belong to; sets of loads
are bit masks.  Each node branches on the type of job with the fewest usable loads (Knuth's rule); a
                load that has
failed is not used again below the same node, so no combination is met twice.  Nor is one tried that
could be fuller with another job left, added or in place of a smaller one, when it is the only load
left to carry the job branched on: if there is a cover with it, there is one with the fuller load,
met here or with a load that failed before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FOUND, REFUTED, GAVE_UP = 1, 0, -1


@njit(cache=True, inline="always")
def popcount(x: Any) -> Any:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(
        (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
    )  # signed: numba adds int64 and uint64 as floats


@njit(cache=True)
def masks_of(table: Any, counts: Any, first_row: Any, words: int) -> Any:
    """uint64 [rows, words]: row first_row[t] + k is the set of loads with more than k jobs of type
    t.
    """
    masks = np.zeros((first_row[-1], words), np.uint64)
    for load in range(table.shape[0]):
        word, bit = load >> 6, np.uint64(1) << np.uint64(load & 63)
        for t in range(counts.size):
            for k in range(table[load, t]):
                masks[first_row[t] + k, word] |= bit
    return masks


@njit(cache=True)
def could_be_fuller(sizes: Any, load: Any, keep: int, left: Any, waste: int) -> bool:
    """Whether a job left fits into `waste`, alone or in place of a smaller one of the load that is
    not of type `keep`.
    """
    for u in range(sizes.size):
        if left[u]:
            if sizes[u] <= waste:
                return True
            for v in range(sizes.size):
                if load[v] and v != keep and sizes[v] < sizes[u] <= sizes[v] + waste:
                    return True
    return False


@njit(cache=True)
def loose_loads(sizes: Any, table: Any, wastes: Any) -> Any:
    """bool [loads]: which waste enough that any job at all could be added, or take a smaller one's
    place.
    """
    loose = np.zeros(wastes.size, np.bool_)
    for v in range(sizes.size):
        larger = sizes[sizes > sizes[v]]
        step = larger.min() - sizes[v] if larger.size else np.int64(1) << np.int64(62)
        for load in range(wastes.size):
            loose[load] |= wastes[load] >= sizes[v] or (table[load, v] > 0 and wastes[load] >= step)
    return loose


@njit(cache=True)
def search(
    sizes: Any,
    table: Any,
    wastes: Any,
    classes: Any,
    counts: Any,
    rails: Any,
    slack: int,
    max_steps: int,
    chosen: Any,
) -> Any:
    """(FOUND, REFUTED or GAVE_UP, nodes); `chosen` int64 [sum(rails)] gets the loads of a cover, -1
    for an idle rail.

    Gives up after `max_steps` words of masks, some tenths of a nanosecond each.

    sizes int64 [types], table int16 [loads, types], wastes int64 [loads] rising, classes int64
    [loads], counts int64 [types], rails int64 [classes]: how many rails of each class, slack: waste
    of all rails together.
    """
    loads, types, depth = table.shape[0], counts.size, rails.sum()
    words = (loads + 63) // 64
    first_row = np.zeros(types + 1, np.int64)
    first_row[1:] = np.cumsum(counts)
    masks, loose = masks_of(table, counts, first_row, words), loose_loads(sizes, table, wastes)
    of_class = np.zeros((rails.size, words), np.uint64)
    for load in range(loads):
        of_class[classes[load], load >> 6] |= np.uint64(1) << np.uint64(load & 63)
    usable, choices = (
        np.zeros((depth + 1, words), np.uint64),
        np.zeros((depth + 1, words), np.uint64),
    )
    left, free = np.zeros((depth + 1, types), np.int64), np.zeros((depth + 1, rails.size), np.int64)
    room = np.zeros(depth + 1, np.int64)
    at = np.zeros(depth + 1, np.int64)  # the word of `choices` to continue with
    branch = np.zeros(depth + 1, np.int64)  # the type branched on
    reach = np.full(depth + 1, words, np.int64)  # how many words of `usable` may have bits
    for load in range(loads):
        usable[0, load >> 6] |= np.uint64(1) << np.uint64(load & 63)
    left[0], room[0], free[0] = counts, slack, rails
    chosen[:] = -1
    level, nodes, steps, fresh = 0, 0, 0, True
    while level >= 0:
        if fresh:
            nodes += 1
            steps += reach[level] * (types + 8) + 64
            if steps > max_steps:
                return GAVE_UP, nodes
            best, fewest = -1, loads + 1
            for t in range(types):
                if left[level, t]:
                    row, found = first_row[t], 0
                    for w in range(reach[level]):
                        found += popcount(usable[level, w] & masks[row, w])
                        if found >= fewest:
                            break
                    if found < fewest:
                        best, fewest = t, found
                        if fewest == 0:
                            break
            if best < 0:
                return FOUND, nodes
            if fewest == 0 or level == depth:
                level -= 1
                fresh = False
                continue
            for w in range(reach[level]):
                choices[level, w] = usable[level, w] & masks[first_row[best], w]
            at[level], branch[level] = 0, best
        w = at[level]
        while w < reach[level] and choices[level, w] == 0:
            w += 1
        at[level] = w
        if w == reach[level]:
            chosen[level] = -1
            level -= 1
            fresh = False
            continue
        bit = choices[level, w] & (~choices[level, w] + np.uint64(1))
        load = (w << 6) + popcount(bit - np.uint64(1))
        choices[level, w] ^= bit
        chosen[level] = load
        left[level + 1] = left[level] - table[load]
        only = left[level, branch[level]] == 1
        if (
            only
            and loose[load]
            and could_be_fuller(sizes, table[load], branch[level], left[level + 1], wastes[load])
        ):
            steps += 64
            fresh = False
            continue
        free[level + 1] = free[level]
        room[level + 1] = room[level] - wastes[load]
        affordable = np.searchsorted(wastes, room[level + 1], side="right")
        reach[level + 1] = min(reach[level], (affordable + 63) >> 6)
        for v in range(reach[level + 1]):
            usable[level + 1, v] = usable[level, v]
        if affordable & 63 and affordable >> 6 < reach[level + 1]:
            usable[level + 1, affordable >> 6] &= (
                np.uint64(1) << np.uint64(affordable & 63)
            ) - np.uint64(1)
        for t in range(types):
            if table[load, t]:
                row = first_row[t] + left[level + 1, t]
                for v in range(reach[level + 1]):
                    usable[level + 1, v] &= ~masks[row, v]
        free[level + 1, classes[load]] -= 1
        if free[level + 1, classes[load]] == 0:
            for v in range(reach[level + 1]):
                usable[level + 1, v] &= ~of_class[classes[load], v]
        usable[level, w] ^= bit
        level += 1
        fresh = True
    return REFUTED, nodes
