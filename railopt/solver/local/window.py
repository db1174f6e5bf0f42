"""The sets of jobs that can be one rail's load: a sum in a window [low, high].

Jobs are given as types (distinct sizes and how many of each), so that equal jobs are never
permuted.  Two halves of the types are listed with their sums (meet in the middle; Horowitz, Sahni
1974) and matched.  If every rail carries at most C, each carries at least total - (N - 1) C: the
window of Schreiber, Korf and Moffitt's cached sets (JACM 2018).

Sums stay below 2**62 where `high` does: then no addition here wraps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import SearchLimit, kernel, part


class Half(NamedTuple):
    """All sets of one half of the types within a sum, by rising sum.

    sums     int64 [sets];  codes int64 [sets]: how many of each type, in mixed radix
    """

    sums: Array
    codes: Array


@part
def half_sums(sizes: Array, counts: Array, high: int, limit: int) -> Half:
    """The sets of types (int64 [types], and how many of each) with a sum of at most `high`; none
    where there are more than `limit`.

    For kernels; Python takes what `sums_and_codes` returns: a Ctrl-C that waits while numba makes a
    named tuple of a kernel's result ends the process.
    """
    sums, codes = sums_and_codes(sizes, counts, high, limit)
    return Half(sums, codes)


@kernel(nogil=True, search=SearchLimit(3, 1 << 14, lambda found: len(found[0]) == 0))
def sums_and_codes(sizes: Array, counts: Array, high: int, limit: int) -> tuple[Array, Array]:
    """What `half_sums` has, as a plain tuple.

    The sets without a type are merged with the same and one job of it, two jobs, and so on; types
    of many jobs first, while the sets are few.
    """
    sums, codes = np.empty(limit, np.int64), np.empty(limit, np.int64)
    sums[0], codes[0] = 0, 0
    size, radices = 1, np.ones(counts.size + 1, np.int64)
    for t in range(counts.size):
        radices[t + 1] = radices[t] * (counts[t] + 1)
    for t in np.argsort(-counts, kind="mergesort"):
        without, their_codes = sums[:size].copy(), codes[:size].copy()
        for number in range(1, counts[t] + 1):
            more, code = number * sizes[t], number * radices[t]
            fitting = np.searchsorted(without, high - more, side="right")
            if size + fitting > limit:
                return sums[:0], codes[:0]
            i, j, k = size - 1, fitting - 1, size + fitting - 1
            while j >= 0:  # from the largest on, so that both can stay in one list
                if i >= 0 and sums[i] > without[j] + more:
                    sums[k], codes[k] = sums[i], codes[i]
                    i -= 1
                else:
                    sums[k], codes[k] = without[j] + more, their_codes[j] + code
                    j -= 1
                k -= 1
            size += fitting
    return sums[:size].copy(), codes[:size].copy()


@kernel
def count_window(left: Array, right: Array, low: int, high: int, limit: int) -> int:
    """How many pairs of sorted `left` and `right` have a sum in [low, high]; counts no further than
    `limit`.
    """
    start, stop, found = right.size, right.size, 0
    for total in left:
        while start > 0 and total + right[start - 1] >= low:
            start -= 1
        while stop > 0 and total + right[stop - 1] > high:
            stop -= 1
        found += stop - start
        if found > limit:
            break
    return found


@part
def list_window(left: Half, right: Half, low: int, high: int, sums: Array, codes: Array) -> None:
    """The sets in the window [low, high]: their sums into int64 [found], the codes of their halves
    into int64 [found, 2].
    """
    start, stop, k = right.sums.size, right.sums.size, 0
    if sums.size == 0:
        return
    for i in range(left.sums.size):
        while start > 0 and left.sums[i] + right.sums[start - 1] >= low:
            start -= 1
        while stop > 0 and left.sums[i] + right.sums[stop - 1] > high:
            stop -= 1
        for j in range(start, stop):
            sums[k] = left.sums[i] + right.sums[j]
            codes[k, 0], codes[k, 1] = left.codes[i], right.codes[j]
            k += 1


@kernel(nogil=True)
def list_loads(
    left: Half, right: Half, counts: Array, capacities: Array, slack: int, limit: int
) -> tuple[bool, Array, Array, Array]:
    """(True, wastes int64 [loads] rising, classes int64 [loads], how many of each type int16
    [loads, types]) of all loads of rails of capacities int64 [classes], which leave at most `slack`
    of them together; (False, ...) where there are more than `limit`.

    The first (types + 1) // 2 types are the left half, the others the right one.
    """
    found, low = np.zeros(capacities.size, np.int64), np.maximum(1, capacities - slack)
    few = True
    for k in range(capacities.size):
        found[k] = count_window(left.sums, right.sums, low[k], capacities[k], limit)
        if found.sum() > limit:
            found[:] = 0
            few = False
            break
    wastes, classes = np.empty(found.sum(), np.int64), np.empty(found.sum(), np.int64)
    codes, at = np.empty((wastes.size, 2), np.int64), 0
    for k in range(capacities.size):
        end = at + found[k]
        list_window(left, right, low[k], capacities[k], wastes[at:end], codes[at:end])
        for load in range(at, end):
            wastes[load], classes[load] = capacities[k] - wastes[load], k
        at = end
    order = np.argsort(wastes, kind="mergesort")
    table, middle = np.empty((wastes.size, counts.size), np.int16), (counts.size + 1) // 2
    for load in range(order.size):
        decode(codes[order[load], 0], counts[:middle], table[load, :middle])
        decode(codes[order[load], 1], counts[middle:], table[load, middle:])
    return few, wastes[order], classes[order], table


@part
def decode(code: int, counts: Array, numbers: Array) -> None:
    """How many of each type a code says, into `numbers` int16 [types]."""
    for t in range(counts.size):
        if counts[t] == 1:  # most are, and a division takes long
            numbers[t] = code & 1
            code >>= 1
        else:
            numbers[t] = code % (counts[t] + 1)
            code //= counts[t] + 1


@kernel
def classed(capacities: Array) -> tuple[Array, Array, Array]:
    """(distinct capacities, how many rails have each, the class of each rail), all int64."""
    distinct = np.unique(capacities)
    class_of = np.searchsorted(distinct, capacities)
    rails = np.zeros(distinct.size, np.int64)
    for k in class_of:
        rails[k] += 1
    return distinct, rails, class_of


@kernel
def interleaved(sizes: Array) -> tuple[Array, Array]:
    """(distinct sizes, how many of each) of sorted sizes, small and large in both halves: the
    checker's order of types.
    """
    distinct, counts = np.empty(sizes.size, np.int64), np.zeros(sizes.size, np.int64)
    types = 0
    for i in range(sizes.size - 1, -1, -1):
        if types == 0 or distinct[types - 1] != sizes[i]:
            distinct[types] = sizes[i]
            types += 1
        counts[types - 1] += 1
    order = np.concatenate((np.arange(0, types, 2), np.arange(1, types, 2)))
    return distinct[order], counts[order]


@kernel
def codes_fit(counts: Array) -> bool:
    """Whether the codes of both halves stay below 2**62."""
    middle = (counts.size + 1) // 2
    for half in (counts[:middle], counts[middle:]):
        bits = 0.0
        for count in half:
            bits += np.log2(count + 1.0)
        if bits > 61.0:
            return False
    return True
