"""Chunks by size, largest first: the order in which every LPT visits them."""

from __future__ import annotations

import numpy as np

from railopt.arrays import Array, Ints
from railopt.kernels import njit

__all__ = ["INDEX", "descending", "largest_first"]

INDEX = (1 << 32) - 1
"""The bits of a sorted word that hold the chunk's index."""

_PACKED_BELOW = 1 << 31


@njit(cache=True)
def _pack(size: Array) -> tuple[Array, int]:
    """Words `(largest - size) << 32 | index`, those of the largest size first; and how many they
    are.
    """
    count = size.size
    largest = size[0]
    for c in range(count):
        largest = max(largest, size[c])
    top = 0
    for c in range(count):
        top += size[c] == largest
    words = np.empty(count, np.int64)
    first, other = 0, top
    for c in range(count):
        below = largest - size[c]
        if below == 0:
            words[first] = c
            first += 1
        else:
            words[other] = (below << 32) | c
            other += 1
    return words, top


def descending(size: Array) -> Ints:
    """Chunks by size, largest first, equal sizes by index: words with the index in their low 32
    bits, int64 [C].  Sizes are below 2**31, and there is at least one.

    Chunks of the largest size (the cap, for cut traffic) are never sorted; the others go through
    numpy's vectorised sort, which beats a radix sort of our own on wide-vector machines and costs
    no code.
    """
    words, top = _pack(size)
    words[top:].sort()
    return words


def largest_first(size: Array) -> Ints:
    """As `descending`, for any sizes and any number of them; int64 [C]."""
    if not len(size):
        return np.empty(0, np.int64)
    if int(size.max()) < _PACKED_BELOW:
        return descending(size)
    return np.argsort(-size, kind="stable")
