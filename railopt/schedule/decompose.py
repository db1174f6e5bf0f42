"""A server matrix -> stages.  In a stage each server sends to at most one server and receives from
at most one.

Every kernel takes int64 [n, n] bytes between servers (zero diagonal) and returns `(peer, sent)`,
both [stages, n]:
server i sends `sent[s, i]` bytes to server `peer[s, i]` in stage s; an idle server has peer -1.  A
stage lasts as long
as its largest transfer.  L is the largest row or column sum: no schedule is shorter.

    birkhoff   FAST (arXiv 2505.09764): fill up to equal line sums, then any perfect matching, as
               long as its smallest
               entry lasts.  Total exactly L, up to n**2 - 2n + 2 stages.
    shifted    SpreadOut: stage d sends i -> i + d.  n - 1 stages, total the sum of the diagonals'
               largest entries.
    compact    ours: total at most (1 + eps) L, in 1.5 n to 3 n stages (measured at eps = 1/50); see
               its docstring for what is proved.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.schedule.matching import BITS, MATE, Array, extend, matching, release, unmatch, words

Int = int | np.int64
INT64_MAX = np.int64(2**63 - 1)
# compact: a slot is the largest entry over one of these
_PARTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])


@njit(cache=True)
def line_sums(matrix: Array) -> tuple[Array, Array]:
    """Row sums and column sums, int64 [n] each."""
    n = len(matrix)
    rows, columns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            rows[i] += matrix[i, j]
            columns[j] += matrix[i, j]
    return rows, columns


@njit(cache=True)
def longest_line(matrix: Array) -> int:
    """L: the largest row or column sum."""
    rows, columns = line_sums(matrix)
    return int(max(rows.max(), columns.max()))


@njit(cache=True)
def by_length(peer: Array, sent: Array, descending: bool) -> tuple[Array, Array]:
    """The stages ordered by their length (largest transfer); equal ones stay in order."""
    stages, n = sent.shape
    key, order, merged = np.zeros(stages, np.int64), np.arange(stages), np.empty(stages, np.int64)
    for s in range(stages):
        for i in range(n):
            key[s] = max(key[s], sent[s, i])
        key[s] *= -1 if descending else 1
    width = 1
    while (
        width < stages
    ):  # merge sort from below; np.argsort takes longer to compile than all else here
        for start in range(0, stages, 2 * width):
            middle, end = min(start + width, stages), min(start + 2 * width, stages)
            a, b = start, middle
            for k in range(start, end):
                if a < middle and (b >= end or key[order[a]] <= key[order[b]]):
                    merged[k] = order[a]
                    a += 1
                else:
                    merged[k] = order[b]
                    b += 1
        order, merged = merged, order
        width *= 2
    peers, bytes_ = np.empty_like(peer), np.empty_like(sent)
    for s in range(stages):
        for i in range(n):
            peers[s, i], bytes_[s, i] = peer[order[s], i], sent[order[s], i]
    return peers, bytes_


@njit(cache=True)
def _split(
    peer: Array, sent: Array, stage: int, parts: int, step: int, rising: bool
) -> tuple[Array, Array]:
    """One stage in parts: of x bytes x >> (step * p) are left before part p, so the parts shrink
    (or grow, if rising).

    The total stays: each part grows with the whole, so one server has the largest of them all.
    """
    stages, n = sent.shape
    peers, bytes_ = np.empty((stages + parts, n), np.int32), np.empty((stages + parts, n), np.int64)
    count = 0
    for s in range(stages):
        for part in range(parts if s == stage else 1):
            p = parts - 1 - part if rising else part
            busy = False
            for i in range(n):
                size = sent[s, i]
                if s == stage:
                    size = (size >> (step * p)) - (size >> (step * (p + 1)) if p + 1 < parts else 0)
                peers[count, i], bytes_[count, i] = peer[s, i] if size else -1, size
                busy |= size > 0
            count += busy
    return peers[:count].copy(), bytes_[:count].copy()


@njit(cache=True)
def taper(peer: Array, sent: Array, least: int) -> tuple[Array, Array]:
    """Short stages at both ends of an ascending schedule, for what nothing hides; no part shorter
    than `least` bytes.

    The last stage halves up to four times: each part hides the redistribution of the one before,
    and 1/16 is left to
    redistribute at the end.  The first comes as 1/16, 3/16 and 3/4 unless it is short already: a
                              rail sends its own
    bytes first, so the first part needs little balance or none.
    """
    if len(sent) == 0:
        return peer, sent
    first, last = sent[0].max(), sent[-1].max()
    parts = 1
    while parts < 5 and last >> parts >= max(1, least):
        parts += 1
    peer, sent = _split(peer, sent, len(sent) - 1, parts, 1, False)
    if first <= last // 4 or sent[0].max() >> 4 < max(1, least):
        return peer, sent
    return _split(peer, sent, 0, 3, 2, True)


@njit(cache=True)
def fill(matrix: Array) -> tuple[Array, int]:
    """The matrix with virtual bytes added until every line sums to L, and L.  Lines of sum L get
    none.
    """
    rows, columns = line_sums(matrix)
    longest = max(rows.max(), columns.max())
    full = matrix.copy()
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            virtual = min(longest - rows[i], longest - columns[j])
            full[i, j] += virtual
            rows[i] += virtual
            columns[j] += virtual
    return full, longest


@njit(cache=True)
def _room(peer: Array, sent: Array, stage: int) -> tuple[Array, Array]:
    """The tables with space for `stage`: doubled when they are full."""
    if stage < len(peer):
        return peer, sent
    return np.concatenate((peer, np.empty_like(peer))), np.concatenate((sent, np.empty_like(sent)))


@njit(cache=True)
def birkhoff(matrix: Array) -> tuple[Array, Array]:
    """FAST's decomposition; each matching starts from what is left of the one before.

    Real bytes go before virtual ones, which are never sent.
    """
    n = len(matrix)
    full, left = fill(matrix)
    real = matrix.copy()
    graph = np.zeros((n, words(n)), np.int64)
    for i in range(n):
        for j in range(n):
            if full[i, j]:
                graph[i, j // BITS] |= np.int64(1) << (j % BITS)
    state = matching(n)
    release(state)
    peer, sent, stage = np.empty((4 * n, n), np.int32), np.empty((4 * n, n), np.int64), 0
    while left > 0:
        extend(graph, state, True)
        length = left
        for i in range(n):
            length = min(length, full[i, state[MATE, i]])
        peer, sent = _room(peer, sent, stage)
        busy = False
        for i in range(n):
            j = state[MATE, i]
            sent[stage, i] = min(length, real[i, j])
            real[i, j] -= sent[stage, i]
            peer[stage, i] = j if sent[stage, i] else -1
            busy |= sent[stage, i] > 0
            full[i, j] -= length
            if full[i, j] == 0:
                graph[i, j // BITS] ^= np.int64(1) << (j % BITS)
                unmatch(state, i)
        left -= length
        stage += busy
    return peer[:stage].copy(), sent[:stage].copy()


@njit(cache=True)
def shifted(matrix: Array) -> tuple[Array, Array]:
    """SpreadOut: stage d - 1 sends i -> (i + d) % n.  Empty diagonals have no stage."""
    n = len(matrix)
    peer, sent, stage = np.full((n, n), -1, np.int32), np.zeros((n, n), np.int64), 0
    for d in range(1, n):
        busy = False
        for i in range(n):
            j = (i + d) % n
            sent[stage, i] = matrix[i, j]
            peer[stage, i] = j if matrix[i, j] else -1
            busy |= matrix[i, j] > 0
        stage += busy
    return peer[:stage].copy(), sent[:stage].copy()


@njit(cache=True)
def _slots(left: Array, slot: int, limit: int, columns: Array) -> int:
    """Slots of `slot` bytes that the fullest line needs when each entry is rounded up to whole
    slots; over `limit`: -1.

    `columns` [n] is scratch.
    """
    columns[:] = 0
    most = np.int64(0)
    inverse = (
        1.0 - 2.0**-50
    ) / slot  # the quotient rounded down is exact or one too small: cheaper than a division
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
        most = max(most, row)
    most = max(most, columns.max())
    return int(most) if most <= limit else -1


@njit(cache=True)
def _finish(left: Array, time: int, spare: int, patient: bool, scratch: Array) -> tuple[int, int]:
    """(slot, count) with the fewest slots that end within `time + spare`, or (0, 0) where none is
    good enough yet.

    A slot of spare // (n - 1) + 1 bytes always ends in time: rounding up adds less than one slot an
    entry.
    """
    n = len(left)
    end = time + spare
    largest = left.max()
    slot, count = 0, 3 * n
    for part in _PARTS:
        tried = int((largest - 1) // part + 1)
        needed = _slots(left, tried, min(count, end // tried), scratch)
        if needed >= 0:
            slot, count = tried, needed
    if slot == 0 and not patient:
        slot = spare // (n - 1) + 1
        count = _slots(left, slot, end // slot, scratch)
    return slot, count


@njit(cache=True)
def _graphs(left: Array, row_slack: Array, column_slack: Array, length: int, graphs: Array) -> None:
    """Which pairs fit a stage of `length`, as bits of three graphs.

    hard    pairs that still have that many bytes
    half    pairs with at least half of them that fit
    soft    all that fit: both lines can afford to idle for the rest
    """
    n = len(left)
    hard, half, soft = graphs[0], graphs[1], graphs[2]
    for i in range(n):
        slack = row_slack[i]
        for w in range(words(n)):
            entries, slacks = (
                left[i, w * BITS : (w + 1) * BITS],
                column_slack[w * BITS : (w + 1) * BITS],
            )
            a, b, c = np.int64(0), np.int64(0), np.int64(0)
            for k in range(len(entries)):
                entry = entries[k]
                fits = np.int64(entry + min(slack, slacks[k]) >= length)
                a |= np.int64(entry >= length) << k
                b |= (fits & np.int64(entry >= length // 2)) << k
                c |= fits << k
            hard[i, w], half[i, w], soft[i, w] = a, b, c


@njit(cache=True)
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
    return int(min(shortest, best.min()))


@njit(cache=True)
def compact(matrix: Array, spare: int) -> tuple[Array, Array]:
    """Few stages whose total is at most L + `spare` bytes.

    Each stage is a perfect matching on the pairs that fit it: a pair fits a stage of length w if it
    still has w bytes,
    or if both its lines can afford to idle for the rest.  A line can afford (time left) - (its
    bytes left), so after
    every stage each line still fits into the time left: the total never passes L.  Pairs with bytes
    are matched first.
    w is searched downwards in steps of 1/10 until a perfect matching exists.  One does for some w
    >= 1: the matrix could be filled up to equal line sums (`fill`), and a filled-up entry is at
    most bytes + affordable idling.

    As soon as rounding what is left up to whole slots (the largest entry over 1, 2, 3, ... 32)
    takes at most 3n slots
    and `spare` extra bytes, the same loop runs once more on slots instead of bytes.  After 3n
    stages the slot becomes spare // (n - 1) + 1: rounding up adds less than one slot an entry, so
    that always ends in time, with at most
    (L + spare) / slot slots.  Hence at most 3n + n/8 + max(3n, (n - 1)(1 + L / spare)) stages.

    With spare = 0 the total is exactly L and each stage empties an entry or uses up a line's slack:
    n**2 + n at most.
    """
    n = len(matrix)
    left = matrix.copy()
    rows, columns = line_sums(left)
    time = max(rows.max(), columns.max())
    peer, sent = np.empty((4 * n, n), np.int32), np.empty((4 * n, n), np.int64)
    if time == 0:
        return peer[:0].copy(), sent[:0].copy()
    spare = min(spare, INT64_MAX - time)
    peer, sent, stage, slot, count = _match(
        left, left, np.int64(1), time, spare, peer, sent, np.int64(0)
    )
    if slot:
        units = np.zeros((n, n), np.int64)
        for i in range(n):
            for j in range(n):
                if left[i, j]:
                    units[i, j] = (left[i, j] - 1) // slot + 1
        peer, sent, stage, _, _ = _match(units, left, slot, count, np.int64(0), peer, sent, stage)
    return peer[:stage].copy(), sent[:stage].copy()


@njit(cache=True)
def _match(
    left: Array, real: Array, slot: Int, time: Int, spare: Int, peer: Array, sent: Array, stage: Int
) -> tuple[Array, Array, Int, Int, Int]:
    """The loop of `compact` on `left`, in units of `slot` bytes (`real` has the bytes; the same
    array if slot is 1).

    Returns the tables, the number of stages, and the slot and count to go on with (0, 0 when
    nothing is left).
    """
    n = len(left)
    rows, columns = line_sums(left)
    graphs, state = np.empty((3, n, words(n)), np.int64), matching(n)
    row_slack, column_slack, best = time - rows, time - columns, np.empty(n, np.int64)
    length, pause = _longest(left, row_slack, column_slack, best), 0
    while rows.max() > 0:
        if spare and pause == 0:
            pause = max(1, n // 8)
            found, count = _finish(left, time, spare, stage < 3 * n, best)
            if found:
                return peer, sent, stage, found, count
        for i in range(n):
            row_slack[i], column_slack[i] = time - rows[i], time - columns[i]
        _graphs(left, row_slack, column_slack, length, graphs)
        release(state)
        whole = False
        for tier in range(3):
            whole = extend(graphs[tier], state, tier == 2)
        if not whole:
            length = min(
                length - max(1, length // 10), _longest(left, row_slack, column_slack, best)
            )
            continue
        longest, most = time, 0
        for i in range(n):
            j = state[MATE, i]
            longest = min(longest, left[i, j] + min(row_slack[i], column_slack[j]))
            most = max(most, int(left[i, j]))
        longest = min(longest, most)
        peer, sent = _room(peer, sent, stage)
        for i in range(n):
            j = state[MATE, i]
            units = min(longest, left[i, j])
            sent[stage, i] = min(real[i, j], units * slot)
            peer[stage, i] = j if units else -1
            left[i, j] -= units
            if slot > 1:
                real[i, j] -= sent[stage, i]
            rows[i] -= units
            columns[j] -= units
        time -= longest
        stage += 1
        pause = max(0, pause - 1)
    return peer, sent, stage, 0, 0
