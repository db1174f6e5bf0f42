"""Stages between servers -> pieces between GPUs: which bytes move inside servers, on which rail.

A tile is the m x m traffic from the GPUs of server i to those of server j; GPU r owns NIC r, or as
many NICs in turn as there are per GPU.  A piece is a run of bytes of one flow (source GPU -> target
GPU) on one rail in one stage.  It moves over scale-up to GPU `rail` of its own server where it is
not there already (balance), over the rail to the same index (peer rule), and over scale-up to its
target (redistribution).

Balance: each rail carries an equal share of the tile (they differ by at most one byte; which rail
is ahead turns with i + j).  Where NICs differ, it carries a share of each transfer by the slower of
its two.  A GPU keeps its own bytes up to the share; GPUs with more give their last bytes to those
with less.  A rail sends its own bytes first, so that what it is given may still be on its way while
it starts.  In the last stage, whose redistribution nothing hides, it sends bytes for its own GPU,
as far as the tile has them (compact, NICs all alike).

Rows of one stage run at once, each on the rails of as many GPUs (see `Schedule`).  So can stages of
fewer bytes than there are rails, each on rails of its own (see `_turns`): what is left of longer
ones where "bytes" are chunks.

Order within a rail: GPU g sends to g, g + 1, g + 2, ... in turn, so that at any moment the rails of
a tile hold bytes for different targets and the redistribution of a stage is close to a permutation.
With `by_target` all rails send to target 0 first, then 1, ...: the order of FAST's released code,
where all rails of a tile crowd on one target.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.schedule.decompose import most

# columns of a run: source GPU (local), target GPU (local), offset in the flow, bytes
SOURCE, TARGET, OFFSET, BYTES = range(4)
RUN = 4
# rows of `TileRails.now`
DUE, FILLED, PLACE, USED, NEXT, AT, HELD = range(7)
# rows of `_turns`
TURN, NUMBER, BEGIN, END = range(4)


class Pieces(NamedTuple):
    """Columns [pieces]: tile by tile, a tile's stages in turn, a stage rail by rail.

    stage    int32
    rail     int16
    source   int32, GPU id
    target   int32, GPU id
    offset   int64, bytes into the flow source -> target
    size     int64, bytes
    """

    stage: Array
    rail: Array
    source: Array
    target: Array
    offset: Array
    size: Array


class TileRails(NamedTuple):
    """What the rails of one tile send, in order, and how far each has come.  Few arrays: to hand
    over one takes as long as a piece.

    runs   int64 [rails, m * m + m + rails, RUN]: rail r sends `runs[r, :now[FILLED, r]]`
    upto   int64 [transfers + 1, rails]: bytes of the tile that a rail has sent after a transfer
    now    int64 [7, rails]: the bytes for which a rail has no run yet, its runs, the run that it
           is in, and the bytes of that run that are sent; in column g of GPU g its next target,
           the offset in that flow, and the bytes left to hand out
    """

    runs: Array
    upto: Array
    now: Array


@part
def _rails(m: int, rails: int, transfers: int) -> TileRails:
    """Room for tiles of m GPUs on so many rails."""
    runs = np.empty((rails, m * m + m + rails, RUN), np.int64)
    return TileRails(
        runs, np.zeros((transfers + 1, rails), np.int64), np.empty((7, rails), np.int64)
    )


@kernel
def deal(amount: int, turn: int, begin: int, end: int, upto: Array, k: int) -> None:
    """Row k + 1 of `upto` is row k and, for rails `begin` to `end`, their parts of `amount`: equal
    but for the remainder, which starts at rail begin + turn % (end - begin).
    """
    m = end - begin
    whole, rest, behind = amount // m, amount % m, m - turn % m
    for rail in range(upto.shape[1]):
        upto[k + 1, rail] = upto[k, rail]
    for rail in range(m):
        at = rail + behind if rail + behind < m else rail + behind - m
        upto[k + 1, begin + rail] += whole + (at < rest)


@part
def _turns(sent: Array, rails: int, at_once: bool, stage: Array) -> Array:
    """int64 [4, rows]: the rail on which a row begins, counted from the first of its own, -1 for
    any; the stage in which it runs; its first rail, and the one behind its last.

    Where `stage` is empty each row has all rails, and one is the stage of those that run at once
    with it, itself included: the lengths of the rows one after the other are dealt to the rails in
    turn, and those between two returns to rail 0 have rails of their own.
    """
    count = len(sent)
    found = np.empty((4, count), np.int64)
    found[TURN], found[NUMBER], found[BEGIN], found[END] = -1, np.arange(count), 0, rails
    first = 0
    for s in range(len(stage)):
        if s and stage[s] != stage[s - 1]:
            first = s
        last = s + 1
        while last < count and stage[last] == stage[s]:
            last += 1
        own = rails // (last - first)
        found[NUMBER, s], found[BEGIN, s] = stage[s], (s - first) * own
        found[END, s] = found[BEGIN, s] + own
    at = np.int64(0)
    for s in range(count if at_once and len(stage) == 0 else 0):
        end = at + most(sent[s])
        if at // rails == (end - 1) // rails:
            found[TURN, s] = at % rails
            if found[TURN, s] and found[TURN, s - 1] >= 0:
                found[NUMBER, s] = found[NUMBER, s - 1]
        at = end
    return found


@part
def _even(rates: Array, i: int, j: int) -> bool:
    """Whether every rail is as fast as the first between two servers; `rates` [2, nodes, rails]."""
    rails = rates.shape[2]
    even = True
    for rail in range(rails):
        even &= min(rates[0, i, rail], rates[1, j, rail]) == min(rates[0, i, 0], rates[1, j, 0])
    return even


@part
def _weighed(amount: int, rates: Array, i: int, j: int, upto: Array, k: int) -> None:
    """As `deal` on all rails, but each by the slower of its two NICs; what rounding leaves goes to
    the first that is alive.
    """
    whole, left, first = np.int64(0), amount, -1
    for rail in range(upto.shape[1]):
        whole += min(rates[0, i, rail], rates[1, j, rail])
    for rail in range(upto.shape[1]):
        weight = min(rates[0, i, rail], rates[1, j, rail])
        if weight and first < 0:
            first = rail
        given = amount // whole * weight + amount % whole * weight // whole
        upto[k + 1, rail] = upto[k, rail] + given
        left -= given
    upto[k + 1, first] += left


@kernel
def node_matrix(bytes_: Array, nodes: int) -> Array:
    """int64 [nodes, nodes] between servers from int64 [GPUs, GPUs]; the diagonal is zero."""
    m = len(bytes_) // nodes
    matrix = np.zeros((nodes, nodes), np.int64)
    for i in range(nodes):
        for j in range(nodes):
            if j == i:
                continue
            sent = np.int64(0)
            for g in range(i * m, (i + 1) * m):
                for h in range(j * m, (j + 1) * m):
                    sent += bytes_[g, np.uint64(h)]
            matrix[i, j] = sent
    return matrix


@part
def tile_stages(peer: Array, sent: Array) -> tuple[Array, Array]:
    """The stages of each tile in order, (int64 [n * n + 1], int64 [transfers]): those of tile
    (i, j) are `second[first[i * n + j] : first[i * n + j + 1]]`.
    """
    stages, n = peer.shape
    start = np.zeros(n * n + 1, np.int64)
    for s in range(stages):
        for i in range(n):
            if sent[s, i]:
                start[i * n + peer[s, i] + 1] += 1
    for t in range(n * n):
        start[t + 1] += start[t]
    found, place = np.empty(start[-1], np.int64), start.copy()
    for s in range(stages):
        for i in range(n):
            if sent[s, i]:
                t = i * n + peer[s, i]
                found[place[t]] = s
                place[t] += 1
    return start, found


@part
def _take(rows: Array, first: int, g: int, want: int, rail: int, rails: TileRails) -> None:
    """Append the next `want` bytes of GPU g to a rail's runs; the tile is [m] columns of `rows`
    from the `first` on.  No slices, here and below: each counts references, which takes longer.
    """
    runs, now, m = rails.runs, rails.now, len(rows)
    h, offset, k = now[NEXT, g], now[AT, g], now[FILLED, rail]
    now[HELD, g] -= want
    while want > 0:
        rest = rows[g, np.uint64(first + h)] - offset
        runs[rail, k, SOURCE], runs[rail, k, TARGET], runs[rail, k, OFFSET] = g, h, offset
        if rest <= want:
            runs[rail, k, BYTES] = rest
            k += rest > 0  # an empty one is written over
            h, offset = (h + 1 if h + 1 < m else 0), np.int64(0)
            want -= rest
        else:
            runs[rail, k, BYTES] = want
            k, offset, want = k + 1, offset + want, 0
    now[NEXT, g], now[AT, g], now[FILLED, rail] = h, offset, k


@part
def _tail(turns: Array, rows: Array, first: int, last: int) -> int:
    """The first of a tile's transfers that is in the last stage of all."""
    while last > first and turns[NUMBER, rows[last - 1]] == turns[NUMBER, -1]:
        last -= 1
    return last


