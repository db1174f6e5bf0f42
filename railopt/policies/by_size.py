"""Chunks by size, largest first: the order in which every LPT visits them.

A word holds all that a kernel has to know of a chunk, so that nothing is fetched out of order:

    group | largest - size | index | ends          from high bits to low ones; some have no bits

Words are sorted by a radix sort of our own.  It takes a few nanoseconds per word on every machine,
while numpy's sort needs wide vectors for that, and it is stable, so that the index is carried along
and never compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import kernel, part
from railopt.policies.common import Columns

__all__ = [
    "INDEX",
    "WordLayout",
    "descending",
    "largest_first",
    "largest_in_front",
    "sorted_words",
]

INDEX = (1 << 32) - 1
"""The bits of a sorted word of `descending` that hold the chunk's index."""

_PACKED_BELOW = 1 << 31

_IN_CACHE = 1 << 12
"""Words that lie in a core's own cache while they are sorted."""

_DIGIT = 11
"""Bits of a digit, at most: more places to write to than this would miss the TLB."""


class WordLayout(NamedTuple):
    """Where the parts of a word lie; each ends where the next starts.

    largest      bytes of the largest chunk
    node_bits    of a node; the ends are `sender | receiver`, as many low bits of them as there are
    index_at     the bit at which the chunk's index starts, above the ends
    size_at      the bit at which `largest - size` starts
    group_at     the bit at which the group, the sender, starts
    end          the bit above the group
    """

    largest: int
    node_bits: int
    index_at: int
    size_at: int
    group_at: int
    end: int

    @classmethod
    def of(cls, chunks: Columns, nodes: int, ends: int, grouped: bool) -> WordLayout:
        """Words with `ends` nodes in their low bits: none, the receiver, or both; `grouped` by
        sender or not.
        """
        node_bits = (nodes - 1).bit_length()
        index_at = ends * node_bits
        size_at = index_at + (len(chunks.size) - 1).bit_length()
        group_at = size_at + chunks.largest.bit_length()
        end = group_at + grouped * node_bits
        return cls(chunks.largest, node_bits, index_at, size_at, group_at, end)


@part
def _key(chunks: Columns, c: int, layout: WordLayout) -> np.int64:
    """The bits of a chunk's word that words are sorted by."""
    group = np.int64(chunks.src[c]) & ((1 << (layout.end - layout.group_at)) - 1)
    return (group << layout.group_at) | ((layout.largest - chunks.size[c]) << layout.size_at)


@part
def _rest(chunks: Columns, c: int, layout: WordLayout) -> np.int64:
    """The other bits."""
    ends = (np.int64(chunks.src[c]) << layout.node_bits) | chunks.dst[c]
    return (np.int64(c) << layout.index_at) | (ends & ((1 << layout.index_at) - 1))


def _sorted_by_numpy(chunks: Columns, rows: Array | None, layout: WordLayout, front: int) -> Ints:
    """`sorted_words` for Python."""
    if rows is None:
        rows = np.arange(len(chunks.size))
    if front >= 0:
        rows = rows[chunks.size[rows] != layout.largest]
    key = _key(chunks, rows, layout)
    words = (key | _rest(chunks, rows, layout))[np.argsort(key, kind="stable")]
    return np.concatenate([np.zeros(max(front, 0), np.int64), words])


@part(numpy=_sorted_by_numpy)
def sorted_words(chunks: Columns, rows: Array | None, layout: WordLayout, front: int) -> Ints:
    """The words of the chunks `rows`, or of all: by group, largest first, equal sizes in order.

    With `front` >= 0 the chunks of the largest size are left out, and so many words in front are
    left empty.
    """
    count, bits = chunks.size.size if rows is None else rows.size, 0
    while count >> bits > _IN_CACHE and bits < min(_DIGIT, layout.end - layout.size_at):
        bits += 1
    bucket_at = layout.end - bits
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(count):
        c = i if rows is None else rows[i]
        if front < 0 or chunks.size[c] != layout.largest:
            starts[np.uint64(_key(chunks, c, layout) >> bucket_at) + np.uint64(1)] += 1
    most, starts[0] = np.int64(0), max(front, 0)
    for b in range(1, starts.size):
        most = max(most, starts[b])
        starts[b] += starts[b - 1]
    words, place = np.empty(starts[-1], np.int64), starts.copy()
    for i in range(count):
        c = i if rows is None else rows[i]
        if front < 0 or chunks.size[c] != layout.largest:
            key = _key(chunks, c, layout)
            bucket = np.uint64(key >> bucket_at)
            words[np.uint64(place[bucket])] = key | _rest(chunks, c, layout)
            place[bucket] += 1
    spare, ends = np.empty(most, np.int64), np.empty(1 << _DIGIT, np.int64)
    for b in range(starts.size - 1):
        _sort(words[starts[b] : starts[b + 1]], spare, layout.size_at, bucket_at, ends)
    return words


