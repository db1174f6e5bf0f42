"""A server matrix -> stages.  In a stage each server sends to at most one server and receives from
at most one.

Every kernel takes int64 [n, n] bytes between servers (zero diagonal) and returns `(peer, sent)`,
both [stages, n]: server i sends `sent[s, i]` bytes to server `peer[s, i]` in stage s; an idle
server has peer -1.  A stage lasts as long as its largest transfer.  L is the largest row or column
sum: no schedule is shorter.

    birkhoff   FAST (arXiv 2505.09764): fill up to equal line sums, then any perfect matching, as
               long as its smallest entry lasts.  Total exactly L, up to n**2 - 2n + 2 stages.
    shifted    SpreadOut: stage d sends i -> i + d.  n - 1 stages, total the sum of the diagonals'
               largest entries.
    compact    ours, in `railopt.schedule.compact`: total at most (1 + eps) L in few stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.schedule.matching import BITS, MATE, extend, matching, release, unmatch, words


@kernel
def line_sums(matrix: Array) -> tuple[Array, Array]:
    """Row sums and column sums, int64 [n] each."""
    n = len(matrix)
    rows, columns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            rows[i] += matrix[i, j]
            columns[j] += matrix[i, j]
    return rows, columns


@part
def most(values: Array) -> int:
    """The largest of int64 [n], or 0: a loop, which compiles 1 s faster than `max` of an array."""
    found = np.int64(0)
    for i in range(len(values)):
        found = max(found, values[i])
    return int(found)


@kernel
def longest_line(matrix: Array) -> int:
    """L: the largest row or column sum."""
    rows, columns = line_sums(matrix)
    return int(max(most(rows), most(columns)))


@kernel
def fill(matrix: Array) -> tuple[Array, int]:
    """The matrix with virtual bytes added until every line sums to L, and L.  Lines of sum L get
    none.
    """
    rows, columns = line_sums(matrix)
    longest = max(most(rows), most(columns))
    full = matrix.copy()
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            virtual = min(longest - rows[i], longest - columns[j])
            full[i, j] += virtual
            rows[i] += virtual
            columns[j] += virtual
    return full, longest


class Stages(NamedTuple):
    """Stages found so far.

    peer   int32 [room, n]
    sent   int64 [room, n]
    used   int64 [1]: how many of them there are
    """

    peer: Array
    sent: Array
    used: Array


@part
def no_stages(n: int) -> Stages:
    """Room for the first 4n stages."""
    return Stages(
        np.empty((4 * n, n), np.int32), np.empty((4 * n, n), np.int64), np.zeros(1, np.int64)
    )


@part
def doubled(peer: Array, sent: Array) -> tuple[Array, Array]:
    """The same with twice the room: a loop, which compiles 1.7 s faster than np.concatenate."""
    room, n = peer.shape
    peers, bytes_ = np.empty((2 * room, n), np.int32), np.empty((2 * room, n), np.int64)
    for s in range(room):
        for i in range(n):
            peers[s, i], bytes_[s, i] = peer[s, i], sent[s, i]
    return peers, bytes_


@part
def tables(stages: Stages) -> tuple[Array, Array]:
    """(peer, sent), both [stages, n]."""
    count = stages.used[0]
    return stages.peer[:count].copy(), stages.sent[:count].copy()


@kernel
def birkhoff(matrix: Array) -> tuple[Array, Array]:
    """FAST's decomposition; each matching starts from what is left of the one before.

    Real bytes go before virtual ones, which are never sent.
    """
    n = len(matrix)
    full, left = fill(matrix)
    real = matrix.copy()
    graph = np.zeros((n, words(n)), np.int64)
    for i in range(n):
        for j in range(n):
            if full[i, j]:
                graph[i, j // BITS] |= np.int64(1) << (j % BITS)
    state, (peer, sent, used) = matching(n), no_stages(n)
    release(state)
    while left > 0:
        extend(graph, state, np.bool_(True))
        length = left
        for i in range(n):
            length = min(length, full[i, state[MATE, i]])
        if used[0] == len(peer):
            peer, sent = doubled(peer, sent)
        s, busy = used[0], False
        for i in range(n):
            j = state[MATE, i]
            size = min(length, real[i, j])
            sent[s, i], peer[s, i] = size, j if size else -1
            real[i, j] -= size
            busy |= size > 0
            full[i, j] -= length
            if full[i, j] == 0:
                graph[i, j // BITS] ^= np.int64(1) << (j % BITS)
                unmatch(state, i)
        left -= length
        used[0] += busy
    return tables(Stages(peer, sent, used))


@kernel
def shifted(matrix: Array) -> tuple[Array, Array]:
    """SpreadOut: stage d - 1 sends i -> (i + d) % n.  Empty diagonals have no stage."""
    n = len(matrix)
    peer, sent, stage = np.full((n, n), -1, np.int32), np.zeros((n, n), np.int64), 0
    for d in range(1, n):
        busy = False
        for i in range(n):
            j = (i + d) % n
            sent[stage, i] = matrix[i, j]
            peer[stage, i] = j if matrix[i, j] else -1
            busy |= matrix[i, j] > 0
        stage += busy
    return peer[:stage].copy(), sent[:stage].copy()
