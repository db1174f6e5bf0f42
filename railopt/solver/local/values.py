"""Good assignments fast.  Sizes are int64 in descending order; an assignment is int64 [n], the rail
of each job.

LPT: Graham (1969).  Differencing: Karmarkar, Karp (1982), in the N-way form of Michiels, Korst,
Aarts (2003).
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel


@kernel
def loads_of(sizes: Array, assignment: Array, rails: int) -> Array:
    """int64 [rails]: bytes on each rail, exact."""
    loads = np.zeros(rails, np.int64)
    for job in range(sizes.size):
        loads[assignment[job]] += sizes[job]
    return loads


@kernel
def lpt(sizes: Array, speeds: Array) -> Array:
    """Each job, largest first, to the rail that would be done with it first; speeds float64
    [rails].
    """
    assignment, loads = np.empty(sizes.size, np.int64), np.zeros(speeds.size, np.int64)
    for job in range(sizes.size):
        rail = 0
        for other in range(1, speeds.size):
            later = (loads[other] + sizes[job]) * speeds[rail]
            if later < (loads[rail] + sizes[job]) * speeds[other]:
                rail = other
        assignment[job] = rail
        loads[rail] += sizes[job]
    return assignment


@kernel
def differencing(sizes: Array, rails: int) -> Array:
    """Partial partitions, the two with the largest spread joined: fullest rails of one with
    emptiest of the other.
    """
    n = sizes.size
    loads = np.zeros((n, rails), np.int64)  # each row falling, its smallest entry 0
    loads[:, 0] = sizes
    # linked lists of jobs
    first, last = np.full((n, rails), -1, np.int64), np.full((n, rails), -1, np.int64)
    following = np.full(n, -1, np.int64)
    first[:, 0] = np.arange(n)
    last[:, 0] = np.arange(n)
    spread, alive, left = sizes.copy(), np.arange(n), n
    joined, heads, tails = (
        np.empty(rails, np.int64),
        np.empty(rails, np.int64),
        np.empty(rails, np.int64),
    )
    while left > 1:
        x = np.argmax(spread[alive[:left]])
        a = alive[x]
        left -= 1
        alive[x] = alive[left]
        b = alive[np.argmax(spread[alive[:left]])]
        for k in range(rails):
            other = rails - 1 - k
            joined[k] = loads[a, k] + loads[b, other]
            heads[k], tails[k] = first[a, k], last[a, k]
            if heads[k] < 0:
                heads[k], tails[k] = first[b, other], last[b, other]
            elif first[b, other] >= 0:
                following[tails[k]] = first[b, other]
                tails[k] = last[b, other]
        order = np.argsort(-joined, kind="mergesort")
        for k in range(rails):
            loads[b, k] = joined[order[k]] - joined[order[rails - 1]]
            first[b, k], last[b, k] = heads[order[k]], tails[order[k]]
        spread[b] = loads[b, 0]
    assignment = np.empty(n, np.int64)
    for k in range(rails):
        job = first[alive[0], k]
        while job >= 0:
            assignment[job] = k
            job = following[job]
    return assignment
