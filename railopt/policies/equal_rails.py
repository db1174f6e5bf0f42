"""LPT where all rails are equal: sorted words (by_size.py), and loads whose minimum is the rail to
take.

    lpt          sender | largest - size | index               sorted by sender, then largest first,
                                                               then by index
    lpt-local    sender | largest - size | index | receiver    the same
    lpt-global   largest - size | index | sender | receiver    sorted largest first, then by index
    a load       bytes | rail                                  the least loaded rail, lowest index
                                                               among equals, is one minimum away;
                                                               or | turn, how far from the first
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.by_size import WordLayout, largest_in_front, sorted_words
from railopt.policies.common import Columns
from railopt.policies.rounds import ranks

__all__ = ["Spread", "fits", "lpt", "lpt_global", "lpt_local", "pairs_fit"]

_FAR = np.int64(1) << 62


def fits(chunks: Columns, senders: int, rails: int) -> bool:
    """Whether the words of these chunks and loads fit in 63 bits."""
    word = len(chunks.size).bit_length() + chunks.largest.bit_length() + senders.bit_length()
    load = chunks.total.bit_length() + (rails - 1).bit_length()
    return word <= 63 and load <= 62


def lpt(chunks: Columns, senders: int, rails: int, rail: Array) -> None:
    """Each sender's chunks, largest first, to its least loaded rail, the lowest index among equals;
    `fits` holds.
    """
    layout = WordLayout.of(chunks, senders, ends=0, grouped=True)
    _lpt(chunks, layout, (rails - 1).bit_length(), senders, rails, rail)


@kernel(element_s=PASSES_S)
def _lpt(
    chunks: Columns, layout: WordLayout, load_at: int, senders: int, rails: int, rail: Array
) -> None:
    """`lpt`, the bytes of a load above its `load_at` low bits."""
    seen = largest_in_turn(chunks, senders, rails, rail)
    words = sorted_words(chunks, None, layout, np.int64(0))
    _least_loaded(words, layout, load_at, seen, rails, rail)


def _in_turn_by_numpy(chunks: Columns, senders: int, rails: int, rail: Array) -> Ints:
    """`largest_in_turn` for Python."""
    rows = np.flatnonzero(chunks.size == chunks.largest)
    rank, count = ranks(chunks.src[rows], senders)
    rail[rows] = rank % rails
    return count


@part(numpy=_in_turn_by_numpy)
def largest_in_turn(chunks: Columns, senders: int, rails: int, rail: Array) -> Ints:
    """Chunks of the largest size go round each sender's rails; how many each had, int64
    [senders].
    """
    src, size, largest = chunks.src, chunks.size, chunks.largest
    turn, rounds = np.zeros(senders, np.int64), np.zeros(senders, np.int64)
    for c in range(size.size):
        if size[c] == largest:
            k = np.uint32(src[c])  # unsigned: numba does not ask whether it counts from the end
            t = turn[k]
            rail[c] = t
            if t + 1 < rails:
                turn[k] = t + 1
            else:
                turn[k] = 0
                rounds[k] += 1
    return rounds * rails + turn


@part
def _exchange(loads: Ints, pairs: tuple[tuple[int, int], ...]) -> None:
    """Each pair of places in order, so that the lower load stands first."""
    for a, b in pairs:
        low, high = min(loads[a], loads[b]), max(loads[a], loads[b])
        loads[a], loads[b] = low, high


@part
def _sort_loads(loads: Ints, rails: int) -> None:
    """Sort the loads: for eight rails by Batcher's network, which has no branches to mispredict,
    else by insertion.
    """
    if rails == 8:
        _exchange(loads, ((0, 4), (1, 5), (2, 6), (3, 7)))
        _exchange(loads, ((0, 2), (1, 3), (4, 6), (5, 7)))
        _exchange(loads, ((2, 4), (3, 5), (0, 1), (6, 7)))
        _exchange(loads, ((2, 3), (4, 5)))
        _exchange(loads, ((1, 4), (3, 6)))
        _exchange(loads, ((1, 2), (3, 4), (5, 6)))
        return
    for n in range(1, rails):
        moving, at = loads[n], n
        while at > 0 and loads[at - 1] > moving:
            loads[at] = loads[at - 1]
            at -= 1
        loads[at] = moving


@part
def _after_rounds(loads: Array, seen: int, largest: int, load_at: int, rails: int) -> None:
    """The sorted loads of a sender of whose largest chunks `seen` went round its rails: the first
    rails may have one chunk more, and then come last.
    """
    rounds, more = divmod(seen, rails)
    for place in range(rails):
        n = (place + more) % rails
        loads[place] = (((rounds + (n < more)) * largest) << load_at) | n


@part
def _put_on_least(loads: Array, added: int, rails: int) -> None:
    """Add to the lowest load and move it to its place among the sorted others."""
    moving = loads[0] + added
    for n in range(1, rails):
        other = loads[n]
        loads[n - 1] = min(other, moving)
        moving = max(other, moving)
    loads[rails - 1] = moving


@part
def _added(word: int, layout: WordLayout, load_at: int) -> int:
    """What a chunk's word adds to the word of its rail's load."""
    size_mask = (1 << (layout.group_at - layout.size_at)) - 1
    below = (word >> layout.size_at) & size_mask
    return (layout.largest - below) << load_at


@part
def _least_loaded(
    words: Ints, layout: WordLayout, load_at: int, seen: Ints, rails: int, rail: Array
) -> None:
    """The sorted others, each to its sender's least loaded rail, the lowest index among equals."""
    index, on_rail = (np.int64(1) << layout.size_at) - 1, (1 << load_at) - 1
    loads = np.empty(rails, np.int64)
    sender, i = np.int64(-1), 0
    while i < words.size:
        word = words[i]
        if word >> layout.group_at != sender:
            sender = word >> layout.group_at
            _after_rounds(loads, seen[sender], layout.largest, load_at, rails)
        if i + rails <= words.size:
            last = words[i + rails - 1]
            if (
                last >> layout.group_at == sender
                and loads[0] + _added(last, layout, load_at) > loads[rails - 1]
            ):
                # each of these chunks lifts its rail above all: they take the rails in order
                for n in range(rails):
                    word = words[i + n]
                    rail[np.uint64(word & index)] = loads[n] & on_rail
                    loads[n] += _added(word, layout, load_at)
                _sort_loads(loads, rails)
                i += rails
                continue
        rail[np.uint64(word & index)] = loads[0] & on_rail
        _put_on_least(loads, _added(word, layout, load_at), rails)
        i += 1


