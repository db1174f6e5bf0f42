"""The hot loops of the policies: numba over flat integer arrays, one implementation each.

Loads of a sender's rails are kept as sorted words `load << bits | rail`, so that the least loaded rail (the lowest
index among equals) is the first word and a chunk costs one branch-free insertion.  Where rails differ, or the words
would overflow, `lpt_unequal` compares finishing times instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

LOW = (1 << 32) - 1


@njit(cache=True)
def _pack(size: Array) -> tuple[Array, int]:
    """Words `(largest - size) << 32 | index`, those of the largest size first; and how many they are."""
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
    """Chunks by size, largest first, equal sizes by index, as words `(largest - size) << 32 | index`, int64 [C].

    Chunks of the largest size (the cap, for cut traffic) are never sorted; the others go through numpy's vectorised
    sort, which beats a radix sort of our own on wide-vector machines and costs no code.
    """
    words, top = _pack(size)
    words[top:].sort()
    return words


@njit(cache=True)
def _insert(loads: Array, row: int, rails: int, added: int) -> int:
    """Add `added` to the first word of a sorted row and restore its order; the rail that got it is in the word's low bits."""
    word = loads[row, 0]
    moving = word + added
    for i in range(1, rails):
        other = loads[row, i]
        loads[row, i - 1] = min(other, moving)
        moving = max(other, moving)
    loads[row, rails - 1] = moving
    return word


@njit(cache=True)
def lpt(words: Array, largest: int, src: Array, nodes: int, rails: int, bits: int, rail: Array) -> None:
    """Each sender alone: its chunks, largest first, to its least loaded rail; all rails equal."""
    loads = np.empty((nodes, rails), np.int64)
    for k in range(nodes):
        for n in range(rails):
            loads[k, n] = n
    mask = (1 << bits) - 1
    for i in range(words.size):
        c = words[i] & LOW
        rail[c] = _insert(loads, src[c], rails, (largest - (words[i] >> 32)) << bits) & mask


@njit(cache=True)
def lpt_unequal(words: Array, src: Array, dst: Array, size: Array, tx: Array, rx: Array, rail: Array) -> None:
    """As `lpt`, for rails that differ: a chunk goes to the living rail where it would finish first.

    It takes size / min(tx, rx) there; `tx`, `rx` are float64 shares of the fastest NIC's rate, so that times on healthy
    rails are whole bytes and ties are exact.
    """
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), np.float64)
    for i in range(words.size):
        c = words[i] & LOW
        k, f = src[c], dst[c]
        best, soonest = -1, 0.0
        for n in range(rails):
            width = min(tx[k, n], rx[f, n])
            if width > 0:
                finish = busy[k, n] + size[c] / width
                if best < 0 or finish < soonest:
                    best, soonest = n, finish
        rail[c] = best
        busy[k, best] = soonest


@njit(cache=True)
def settle_rounds(src: Array, dst: Array, size: Array, senders: int, receivers: int, turns: Array, rail: Array) -> Array:
    """Whole rounds of largest chunks of each (sender, receiver): one chunk to each entry of `turns` (the rails, faster
    ones more often).  They load all rails alike at both ends, so what is left can be planned without them.

    Returns the indices of the chunks that are left.
    """
    n, largest = turns.size, size[0]
    for c in range(size.size):
        largest = max(largest, size[c])
    whole = np.zeros((senders, receivers), np.int64)
    for c in range(size.size):
        whole[src[c], dst[c]] += size[c] == largest
    for k in range(senders):
        for f in range(receivers):
            whole[k, f] -= whole[k, f] % n
    left, found = np.empty(size.size, np.int64), 0
    turn = np.zeros((senders, receivers), np.int64)
    for c in range(size.size):
        k, f = src[c], dst[c]
        t = turn[k, f]
        if size[c] == largest and whole[k, f] > 0:
            whole[k, f] -= 1
            rail[c] = turns[t]
            turn[k, f] = t + 1 if t + 1 < n else 0
        else:
            left[found] = c
            found += 1
    return left[:found]


@njit(cache=True)
def lpt_local(words: Array, rows: Array, src: Array, dst: Array, size: Array, tx: Array, rx: Array, first: int, weight: float,
              rail: Array) -> None:
    """As `lpt_unequal`, but a rail also counts `weight` times what this sender already put on it for this receiver.

    `words` sorts the chunks `rows`; row k of `tx` is node first + k.  Ties go round from rail (src + dst) mod N, so that
    senders with equal traffic do not gang up on one rail.
    """
    senders, rails = tx.shape
    busy = np.zeros((senders, rails), np.float64)
    pair = np.zeros((senders, rx.shape[0], rails), np.float64)
    for i in range(words.size):
        c = rows[words[i] & LOW]
        k, f = src[c], dst[c]
        best, lowest, cost = -1, 0.0, 0.0
        n = (first + k + f) % rails
        for _ in range(rails):
            width = min(tx[k, n], rx[f, n])
            if width > 0:
                time = size[c] / width
                score = busy[k, n] + weight * pair[k, f, n] + time
                if best < 0 or score < lowest:
                    best, lowest, cost = n, score, time
            n += 1
            if n == rails:
                n = 0
        rail[c] = best
        busy[k, best] += cost
        pair[k, f, best] += cost


@njit(cache=True)
def lpt_global(words: Array, src: Array, dst: Array, size: Array, tx: Array, rx: Array, rail: Array) -> None:
    """Largest chunk first to the rail that minimises the later of sender and receiver; ties by their sum, then by index.

    `tx`, `rx` as in `lpt_unequal`.
    """
    nodes, rails = tx.shape
    send = np.zeros((nodes, rails), np.float64)
    recv = np.zeros((nodes, rails), np.float64)
    for i in range(words.size):
        c = words[i] & LOW
        k, f, s = src[c], dst[c], size[c]
        best, latest, both = -1, 0.0, 0.0
        for n in range(rails):
            if tx[k, n] > 0 and rx[f, n] > 0:
                a, b = (send[k, n] + s) / tx[k, n], (recv[f, n] + s) / rx[f, n]
                later = max(a, b)
                if best < 0 or later < latest or (later == latest and a + b < both):
                    best, latest, both = n, later, a + b
        rail[c] = best
        send[k, best] += s
        recv[f, best] += s


@njit(cache=True)
def cut_row(row: Array, node: int, gpus: int, cap: int, joined: Array, dst: Array, src_gpu: Array, dst_gpu: Array,
            offset: Array, size: Array) -> tuple[int, int]:
    """Cut one node's flows into chunks of at most `cap`, into the given columns as far as they reach.

    Returns how many chunks there are, and a node that can't be sent to though there are bytes for it, or -1.
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
        best, soonest = -1, 0.0
        for i in range(rails):
            n = (i + k + f) % rails if turned else i
            width = min(tx[k, n], rx[f, n])
            if width > 0:
                finish = (sent[k, f, n] + 1) / width
                if best < 0 or finish < soonest:
                    best, soonest = n, finish
        rail[c] = best
        sent[k, f, best] += 1
