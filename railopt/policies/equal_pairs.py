"""LPT where all rails are equal and both ends of a chunk count: sorted words and loads, as in
equal_rails.py.

    lpt-global   largest - size | index | sender | receiver    sorted largest first, then by index
    lpt-local    sender | largest - size | index | receiver    sender by sender, so that one's loads
                                                               stay at hand
    a load       bytes | rail                                  or | turn, how far from the first
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.by_size import WordLayout, largest_in_front, sorted_words
from railopt.policies.common import Columns

__all__ = ["Spread", "fits", "lpt_global", "lpt_local"]

_FAR = np.int64(1) << 62


def fits(chunks: Columns, nodes: int, rails: int, weight: int = 1) -> bool:
    """Whether the words of `lpt_global`, and of `lpt_local` with this weight, fit in 63 bits."""
    count = len(chunks.size)
    word = count.bit_length() + chunks.largest.bit_length() + 2 * nodes.bit_length()
    load = ((1 + weight) * chunks.total).bit_length() + (rails - 1).bit_length()
    return word <= 63 and load <= 61


def lpt_global(chunks: Columns, nodes: int, rails: int, rail: Array) -> None:
    """Largest chunk first to the rail whose later end, sender or receiver, is least loaded; ties by
    the ends' sum, then by index.  There is a chunk, and `fits` holds.
    """
    layout = WordLayout.of(chunks, nodes, ends=2, grouped=False)
    words = largest_in_front(chunks, layout)
    _earliest_at_both(words, layout, (rails - 1).bit_length(), nodes, rails, rail)


def _earliest_by_lists(
    words: Ints, layout: WordLayout, load_at: int, nodes: int, rails: int, rail: Array
) -> None:
    """`_earliest_at_both` for Python, which is faster on lists."""
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
def _earliest_at_both(
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

    Ties go round from rail (src + dst) mod N, so that senders with equal traffic do not gang up on
    one rail.  There is a row, and `fits` holds.
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