def pairs_fit(chunks: Columns, nodes: int, rails: int, weight: int = 1) -> bool:
    """Whether the words of `lpt_global`, and of `lpt_local` with this weight, fit in 63 bits."""
    count = len(chunks.size)
    word = count.bit_length() + chunks.largest.bit_length() + 2 * nodes.bit_length()
    load = ((1 + weight) * chunks.total).bit_length() + (rails - 1).bit_length()
    return word <= 63 and load <= 61


def lpt_global(chunks: Columns, nodes: int, rails: int, rail: Array) -> None:
    """Largest chunk first to the rail whose later end, sender or receiver, is least loaded; ties by
    the ends' sum, then by index.  There is a chunk, and `pairs_fit` holds.
    """
    layout = WordLayout.of(chunks, nodes, ends=2, grouped=False)
    words = largest_in_front(chunks, layout)
    earliest_at_both(words, layout, (rails - 1).bit_length(), nodes, rails, rail)


def _earliest_by_lists(
    words: Ints, layout: WordLayout, load_at: int, nodes: int, rails: int, rail: Array
) -> None:
    """`earliest_at_both` for Python, which is faster on lists."""
    node_bits, index_bits = layout.node_bits, layout.size_at - layout.index_at
    send, recv = ([[0] * rails for _ in range(nodes)] for _ in range(2))
    index, node = (1 << index_bits) - 1, (1 << node_bits) - 1
    for word in words.tolist():
        out, into = send[(word >> node_bits) & node], recv[word & node]
        later = list(map(max, out, into))
        first = min(later)
        best = later.index(first)
        if later.count(first) > 1:
            ties = [n for n in range(rails) if later[n] == first]
            best = min(ties, key=lambda n: out[n] + into[n])
        chunk = word >> layout.index_at
        rail[chunk & index] = best
        size = layout.largest - (chunk >> index_bits)
        out[best] += size
        into[best] += size


