"""The time-expanded program of an exchange, as rows over whole numbers.

columns   wire[p, pair, rail], give[p, GPU, rail], take[p, GPU, rail], local[p, inner pair]:
          chunks, as in a `Timetable`; link[p, source, target, rail]: 0 or 1, the NIC sends there
stages    length[p]; wired[p]: 0 or 1, the stage has bytes on the wire; beats[p]: chunks of its
          busiest NIC, where all NICs take the same time.  minimise the lengths
epochs    start[p, source, target, rail]: 0 or 1.  Nothing to minimise: their number is given
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.errors import InputError
from railopt.solver.epochs.exchange import (
    ChunkExchange,
    Timetable,
    busiest_line,
    empty,
    fewest_stages,
)
from railopt.solver.program.mip import FREE, MixedProgram

Term = tuple[Any, int]
"""A column and its factor."""
MOST = {"variables": 100_000, "entries": 2_000_000, "places": 20_000_000}
"""Of a program (see `sizes`): with twice as many variables CP-SAT passes the memory of its process
(see `processes`), and so many entries take some six seconds to build.
"""
MOST_BEATS = 100
"""Of a chunk: with more, factors are so large that CP-SAT takes longer than without beats."""


class EpochColumns(NamedTuple):
    """The numbers of the program's columns, by what they stand for; -1 where there is none.

    given, taken  chunks that wait where they were given, or where they are to be taken
    """

    table: Timetable
    given: Ints
    taken: Ints
    link: Ints
    length: Ints
    wired: Ints
    beats: Ints


class _ProgramRows:
    """The rows so far."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int]] = []
        self.low: list[int] = []
        self.high: list[int] = []

    def add(self, terms: Iterable[Term], low: int, high: int) -> None:
        """low <= sum of factor * column <= high; columns of -1 and factors of 0 are left out."""
        row = len(self.low)
        self.entries += [(row, int(c), int(factor)) for c, factor in terms if c >= 0 and factor]
        self.low.append(low)
        self.high.append(high)


class _Living(NamedTuple):
    """Where a period of a program has columns, bool: [pairs, rails], twice [GPUs, rails], and
    [nodes, nodes, rails] for links.
    """

    wire: Bools
    give: Bools
    take: Bools
    talks: Bools


def _living(exchange: ChunkExchange) -> _Living:
    n = exchange.nodes
    source, target = exchange.node_of[exchange.pairs.T]
    wire = (exchange.send > 0)[source] & (exchange.recv > 0)[target]
    far = ~np.tile(exchange.near, (n, 1))
    ends = (np.bincount(end, minlength=len(far)) > 0 for end in exchange.pairs.T)
    give, take = (far & some[:, None] for some in ends)
    talks = np.zeros((n, n, exchange.rails), np.bool_)
    np.logical_or.at(talks, (source, target), wire)
    return _Living(wire, give, take, talks)


def _limited(exchange: ChunkExchange) -> bool:
    """Whether columns say which links have bytes."""
    return exchange.peers < exchange.nodes - 1 or not exchange.epoch


