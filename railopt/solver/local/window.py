"""The sets of jobs that can be one rail's load: a sum in a window [low, high].

Jobs are given as types (distinct sizes and how many of each), so that equal jobs are never
permuted.  Two halves of the
types are listed with their sums (meet in the middle; Horowitz, Sahni 1974) and matched.  If every
rail carries at most C, each carries at least total - (N - 1) C: the window of Schreiber, Korf and
Moffitt's cached sets (JACM 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def half_sums(sizes: Any, counts: Any, high: int, limit: int) -> Any:
    """(sums, codes) of all sets of the types with a sum of at most `high`; codes in mixed radix;
    empty beyond `limit`.
    """
    sums, codes = np.empty(limit, np.int64), np.empty(limit, np.int64)
    sums[0], codes[0] = 0, 0
    size, radix = 1, np.int64(1)
    for t in range(sizes.size):
        for i in range(size):
            total, code = sums[i], codes[i]
            for _ in range(counts[t]):
                total += sizes[t]
                code += radix
                if total > high:
                    break
                if sums.size == size:
                    return sums[:0], codes[:0]
                sums[size], codes[size] = total, code
                size += 1
        radix *= counts[t] + 1
    order = np.argsort(sums[:size])
    return sums[:size][order], codes[:size][order]


@njit(cache=True)
def count_window(left: Any, right: Any, low: int, high: int, limit: int) -> int:
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


@njit(cache=True)
def list_window(
    sums_a: Any,
    codes_a: Any,
    sums_b: Any,
    codes_b: Any,
    counts: Any,
    low: int,
    high: int,
    found: int,
) -> Any:
    """(sum [found], how many of each type int16 [found, types]) of the `found` sets in the window.

    The first (types + 1) // 2 types are half a, the others half b.
    """
    types, middle = counts.size, (counts.size + 1) // 2
    sums, table = np.empty(found, np.int64), np.zeros((found, types), np.int16)
    start, stop, k = sums_b.size, sums_b.size, 0
    for i in range(sums_a.size):
        while start > 0 and sums_a[i] + sums_b[start - 1] >= low:
            start -= 1
        while stop > 0 and sums_a[i] + sums_b[stop - 1] > high:
            stop -= 1
        for j in range(start, stop):
            sums[k] = sums_a[i] + sums_b[j]
            code = codes_a[i]
            for t in range(middle):
                table[k, t] = code % (counts[t] + 1)
                code //= counts[t] + 1
            code = codes_b[j]
            for t in range(middle, types):
                table[k, t] = code % (counts[t] + 1)
                code //= counts[t] + 1
            k += 1
    return sums, table


@njit(cache=True)
def interleaved(sizes: Any) -> Any:
    """(distinct sizes, how many of each) of sorted sizes, small and large in both halves: the
    kernel's order of types.
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


@njit(cache=True)
def codes_fit(counts: Any) -> bool:
    """Whether the codes of both halves stay below 2**62."""
    middle = (counts.size + 1) // 2
    for half in (counts[:middle], counts[middle:]):
        bits = 0.0
        for count in half:
            bits += np.log2(count + 1.0)
        if bits > 61.0:
            return False
    return True
