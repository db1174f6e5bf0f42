"""LPT where all rails are equal: sorted words that hold all there is to know of a chunk, so that
nothing is fetched out of order.

A word is, from its high bits to its low ones, what it is sorted by (sender, how far below the
largest size), the chunk's
index, and what else is needed of it.  Loads are words too, `load << shift | rail`: the least loaded
                                       rail, lowest index
among equals, is one minimum away.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

_BUCKETS = (
    1 << 11
    # at most so many buckets of words with equal high bits, sorted by their 32 low ones; else all
    # 63 bits
)
_FAR = np.int64(1) << 62


def fits(chunks: int, total: int, largest: int, senders: int, rails: int) -> bool:
    """Whether the words of `lpt` fit in 63 bits."""
    return (
        chunks.bit_length() + largest.bit_length() + senders.bit_length() <= 63
        and total.bit_length() + int(rails - 1).bit_length() <= 62
    )


def fits_pairs(
    chunks: int, total: int, largest: int, nodes: int, rails: int, weight: int = 1
) -> bool:
    """Whether the words of `lpt_global` and of `lpt_local` with this weight fit in 63 bits."""
    return (
        chunks.bit_length() + largest.bit_length() + 2 * nodes.bit_length() <= 63
        and ((1 + weight) * total).bit_length() + int(rails - 1).bit_length() <= 61
    )


def lpt(src: Array, size: Array, largest: int, senders: int, rails: int, rail: Array) -> None:
    """Each sender alone: its chunks, largest first, to its least loaded rail; `fits` holds."""
    bits, shift = int(size.size - 1).bit_length(), int(rails - 1).bit_length()
    wide = bits + int(largest).bit_length()
    buckets = 1 << max(0, wide + int(senders - 1).bit_length() - 32)
    low, kind = (32, np.uint32) if buckets <= min(_BUCKETS, len(size) // 64 + 1) else (63, np.int64)
    seen, starts = _largest_in_turn(
        src, size, largest, senders, rails, bits, wide, low, buckets if low == 32 else 1, rail
    )
    if starts[-1] == 0:
        return
    words = np.empty(starts[-1], kind)
    _other_words(src, size, largest, bits, wide, low, starts.copy(), words)
    for start, end in pairwise(starts.tolist()):
        words[start:end].sort()
    _least_loaded(words, starts, low, seen, largest, rails, bits, wide, shift, rail)


@njit(cache=True)
def _largest_in_turn(
    src: Array,
    size: Array,
    largest: int,
    senders: int,
    rails: int,
    bits: int,
    wide: int,
    low: int,
    buckets: int,
    rail: Array,
) -> tuple[Array, Array]:
    """The chunks of the largest size, which simply go round each sender's rails.

    Returns how many of them each sender had; and where the others' words start, bucket by bucket,
    int64 [buckets + 1].
    """
    seen = np.zeros(senders, np.int64)
    turn = np.zeros(senders, np.int64)
    starts = np.zeros(buckets + 1, np.int64)
    for c in range(size.size):
        k = np.uint32(src[c])  # unsigned: numba does not ask whether it counts from the end
        below = largest - size[c]
        if below == 0:
            t = turn[k]
            rail[c] = t
            seen[k] += 1
            turn[k] = t + 1 if t + 1 < rails else 0
        else:
            starts[np.uint64((((np.int64(k) << wide) | (below << bits)) >> low) + 1)] += 1
    for b in range(buckets):
        starts[b + 1] += starts[b]
    return seen, starts


@njit(cache=True)
def _other_words(
    src: Array,
    size: Array,
    largest: int,
    bits: int,
    wide: int,
    low: int,
    place: Array,
    words: Array,
) -> None:
    """The low bits of `src << wide | (largest - size) << bits | index` of chunks below the largest
    size, by their high bits.
    """
    for c in range(size.size):
        below = largest - size[c]
        if below != 0:
            word = (np.int64(src[c]) << wide) | (below << bits) | c
            b = np.uint64(word >> low)
            words[np.uint64(place[b])] = word
            place[b] += 1


@njit(forceinline=True)
def _exchange(loads: Array, pairs: tuple[tuple[int, int], ...]) -> None:
    for a, b in pairs:
        low, high = min(loads[a], loads[b]), max(loads[a], loads[b])
        loads[a], loads[b] = low, high


@njit(forceinline=True)
def _sort_loads(loads: Array, rails: int) -> None:
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


@njit(forceinline=True)
def _assign(
    words: Array,
    starts: Array,
    low: int,
    seen: Array,
    largest: int,
    rails: int,
    bits: int,
    wide: int,
    shift: int,
    rail: Array,
) -> None:
    index, width, mask = (
        (np.int64(1) << bits) - 1,
        (np.int64(1) << (wide - bits)) - 1,
        (1 << shift) - 1,
    )
    loads = np.empty(rails, np.int64)
    sender = np.int64(-1)
    for b in range(starts.size - 1):
        high = np.int64(b) << low
        i, end = starts[b], starts[b + 1]
        while i < end:
            word = high | np.int64(words[i])
            if word >> wide != sender:
                sender = word >> wide
                rounds, more = divmod(seen[sender], rails)
                for n in range(rails):  # the first `more` rails have one chunk more and come last
                    loads[(n - more) % rails] = (((rounds + (n < more)) * largest) << shift) | n
            if i + rails <= end:
                last = high | np.int64(words[i + rails - 1])
                if (
                    last >> wide == sender
                    and loads[0] + ((largest - ((last >> bits) & width)) << shift)
                    > loads[rails - 1]
                ):
                    for n in range(
                        rails
                    ):  # each chunk of these lifts its rail above all: they take the rails in order
                        word = high | np.int64(words[i + n])
                        rail[np.uint64(word & index)] = loads[n] & mask
                        loads[n] += (largest - ((word >> bits) & width)) << shift
                    _sort_loads(loads, rails)
                    i += rails
                    continue
            moving = loads[0] + ((largest - ((word >> bits) & width)) << shift)
            rail[np.uint64(word & index)] = loads[0] & mask
            for n in range(1, rails):
                other = loads[n]
                loads[n - 1] = min(other, moving)
                moving = max(other, moving)
            loads[rails - 1] = moving
            i += 1


@njit(cache=True)
def _least_loaded(
    words: Array,
    starts: Array,
    low: int,
    seen: Array,
    largest: int,
    rails: int,
    bits: int,
    wide: int,
    shift: int,
    rail: Array,
) -> None:
    """The sorted others, each to its sender's least loaded rail, the lowest index among equals.

    Words of bucket b, from starts[b] to starts[b + 1], have b above their `low` bits.
    """
    if rails == 8:  # a constant, so that the loops over rails are unrolled
        _assign(words, starts, low, seen, largest, 8, bits, wide, shift, rail)
    else:
        _assign(words, starts, low, seen, largest, rails, bits, wide, shift, rail)


@njit(cache=True)
def _pack_pairs(
    src: Array, dst: Array, size: Array, largest: int, bits: int, node_bits: int
) -> tuple[Array, int]:
    """Words `(largest - size) << .. | index << .. | src << .. | dst`, those of the largest size
    first; and how many they are.
    """
    top = 0
    for c in range(size.size):
        top += size[c] == largest
    words = np.empty(size.size, np.int64)
    first, other = 0, top
    for c in range(size.size):
        below = largest - size[c]
        word = (((((below << bits) | c) << node_bits) | src[c]) << node_bits) | dst[c]
        if below == 0:
            words[first] = word
            first += 1
        else:
            words[other] = word
            other += 1
    return words, top


@njit(cache=True)
def _earliest_at_both(
    words: Array,
    largest: int,
    bits: int,
    node_bits: int,
    nodes: int,
    rails: int,
    shift: int,
    rail: Array,
) -> None:
    send, recv = np.empty((nodes, rails), np.int64), np.empty((nodes, rails), np.int64)
    for n in range(rails):
        send[:, n] = recv[:, n] = n
    index, node, mask = (np.int64(1) << bits) - 1, (np.int64(1) << node_bits) - 1, (1 << shift) - 1
    for i in range(words.size):
        word = words[i]
        out, into = send[np.uint64((word >> node_bits) & node)], recv[np.uint64(word & node)]
        word >>= 2 * node_bits
        first, second = max(out[0], into[0]), _FAR
        for n in range(1, rails):
            later = max(out[n], into[n])
            second = min(second, max(first, later))
            first = min(first, later)
        best = first & mask
        if first >> shift == second >> shift:
            together = _FAR
            for n in range(rails):
                both = (out[n] >> shift) + (into[n] >> shift)
                if max(out[n], into[n]) >> shift == first >> shift and both < together:
                    best, together = n, both
        rail[np.uint64(word & index)] = best
        added = (largest - (word >> bits)) << shift
        out[best] += added
        into[best] += added


def lpt_global(
    src: Array, dst: Array, size: Array, largest: int, nodes: int, rails: int, rail: Array
) -> None:
    """Largest chunk first to the rail whose later end, sender or receiver, is least loaded; ties by
    the ends' sum, then by index.

    `fits_pairs` holds.
    """
    bits, node_bits = int(size.size - 1).bit_length(), int(nodes - 1).bit_length()
    words, top = _pack_pairs(src, dst, size, largest, bits, node_bits)
    words[top:].sort()
    _earliest_at_both(
        words, largest, bits, node_bits, nodes, rails, int(rails - 1).bit_length(), rail
    )


@njit(cache=True)
def _spread_pairs(
    words: Array,
    rows: Array,
    largest: int,
    bits: int,
    node_bits: int,
    senders: int,
    receivers: int,
    rails: int,
    first: int,
    weight: int,
    shift: int,
    rail: Array,
) -> None:
    busy, pair = (
        np.zeros((senders, rails), np.int64),
        np.zeros((senders * receivers, rails), np.int64),
    )
    starts = (first + np.arange(senders + receivers)) % rails
    index, node, mask = (np.int64(1) << bits) - 1, (np.int64(1) << node_bits) - 1, (1 << shift) - 1
    for i in range(words.size):
        word = words[i]
        k, f = (word >> node_bits) & node, word & node
        word >>= 2 * node_bits
        out, mine, start = (
            busy[np.uint64(k)],
            pair[np.uint64(k * receivers + f)],
            starts[np.uint64(k + f)],
        )
        lowest = _FAR
        for n in range(rails):
            lowest = min(
                lowest,
                ((out[n] + weight * mine[n]) << shift) | (n - start + (rails if n < start else 0)),
            )
        best = (lowest & mask) + start
        best -= rails if best >= rails else 0
        rail[np.uint64(rows[np.uint64(word & index)])] = best
        added = largest - (word >> bits)
        out[np.uint64(best)] += added
        mine[np.uint64(best)] += added


def lpt_local(
    rows: Array,
    src: Array,
    dst: Array,
    size: Array,
    senders: int,
    receivers: int,
    rails: int,
    first: int,
    weight: int,
    rail: Array,
) -> None:
    """As `lpt`, but a rail also counts `weight` times what this sender already put on it for this
    receiver; chunks `rows` alone.

    Sender k is node first + k.  Ties go round from rail (src + dst) mod N, so that senders with
                                 equal traffic do not gang
    up on one rail.  `fits_pairs` holds.
    """
    bits, node_bits = int(rows.size - 1).bit_length(), int(max(senders, receivers) - 1).bit_length()
    size = size[rows]
    largest = int(size.max())
    words, top = _pack_pairs(src[rows], dst[rows], size, largest, bits, node_bits)
    words[top:].sort()
    _spread_pairs(
        words,
        rows,
        largest,
        bits,
        node_bits,
        senders,
        receivers,
        rails,
        first,
        weight,
        int(rails - 1).bit_length(),
        rail,
    )