def sizes(exchange: ChunkExchange, periods: int) -> dict[str, int]:
    """What the program of so many periods has: variables; entries at most, which start-ups make
    many; places in a table of servers x servers x rails over all periods, which are held in full.
    """
    living, starts = _living(exchange), exchange.starts
    wired = periods if exchange.epoch else periods // 2
    wire, give, take, talks = (int(where.sum()) for where in living)
    each = 2 * (give + take) + len(exchange.inner) + talks * bool(starts) + (not exchange.epoch)
    of_stages = 0 if exchange.epoch else 2 if _beat(exchange) else 1
    variables = each * periods + (wire + talks * _limited(exchange) + of_stages) * wired
    begun = talks * periods * (periods // 2 + min(starts, periods)) if starts else 0
    places = exchange.nodes**2 * exchange.rails * periods
    return {"variables": variables, "entries": 10 * variables + begun, "places": places}


def check_size(exchange: ChunkExchange, periods: int) -> None:
    """Refuse a program that is too large, before it is built."""
    for what, size in sizes(exchange, periods).items():
        if size > MOST[what]:
            fewer = "larger chunks or fewer GPUs" if exchange.epoch else "fewer GPUs"
            raise InputError(
                f"a program of {size} {what} ({len(exchange.pairs)} pairs x {exchange.rails} "
                f"rails, {exchange.nodes} servers, {periods} periods): too large for memory, at "
                f"most {MOST[what]}; use {fewer}"
            )


def build(exchange: ChunkExchange, periods: int, most: int) -> tuple[MixedProgram, EpochColumns]:
    """The program of at most so many periods; in stages, whose value is at most `most`.

    With stages every other period, the first and the last too, has no bytes on the wire: one
    between two stages is enough, for no chunk makes two hops there.
    """
    check_size(exchange, periods)
    columns, high = _columns(exchange, periods, most)
    rows = _ProgramRows()
    _carried(exchange, columns, rows)
    _loaded(exchange, columns, rows)
    if exchange.epoch:
        _started(exchange, columns, rows)
    else:
        _known(exchange, columns, rows)
    for first, then in pairwise(columns.wired[columns.wired >= 0]):
        rows.add([(first, 1), (then, -1)], 0, FREE)
    cost = np.zeros(len(high), np.int64)
    cost[columns.length[columns.length >= 0]] = 1
    rows.add([(column, 1) for column in np.flatnonzero(cost)], 0, most)
    row, column, value = np.array(rows.entries, np.int64).reshape(-1, 3).T
    zero, whole = np.zeros_like(high), np.ones(len(high), np.bool_)
    ends = np.array(rows.low), np.array(rows.high)
    return MixedProgram(cost, zero, high, whole, row, column, value, *ends), columns


def read_back(columns: EpochColumns, values: Ints) -> Timetable:
    """The timetable that values of the columns stand for."""
    values = np.append(values, 0)  # columns of -1 are 0
    return Timetable(*(values[part] for part in columns.table))


def _columns(exchange: ChunkExchange, periods: int, most: int) -> tuple[EpochColumns, Ints]:
    """The columns, and the largest value of each."""
    staged, highs = not exchange.epoch, list[int]()
    shape = empty(exchange, periods)
    living = _living(exchange)
    asked = exchange.demand[tuple(exchange.pairs.T)]
    leaves, comes = (
        np.bincount(exchange.pairs[:, end], asked, len(exchange.demand)).astype(np.int64)[:, None]
        for end in (0, 1)
    )
    stays = exchange.demand[tuple(exchange.inner.T)]

    def numbered(like: Ints, most_of: Any, where: Any) -> Ints:
        """Number the columns of `like` [periods, ...] that are `where`."""
        where = np.broadcast_to(where, like.shape)
        found = np.full(like.shape, -1, np.int64)
        found[where] = len(highs) + np.arange(int(where.sum()))
        highs.extend(np.broadcast_to(most_of, like.shape)[where].tolist())
        return found

    inner = np.arange(periods)
    wires = inner % 2 == 1 if staged else inner >= 0
    table = Timetable(
        numbered(shape.wire, asked[:, None], living.wire & wires[:, None, None]),
        numbered(shape.give, leaves, living.give),
        numbered(shape.take, comes, living.take),
        numbered(shape.local, stays, True),
        numbered(shape.start, 1, living.talks & bool(exchange.starts)),
    )
    given = numbered(shape.give, leaves, living.give)
    taken = numbered(shape.take, comes, living.take)
    linked = living.talks & wires[:, None, None, None] & _limited(exchange)
    link = numbered(shape.start, 1, linked)
    length = numbered(inner, most, staged)
    wired = numbered(inner, 1, wires & staged)
    beat = 0 if exchange.epoch else _beat(exchange)
    each = max(exchange.send.max(), exchange.recv.max()) // (beat or 1)
    beats = numbered(inner, int(asked.sum()) * each, wires & bool(beat))
    made = EpochColumns(table, given, taken, link, length, wired, beats)
    return made, np.array(highs, np.int64)


def _carried(exchange: ChunkExchange, columns: EpochColumns, rows: _ProgramRows) -> None:
    """Every chunk goes, and each hop comes after the one before."""
    table, periods = columns.table, len(columns.wired)
    for pair, (g, h) in enumerate(exchange.pairs.tolist()):
        asked = int(exchange.demand[g, h])
        rows.add([(c, 1) for c in table.wire[:, pair].flat], asked, asked)
    for pair, (g, h) in enumerate(exchange.inner.tolist()):
        asked = int(exchange.demand[g, h])
        rows.add([(c, 1) for c in table.local[:, pair]], asked, asked)
    lag = 0 if exchange.epoch else 1
    for hop, stock, end in ((table.give, columns.given, 0), (table.take, columns.taken, 1)):
        for gpu, rail in np.argwhere(hop[0] >= 0).tolist():
            wire = table.wire[:, exchange.pairs[:, end] == gpu, rail]
            first, then = (hop[:, gpu, rail, None], wire)
            if end:
                first, then = then, first
            waits = stock[:, gpu, rail]
            for p in range(periods):
                came: list[Term] = [(c, 1) for c in first[p - lag]] if p >= lag else []
                held: list[Term] = [(waits[p - 1], 1)] if p else []
                gone: list[Term] = [(c, -1) for c in (waits[p], *then[p])]
                rows.add([*came, *held, *gone], 0, 0)
            rows.add([(c, 1) for c in (waits[-1], *first[periods - lag :].flat)], 0, 0)


def _loaded(exchange: ChunkExchange, columns: EpochColumns, rows: _ProgramRows) -> None:
    """What NICs and scale-up ports carry in a period, and whom they talk to."""
    table, epoch = columns.table, exchange.epoch
    source, target = exchange.node_of[exchange.pairs.T]
    holder = exchange.node_of[:, None] * exchange.gpus + exchange.owner
    for p in range(len(columns.wired)):
        for times, ends in ((exchange.send, source), (exchange.recv, target)):
            for node, rail in np.argwhere(times).tolist():
                carried = [(c, times[node, rail]) for c in table.wire[p, ends == node, rail]]
                _fits(exchange, columns, rows, p, carried, True)
                links = columns.link[p, node] if ends is source else columns.link[p, :, node]
                met = [(c, 1) for c in links[:, rail] if c >= 0]
                if met:
                    rows.add(met, 0, exchange.peers)
        for i, j, rail in np.argwhere(columns.link[p] >= 0).tolist():
            wire = table.wire[p, (source == i) & (target == j), rail]
            sent = int(
                exchange.demand[tuple(exchange.pairs[(source == i) & (target == j)].T)].sum()
            )
            if epoch:
                sent = min(sent, epoch // int(exchange.send[i, rail]))
            rows.add([*((c, -1) for c in wire), (columns.link[p, i, j, rail], sent)], 0, FREE)
            if not epoch:
                rows.add([(columns.wired[p], 1), (columns.link[p, i, j, rail], -1)], 0, FREE)
        for gpu in range(len(exchange.demand)):
            held = holder == gpu
            there = exchange.inner == gpu
            out = (*table.give[p, gpu], *table.take[p][held], *table.local[p, there[:, 0]])
            into = (*table.take[p, gpu], *table.give[p][held], *table.local[p, there[:, 1]])
            for moved in (out, into):
                _fits(exchange, columns, rows, p, [(c, exchange.inside) for c in moved], False)


def _fits(
    exchange: ChunkExchange,
    columns: EpochColumns,
    rows: _ProgramRows,
    p: int,
    load: list[Term],
    wire: bool,
) -> None:
    """A port's load fits period p, with its start-up where it is on the wire."""
    if not any(column >= 0 for column, _ in load):
        return
    if exchange.epoch:
        rows.add(load, 0, exchange.epoch)
        return
    if wire and (beat := _beat(exchange)):
        rows.add([*((c, -time // beat) for c, time in load), (columns.beats[p], 1)], 0, FREE)
        return
    begun = [(columns.wired[p], -exchange.startup)] if wire else []
    against = [(c, -factor) for c, factor in load]
    rows.add([*against, *begun, (columns.length[p], 1)], 0, FREE)


def _beat(exchange: ChunkExchange) -> int:
    """What divides the time of a chunk on every living NIC; 0 where one takes many of it."""
    beat = gcd(*exchange.send.flat, *exchange.recv.flat)
    return beat if max(exchange.send.max(), exchange.recv.max()) <= MOST_BEATS * beat else 0


def _known(exchange: ChunkExchange, columns: EpochColumns, rows: _ProgramRows) -> None:
    """In stages: how many there are at least, and how many beats they have together.  Both follow
    from the other rows, but not from their relaxation.
    """
    beat = _beat(exchange)
    rows.add([(c, 1) for c in columns.wired], fewest_stages(exchange)[0], FREE)
    if not beat:
        return
    rows.add([(c, 1) for c in columns.beats], busiest_line(exchange)[0] // beat, FREE)
    for p in np.flatnonzero(columns.beats >= 0):
        paid = [(columns.wired[p], -exchange.startup), (columns.beats[p], -beat)]
        rows.add([(columns.length[p], 1), *paid], 0, FREE)


def _started(exchange: ChunkExchange, columns: EpochColumns, rows: _ProgramRows) -> None:
    """In epochs: a NIC sends where its start-up is over, and sends nothing in one."""
    busy, table = exchange.starts, columns.table
    if not busy:
        return
    source, target = exchange.node_of[exchange.pairs.T]
    for i, j, rail in np.argwhere(table.start[0] >= 0).tolist():
        some = (source == i) & (target == j)
        asked = int(exchange.demand[tuple(exchange.pairs[some].T)].sum())
        begun = [(c, asked) for c in table.start[:, i, j, rail]]
        rows.add([*begun, *((c, -1) for c in table.wire[:, some, rail].flat)], 0, FREE)
        rows.add([(c, 1) for c, _ in begun], 0, 1)
    for p in range(len(columns.wired)):
        recent = slice(max(0, p - busy + 1), p + 1)
        for i, rail in np.argwhere(exchange.send).tolist():
            most = exchange.epoch // int(exchange.send[i, rail])
            running: list[Term] = [(c, most) for c in table.start[recent, i, :, rail].flat]
            sent = [(c, 1) for c in table.wire[p, source == i, rail]]
            rows.add([*running, *sent], 0, most)
        for i, j, rail in np.argwhere(table.start[0] >= 0).tolist():
            most = exchange.epoch // int(exchange.send[i, rail])
            begun = [(c, most) for c in table.start[: max(0, p - busy + 1), i, j, rail]]
            wire = table.wire[p, (source == i) & (target == j), rail]
            rows.add([*begun, *((c, -1) for c in wire)], 0, FREE)
