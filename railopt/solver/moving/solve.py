"""Both aims at once, for whole units: least time, then least bytes moved inside nodes.

The time is that of the coupled solver.  Within it the least bytes moved are looked for by a search
over every way to put units on rails, the prices of divisible traffic telling which ways are worth
following; and by a foreign solver where the search does not come to its end.  What is found is
called proved if the kernel accepts the prices, or every way, as its witness; a foreign solver's
word is claimed.
"""

from __future__ import annotations

import os
import time as clock
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from railopt.base.arrays import Rails
from railopt.base.errors import InputError
from railopt.base.units import shown
from railopt.checker import Verdict
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate, witnessed
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.moves import rail_costs
from railopt.model.plan import Plan
from railopt.solver.coupled.solve import solve
from railopt.solver.local.deadline import time_limit
from railopt.solver.moving.bound import MovingBound, earned_by, moved_within
from railopt.solver.moving.classes import classes_of
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run
from railopt.solver.program.program import build_moved

STEPS = 200_000  # of the search, about half a second
EVERY = 400  # units: beyond this no search over every way has ended
ILP_VARIABLES = 60_000
ILP_LEAST_S = 2.0  # with less left a foreign solver would not even start up


@dataclass(frozen=True)
class MovingOutcome:
    """The best plan found.

    time    what is known of the least makespan, seconds
    moved   what is known of the least bytes moved by plans as fast as this one
    notes   what went wrong on the way
    """

    plan: Plan
    time: Bracket
    moved: Bracket
    time_s: float
    notes: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Both optima are known, by witnesses that the kernel accepts."""
        return self.time.proved and self.moved.proved

    @property
    def certificate(self) -> Certificate:
        """Of moved bytes, as `railopt check` re-checks it."""
        return _certificate(self.plan, self.moved)


def solve_moving(
    fabric: Fabric,
    chunks: Chunks,
    limit_s: float = 10.0,
    *,
    seed: int = 0,
    start: Plan | None = None,
    backend: str = "cpsat",
) -> MovingOutcome:
    """The least time that `limit_s` seconds can find, and the least bytes moved within it.

    start     a plan of these chunks that is known already
    backend   the foreign solver that is asked where the search does not come to its end
    """
    if backend not in tuple(BACKENDS):
        raise InputError(f"unknown back-end {shown(backend)}; known: {', '.join(BACKENDS)}")
    limit_s = time_limit(limit_s)
    began = clock.monotonic()
    fastest = solve(fabric, chunks, limit_s / 2, seed=seed, start=start)
    if fastest.plan is None:
        raise InputError(f"no plan exists: {fastest.by}")
    notes, plan = list(fastest.notes), fastest.plan
    left_s = 0.0 if fastest.interrupted else limit_s - (clock.monotonic() - began)
    best = Best(
        plan, moved_within(fabric, classes_of(fabric, chunks), plan.makespan, limit_s=left_s)
    )
    if not best.met and not fastest.interrupted:
        best.search()
        left_s = limit_s - (clock.monotonic() - began)
        small = len(chunks) * fabric.rails <= ILP_VARIABLES
        if not best.met and small and left_s >= ILP_LEAST_S:
            notes += best.ask(backend, left_s)
    took_s = clock.monotonic() - began
    known = _time_of(best.plan, fastest.bracket)
    return MovingOutcome(best.plan, known, best.bracket(), took_s, tuple(notes))


def _time_of(plan: Plan, known: Bracket) -> Bracket:
    """What is known of the least time, if this plan is faster than what was found before."""
    if known.value is None or plan.makespan >= known.value:
        return known
    bound, witness = known.bound, known.witness
    if known.status is Status.CLAIMED:  # a solver's word, and wrong
        bound, witness = known.certified or (Fraction(0), {})
    status = Status.PROVED if plan.makespan == bound else Status.OPEN
    return Bracket(plan.makespan, bound, status, witness, known.by)


def _certificate(plan: Plan, moved: Bracket) -> Certificate:
    bound, witness = witnessed(moved)
    return Certificate.moved(plan, plan.makespan, int(bound), witness)


class Best:
    """The plan that moves least so far, within the time of the one that it began with.

    lower   bytes, with its witness: no such plan moves fewer
    by      what found the plan
    claim   the foreign solver that says that no plan is better
    """

    def __init__(self, plan: Plan, found: MovingBound) -> None:
        self.plan, self.by, self.claim = plan, plan.policy, ""
        self.limit, self.prices = plan.makespan, found.prices
        self.lower, self.witness = found.bytes, found.witness

    @property
    def met(self) -> bool:
        return bool(self.claim) or self.plan.moved == self.lower

    def bracket(self) -> Bracket:
        """What is known; proved only if the kernel says so."""
        value = Fraction(self.plan.moved)
        if value == self.lower:
            proved = Bracket(value, value, Status.PROVED, self.witness, self.by)
            if self._verdict(proved).proved:
                return proved
        if self.claim:
            known = None if value == self.lower else (Fraction(self.lower), self.witness)
            return Bracket(value, value, Status.CLAIMED, {}, self.claim, known)
        return Bracket(value, Fraction(self.lower), Status.OPEN, self.witness, self.by)

    def _verdict(self, moved: Bracket) -> Verdict:
        return _certificate(self.plan, moved).check()

    def offer(self, rail: Rails, by: str) -> bool:
        """A plan, kept if it is in time and moves less; whether it is in time."""
        made = Plan(self.plan.fabric, self.plan.chunks, rail, "solver")
        if made.makespan > self.limit:
            return False
        if made.moved < self.plan.moved:
            self.plan, self.by = made, by
        return True

    def search(self) -> None:
        """Follow every way, if that comes to an end."""
        if len(self.plan.chunks) > EVERY:
            return
        ways = _Ways(self)
        ended = ways.follow()
        self.offer(np.array(ways.rail, np.int16), "every way")
        if not ended:
            return
        witness = {**self.witness, "kind": "every"}
        value = Fraction(self.plan.moved)
        if self._verdict(Bracket(value, value, Status.PROVED, witness)).proved:
            self.lower, self.witness = self.plan.moved, witness

    def ask(self, name: str, limit_s: float) -> list[str]:
        """Put the rest to a foreign solver; what it did wrong, by its name."""
        backend, plan = BACKENDS[name], self.plan
        cost = rail_costs(plan.fabric, plan.chunks)
        problem = build_moved(plan.fabric, plan.chunks, cost, self.limit, plan.rail)
        done = run(backend, problem.program, limit_s, os.cpu_count() or 1)
        notes = [done.failure] if done.failure else []
        for answer in done.answers:
            counts = None if answer.counts is None else problem.counts(answer.counts)
            if counts is None:
                notes += [] if answer.counts is None else [f"{backend.title}: no plan"]
                continue
            in_time = self.offer(problem.rails(counts), backend.title)
            if answer.optimal and in_time and problem.program.exact:
                self.claim = backend.title
        if done.interrupted:
            raise KeyboardInterrupt
        return notes


class _Ways:
    """Units on rails in every way that keeps the time and may move less than what is known; see
    `check.by_every_way`, which follows the same ways once it knows what is least.

    units   of each unit, the largest first: its ends, its bytes, and (weight, rail, bytes moved) of
            each live rail, the lightest first
    least   bytes that the best plan so far moves, on `rail`
    """

    def __init__(self, best: Best) -> None:
        plan, prices, time = best.plan, best.prices, best.limit
        fabric, chunks = plan.fabric, plan.chunks
        self.least, self.rail = plan.moved, plan.rail.tolist()
        self.unit, self.steps = prices.unit, 0
        self.earned = prices.unit * time * earned_by(fabric, prices)
        self.sent, self.got = (
            [[floor(time * rate) for rate in row] for row in rates.tolist()]
            for rates in (fabric.tx, fabric.rx)
        )
        cost = rail_costs(fabric, chunks).astype(np.int64)
        weight = prices.unit * cost + prices.send[chunks.src] + prices.recv[chunks.dst]
        live = (fabric.tx[chunks.src] > 0) & (fabric.rx[chunks.dst] > 0)
        self.order = np.argsort(-chunks.size, kind="stable").tolist()
        self.units = []
        for u in self.order:
            bytes_ = int(chunks.size[u])
            ways = [
                (int(weight[u, n]) * bytes_, n, int(cost[u, n]) * bytes_)
                for n in np.flatnonzero(live[u]).tolist()
            ]
            self.units.append((int(chunks.src[u]), int(chunks.dst[u]), bytes_, sorted(ways)))
        self.to_come = [0]
        for *_, ways in reversed(self.units):
            self.to_come.append(self.to_come[-1] + ways[0][0])
        self.taken = [0] * len(self.units)

    def follow(self, at: int = 0, weight: int = 0, moved: int = 0) -> bool:
        """Whether all ways were followed to their end, from the unit `at` on; those before weigh
        and move so much.
        """
        if at == len(self.units):
            self.least = moved
            for unit, n in zip(self.order, self.taken, strict=True):
                self.rail[unit] = n
            return True
        self.steps += 1
        if self.steps > STEPS:
            return False
        k, f, bytes_, ways = self.units[at]
        sent, got = self.sent[k], self.got[f]
        for more, n, further in ways:
            if weight + more + self.to_come[-at - 2] > self._most():
                break  # dearer rails come later
            if sent[n] >= bytes_ and got[n] >= bytes_ and moved + further < self.least:
                self.taken[at] = n
                sent[n], got[n] = sent[n] - bytes_, got[n] - bytes_
                ended = self.follow(at + 1, weight + more, moved + further)
                sent[n], got[n] = sent[n] + bytes_, got[n] + bytes_
                if not ended:
                    return False
        return True

    def _most(self) -> Fraction:
        """What a plan weighs at most that moves less than the best."""
        return self.unit * (self.least - 1) + self.earned
