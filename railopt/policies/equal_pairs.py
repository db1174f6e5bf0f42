"""LPT where all rails are equal and both ends of a chunk count (`lpt-local`, `lpt-global`): sorted
words that hold all there is to know of a chunk, as in equal_rails.py.

    a chunk    largest - size | index | sender | receiver      sorted largest first, then by index
    a load     bytes | rail
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.arrays import Array, Ints
from railopt.kernels import njit
from railopt.policies.common import Columns

__all__ = ["Spread", "fits", "lpt_global", "lpt_local"]

_FAR = np.int64(1) << 62


def fits(chunks: Columns, nodes: int, rails: int, weight: int = 1) -> bool:
    """Whether the words of `lpt_global`, and of `lpt_local` with this weight, fit in 63 bits."""
    count = len(chunks.size)
    word = count.bit_length() + chunks.largest.bit_length() + 2 * nodes.bit_length()
    load = ((1 + weight) * chunks.total).bit_length() + (rails - 1).bit_length()
    return word <= 63 and load <= 61


class Layout(NamedTuple):
    """How a word is read, from its low bits to its high ones.

    largest      bytes of the largest chunk
    node_bits    of the receiver, and as many of the sender
    index_bits   of the chunk's index; above it is `largest - size`
    load_at      the bit of a load at which its bytes start, above the rail
    """

    largest: int
    node_bits: int
    index_bits: int
    load_at: int


def _layout(largest: int, count: int, nodes: int, rails: int) -> Layout:
    """The layout of `count` chunks' words."""
    node_bits, index_bits = (nodes - 1).bit_length(), (count - 1).bit_length()
    return Layout(largest, node_bits, index_bits, (rails - 1).bit_length())


@njit(cache=True)
def _pack(chunks: Columns, rows: Array | None, layout: Layout) -> tuple[Ints, int]:
    """The words of the chunks `rows`, each with its place in `rows` as index, or of all chunks;
    those of the largest size first, and how many they are.
    """
    src, dst, size, largest = chunks.src, chunks.dst, chunks.size, layout.largest
    node_bits, index_bits = layout.node_bits, layout.index_bits
    count, top = size.size if rows is None else rows.size, 0
    for i in range(count):
        top += size[i if rows is None else rows[i]] == largest
    words = np.empty(count, np.int64)
    first, other = 0, top
    for i in range(count):
        c = i if rows is None else rows[i]
        below = largest - size[c]
        word = (((((below << index_bits) | i) << node_bits) | src[c]) << node_bits) | dst[c]
        if below == 0:
            words[first] = word
            first += 1
        else:
            words[other] = word
            other += 1
    return words, top


def _sorted_words(chunks: Columns, rows: Array | None, layout: Layout) -> Ints:
    words, top = _pack(chunks, rows, layout)
    words[top:].sort()
    return words


def lpt_global(chunks: Columns, nodes: int, rails: int, rail: Array) -> None:
    """Largest chunk first to the rail whose later end, sender or receiver, is least loaded; ties by
    the ends' sum, then by index.  There is a chunk, and `fits` holds.
    """
    layout = _layout(chunks.largest, len(chunks.size), nodes, rails)
    _earliest_at_both(_sorted_words(chunks, None, layout), layout, nodes, rails, rail)


@njit(cache=True)
def _earliest_at_both(words: Ints, layout: Layout, nodes: int, rails: int, rail: Array) -> None:
    node_bits, index_bits, load_at = layout.node_bits, layout.index_bits, layout.load_at
    send, recv = np.empty((nodes, rails), np.int64), np.empty((nodes, rails), np.int64)
    for n in range(rails):
        send[:, n] = recv[:, n] = n
    index, node = (np.int64(1) << index_bits) - 1, (np.int64(1) << node_bits) - 1
    on_rail = (1 << load_at) - 1
    for i in range(words.size):
        word = words[i]
        out, into = send[np.uint64((word >> node_bits) & node)], recv[np.uint64(word & node)]
        word >>= 2 * node_bits
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
    layout = _layout(chunks.largest, len(rows), nodes, spread.rails)
    _spread_pairs(_sorted_words(chunks, rows, layout), rows, layout, spread, rail)


@njit(cache=True)
def _spread_pairs(words: Ints, rows: Ints, layout: Layout, spread: Spread, rail: Array) -> None:
    node_bits, index_bits, load_at = layout.node_bits, layout.index_bits, layout.load_at
    senders, receivers, rails = spread.senders, spread.receivers, spread.rails
    busy = np.zeros((senders, rails), np.int64)
    pair = np.zeros((senders * receivers, rails), np.int64)
    starts = (spread.first + np.arange(senders + receivers)) % rails
    index, node = (np.int64(1) << index_bits) - 1, (np.int64(1) << node_bits) - 1
    on_rail = (1 << load_at) - 1
    for i in range(words.size):
        word = words[i]
        k, f = (word >> node_bits) & node, word & node
        word >>= 2 * node_bits
        out, mine = busy[np.uint64(k)], pair[np.uint64(k * receivers + f)]
        start = starts[np.uint64(k + f)]
        lowest = _FAR
        for n in range(rails):
            from_start = n - start + (rails if n < start else 0)
            lowest = min(lowest, ((out[n] + spread.weight * mine[n]) << load_at) | from_start)
        best = (lowest & on_rail) + start
        best -= rails if best >= rails else 0
        rail[np.uint64(rows[np.uint64(word & index)])] = best
        added = layout.largest - (word >> index_bits)
        out[np.uint64(best)] += added
        mine[np.uint64(best)] += added