@part
def _keep(rows: Array, first: int, rest: Array, late: Array, now: Array) -> None:
    """Keep up to `late` of what is due to each rail for its target: the ends of flows, its own
    before those of other GPUs.  `late` becomes what is kept, `rest` [m, m] what is not.
    """
    m, count = len(rows), len(late)
    for g in range(m):
        for h in range(m):
            rest[g, h] = rows[g, first + h]
    for rail in range(count):
        h, due = rail * m // count, late[rail]
        for k in range(m):
            kept = min(due, rest[(h + k) % m, h])
            rest[(h + k) % m, h] -= kept
            due -= kept
        late[rail] -= due
        now[DUE, rail] -= late[rail]


@part
def _add_kept(rows: Array, first: int, rest: Array, late: Array, rails: TileRails) -> None:
    """Append what is kept to the runs of the rails."""
    m, count = len(rows), len(late)
    for rail in range(count):
        h, due, at = rail * m // count, late[rail], rails.now[FILLED, rail]
        for k in range(m):
            g = (h + k) % m
            kept = min(due, rows[g, first + h] - rest[g, h])
            if kept:
                rails.runs[rail, at, SOURCE], rails.runs[rail, at, TARGET] = g, h
                rails.runs[rail, at, OFFSET], rails.runs[rail, at, BYTES] = rest[g, h], kept
                at, due, rest[g, h] = at + 1, due - kept, rest[g, h] + kept
        rails.now[FILLED, rail] = at


