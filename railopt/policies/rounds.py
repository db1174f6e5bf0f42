"""Chunks of one (sender, receiver) in turn over the rails."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints, ranks
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.common import Columns, Costs

__all__ = [
    "Unfinished",
    "by_pairs",
    "largest_of_each",
    "left_by_rounds",
    "left_over",
    "pair_numbers",
    "round_robin",
    "sparse",
    "whole_rounds",
]

TABLE = 1 << 24  # entries of a table over all pairs of nodes, however few chunks there are
ENTRIES = 16  # of one, per chunk


def sparse(chunks: int, entries: int) -> bool:
    """Whether a table over all pairs of nodes is far longer than there are chunks."""
    return entries > max(TABLE, ENTRIES * chunks)


def pair_numbers(src: Array, dst: Array, costs: Array, receivers: int) -> tuple[Array, int]:
    """(int [C], count): the number of each chunk's (sender, receiver) among all pairs or, where
    chunks are few, among those that occur; `costs` [senders, rails].
    """
    if len(costs) == 1:
        return dst, receivers
    pair = src.astype(np.int64) * receivers + dst
    if not sparse(len(pair), costs.size * receivers):
        return pair, len(costs) * receivers
    occurring, number = np.unique(pair, return_inverse=True)
    return number, len(occurring)


def by_pairs(chunks: Columns, receivers: int) -> tuple[Columns, Ints]:
    """The chunks, each pair of nodes that occurs, in order, a sender, and the receiver one and the
    same; and the pairs' own senders.
    """
    pair = chunks.src.astype(np.int64) * receivers + chunks.dst
    occurring, number = np.unique(pair, return_inverse=True)
    src, dst = number.astype(np.int32), np.zeros(len(pair), np.int32)
    src.flags.writeable = dst.flags.writeable = False  # as a chunk's own are: compiled once for all
    return chunks._replace(src=src, dst=dst), occurring // receivers


class Unfinished(NamedTuple):
    """What `whole_rounds` leaves of chunks on S senders, M receivers and T turns.

    turn     int32 [S, M]: how many largest chunks the pair's unfinished round has
    started  int32 [S, M, T]: which they are, the first turn[k, f] of row (k, f)
    others   int32: the chunks of other sizes
    """

    turn: Array
    started: Array
    others: Array


def _rounds_by_numpy(
    chunks: Columns, largest: Ints, receivers: int, turns: Array, rail: Array
) -> tuple[Array, Array, Array]:
    """`whole_rounds` for Python."""
    senders, n = len(largest), len(turns)
    at_cap = chunks.size == largest[chunks.src]
    rows, others = np.flatnonzero(at_cap), np.flatnonzero(~at_cap)
    pair = chunks.src[rows].astype(np.int64) * receivers + chunks.dst[rows]
    rank, count = ranks(pair, senders * receivers)
    rail[rows] = turns[rank % n]
    turn, started = count % n, np.zeros((senders * receivers, n), np.int32)
    last = rank >= (count - turn)[pair]
    started[pair[last], rank[last] % n] = rows[last]
    return (
        turn.astype(np.int32).reshape(senders, receivers),
        started.reshape(senders, receivers, n),
        others.astype(np.int32),
    )


@kernel(numpy=_rounds_by_numpy)
def whole_rounds(
    chunks: Columns, largest: Ints, receivers: int, turns: Array, rail: Array
) -> tuple[Array, Array, Array]:
    """Whole rounds of largest chunks of each (sender, receiver), `largest` [senders] bytes: one
    chunk to each entry of `turns` (the rails, faster ones more often).

    They load all rails alike at both ends, so what is left can be planned without them.  Returns
    the parts of an `Unfinished`; a plain tuple, because numba crashes on KeyboardInterrupt while it
    makes a named one for Python.
    """
    n, senders = turns.size, largest.size
    src, dst, size = chunks.src, chunks.dst, chunks.size
    turn = np.zeros(senders * receivers, np.int32)
    started = np.empty(senders * receivers * n, np.int32)
    others, found = np.empty(size.size, np.int32), 0
    for c in range(size.size):
        # unsigned indices: numba does not ask whether they count from the end
        k = np.uint64(src[c])
        if size[c] == largest[k]:
            pair = k * np.uint64(receivers) + np.uint64(dst[c])
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


@kernel
def left_over(unfinished: Unfinished) -> Array:
    """The chunks that `whole_rounds` left: the largest, pair by pair, then the others; int64."""
    turn, started, others = unfinished
    count = others.size
    for k in range(turn.shape[0]):
        for f in range(turn.shape[1]):
            count += turn[k, f]
    left, filled = np.empty(count, np.int64), 0
    for k in range(turn.shape[0]):
        for f in range(turn.shape[1]):
            for t in range(turn[k, f]):
                left[filled] = started[k, f, t]
                filled += 1
    for i in range(others.size):  # a slice's assignment is no faster and compiles 3 s longer
        left[filled + i] = others[i]
    return left


def _largest_by_numpy(src: Array, size: Array, senders: int) -> Ints:
    """`largest_of_each` for Python."""
    largest = np.zeros(senders, np.int64)
    np.maximum.at(largest, src, size)
    return largest


@part(numpy=_largest_by_numpy)
def largest_of_each(src: Array, size: Array, senders: int) -> Ints:
    """The bytes of each sender's largest chunk, int64 [senders]."""
    largest = np.zeros(senders, np.int64)
    for c in range(size.size):
        k = np.uint64(src[c])  # unsigned: numba does not ask whether it counts from the end
        if size[c] > largest[k]:
            largest[k] = size[c]
    return largest


