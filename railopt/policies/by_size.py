"""Chunks by size, largest first: the order in which every LPT visits them; and LPT where all rails
are equal.

A word holds all that a kernel has to know of a chunk, so that nothing is fetched out of order:

    group | largest - size | index | ends          from high bits to low ones; some have no bits

Words are sorted by a radix sort of our own.  It takes a few nanoseconds per word on every machine,
while numpy's sort needs wide vectors for that, and it is stable, so that the index is carried along
and never compared.  Loads are words too, whose minimum is the rail to take:

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

from railopt.base.arrays import Array, Ints, ranks
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.common import Columns

__all__ = [
    "INDEX",
    "Spread",
    "WordLayout",
    "descending",
    "fits",
    "largest_first",
    "largest_in_front",
    "lpt",
    "lpt_global",
    "lpt_local",
    "pairs_fit",
    "sorted_words",
]

INDEX = (1 << 32) - 1
"""The bits of a sorted word of `descending` that hold the chunk's index."""

_PACKED_BELOW = 1 << 31
_FAR = np.int64(1) << 62

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
    turn, count = ranks(chunks.src[rows], senders)
    rail[rows] = turn % rails
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
    if spread.rails == 8:
        _spread_pairs(words, layout, spread, 8, load_at, rail)  # loops over a literal are unrolled
    else:
        _spread_pairs(words, layout, spread, spread.rails, load_at, rail)


@part(prefer_literal=True)
def _spread_pairs(
    words: Ints, layout: WordLayout, spread: Spread, rails: int, load_at: int, rail: Array
) -> None:
    """Sorted words, each to the rail whose loads, the sender's and the pair's, have the least sum.

    The pair's has `weight` times its bytes, above the rail's turn.
    """
    node = (np.int64(1) << layout.node_bits) - 1
    index = (np.int64(1) << (layout.size_at - layout.index_at)) - 1
    size_mask = (np.int64(1) << (layout.group_at - layout.size_at)) - 1
    on_rail = (1 << load_at) - 1
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
