"""Stages between servers -> pieces between GPUs: which bytes move inside servers, and on which
rail.

A tile is the m x m traffic from the GPUs of server i to those of server j; GPU r owns NIC r.  A
piece is a run of bytes of one flow (source GPU -> target GPU) on one rail in one stage: it moves
over scale-up to GPU `rail` of its own server where it is not there already (balance), over the rail
to the same index (peer rule), and over scale-up to its target (redistribution).

Balance: each rail carries an equal share of the tile (they differ by at most one byte; which rail
is ahead turns with
i + j).  A GPU keeps its own bytes up to the share; GPUs with more give their last bytes to those
         with less.  A rail
sends its own bytes first, so that what it is given may still be on its way while it starts.

Order within a rail: GPU g sends to g, g + 1, g + 2, ... in turn, so that at any moment the rails of
a tile hold bytes
for different targets and the redistribution of a stage is close to a permutation.  With `by_target`
all rails send to target 0 first, then 1, ...: the order of FAST's released code, where all rails of
a tile crowd on one target.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.schedule.matching import Array

# columns of a run: source GPU (local), target GPU (local), offset in the flow, bytes
RUN = 4


@njit(cache=True)
def shares(amount: int, turn: int, part: Array) -> None:
    """Split `amount` over the rails of `part`: equal but for the remainder, which starts at rail
    turn % m.
    """
    m = len(part)
    whole, rest = amount // m, amount % m
    part[:] = whole
    rail = turn % m
    for _ in range(rest):
        part[rail] += 1
        rail = rail + 1 if rail + 1 < m else 0


@njit(cache=True)
def node_matrix(bytes_: Array, nodes: int) -> Array:
    """int64 [nodes, nodes] between servers from int64 [GPUs, GPUs]; the diagonal is zero."""
    m = len(bytes_) // nodes
    matrix = np.zeros((nodes, nodes), np.int64)
    for g in range(len(bytes_)):
        i, row = g // m, bytes_[g]
        for j in range(nodes):
            if j != i:
                matrix[i, j] += row[j * m : (j + 1) * m].sum()
    return matrix


@njit(cache=True)
def tile_entries(peer: Array, sent: Array) -> tuple[Array, Array]:
    """The stages of each tile in order: those of tile (i, j) are `stages[start[i * n + j]:start[i *
    n + j + 1]]`.
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


@njit(cache=True)
def _take(tile: Array, g: int, want: int, at: Array, runs: Array, rail: int, count: Array) -> None:
    """Append the next `want` bytes of GPU g to a rail's runs; `at[g]` is (target, offset, bytes
    left).
    """
    m = len(tile)
    h, offset, k = at[g, 0], at[g, 1], count[rail]
    at[g, 2] -= want
    while want > 0:
        size = min(want, tile[g, h] - offset)
        if size > 0:
            runs[rail, k, 0], runs[rail, k, 1], runs[rail, k, 2], runs[rail, k, 3] = (
                g,
                h,
                offset,
                size,
            )
            k += 1
            want -= size
            offset += size
        if offset == tile[g, h]:
            h, offset = (h + 1 if h + 1 < m else 0), np.int64(0)
    at[g, 0], at[g, 1], count[rail] = h, offset, k


@njit(cache=True)
def tile_runs(
    tile: Array, turn: int, by_target: bool, runs: Array, count: Array, part: Array, at: Array
) -> None:
    """What each rail of a tile sends, in order: `runs[rail, :count[rail]]`, [m, m * m + m, RUN].

    `part` [m] and `at` [m, 3] are scratch.
    """
    m = len(tile)
    total = np.int64(0)
    for g in range(m):
        held = np.int64(0)
        for h in range(m):
            held += tile[g, h]
        at[g, 0], at[g, 1], at[g, 2], count[g] = 0 if by_target else g, 0, held, 0
        total += held
    shares(total, turn, part)
    for g in range(m):
        own = min(at[g, 2], part[g])
        _take(tile, g, own, at, runs, g, count)
        part[g] -= own
    giver = 0
    for rail in range(m):
        while part[rail] > 0:
            while at[giver, 2] == 0:
                giver += 1
            given = min(part[rail], at[giver, 2])
            _take(tile, giver, given, at, runs, rail, count)
            part[rail] -= given
    if by_target:
        for rail in range(m):
            _sort_by_target(runs[rail], count[rail])


@njit(cache=True)
def _sort_by_target(runs: Array, count: int) -> None:
    """Stable insertion sort by target GPU; a rail has few runs."""
    for k in range(1, count):
        a, b, c, d = runs[k, 0], runs[k, 1], runs[k, 2], runs[k, 3]
        p = k
        while p > 0 and runs[p - 1, 1] > b:
            for column in range(RUN):
                runs[p, column] = runs[p - 1, column]
            p -= 1
        runs[p, 0], runs[p, 1], runs[p, 2], runs[p, 3] = a, b, c, d


@njit(cache=True)
def cut(
    bytes_: Array, nodes: int, peer: Array, sent: Array, by_target: bool, cap: int, node: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """All pieces of a schedule, tile by tile, rail by rail, in the order of their stages; none
    larger than `cap` bytes.

    With `node` >= 0 only the pieces that this server sends or receives.
    Columns: stage int32, rail int16, source GPU int32, target GPU int32 (ids), offset int64, size
    int64.
    """
    m = len(bytes_) // nodes
    start, stages = tile_entries(peer, sent)
    most, longest = np.int64(0), np.int64(0)
    for i in range(nodes):
        for j in range(nodes):
            entries = start[i * nodes + j + 1] - start[i * nodes + j]
            longest = max(longest, entries)
            if entries and (node < 0 or node in (i, j)):
                most += m * m + m * (2 + entries)
                for e in range(start[i * nodes + j], start[i * nodes + j + 1]):
                    most += sent[stages[e], i] // cap
    stage, source, target = (
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
    )
    rail_of, offset, size = (
        np.empty(most, np.int16),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    runs, count, at = (
        np.empty((m, m * m + m, RUN), np.int64),
        np.empty(m, np.int64),
        np.empty((m, 3), np.int64),
    )
    part, until = np.empty(m, np.int64), np.zeros((longest + 1, m), np.int64)
    p = 0
    for i in range(nodes):
        for j in range(nodes):
            first, last = start[i * nodes + j], start[i * nodes + j + 1]
            if first == last or not (node < 0 or node in (i, j)):
                continue
            tile_runs(
                bytes_[i * m : (i + 1) * m, j * m : (j + 1) * m],
                i + j,
                by_target,
                runs,
                count,
                part,
                at,
            )
            done = np.int64(0)
            for e in range(first, last):
                done += sent[stages[e], i]
                shares(done, i + j, part)
                for rail in range(m):
                    until[e - first + 1, rail] = part[rail]
            for rail in range(m):
                e, room = -1, np.int64(0)
                for k in range(count[rail]):
                    begin, left = runs[rail, k, 2], runs[rail, k, 3]
                    while left > 0:
                        while room == 0:
                            e += 1
                            room = until[e + 1, rail] - until[e, rail]
                        length = min(left, room, cap)
                        stage[p], rail_of[p], offset[p], size[p] = (
                            stages[first + e],
                            rail,
                            begin,
                            length,
                        )
                        source[p], target[p] = i * m + runs[rail, k, 0], j * m + runs[rail, k, 1]
                        p += 1
                        room -= length
                        begin += length
                        left -= length
    return stage[:p], rail_of[:p], source[:p], target[:p], offset[:p], size[:p]
