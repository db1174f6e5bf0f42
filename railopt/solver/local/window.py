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
from railopt.base.kernels import kernel, part


class Half(NamedTuple):
    """All sets of one half of the types within a sum, by rising sum.

    sums     int64 [sets];  codes int64 [sets]: how many of each type, in mixed radix
    weights  int64 [sets]: what each weighs, nothing where loads are not sifted by weight
    peaks    int64 [sets]: the most that one up to each weighs
    """

    sums: Array
    codes: Array
    weights: Array
    peaks: Array


@part
def half_sums(sizes: Array, counts: Array, high: int, limit: int) -> Half:
    """The sets of types (int64 [types], and how many of each) with a sum of at most `high`; none
    where there are more than `limit`.

    For kernels; Python takes what `sums_and_codes` returns: a Ctrl-C that waits while numba makes a
    named tuple of a kernel's result ends the process.
    """
    sums, codes = sums_and_codes(sizes, counts, high, limit)
    nothing = np.zeros(sums.size, np.int64)
    return Half(sums, codes, nothing, nothing)


@kernel
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


@part
def weights_of_codes(counts: Array, weights: Array) -> Array:
    """int64 [codes]: what the set with each code weighs, by weights int64 [types]."""
    found, size = np.zeros((counts + 1).prod(), np.int64), 1
    for t in range(counts.size):
        for code in range(size, size * (counts[t] + 1)):
            found[code] = found[code - size] + weights[t]
        size *= counts[t] + 1
    return found


@kernel
def weighed(codes: Array, counts: Array, weights: Array) -> tuple[Array, Array]:
    """(`Half.weights`, `Half.peaks`) of the sets with these codes, by weights int64 [types]; of few
    jobs, since the codes of either half of the types are all gone through.
    """
    middle, peak = counts.size // 2, 0
    first = weights_of_codes(counts[:middle], weights[:middle])
    others = weights_of_codes(counts[middle:], weights[middle:])
    found, peaks = np.zeros(codes.size, np.int64), np.zeros(codes.size, np.int64)
    for i in range(codes.size):
        found[i] = first[codes[i] % first.size] + others[codes[i] // first.size]
        peak = max(peak, found[i])
        peaks[i] = peak
    return found, peaks


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


@kernel
def count_heavy(left: Half, right: Half, low: int, high: int, least: int, limit: int) -> int:
    """How many sets in the window [low, high] weigh at least `least`; counts no further than
    `limit`.
    """
    if least <= 0:
        return int(count_window(left.sums, right.sums, low, high, limit))
    start, stop, found = right.sums.size, right.sums.size, 0
    for i in range(left.sums.size):
        while start > 0 and left.sums[i] + right.sums[start - 1] >= low:
            start -= 1
        while stop > 0 and left.sums[i] + right.sums[stop - 1] > high:
            stop -= 1
        if stop > start and left.weights[i] + right.peaks[stop - 1] >= least:
            for j in range(start, stop):
                found += left.weights[i] + right.weights[j] >= least
        if found > limit:
            break
    return found


@part
def list_window(
    left: Half,
    right: Half,
    low: int,
    high: int,
    least: int,
    sums: Array,
    weights: Array,
    codes: Array,
) -> None:
    """The sets in the window [low, high] that weigh at least `least`: their sums and weights into
    int64 [found], the codes of their halves into int64 [found, 2].
    """
    start, stop, k = right.sums.size, right.sums.size, 0
    if sums.size == 0:
        return
    for i in range(left.sums.size):
        while start > 0 and left.sums[i] + right.sums[start - 1] >= low:
            start -= 1
        while stop > 0 and left.sums[i] + right.sums[stop - 1] > high:
            stop -= 1
        if stop == start or left.weights[i] + right.peaks[stop - 1] < least:
            continue
        for j in range(start, stop):
            if left.weights[i] + right.weights[j] >= least:
                sums[k] = left.sums[i] + right.sums[j]
                weights[k] = left.weights[i] + right.weights[j]
                codes[k, 0], codes[k, 1] = left.codes[i], right.codes[j]
                k += 1


class Bounds(NamedTuple):
    """What loads of each class of rails may be.

    capacities  int64 [classes]: no load's sum is more
    slack       what all rails together leave of their capacities: no load leaves more
    heaviest    int64 [classes]: no load within the capacity weighs more
    spare       what all loads together weigh less than that: no load falls further short
    """

    capacities: Array
    slack: int
    heaviest: Array
    spare: int


@kernel
def list_loads(
    left: Half, right: Half, counts: Array, bounds: Bounds, limit: int
) -> tuple[bool, Array, Array, Array, Array]:
    """(True, costs int64 [loads] rising, wastes int64 [loads], classes int64 [loads], how many of
    each type int16 [loads, types]) of all loads within the bounds; (False, ...) where there are
    more than `limit`.

    A load costs what it weighs less than the heaviest of its class; without weights, what it wastes
    of its capacity.  The first (types + 1) // 2 types are the left half, the others the right one.
    """
    capacities, least = bounds.capacities, bounds.heaviest - bounds.spare
    found, low = np.zeros(capacities.size, np.int64), np.maximum(1, capacities - bounds.slack)
    few = True
    for k in range(capacities.size):
        found[k] = count_heavy(left, right, low[k], capacities[k], least[k], limit)
        if found.sum() > limit:
            found[:] = 0
            few = False
            break
    wastes, costs = np.empty(found.sum(), np.int64), np.empty(found.sum(), np.int64)
    classes, codes = np.empty(wastes.size, np.int64), np.empty((wastes.size, 2), np.int64)
    at, weighty = 0, bounds.heaviest.any()
    for k in range(capacities.size):
        end = at + found[k]
        sums, weights, halves = wastes[at:end], costs[at:end], codes[at:end]
        list_window(left, right, low[k], capacities[k], least[k], sums, weights, halves)
        for load in range(at, end):
            wastes[load], classes[load] = capacities[k] - wastes[load], k
            costs[load] = bounds.heaviest[k] - costs[load] if weighty else wastes[load]
        at = end
    order = np.argsort(costs, kind="mergesort")
    table, middle = np.empty((wastes.size, counts.size), np.int16), (counts.size + 1) // 2
    for load in range(order.size):
        decode(codes[order[load], 0], counts[:middle], table[load, :middle])
        decode(codes[order[load], 1], counts[middle:], table[load, middle:])
    return few, costs[order], wastes[order], classes[order], table


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
