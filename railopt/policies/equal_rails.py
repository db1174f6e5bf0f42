"""LPT where all rails are equal, each sender alone: sorted words (by_size.py), and loads whose
minimum is the rail to take.

    a chunk    sender | largest - size | index        sorted by sender, then largest first, then by
                                                      index
    a load     bytes | rail                           the least loaded rail, lowest index among
                                                      equals, is one minimum away
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.by_size import WordLayout, ranks, sorted_words
from railopt.policies.common import Columns

__all__ = ["fits", "lpt"]


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
    seen = _largest_in_turn(chunks, senders, rails, rail)
    words = sorted_words(chunks, None, layout, np.int64(0))
    _least_loaded(words, layout, load_at, seen, rails, rail)


def _in_turn_by_numpy(chunks: Columns, senders: int, rails: int, rail: Array) -> Ints:
    """`_largest_in_turn` for Python."""
    rows = np.flatnonzero(chunks.size == chunks.largest)
    rank, count = ranks(chunks.src[rows], senders)
    rail[rows] = rank % rails
    return count


@part(numpy=_in_turn_by_numpy)
def _largest_in_turn(chunks: Columns, senders: int, rails: int, rail: Array) -> Ints:
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