@part
def _load(rows: Array, j: int, by_target: bool, rails: TileRails) -> None:
    """Give each rail of a tile its runs, for all that is due to it, in the order in which it sends
    them; nothing is sent yet.

    rows   int64 [m, GPUs]: what the server sends; the tile is columns j * m to (j + 1) * m
    """
    now, m, count = rails.now, len(rows), rails.now.shape[1]
    first = j * m
    for g in range(m):
        held = np.int64(0)
        for h in range(m):
            held += rows[g, np.uint64(first + h)]  # unsigned: no index counts from the end
        now[NEXT, g], now[AT, g], now[HELD, g] = 0 if by_target else g, 0, held
    for rail in range(count):
        now[FILLED, rail] = now[PLACE, rail] = now[USED, rail] = 0
    for rail in range(count):
        g = rail * m // count
        own = min(now[HELD, g], now[DUE, rail])
        _take(rows, first, g, own, rail, rails)
        now[DUE, rail] -= own
    giver = 0
    for rail in range(count):
        while now[DUE, rail] > 0:
            while now[HELD, giver] == 0:
                giver += 1
            given = min(now[DUE, rail], now[HELD, giver])
            _take(rows, first, giver, given, rail, rails)
            now[DUE, rail] -= given
    if by_target:
        for rail in range(count):
            _sort_by_target(rails.runs[rail], now[FILLED, rail])


@part
def _sort_by_target(runs: Array, count: int) -> None:
    """Stable insertion sort by target GPU; a rail has few runs."""
    for k in range(1, count):
        a, b, c, d = runs[k, 0], runs[k, 1], runs[k, 2], runs[k, 3]
        p = k
        while p > 0 and runs[p - 1, TARGET] > b:
            for column in range(RUN):
                runs[p, column] = runs[p - 1, column]
            p -= 1
        runs[p, 0], runs[p, 1], runs[p, 2], runs[p, 3] = a, b, c, d


@part
def _send(
    k: int,
    stage: int,
    origin: tuple[int, int],
    cap: int,
    rails: TileRails,
    out: tuple[Array, Array, Array],
    p: int,
) -> int:
    """The rails of a tile send transfer k in pieces of at most `cap` bytes that become columns p,
    p + 1, ... of `out`; the next one.  `origin`: first GPUs of the two servers.
    """
    (runs, upto, now), (ids, rail_of, span) = rails, out
    for rail in range(upto.shape[1]):
        quota, at, used = upto[k + 1, rail] - upto[k, rail], now[PLACE, rail], now[USED, rail]
        while quota > 0:
            run, to = np.uint64(at), np.uint64(p)  # unsigned: they do not count from the end
            rest = runs[rail, run, BYTES] - used
            ids[0, to], rail_of[to] = stage, rail
            ids[1, to] = origin[0] + runs[rail, run, SOURCE]
            ids[2, to] = origin[1] + runs[rail, run, TARGET]
            span[0, to] = runs[rail, run, OFFSET] + used
            p += 1
            if rest <= quota and rest <= cap:  # a branch, which is guessed, costs less than min
                span[1, to] = rest
                at, used, quota = at + 1, np.int64(0), quota - rest
            else:
                size = min(quota, cap)
                span[1, to] = size
                used, quota = used + size, quota - size
        now[PLACE, rail], now[USED, rail] = at, used
    return p