@kernel(numpy=_earliest_by_lists, element_s=PASSES_S)
def earliest_at_both(
    words: Ints, layout: WordLayout, load_at: int, nodes: int, rails: int, rail: Array
) -> None:
    """`lpt_global` on sorted words, the bytes of a load above its `load_at` low bits."""
    node_bits, index_bits = layout.node_bits, layout.size_at - layout.index_at
    send, recv = np.empty((nodes, rails), np.int64), np.empty((nodes, rails), np.int64)
    for n in range(rails):
        send[:, n] = recv[:, n] = n
    index, node = (np.int64(1) << index_bits) - 1, (np.int64(1) << node_bits) - 1
    on_rail = (1 << load_at) - 1
    for i in range(words.size):
        word = words[i]
        out, into = send[np.uint64((word >> node_bits) & node)], recv[np.uint64(word & node)]
        word >>= layout.index_at
        first, second = max(out[0], into[0]), _FAR
        for n in range(1, rails):
            later = max(out[n], into[n])
            second = min(second, max(first, later))
            first = min(first, later)
        best = first & on_rail
        if first >> load_at == second >> load_at:
            together = _FAR
            for n in range(rails):
                both = (out[n] >> load_at) + (into[n] >> load_at)
                if max(out[n], into[n]) >> load_at == first >> load_at and both < together:
                    best, together = n, both
        rail[np.uint64(word & index)] = best
        added = (layout.largest - (word >> index_bits)) << load_at
        out[best] += added
        into[best] += added


class Spread(NamedTuple):
    """Who spreads what over how many rails: senders `first`, first + 1, ..., and how many times
    more the bytes for the same receiver count.
    """

    senders: int
    receivers: int
    rails: int
    first: int
    weight: int


def lpt_local(chunks: Columns, rows: Ints, spread: Spread, rail: Array) -> None:
    """Each sender's chunks `rows`, largest first, to the rail with the fewest bytes, where those
    for the same receiver count `weight` times more.

    Ties go round from rail (src + dst) mod N, so that senders with equal traffic do not all choose
    the same rail.  There is a row, and `pairs_fit` holds.
    """
    nodes = max(spread.senders, spread.receivers)
    layout = WordLayout.of(chunks, nodes, ends=1, grouped=True)
    _lpt_local(chunks, rows, layout, spread, (spread.rails - 1).bit_length(), rail)


@kernel(element_s=PASSES_S)
def _lpt_local(
    chunks: Columns, rows: Ints, layout: WordLayout, spread: Spread, load_at: int, rail: Array
) -> None:
    """`lpt_local`, the bytes of a load above its `load_at` low bits."""
    words = sorted_words(chunks, rows, layout, np.int64(-1))
    _spread_pairs(words, layout, spread, load_at, rail)


@part
def _spread_pairs(
    words: Ints, layout: WordLayout, spread: Spread, load_at: int, rail: Array
) -> None:
    """Sorted words, each to the rail whose loads, the sender's and the pair's, have the least sum.

    The pair's has `weight` times its bytes, above the rail's turn.
    """
    node = (np.int64(1) << layout.node_bits) - 1
    index = (np.int64(1) << (layout.size_at - layout.index_at)) - 1
    size_mask = (np.int64(1) << (layout.group_at - layout.size_at)) - 1
    on_rail, rails = (1 << load_at) - 1, spread.rails
    out, pairs = np.empty(rails, np.int64), np.empty((spread.receivers, rails), np.int64)
    sender = np.int64(-1)
    for i in range(words.size):
        word = words[i]
        if word >> layout.group_at != sender:
            sender = word >> layout.group_at
            out[:] = 0
            for f in range(spread.receivers):
                for turn in range(rails):
                    pairs[f, (spread.first + sender + f + turn) % rails] = turn
        f = word & node
        row = np.uint64(f)  # unsigned: numba does not ask whether it counts from the end
        lowest = _FAR
        for n in range(rails):
            lowest = min(lowest, out[n] + pairs[row, n])
        best = (spread.first + sender + f + (lowest & on_rail)) % rails
        rail[np.uint64((word >> layout.index_at) & index)] = best
        added = (layout.largest - ((word >> layout.size_at) & size_mask)) << load_at
        out[np.uint64(best)] += added
        pairs[row, np.uint64(best)] += spread.weight * added