@part
def _sort(words: Ints, spare: Ints, low: int, high: int, ends: Ints) -> None:
    """Sort words by their bits `low` to `high - 1`, from the lowest digit to the highest, equal
    ones in order; `spare`, at least as long, and `ends` are scratch.
    """
    if words.size < 2 or low == high:
        return
    width = 4
    while width < _DIGIT and 1 << width < words.size:
        width += 1
    width = (high - low - 1) // ((high - low - 1) // width + 1) + 1  # digits of equal width
    here, there, moved = words, spare, False
    for at in range(low, high, width):
        if _by_digit(here, there, words.size, at, ends[: 1 << min(width, high - at)]):
            here, there, moved = there, here, not moved
    if moved:
        for i in range(words.size):
            words[i] = spare[i]


@part
def _by_digit(words: Ints, out: Ints, count: int, at: int, ends: Ints) -> bool:
    """Write `count` words to `out` by the digit that starts at bit `at`, equal ones in order;
    `ends` is scratch, as long as there are digits.  False, and nothing written, where all words
    have the same.
    """
    mask = ends.size - 1
    ends[:] = 0
    for i in range(count):
        ends[np.uint64((words[i] >> at) & mask)] += 1
    if ends[(words[0] >> at) & mask] == count:
        return False
    below = np.int64(0)
    for digit in range(ends.size):
        below += ends[digit]
        ends[digit] = below - ends[digit]
    for i in range(count):
        own = np.uint64((words[i] >> at) & mask)
        out[np.uint64(ends[own])] = words[i]
        ends[own] += 1
    return True


def _in_front_by_numpy(chunks: Columns, layout: WordLayout) -> Ints:
    """`largest_in_front` for Python."""
    first = np.flatnonzero(chunks.size == layout.largest)
    words: Ints = sorted_words(chunks, None, layout, len(first))
    words[: len(first)] = _rest(chunks, first, layout)
    return words


@kernel(numpy=_in_front_by_numpy)
def largest_in_front(chunks: Columns, layout: WordLayout) -> Ints:
    """The words of all chunks, not grouped, largest first; those of the largest size, the cap for
    cut traffic, are never sorted.
    """
    front, place = np.int64(0), np.int64(0)
    for c in range(chunks.size.size):
        front += chunks.size[c] == layout.largest
    words: Ints = sorted_words(chunks, None, layout, front)
    for c in range(chunks.size.size):
        if chunks.size[c] == layout.largest:
            words[place] = _rest(chunks, c, layout)
            place += 1
    return words


def descending(size: Array) -> Ints:
    """Chunks by size, largest first, equal sizes by index: words with the index in their low 32
    bits, int64 [C].  Sizes are below 2**31, and there is at least one.
    """
    nowhere, size = np.zeros(len(size), np.int32), size.view()
    nowhere.flags.writeable = size.flags.writeable = False  # as columns are: compiled once for all
    chunks = Columns(nowhere, nowhere, size, int(size.max()), 0)
    words: Ints = largest_in_front(chunks, WordLayout(chunks.largest, 0, 0, 32, 63, 63))
    return words


def largest_first(size: Array) -> Ints:
    """As `descending`, for any sizes and any number of them; int64 [C]."""
    if not len(size):
        return np.empty(0, np.int64)
    if int(size.max()) < _PACKED_BELOW:
        return descending(size)
    return np.argsort(-size, kind="stable")
