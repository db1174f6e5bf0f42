"""Subsets of a pool of jobs with a sum near a target, by meeting in the middle (Horowitz, Sahni
1974).
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part

POOL = 60  # jobs in a pool at most: their subset is the bits of an int64


@part
def sorted_sums(
    pool: Array, start: int, stop: int, most: int, found: Array, spare: Array
) -> tuple[int, int]:
    """(how many, end): all subset sums of at most `most` of pool[start:end], rising, with their
    masks.

    found, spare   int64 [2, m]: sums and masks, and room to merge them in
    `end` is `stop`, or earlier where the next job might overflow the buffers.
    """
    sums, masks, spare_s, spare_m = found[0], found[1], spare[0], spare[1]
    size, end = 1, start
    sums[0], masks[0] = 0, 0
    while end < stop:
        value, bit = pool[end], np.int64(1) << np.int64(end)
        fitting = np.searchsorted(sums[:size], most - value, side="right")
        if size + fitting > sums.size:
            break
        i, j, k = 0, 0, 0
        while j < fitting:
            if i < size and sums[i] <= sums[j] + value:
                spare_s[k], spare_m[k] = sums[i], masks[i]
                i += 1
            else:
                spare_s[k], spare_m[k] = sums[j] + value, masks[j] | bit
                j += 1
            k += 1
        spare_s[k : k + size - i], spare_m[k : k + size - i] = sums[i:size], masks[i:size]
        size += fitting
        sums[:size], masks[:size] = spare_s[:size], spare_m[:size]
        end += 1
    return size, end


@kernel
def best_subset(pool: Array, length: int, low: int, high: int, buffers: Array) -> tuple[int, int]:
    """(sum, mask) of a subset of pool[:length] with the largest sum of at most `high`; any sum of
    at least `low` will do.

    pool int64 [at most POOL], buffers int64 [6, m]; jobs that do not fit into the buffers stay
    out.  (-1, 0) where high < 0.
    """
    if high < 0:
        return -1, 0
    size_a, end = sorted_sums(pool, 0, length // 2, high, buffers[:2], buffers[4:])
    size_b, _ = sorted_sums(pool, end, length, high, buffers[2:4], buffers[4:])
    sums_a, sums_b = buffers[0], buffers[2]
    i, j, best, mask = 0, size_b - 1, -1, 0
    while i < size_a and j >= 0:
        total = sums_a[i] + sums_b[j]
        if total > high:
            j -= 1
            continue
        if total > best:
            best, mask = total, buffers[1, i] | buffers[3, j]
            if best >= low:
                break
        i += 1
    return best, mask
