"""A server matrix -> few stages whose total is within a given number of bytes of the shortest.

In n - 1 to 2.7 n stages (measured at 2 % spare); what is proved is in the docstring of `compact`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.schedule.decompose import (
    Stages,
    doubled,
    line_sums,
    longest_line,
    most,
    no_stages,
    shifted,
    tables,
)
from railopt.schedule.matching import BITS, MATE, extend, matching, release, words
from railopt.schedule.order import taper
from railopt.schedule.pieces import node_matrix
from railopt.schedule.rates import equal_bytes, real_bytes

Int = int | np.int64
INT64_MAX = np.int64(2**63 - 1)
PARTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
"""A slot is the largest entry over one of these."""
ENTRIES = 1 << 28
"""Entries of a matrix that are looked at between two questions whether to go on: a second or so."""
GoOn = Callable[[float], bool]
"""Asked with the share of the bytes that have a stage: whether to search for further stages."""


@part
def _slots(left: Array, slot: int, limit: int, columns: Array) -> int:
    """Slots of `slot` bytes that the fullest line needs when each entry is rounded up to whole
    slots; over `limit`: -1.

    `columns` [n] is scratch.
    """
    columns[:] = 0
    fullest = np.int64(0)
    # the quotient rounded down is exact or one too small: cheaper than a division
    inverse = (1.0 - 2.0**-50) / slot
    for i in range(len(left)):
        row = np.int64(0)
        for j in range(len(left)):
            last = left[i, j] - 1
            if last >= 0:
                units = np.int64(last * inverse)
                units += 1 + (last - units * slot >= slot)
                row += units
                columns[j] += units
        if row > limit:
            return -1
        fullest = max(fullest, row)
    fullest = max(fullest, most(columns))
    return int(fullest) if fullest <= limit else -1


@part
def finishing_slots(
    left: Array, line: int, end: int, spare: int, patient: bool, scratch: Array
) -> tuple[int, int]:
    """(slot, count) with the fewest slots that end within `end`, or (0, 0) where none is good
    enough yet.  `line`: the largest row or column sum of `left`.

    A slot of spare // (n - 1) + 1 bytes always ends in time: rounding up adds less than one slot an
    entry.
    """
    n = len(left)
    largest = np.int64(0)
    for i in range(n):
        for j in range(n):
            largest = max(largest, left[i, j])
    slot, count = 0, 3 * n
    for share in PARTS:
        tried = int((largest - 1) // share + 1)
        limit = min(count, end // tried)
        if limit * tried < line:  # the fullest line alone needs more
            if limit == count:  # and of shorter ones more still
                break
            continue
        needed = _slots(left, tried, limit, scratch)
        if needed >= 0:
            slot, count = tried, needed
    if slot == 0 and not patient:
        slot = spare // (n - 1) + 1
        count = _slots(left, slot, end // slot, scratch)
    return slot, count


@part
def _graphs(left: Array, row_slack: Array, column_slack: Array, length: int, graphs: Array) -> None:
    """Which pairs fit a stage of `length`, as bits of three graphs.

    hard    pairs that still have that many bytes
    half    pairs with at least half of them that fit
    soft    all that fit: both lines can afford to idle for the rest
    """
    n = len(left)
    for i in range(n):
        slack = row_slack[i]
        for w in range(words(n)):
            a, b, c = np.int64(0), np.int64(0), np.int64(0)
            for k in range(min(BITS, n - w * BITS)):
                j = np.uint64(w * BITS + k)  # unsigned: no index counts from the end
                entry = left[i, j]
                fits = np.int64(entry + min(slack, column_slack[j]) >= length)
                a |= np.int64(entry >= length) << k
                b |= (fits & np.int64(entry >= length // 2)) << k
                c |= fits << k
            graphs[0, i, w], graphs[1, i, w], graphs[2, i, w] = a, b, c


@part
def _longest(left: Array, row_slack: Array, column_slack: Array, best: Array) -> int:
    """The longest stage for which every row and every column has a pair that fits: no perfect
    matching lasts longer.
    """
    best[:] = 0
    shortest = INT64_MAX
    for i in range(len(left)):
        widest = np.int64(0)
        for j in range(len(left)):
            fit = left[i, j] + min(row_slack[i], column_slack[j])
            widest = max(widest, fit)
            best[j] = max(best[j], fit)
        shortest = min(shortest, widest)
    for j in range(len(left)):
        shortest = min(shortest, best[j])
    return int(shortest)


class StageSearch(NamedTuple):
    """Where the loop of `compact` stands.

    left           int64 [n, n], in units of `slot` bytes
    real           the same in bytes; the same array where a slot is 1 byte
    rows, columns  int64 [n]: line sums of `left`
    graphs         int64 [3, n, words(n)], scratch
    state          a matching, scratch
    numbers        int64 [5]: slot; time left, in slots; spare bytes; length of the next stage, 0
                   where it is not known yet; stages until the next look for slots
    """

    left: Array
    real: Array
    rows: Array
    columns: Array
    graphs: Array
    state: Array
    numbers: Array


@part
def _search(left: Array, real: Array, slot: Int, time: Int, spare: Int) -> StageSearch:
    """The beginning of a search."""
    n = len(left)
    rows, columns = line_sums(left)
    numbers = np.zeros(5, np.int64)
    numbers[0], numbers[1], numbers[2] = slot, time, spare
    graphs = np.empty((3, n, words(n)), np.int64)
    return StageSearch(left, real, rows, columns, graphs, matching(n), numbers)


@kernel
def compact(matrix: Array, spare: int) -> tuple[Array, Array]:
    """Few stages whose total is at most L + `spare` bytes: (peer, sent), both [stages, n].

    Each stage is a perfect matching on the pairs that fit it: a pair fits a stage of length w if it
    still has w bytes, or if both its lines can afford to idle for the rest.  A line can afford
    (time left) - (its bytes left), so after every stage each line still fits into the time left:
    the total never passes L.  Pairs with bytes are matched first.  w is searched downwards in steps
    of 1/10 until a perfect matching exists.  One does for some w >= 1: the matrix could be filled
    up to equal line sums (`fill`), and a filled-up entry is at most bytes + affordable idling.

    As soon as rounding what is left up to whole slots (the largest entry over 1, 2, 3, ... 32)
    takes at most 3n slots and `spare` extra bytes, the same loop runs once more on slots instead of
    bytes.  After 3n stages the slot becomes spare // (n - 1) + 1: rounding up adds less than one
    slot an entry, so that always ends in time, with at most (L + spare) / slot slots.  Hence at
    most 3n + n/8 + max(3n, (n - 1)(1 + L / spare)) stages.

    With spare = 0 the total is exactly L and each stage empties an entry or uses up a line's slack:
    n**2 + n at most (T13b).
    """
    n = len(matrix)
    left = matrix.copy()
    rows, columns = line_sums(left)
    time = max(most(rows), most(columns))
    stages = no_stages(n)
    if time == 0:
        return tables(stages)
    spare = min(spare, INT64_MAX - time)
    stages, slot, count = _match(_search(left, left, 1, time, spare), stages, INT64_MAX)
    if slot:
        units = _in_slots(left, slot)
        search = _search(units, left, slot, count, np.int64(0))
        stages, _, _ = _match(search, stages, INT64_MAX)
    return tables(stages)


@kernel
def _in_slots(left: Array, slot: int) -> Array:
    """Each entry in slots, rounded up."""
    n = len(left)
    units = np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            if left[i, j]:
                units[i, j] = (left[i, j] - 1) // slot + 1
    return units


def compact_asking(matrix: Array, spare: int, go_on: GoOn) -> tuple[Array, Array]:
    """`compact`, but after every second or so of the search `go_on` is asked, and Ctrl-C
    handled.
    Once it says no, what is left is sent as `shifted` sends it, and the total may be longer.

    `matrix` is overwritten.
    """
    n, found = len(matrix), no_stages(len(matrix))
    time, everything = longest_line(matrix), int(matrix.sum())
    search = _search(matrix, matrix, 1, time, min(spare, int(INT64_MAX) - time))
    while search.rows.any():
        more, slot, count = _match(search, found, max(1, ENTRIES // n**2))
        found = Stages(*more)
        if slot:
            search = _search(_in_slots(matrix, slot), matrix, slot, count, 0)
        left = search.left if search.numbers[0] == 1 else search.real
        if not go_on(1 - int(left.sum()) / everything):
            both = zip(tables(found), shifted(left), strict=True)
            peers, bytes_ = (np.concatenate(pair) for pair in both)
            return peers, bytes_
    return tables(found)


# compiles for 17 s, with the parts it calls: 16 x 8 takes 0.2 ms, 125 interpreted
@kernel
def compact_tapered(
    bytes_: Array,
    nodes: int,
    worth: tuple[Array, Array],
    part: int,
    least: int,
    group: int,
    step: int,
) -> tuple[Array, Array]:
    """`compact` of int64 [GPUs, GPUs] with L // `part` to spare, then `taper`, in equal bytes
    unless the worth of pairs, (up, down), is empty: one call for six, since with few servers calls
    take as long as the stages.
    """
    up, down = worth
    real = matrix = node_matrix(bytes_, nodes)
    if len(up):
        matrix = equal_bytes(real, up, down)
    rows, columns = line_sums(matrix)
    longest = max(most(rows), most(columns))
    peer, sent = compact(matrix, longest // part)
    peer, sent = taper(peer, sent, least, group, step)
    return real_bytes(real, peer, sent, up, down) if len(up) else (peer, sent)


@kernel
def _match(search: StageSearch, stages: Stages, rounds: Int) -> tuple[Stages, Int, Int]:
    """The loop of `compact`, at most so many times.

    Returns the stages, and the slot and count to go on with (0, 0 when nothing is left, or where
    the rounds are over).
    """
    left, real, rows, columns, graphs, state, numbers = search
    peer, sent, used = stages  # not by their names in loops: each use of a name counts references
    n = len(left)
    slot, time, spare, length, pause = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    row_slack, column_slack, best = time - rows, time - columns, np.empty(n, np.int64)
    if length == 0:
        length = np.int64(_longest(left, row_slack, column_slack, best))
    while most(rows) > 0 and rounds > 0:
        rounds -= 1
        if spare and pause == 0:
            pause = max(1, n // 8)
            line, patient = max(most(rows), most(columns)), used[0] < 3 * n
            found, count = finishing_slots(left, line, time + spare, spare, patient, best)
            if found:
                return Stages(peer, sent, used), np.int64(found), np.int64(count)
        for i in range(n):
            row_slack[i], column_slack[i] = time - rows[i], time - columns[i]
        _graphs(left, row_slack, column_slack, length, graphs)
        release(state)
        whole, tier = False, 0
        while not whole and tier < 3:
            whole = extend(graphs[tier], state, tier == 2)
            tier += 1
        if not whole:
            shorter = length - max(1, length // 10)
            length = min(shorter, _longest(left, row_slack, column_slack, best))
            continue
        longest, largest = time, 0
        for i in range(n):
            j = state[MATE, i]
            longest = min(longest, left[i, j] + min(row_slack[i], column_slack[j]))
            largest = max(largest, int(left[i, j]))
        longest = min(longest, largest)
        if used[0] == len(peer):
            peer, sent = doubled(peer, sent)
        s = used[0]
        for i in range(n):
            j = state[MATE, i]
            units = min(longest, left[i, j])
            size = min(real[i, j], units * slot)
            sent[s, i], peer[s, i] = size, j if units else -1
            left[i, j] -= units
            if slot > 1:
                real[i, j] -= size
            rows[i] -= units
            columns[j] -= units
        time -= longest
        used[0] += 1
        pause = max(0, pause - 1)
    numbers[1], numbers[3], numbers[4] = time, length, pause
    return Stages(peer, sent, used), np.int64(0), np.int64(0)
