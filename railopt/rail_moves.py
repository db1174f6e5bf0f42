"""The kernel behind `railopt.moves.rail_costs`, apart because it loads numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.arrays import Array

__all__ = ["count"]


@njit(cache=True)
def count(needed: Array, source: Array, near: Array, moves: Array) -> None:
    """Fill `moves` [C, rails]: how often each byte of a chunk is moved inside nodes, by the rail.

    needed   bool [C, gpus]: the GPUs of its node that need the chunk
    source   [C]: the GPU that it comes from, within its node
    near     bool [gpus, rails]
    """
    gpus, rails = near.shape
    first = np.zeros(rails + 1, np.int64)  # the GPUs near rail n: hosts[first[n] : first[n + 1]]
    hosts = np.empty(gpus * rails, np.int64)
    for n in range(rails):
        end = first[n]
        for g in range(gpus):
            if near[g, n]:
                hosts[end] = g
                end += 1
        first[n + 1] = end
    for c in range(moves.shape[0]):
        targets = 0
        for g in range(gpus):
            targets += needed[c, g]
        for n in range(rails):
            reached = False
            for i in range(first[n], first[n + 1]):
                reached |= needed[c, hosts[i]]
            moves[c, n] = targets + (not near[source[c], n]) - reached
