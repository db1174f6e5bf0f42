"""The kernels behind `railopt.moves.rail_costs`, apart because they load numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.arrays import Array
from railopt.compiled import njit

__all__ = ["Hosts", "count", "hosts_of", "reaches"]


class Hosts(NamedTuple):
    """The GPUs that are near rail n: `gpus[first[n] : first[n + 1]]`, uint64 both."""

    gpus: Array
    first: Array


def hosts_of(near: Array) -> Hosts:
    """From bool [gpus, rails]."""
    first = np.concatenate([[0], np.cumsum(near.sum(axis=0))])
    return Hosts(np.nonzero(near.T)[1].astype(np.uint64), first.astype(np.uint64))


@njit(cache=True, inline="always")
def reaches(needed: Array, c: int, hosts: Hosts, n: int) -> bool:
    """Whether a GPU that needs chunk `c` is near rail `n`."""
    found = False
    for i in range(hosts.first[n], hosts.first[n + 1]):
        found |= needed[c, hosts.gpus[i]]
    return found


@njit(cache=True)
def count(needed: Array, source: Array, near: Array, hosts: Hosts, moves: Array) -> None:
    """Fill `moves` [C, rails]: how often each byte of a chunk is moved inside nodes, by the rail.

    needed   bool [C, gpus]: the GPUs of its node that need the chunk
    source   [C]: the GPU that it comes from, within its node
    near     bool [gpus, rails]
    """
    for c in range(moves.shape[0]):
        targets = needed[c].sum()
        for n in range(moves.shape[1]):
            staged = int(not near[source[c], n])
            moves[c, n] = targets + staged - int(reaches(needed, c, hosts, n))