def left_by_rounds(
    chunks: Columns, senders: int, receivers: int, turns: Array, rail: Array
) -> Array:
    """`whole_rounds` of each sender's own largest chunks, and the chunks that they leave; int64."""
    if not sparse(len(chunks.size), senders * receivers * len(turns)):
        return _left_by_rounds(chunks, senders, receivers, turns, rail)
    largest = largest_of_each(chunks.src, chunks.size, senders)
    paired, sender = by_pairs(chunks, receivers)
    return left_over(Unfinished(*whole_rounds(paired, largest[sender], 1, turns, rail)))


@kernel(element_s=PASSES_S)
def _left_by_rounds(
    chunks: Columns, senders: int, receivers: int, turns: Array, rail: Array
) -> Array:
    """`left_by_rounds` by a table over all pairs."""
    if senders == 1:
        largest = np.full(1, chunks.largest, np.int64)
    else:
        largest = largest_of_each(chunks.src, chunks.size, senders)
    turn, started, others = whole_rounds(chunks, largest, receivers, turns, rail)
    return left_over(Unfinished(turn, started, others))


def round_robin(src: Array, dst: Array, costs: Costs, turned: bool, rail: Array) -> None:
    """Chunks of each (sender, receiver) in turn over the living rails, faster rails more often.

    Starts at rail 0, or at rail (src + dst) mod N if `turned`; `src` are rows of `costs.tx`.
    """
    _round_robin((src, dst), pair_numbers(src, dst, costs.tx, len(costs.rx)), costs, turned, rail)


@kernel
def _round_robin(
    ends: tuple[Array, Array], pairs: tuple[Array, int], costs: Costs, turned: bool, rail: Array
) -> None:
    """`round_robin` of chunks from `ends[0]` to `ends[1]`, whose `pairs` are numbered."""
    (src, dst), (pair, count) = ends, pairs
    tx, rx = costs.tx, costs.rx
    rails = tx.shape[1]
    sent = np.zeros((count, rails), np.int64)
    for c in range(src.size):
        k, f, p = src[c], dst[c], pair[c]
        best, soonest = -1, costs.far
        for i in range(rails):
            n = (i + costs.first + k + f) % rails if turned else i
            finish = (sent[p, n] + 1) * max(tx[k, n], rx[f, n])
            if finish < soonest and min(tx[k, n], rx[f, n]) > 0:
                best, soonest = n, finish
        rail[c] = best
        sent[p, best] += 1
