"""Perfect matchings on bit rows: what every decomposition into stages calls for each of its stages.

A bipartite graph of n rows and n columns is int64 [n, words(n)], column j being bit `j % BITS` of
word `j // BITS` of its row.  63 bits per word keep every word non-negative, so that the same code
runs compiled and as plain Python.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part

BITS = 63

# 2**k % 67 differs for k = 0 .. 65: the index of a lone bit in one step
_INDEX = np.zeros(67, np.int64)
for _bit in range(BITS):
    _INDEX[(1 << _bit) % 67] = _bit


@kernel
def words(n: int) -> int:
    """Words a row of n columns needs."""
    return (n + BITS - 1) // BITS


@kernel
def matching(n: int) -> Array:
    """Space for a matching of n rows, int64 [6, n + 1]: see the row names below."""
    return np.empty((6, n + 1), np.int64)


# row -> column; column -> row (-1: none); columns without a row, as bits; scratch of the search
MATE, _BACK, _FREE, _PARENT, _QUEUE, _BITS = range(6)


@kernel
def release(state: Array) -> None:
    """Unmatch everything."""
    n = state.shape[1] - 1
    for w in range(words(n)):
        state[_FREE, w] = 0
    for j in range(n):
        state[MATE, j] = state[_BACK, j] = -1
        state[_FREE, j // BITS] |= np.int64(1) << (j % BITS)


@part
def unmatch(state: Array, i: int) -> None:
    """Free row i and its column."""
    j = state[MATE, i]
    state[MATE, i] = state[_BACK, j] = -1
    state[_FREE, j // BITS] |= np.int64(1) << (j % BITS)


@part
def _greedy(graph: Array, state: Array) -> None:
    """Each row without a column takes its first free one."""
    n, width = graph.shape
    for i in range(n):
        if state[MATE, i] >= 0:
            continue
        for w in range(width):
            open_ = graph[i, w] & state[_FREE, w]
            if open_:
                low = open_ & -open_
                j = w * BITS + _INDEX[low % 67]
                state[MATE, i], state[_BACK, j] = j, i
                state[_FREE, w] ^= low
                break


@part
def _search(graph: Array, root: int, state: Array) -> int:
    """Breadth first over alternating paths from row `root`: the free column that ends one, or
    -1.
    """
    width = graph.shape[1]
    state[_QUEUE, 0] = root
    head, tail = 0, 1
    while head < tail:
        i = state[_QUEUE, head]
        head += 1
        for w in range(width):
            open_ = graph[i, w] & state[_FREE, w]
            if open_:
                j = w * BITS + _INDEX[(open_ & -open_) % 67]
                state[_PARENT, j] = i
                return int(j)
            fresh = graph[i, w] & ~state[_BITS, w]
            state[_BITS, w] |= fresh
            while fresh:
                low = fresh & -fresh
                fresh ^= low
                j = w * BITS + _INDEX[low % 67]
                state[_PARENT, j] = i
                state[_QUEUE, tail] = state[_BACK, j]
                tail += 1
    return -1


@kernel
def extend(graph: Array, state: Array, perfect: bool) -> bool:
    """Grow the matching in place as far as `graph` allows; True if every row has a column in the
    end.

    Rows and columns that are matched stay matched, perhaps to another partner, also where their old
    edge is not in `graph`.  With `perfect` the first row that can't be matched ends the search.
    """
    n, width = graph.shape
    _greedy(graph, state)
    whole, fresh = True, True
    for root in range(n):
        if state[MATE, root] >= 0:
            continue
        if fresh:
            for w in range(width):
                state[_BITS, w] = 0
        j = _search(graph, root, state)
        # no augmenting path leads on from what a failed search saw: the next one skips it
        fresh = j >= 0
        if j < 0:
            whole = False
            if perfect:
                return False
            continue
        state[_FREE, j // BITS] ^= np.int64(1) << (j % BITS)
        while True:
            i = state[_PARENT, j]
            before = state[MATE, i]
            state[MATE, i], state[_BACK, j] = j, i
            if i == root:
                break
            j = before
    return whole
