"""LPT where rails differ, or where sums are too long for the words of equal_rails.py: one plain
kernel a policy.

Chunks are visited largest first, as sorted words that hold the chunk's index in their low bits
(by_size.py).  Costs are seconds a byte relative to the fastest NIC (float64: 1 on healthy rails, so
that finishing times there are whole bytes and ties are exact; infinity on dead ones, which
therefore never win).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.arrays import Array
from railopt.policies.by_size import INDEX
from railopt.policies.common import Columns, Costs

__all__ = ["lpt", "lpt_global", "lpt_local"]

_BLOCK = 1024


@njit(cache=True)
def lpt(words: Array, chunks: Columns, costs: Costs, rail: Array) -> None:
    """Each sender alone: a chunk goes to the rail where it would finish first, at the slower end's
    pace.
    """
    src, dst, size = chunks.src, chunks.dst, chunks.size
    tx, rx = costs.tx, costs.rx
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), np.float64)
    for i in range(words.size):
        c = words[i] & INDEX
        k, f = src[c], dst[c]
        best, soonest = -1, np.inf
        for n in range(rails):
            finish = busy[k, n] + size[c] * max(tx[k, n], rx[f, n])
            better = finish < soonest
            best = n if better else best
            soonest = min(finish, soonest)
        rail[c] = best
        busy[k, best] = soonest


@njit(cache=True)
def lpt_local(
    words: Array, rows: Array, chunks: Columns, costs: Costs, weight: int, rail: Array
) -> None:
    """As `lpt`, but a rail also counts `weight` times what this sender already put on it for this
    receiver; `words` sorts the chunks `rows`.

    Ties go round from rail (src + dst) mod N, so that senders with equal traffic do not gang up on
    one rail.
    """
    tx, rx = costs.tx, costs.rx
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), np.float64)
    pair = np.zeros((senders, rx.shape[0], rails), np.float64)
    chunk, ks, fs, sizes = (
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.float64),
    )
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        for i in range(block.size):  # a block ahead, as in lpt_global
            c = rows[block[i] & INDEX]
            chunk[i], ks[i], fs[i], sizes[i] = c, chunks.src[c], chunks.dst[c], chunks.size[c]
        for i in range(block.size):
            k, f, s = ks[i], fs[i], sizes[i]
            out, mine, out_cost, in_cost = busy[k], pair[k, f], tx[k], rx[f]
            start = (costs.first + k + f) % rails
            best, lowest, cost = -1, np.inf, 0.0
            for n in range(rails):
                time = s * max(out_cost[n], in_cost[n])
                score = out[n] + weight * mine[n] + time
                better = (score < lowest) | ((score == lowest) & (n >= start) & (best < start))
                best = n if better else best
                lowest = score if better else lowest
                cost = time if better else cost
            rail[chunk[i]] = best
            out[best] += cost
            mine[best] += cost


@njit(cache=True)
def lpt_global(words: Array, chunks: Columns, costs: Costs, rail: Array) -> None:
    """Largest chunk first to the rail that minimises the later of sender and receiver; ties by
    their sum, then by index.

    Chunks are fetched a block ahead: in sorted order their columns are far apart, and waiting for
    them would cost more than choosing their rails.
    """
    tx, rx = costs.tx, costs.rx
    nodes, rails = tx.shape
    send, recv = np.zeros((nodes, rails), np.float64), np.zeros((nodes, rails), np.float64)
    ks, fs, sizes = (
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.float64),
    )
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        for i in range(block.size):
            c = block[i] & INDEX
            ks[i], fs[i], sizes[i] = chunks.src[c], chunks.dst[c], chunks.size[c]
        for i in range(block.size):
            s = sizes[i]
            out, into, out_cost, in_cost = send[ks[i]], recv[fs[i]], tx[ks[i]], rx[fs[i]]
            best, latest, both = 0, np.inf, np.inf
            for n in range(rails):
                a, b = out[n] + s * out_cost[n], into[n] + s * in_cost[n]
                later, together = max(a, b), a + b
                better = (later < latest) | ((later == latest) & (together < both))
                best = n if better else best
                latest = later if better else latest
                both = together if better else both
            rail[block[i] & INDEX] = best
            out[best] += s * out_cost[best]
            into[best] += s * in_cost[best]