@part
def _room(
    start: Array, stages: Array, sent: Array, size: tuple[int, int], cap: int, ends: Array
) -> int:
    """At least as many pieces as there are: a tile has at most m * m + rails runs, each cut once
    more where a stage ends and once for every `cap` bytes; `size`: (m, rails).
    """
    m, rails = size
    n, pieces = sent.shape[1], np.int64(0)
    for i in range(n):
        for j in range(n):
            first, last = start[i * n + j], start[i * n + j + 1]
            if first < last and (ends[0, i] or ends[1, j]):
                pieces += m * m + m + rails * (2 + last - first)
                for e in range(first, last):
                    pieces += sent[stages[e], i] // cap
    return int(pieces)


def _fewest(*args: Any) -> int:
    """Pieces that `cut` makes of all servers, at least."""
    return int(args[2][1].sum(dtype=np.float64) / args[5])


# compiles for 9 s, with the parts it calls: a zipf matrix on 16 x 8 takes 3.5 ms, 168 interpreted
@kernel(writes=_fewest)
def cut(
    bytes_: Array,
    rates: Array,
    rows: tuple[Array, Array, Array],
    by_target: bool,
    at_once: bool,
    cap: int,
    ends: Array,
) -> tuple[Array, Array, Array]:
    """The pieces of a schedule that some servers send or receive, none larger than `cap` bytes:
    int32 [3, pieces] stage, source and target, int16 [pieces] rail, int64 [2, pieces] offset and
    size.  Three arrays, since to hand over one takes as long as 50 pieces.

    bytes_       int64 [GPUs, GPUs]
    rates        int64 [2, nodes, rails]: weights of sending and receiving, 0 on a dead NIC
    rows         peer and sent [rows, nodes], stage int32 [rows] or empty: see `Schedule`
    at_once      stages that fit side by side run at once, and bytes are kept for the last one; for
                 NICs that are all alike
    ends         bool [2, nodes]: those whose pieces are asked for, as senders and as receivers
    """
    nodes, count = rates.shape[1], rates.shape[2]
    m, (peer, sent, stage) = len(bytes_) // nodes, rows
    start, stages = tile_stages(peer, sent)
    room = _room(start, stages, sent, (m, count), cap, ends)
    ids, rail = np.empty((3, room), np.int32), np.empty(room, np.int16)
    span = np.empty((2, room), np.int64)
    rails, p, out = _rails(m, count, most(np.diff(start))), np.int64(0), (ids, rail, span)
    upto, due = rails.upto, rails.now[DUE]
    rest, late = np.empty((m, m), np.int64), np.empty(count, np.int64)
    turns = _turns(sent, count, at_once, stage)
    keeps = at_once and m > 1 and len(sent) > 0 and turns[NUMBER, -1] > 0
    for i in range(nodes):
        for j in range(nodes):
            first, last = start[i * nodes + j], start[i * nodes + j + 1]
            if first == last or not (ends[0, i] or ends[1, j]):
                continue
            own, even, done = bytes_[i * m : (i + 1) * m], _even(rates, i, j), i + j
            for e in range(first, last):
                s = stages[e]
                if even:
                    turn = done if turns[TURN, s] < 0 else turns[TURN, s]
                    deal(sent[s, i], turn, turns[BEGIN, s], turns[END, s], upto, e - first)
                    done += sent[s, i]
                else:
                    _weighed(sent[s, i], rates, i, j, upto, e - first)
            due[:] = upto[last - first]
            tail = _tail(turns, stages, first, last) if keeps else last
            if tail < last:
                late[:] = due - upto[tail - first]
                _keep(own, j * m, rest, late, rails.now)
                _load(rest, 0, by_target, rails)
                _add_kept(own, j * m, rest, late, rails)
            else:
                _load(own, j, by_target, rails)
            for e in range(first, last):
                origin = i * m, j * m
                p = _send(e - first, turns[NUMBER, stages[e]], origin, cap, rails, out, p)
    return ids[:, :p], rail[:p], span[:, :p]
