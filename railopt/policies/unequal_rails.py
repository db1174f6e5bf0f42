"""LPT where rails differ, or where sums are too long for the words of by_size.py: one plain
kernel per policy.

Chunks are visited largest first, as sorted words that hold the chunk's index in their low bits
(by_size.py).  Times are whole numbers, bytes times `Costs`, so that a tie is a tie on every
machine; a rail that is dead at either end is passed over.  Where sums may pass 63 bits, the same
code runs uncompiled on Python's integers (`exact`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import PASSES_S, added_up, kernel
from railopt.policies.by_size import INDEX
from railopt.policies.common import Columns, Costs

__all__ = ["lpt", "lpt_global", "lpt_local", "summed"]

Kernel = Any

_BLOCK = 1024
_SUMS = 1 << 62  # sums of times stay below it


def summed(kernel: Kernel, costs: Costs, chunks: Columns, times: int = 1) -> tuple[Kernel, Costs]:
    """The kernel and the costs to call it with so that no sum is too long, where it adds up so many
    times what a node sends or receives.
    """
    dearest = times * max(int(costs.tx.max()), int(costs.rx.max()))
    if chunks.total * dearest < _SUMS or _busiest(chunks) * dearest < _SUMS:
        return kernel, costs
    far = 4 * chunks.total * dearest
    exact = Costs(costs.tx.astype(object), costs.rx.astype(object), costs.first, far)
    return kernel.plain, exact


def _busiest(chunks: Columns) -> int:
    """Bytes of the node that sends or receives most."""
    ends = chunks.src, chunks.dst
    return max(int(added_up(end, chunks.size, int(end.max()) + 1).max()) for end in ends)


@kernel(element_s=PASSES_S)
def lpt(words: Array, chunks: Columns, costs: Costs, rail: Array) -> None:
    """Each sender alone: a chunk goes to the rail where it would finish first, at the slower end's
    pace.
    """
    src, dst, size = chunks.src, chunks.dst, chunks.size
    tx, rx = costs.tx, costs.rx
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), tx.dtype)
    for i in range(words.size):
        c = words[i] & INDEX
        k, f = src[c], dst[c]
        s, best, soonest = int(size[c]), -1, costs.far
        for n in range(rails):
            finish = busy[k, n] + s * max(tx[k, n], rx[f, n])
            better = (finish < soonest) & (min(tx[k, n], rx[f, n]) > 0)
            best = n if better else best
            soonest = finish if better else soonest
        rail[c] = best
        busy[k, best] = soonest


@kernel(element_s=PASSES_S)
def lpt_local(
    words: Array,
    rows: Array,
    pairs: tuple[Array, int],
    chunks: Columns,
    costs: Costs,
    weight: int,
    rail: Array,
) -> None:
    """As `lpt`, but what this sender puts on a rail for this receiver, the chunk itself included,
    counts `weight` times more there; `words` sorts the chunks `rows`, whose `pairs` are numbered.
    A chunk whose `rail` is not -1 stays there.

    Ties go round from rail (src + dst) mod N, so that senders with equal traffic do not all choose
    the same rail.
    """
    src, dst, size = chunks.src, chunks.dst, chunks.size
    tx, rx = costs.tx, costs.rx
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), tx.dtype)
    number, count = pairs
    of_pair = np.zeros((count, rails), tx.dtype)
    chunk, ks, fs, ps, sizes = (
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, tx.dtype),
    )
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        for i in range(block.size):  # a block ahead, as in lpt_global
            row = block[i] & INDEX
            c = rows[row]
            chunk[i], ks[i], fs[i], sizes[i] = c, src[c], dst[c], int(size[c])
            ps[i] = number[row]
        for i in range(block.size):
            k, f, s = ks[i], fs[i], sizes[i]
            out, mine, out_cost, in_cost = busy[k], of_pair[ps[i]], tx[k], rx[f]
            start = (costs.first + k + f) % rails
            best, lowest = -1, costs.far
            for n in range(rails):
                time = s * max(out_cost[n], in_cost[n])
                score = out[n] + time + weight * (mine[n] + time)
                better = (score < lowest) | ((score == lowest) & (n >= start) & (best < start))
                better &= min(out_cost[n], in_cost[n]) > 0
                best = n if better else best
                lowest = score if better else lowest
            given = rail[chunk[i]]
            best = given if given >= 0 else best
            rail[chunk[i]] = best
            time = s * max(out_cost[best], in_cost[best])
            out[best] += time
            mine[best] += time


@kernel(element_s=PASSES_S)
def lpt_global(words: Array, chunks: Columns, costs: Costs, rail: Array) -> None:
    """Largest chunk first to the rail that minimises the later of sender and receiver; ties by
    their sum, then by index.

    Chunks are fetched a block ahead: in sorted order their columns are far apart, and waiting for
    them would cost more than choosing their rails.
    """
    src, dst, size = chunks.src, chunks.dst, chunks.size
    tx, rx = costs.tx, costs.rx
    nodes, rails = tx.shape
    send, recv = np.zeros((nodes, rails), tx.dtype), np.zeros((nodes, rails), tx.dtype)
    for k in range(nodes):  # a dead NIC is later than any other, and never chosen
        for n in range(rails):
            send[k, n] = costs.far // 4 if tx[k, n] == 0 else 0
            recv[k, n] = costs.far // 4 if rx[k, n] == 0 else 0
    ks, fs, sizes = (
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, tx.dtype),
    )
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        for i in range(block.size):
            c = block[i] & INDEX
            ks[i], fs[i], sizes[i] = src[c], dst[c], int(size[c])
        for i in range(block.size):
            s = sizes[i]
            out, into, out_cost, in_cost = send[ks[i]], recv[fs[i]], tx[ks[i]], rx[fs[i]]
            best, latest, both = -1, costs.far, costs.far
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
