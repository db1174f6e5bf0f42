"""The best timetable of an exchange that a program finds, and what is known of the optimum."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import CheckFailed, InputError
from railopt.evidence.bracket import Bracket, Status
from railopt.solver.epochs.exchange import (
    ChunkExchange,
    Timetable,
    bound,
    busiest_line,
    empty,
    fewest_stages,
    lengths,
    relayed,
)
from railopt.solver.epochs.program import build, check_size, read_back
from railopt.solver.epochs.servers import between_gpus, between_servers
from railopt.solver.program.backends import BACKENDS, Answer
from railopt.solver.program.process import run

NAMES = ("cpsat", "pulp")
"""Back-ends that are given this program."""


class BestTimetable(NamedTuple):
    """A timetable (None where none was found), what is known of the optimum (seconds), the time
    that the search took, what went wrong, whether the user interrupted it, why the search ended
    with programs not put, if it did, and the processor time of the back-end's calls, without the
    start of its processes.
    """

    table: Timetable | None
    bracket: Bracket
    time_s: float
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    ended: str = ""
    solver_s: float = 0.0


def paced(exchange: ChunkExchange, wire: Ints, *, early: bool = False) -> Timetable:
    """The timetable of stages whose wire is int64 [stages, pairs, rails].  What a stage needs is
    given in the period before it (`early`: in the first), taken in the period after it; what stays
    inside servers moves beside the longest stage.
    """
    stages = len(wire)
    table = empty(exchange, stages + 2)
    table.wire[1:-1] = wire
    table.take[2:] = relayed(exchange, wire, 1)
    given = relayed(exchange, wire, 0)
    if early:
        table.give[0] = given.sum(axis=0)
    else:
        table.give[:-2] = given
    longest = int(np.argmax(wire.sum(axis=(1, 2)))) + 1 if stages else 0
    table.local[longest] = exchange.demand[tuple(exchange.inner.T)]
    return table


def one_by_one(exchange: ChunkExchange) -> Timetable:
    """A plain timetable of stages for any exchange: stage d sends from server i to i + d, each
    chunk on the NIC that is done with it first.
    """
    n = exchange.nodes
    wire = np.zeros((max(1, n - 1), len(exchange.pairs), exchange.rails), np.int64)
    busy = np.zeros((n, n, exchange.rails), np.int64)
    for pair, (g, h) in enumerate(exchange.pairs.tolist()):
        i, j = int(exchange.node_of[g]), int(exchange.node_of[h])
        each = np.maximum(exchange.send[i], exchange.recv[j])
        alive = np.flatnonzero((exchange.send[i] > 0) & (exchange.recv[j] > 0))
        if not len(alive):
            raise CheckFailed(f"no rail is alive at both server {i} and server {j}")
        for _ in range(int(exchange.demand[g, h])):
            rail = alive[np.argmin((busy[i, j] + each)[alive])]
            busy[i, j, rail] += each[rail]
            wire[(j - i) % n - 1, pair, rail] += 1
    return paced(exchange, wire[wire.any(axis=(1, 2))])


def best(
    exchange: ChunkExchange,
    backend: str = "cpsat",
    limit_s: float = 60.0,
    known: Timetable | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> BestTimetable:
    """The best timetable within `limit_s` seconds; `known` is one to begin with."""
    if backend not in NAMES:
        raise InputError(f"unknown back-end {backend!r}; known back-ends: {', '.join(NAMES)}")
    began = time.monotonic()
    search = _Search(exchange, backend, began + limit_s, report)
    if exchange.epoch:
        search.epochs(known)
    else:
        search.stages(one_by_one(exchange) if known is None else known)
    return search.result(time.monotonic() - began)


def searched(exchange: ChunkExchange, least: int) -> ChunkExchange:
    """The exchange whose program is solved; `least` is a bound of what a timetable takes."""
    return between_servers(exchange, least // exchange.epoch) if exchange.epoch else exchange


def refuse_large(exchange: ChunkExchange) -> None:
    """Refuse an exchange whose program is too large, before it is built."""
    least = bound(exchange).value
    periods = least // exchange.epoch if exchange.epoch else 2 * fewest_stages(exchange)[0] + 1
    check_size(searched(exchange, least), periods)


class _Search:
    """The best so far; bounds in units of the exchange."""

    def __init__(
        self,
        exchange: ChunkExchange,
        backend: str,
        until: float,
        report: Callable[[str], None],
    ) -> None:
        self.exchange, self.backend, self.until, self.report = exchange, backend, until, report
        self.least, self.witness = bound(exchange)
        self.servers = searched(exchange, self.least)
        self.claimed = self.least
        self.table: Timetable | None = None
        self.value: int | None = None
        self.notes: list[str] = []
        self.interrupted = False
        self.asked = False
        self.ended = ""
        self.solver_s = 0.0

    def keep(self, table: Timetable) -> None:
        """Keep a timetable that is better than the best so far."""
        value = sum(lengths(self.exchange, table))
        if self.value is None or value < self.value:
            self.table, self.value = table, value

    def ask(self, periods: int, most: int) -> str:
        """Ask the back-end for a timetable of at most so many periods and this value, keep it, and
        return "optimal", "infeasible" or "".
        """
        if time.monotonic() >= self.until:
            return ""
        try:
            program, columns = build(self.servers, periods, most)
        except InputError as error:
            if not self.asked:
                raise
            self.ended = f"the search ends before {error}"
            return ""
        left_s = self.until - time.monotonic()
        if left_s <= 0:
            return ""
        self.asked = True
        self.report(f"{len(program.cost)} variables, {periods} periods")
        done = run(BACKENDS[self.backend], program, left_s)
        if done.failure and not done.timed_out:  # killed at its limit: nothing but time ran out
            self.notes.append(done.failure)
        self.interrupted |= done.interrupted
        last = done.answers[-1] if done.answers else Answer()
        self.solver_s += last.spent_s
        if last.values is not None:
            try:
                table = read_back(columns, np.array(last.values, np.int64))
                self.keep(between_gpus(self.exchange, self.servers, table))
            except CheckFailed as error:
                self.notes.append(f"{BACKENDS[self.backend].title} returned nonsense: {error}")
                return ""
        return last.status

    def stages(self, known: Timetable) -> None:
        """A program for each number of stages that could be better, from the fewest upwards."""
        self.keep(known)
        count = fewest_stages(self.exchange)[0]
        while self.value is not None and self.value > self.least and count <= self.most_stages():
            if not self.ask(2 * count + 1, self.value - 1):
                return
            count += 1
        assert self.value is not None
        self.claimed = self.value

    def most_stages(self) -> int:
        """How many stages something better than the best so far can have; each has a chunk on the
        wire.
        """
        exchange = self.exchange
        assert self.value is not None
        times = [int(t) for t in (*exchange.send.flat, *exchange.recv.flat) if t]
        count = (self.value - 1) // (exchange.startup + min(times))
        if not exchange.startup:
            return count
        wire = busiest_line(exchange)[0]
        return min(count, (self.value - 1 - wire) // exchange.startup)

    def epochs(self, known: Timetable | None) -> None:
        """A program for each number of epochs, from the bound upwards, until one is enough."""
        if not self.least:
            known = empty(self.exchange, 0)
        if known is not None:
            self.keep(known)
        most = self.least
        while self.value is None or most < self.value:
            status = self.ask(most // self.exchange.epoch, most)
            if status != "infeasible":
                break
            most += self.exchange.epoch
            self.claimed = most

    def result(self, time_s: float) -> BestTimetable:
        """The timetable in seconds, with what stands for the bound."""
        unit = self.exchange.unit
        value = None if self.value is None else self.value * unit
        certified = (self.least * unit, self.witness)
        title = BACKENDS[self.backend].title if self.asked else "no search"
        if value is not None and self.value == self.least:
            bracket = Bracket(value, certified[0], Status.KNOWN, self.witness, title)
        elif value is not None and self.value == self.claimed:
            bracket = Bracket(value, value, Status.CLAIMED, {}, title, certified)
        else:
            bracket = Bracket(value, certified[0], Status.OPEN, self.witness, title)
        said = tuple(self.notes), self.interrupted, self.ended, self.solver_s
        return BestTimetable(self.table, bracket, time_s, *said)


def seconds(exchange: ChunkExchange, table: Timetable) -> Fraction:
    """What a timetable takes."""
    return sum(lengths(exchange, table)) * exchange.unit
