"""The hot loops of the policies: numba over flat integer arrays, one implementation each (LPT on
equal rails: equal_rails.py).

Chunks are visited largest first, as sorted words that hold the chunk's index in their low bits.
`costs` are seconds a byte relative to the fastest NIC (float64: 1 on healthy rails, so that
finishing times there are whole bytes and ties are exact; infinity on dead ones, which therefore
never win).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

LOW = (1 << 32) - 1
_BLOCK = 1024


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


def descending(size: Array) -> Array:
    """Chunks by size, largest first, equal sizes by index: words with the index in their low 32
    bits, int64 [C].

    Chunks of the largest size (the cap, for cut traffic) are never sorted; the others go through
    numpy's vectorised sort, which beats a radix sort of our own on wide-vector machines and costs
    no code.
    """
    words, top = _pack(size)
    words[top:].sort()
    return words


@njit(cache=True)
def lpt_unequal(
    words: Array, src: Array, dst: Array, size: Array, tx: Array, rx: Array, rail: Array
) -> None:
    """Each sender alone, for rails that differ: a chunk goes to the rail where it would finish
    first, at the slower end's pace.
    """
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), np.float64)
    for i in range(words.size):
        c = words[i] & LOW
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
def rounds(
    src: Array,
    dst: Array,
    size: Array,
    largest: int,
    senders: int,
    receivers: int,
    turns: Array,
    rail: Array,
) -> tuple[Array, Array, Array]:
    """Whole rounds of largest chunks of each (sender, receiver): one chunk to each entry of `turns`
    (the rails, faster
    ones more often).  They load all rails alike at both ends, so what is left can be planned
                       without them.

    Returns how many chunks each pair's unfinished round has, int32 [senders, receivers]; which they
    are, int32 [senders, receivers, turns]; and the chunks of other sizes.
    """
    n = turns.size
    turn = np.zeros(senders * receivers, np.int32)
    started = np.empty(senders * receivers * n, np.int32)
    others, found = np.empty(size.size, np.int32), 0
    for c in range(size.size):
        if (
            size[c] == largest
        ):  # unsigned indices: numba does not ask whether they count from the end
            pair = np.uint64(src[c]) * np.uint64(receivers) + np.uint64(dst[c])
            t = turn[pair]
            rail[c] = turns[np.uint32(t)]
            started[pair * np.uint64(n) + np.uint64(t)] = c
            turn[pair] = t + 1 if t + 1 < n else 0
        else:
            others[found] = c
            found += 1
    return (
        turn.reshape((senders, receivers)),
        started.reshape((senders, receivers, n)),
        others[:found],
    )


@njit(cache=True)
def unfinished(turn: Array, started: Array, others: Array) -> Array:
    """The chunks that `rounds` left: the largest, pair by pair, then the others; int64."""
    left = np.empty(turn.sum() + others.size, np.int64)
    filled = 0
    for k in range(turn.shape[0]):
        for f in range(turn.shape[1]):
            for t in range(turn[k, f]):
                left[filled] = started[k, f, t]
                filled += 1
    left[filled:] = others
    return left


@njit(cache=True)
def lpt_local_unequal(
    words: Array,
    rows: Array,
    src: Array,
    dst: Array,
    size: Array,
    tx: Array,
    rx: Array,
    first: int,
    weight: float,
    rail: Array,
) -> None:
    """As `lpt_unequal`, but a rail also counts `weight` times what this sender already put on it
    for this receiver.

    `words` sorts the chunks `rows`; row k of `tx` is node first + k.  Ties go round from rail (src
    + dst) mod N, so that senders with equal traffic do not gang up on one rail.
    """
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
        for i in range(block.size):  # a block ahead, as in lpt_global_unequal
            c = rows[block[i] & LOW]
            chunk[i], ks[i], fs[i], sizes[i] = c, src[c], dst[c], size[c]
        for i in range(block.size):
            k, f, s = ks[i], fs[i], sizes[i]
            out, mine, out_cost, in_cost = busy[k], pair[k, f], tx[k], rx[f]
            start = (first + k + f) % rails
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
def lpt_global_unequal(
    words: Array, src: Array, dst: Array, size: Array, tx: Array, rx: Array, rail: Array
) -> None:
    """Largest chunk first to the rail that minimises the later of sender and receiver; ties by
    their sum, then by index.

    Chunks are fetched a block ahead: in sorted order their columns are far apart, and waiting for
    them would cost more than choosing their rails.
    """
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
            c = block[i] & LOW
            ks[i], fs[i], sizes[i] = src[c], dst[c], size[c]
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
            rail[block[i] & LOW] = best
            out[best] += s * out_cost[best]
            into[best] += s * in_cost[best]


@njit(cache=True)
def cut_row(
    row: Array,
    node: int,
    gpus: int,
    cap: int,
    joined: Array,
    dst: Array,
    src_gpu: Array,
    dst_gpu: Array,
    offset: Array,
    size: Array,
) -> tuple[int, int]:
    """Cut one node's flows into chunks of at most `cap`, into the given columns as far as they
    reach.

    Returns how many chunks there are, and a node that can't be sent to though there are bytes for
    it, or -1.
    """
    count = 0
    for g in range(row.shape[0]):
        for h in range(row.shape[1]):
            left, f = row[g, h], h // gpus
            if left == 0 or f == node:
                continue
            if left < 0 or not joined[f]:
                return 0, f
            at = np.int64(0)
            while left > 0:
                if count < size.size:
                    dst[count], src_gpu[count], dst_gpu[count] = f, node * gpus + g, h
                    offset[count], size[count] = at, min(left, cap)
                count += 1
                at += cap
                left -= cap
    return count, -1


@njit(cache=True)
def round_robin(src: Array, dst: Array, tx: Array, rx: Array, turned: bool, rail: Array) -> None:
    """Chunks of each (sender, receiver) in turn over the living rails, faster rails more often.

    Starts at rail 0, or at rail (src + dst) mod N if `turned`.
    """
    nodes, rails = tx.shape
    sent = np.zeros((nodes, nodes, rails), np.int64)
    for c in range(src.size):
        k, f = src[c], dst[c]
        best, soonest = -1, np.inf
        for i in range(rails):
            n = (i + k + f) % rails if turned else i
            finish = (sent[k, f, n] + 1) * max(tx[k, n], rx[f, n])
            if finish < soonest:
                best, soonest = n, finish
        rail[c] = best
        sent[k, f, best] += 1
