"""LPT where all rails are equal, each sender alone: sorted words that hold all there is to know of
a chunk, so that nothing is fetched out of order.

    a chunk    sender | largest - size | index        from high bits to low ones: sorted by sender,
                                                      then largest first, then by index
    a load     bytes | rail                           the least loaded rail, lowest index among
                                                      equals, is one minimum away
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from railopt.arrays import Array, Ints
from railopt.kernels import kernel_part, njit
from railopt.policies.common import Columns

__all__ = ["after_rounds", "exchange", "fits", "lpt", "put_on_least"]

# Words are kept in buckets of equal high bits and sorted by their 32 low ones, which is faster than
# sorting all 63; but only where the buckets are few and well filled.
_MOST_BUCKETS = 1 << 11
_WORTH_A_BUCKET = 64


def fits(chunks: Columns, senders: int, rails: int) -> bool:
    """Whether the words of these chunks and loads fit in 63 bits."""
    word = len(chunks.size).bit_length() + chunks.largest.bit_length() + senders.bit_length()
    load = chunks.total.bit_length() + (rails - 1).bit_length()
    return word <= 63 and load <= 62


class Layout(NamedTuple):
    """Where the parts of a word lie.

    largest      bytes of the largest chunk
    size_at      the bit at which `largest - size` starts, above the index
    sender_at    the bit at which the sender starts, above the size
    stored       so many low bits of a word are stored (32 or 63); the others number its bucket
    load_at      the bit of a load at which its bytes start, above the rail
    """

    largest: int
    size_at: int
    sender_at: int
    stored: int
    load_at: int


def _layout(chunks: Columns, senders: int, rails: int) -> tuple[Layout, int]:
    """The layout of these chunks' words, and how many buckets there are."""
    count = len(chunks.size)
    size_at = (count - 1).bit_length()
    sender_at = size_at + chunks.largest.bit_length()
    buckets = 1 << max(0, sender_at + (senders - 1).bit_length() - 32)
    worth = buckets <= min(_MOST_BUCKETS, count // _WORTH_A_BUCKET + 1)
    stored = 32 if worth else 63
    layout = Layout(chunks.largest, size_at, sender_at, stored, (rails - 1).bit_length())
    return layout, buckets if worth else 1


def lpt(chunks: Columns, senders: int, rails: int, rail: Array) -> None:
    """Each sender's chunks, largest first, to its least loaded rail, the lowest index among equals;
    `fits` holds.
    """
    layout, buckets = _layout(chunks, senders, rails)
    like = _STORED_32 if layout.stored == 32 else _STORED_63
    seen, starts, words = _words(chunks, layout, buckets, senders, rails, rail, like)
    if not len(words):
        return
    for start, end in pairwise(starts.tolist()):
        words[start:end].sort()
    _least_loaded(words, starts, layout, seen, rails, rail)


_STORED_32, _STORED_63 = np.empty(0, np.uint32), np.empty(0, np.int64)


@njit(cache=True)
def _words(
    chunks: Columns,
    layout: Layout,
    buckets: int,
    senders: int,
    rails: int,
    rail: Array,
    like: Array,
) -> tuple[Ints, Ints, Array]:
    """Chunks of the largest size go round each sender's rails; of the others the stored bits of
    their words, bucket by bucket, not sorted, of the type of `like`.

    Returns how many of the largest each sender had, int64 [senders]; where each bucket starts,
    int64 [buckets + 1]; and the words.
    """
    seen, starts = _largest_in_turn(chunks, layout, buckets, senders, rails, rail)
    words = np.empty(starts[-1], like.dtype)
    if words.size:
        _other_words(chunks, layout, starts.copy(), words)
    return seen, starts, words


@kernel_part(cache=True)
def _largest_in_turn(
    chunks: Columns, layout: Layout, buckets: int, senders: int, rails: int, rail: Array
) -> tuple[Ints, Ints]:
    """The chunks of the largest size, and where the words of the others start."""
    src, size, largest = chunks.src, chunks.size, layout.largest
    size_at, sender_at, stored = layout.size_at, layout.sender_at, layout.stored
    turn, rounds = np.zeros(senders, np.int64), np.zeros(senders, np.int64)
    starts = np.zeros(buckets + 1, np.int64)
    for c in range(size.size):
        k = np.uint32(src[c])  # unsigned: numba does not ask whether it counts from the end
        below = largest - size[c]
        if below == 0:
            t = turn[k]
            rail[c] = t
            if t + 1 < rails:
                turn[k] = t + 1
            else:
                turn[k] = 0
                rounds[k] += 1
        else:
            word = (np.int64(k) << sender_at) | (below << size_at)
            starts[np.uint64((word >> stored) + 1)] += 1
    for b in range(buckets):
        starts[b + 1] += starts[b]
    return rounds * rails + turn, starts


@kernel_part(cache=True)
def _other_words(chunks: Columns, layout: Layout, place: Ints, words: Array) -> None:
    """The stored bits of the words of chunks below the largest size, each at the next `place` of
    its bucket.
    """
    src, size, largest = chunks.src, chunks.size, layout.largest
    size_at, sender_at, stored = layout.size_at, layout.sender_at, layout.stored
    for c in range(size.size):
        below = largest - size[c]
        if below != 0:
            word = (np.int64(src[c]) << sender_at) | (below << size_at) | c
            b = np.uint64(word >> stored)
            words[np.uint64(place[b])] = word
            place[b] += 1


@kernel_part(forceinline=True)
def exchange(loads: Ints, pairs: tuple[tuple[int, int], ...]) -> None:
    """Each pair of places in order, so that the lower load stands first."""
    for a, b in pairs:
        low, high = min(loads[a], loads[b]), max(loads[a], loads[b])
        loads[a], loads[b] = low, high


@kernel_part(forceinline=True)
def _sort_loads(loads: Ints, rails: int) -> None:
    """Sort the loads: for eight rails by Batcher's network, which has no branches to mispredict,
    else by insertion.
    """
    if rails == 8:
        exchange(loads, ((0, 4), (1, 5), (2, 6), (3, 7)))
        exchange(loads, ((0, 2), (1, 3), (4, 6), (5, 7)))
        exchange(loads, ((2, 4), (3, 5), (0, 1), (6, 7)))
        exchange(loads, ((2, 3), (4, 5)))
        exchange(loads, ((1, 4), (3, 6)))
        exchange(loads, ((1, 2), (3, 4), (5, 6)))
        return
    for n in range(1, rails):
        moving, at = loads[n], n
        while at > 0 and loads[at - 1] > moving:
            loads[at] = loads[at - 1]
            at -= 1
        loads[at] = moving


@kernel_part(forceinline=True)
def after_rounds(loads: Array, seen: int, largest: int, load_at: int, rails: int) -> None:
    """The sorted loads of a sender of whose largest chunks `seen` went round its rails: the first
    rails may have one chunk more, and then come last.
    """
    rounds, more = divmod(seen, rails)
    for place in range(rails):
        n = (place + more) % rails
        loads[place] = (((rounds + (n < more)) * largest) << load_at) | n


@kernel_part(forceinline=True)
def put_on_least(loads: Array, added: int, rails: int) -> None:
    """Add to the lowest load and move it to its place among the sorted others."""
    moving = loads.dtype.type(loads[0] + added)  # not wider than the loads: they may be 32 bits
    for n in range(1, rails):
        other = loads[n]
        loads[n - 1] = min(other, moving)
        moving = max(other, moving)
    loads[rails - 1] = moving


@kernel_part(forceinline=True)
def _added(word: int, layout: Layout) -> int:
    """What a chunk's word adds to the word of its rail's load."""
    size_mask = (1 << (layout.sender_at - layout.size_at)) - 1
    below = (word >> layout.size_at) & size_mask
    return (layout.largest - below) << layout.load_at


@kernel_part(forceinline=True)
def _assign(
    words: Array, starts: Ints, layout: Layout, seen: Ints, rails: int, rail: Array
) -> None:
    """`_least_loaded`, to be compiled for a number of rails that is known."""
    index, on_rail = (np.int64(1) << layout.size_at) - 1, (1 << layout.load_at) - 1
    loads = np.empty(rails, np.int64)
    sender = np.int64(-1)
    for b in range(starts.size - 1):
        high = np.int64(b) << layout.stored
        i, end = starts[b], starts[b + 1]
        while i < end:
            word = high | np.int64(words[i])
            if word >> layout.sender_at != sender:
                sender = word >> layout.sender_at
                after_rounds(loads, seen[sender], layout.largest, layout.load_at, rails)
            if i + rails <= end:
                last = high | np.int64(words[i + rails - 1])
                if (
                    last >> layout.sender_at == sender
                    and loads[0] + _added(last, layout) > loads[rails - 1]
                ):
                    # each of these chunks lifts its rail above all: they take the rails in order
                    for n in range(rails):
                        word = high | np.int64(words[i + n])
                        rail[np.uint64(word & index)] = loads[n] & on_rail
                        loads[n] += _added(word, layout)
                    _sort_loads(loads, rails)
                    i += rails
                    continue
            rail[np.uint64(word & index)] = loads[0] & on_rail
            put_on_least(loads, _added(word, layout), rails)
            i += 1


@njit(cache=True)
def _least_loaded(
    words: Array, starts: Ints, layout: Layout, seen: Ints, rails: int, rail: Array
) -> None:
    """The sorted others, each to its sender's least loaded rail, the lowest index among equals.

    Words of bucket b, from starts[b] to starts[b + 1], have b above their stored bits.
    """
    if rails == 8:  # a constant, so that the loops over rails are unrolled
        _assign(words, starts, layout, seen, 8, rail)
    else:
        _assign(words, starts, layout, seen, rails, rail)
