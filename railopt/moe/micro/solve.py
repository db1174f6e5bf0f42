"""All solvers of a micro-batch behind one function: `split`.

    greedy   copies and split in microseconds (`greedy.py`), or the best split without copies if
             that is better
    flow     greedy's copies, or a linear program's if these are better, and the best split over
             them (`flow.py`)
    exact    the best copies, for small cases (`exact.py`)
    auto     exact for up to 256 places (GPUs x experts) without slack, else flow

Each comes with a bound that no copies beat, and its witness (`room.py`).
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints, whole_number
from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import quoted
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate
from railopt.moe.micro.exact import OutOfTimeError, Witness, rounded, within
from railopt.moe.micro.flow import evened
from railopt.moe.micro.greedy import TokenParts, balance, parts_of
from railopt.moe.micro.room import Case, best_of, closed_bound, is_small, relaxed
from railopt.moe.micro.slots import SpareSlots, Split

SOLVERS = ("auto", "greedy", "flow", "exact")
SMALL = 256  # places, GPUs x experts, of a case that auto has solved exactly
MAX_SLACK = 1024
EXACT_S = 10.0  # that the best copies are looked for, where nobody says


class Greedy:
    """The greedy solver with its buffers, for micro-batch after micro-batch of one layer.

    slack   how far the fullest GPU may lie above what none can beat, in 1/1024 of it; more slack
            makes fewer copies
    """

    def __init__(self, slots: SpareSlots, slack: int = 0) -> None:
        self.slots, self.layer = slots, slots.layer
        self.slack = whole_number(slack, "slack", 0, MAX_SLACK)
        self._work = (parts_of(self.layer), parts_of(self.layer), parts_of(self.layer))
        self._counts = np.zeros(slots.experts, np.int64)

    @property
    def plan(self) -> TokenParts:
        """The last plan; the next one overwrites it."""
        return self._work[2]

    @property
    def start(self) -> TokenParts:
        """What the last plan began with: no copies."""
        return self._work[0]

    def largest(self, counts: Ints) -> int:
        """Plan a micro-batch: the largest load.

        counts   int64 [experts], from 0 to 2**40; the shape is checked here, the range by `split`
        """
        fits = isinstance(counts, np.ndarray) and counts.dtype == np.int64
        if not fits or counts.shape != self._counts.shape:
            counts = self.slots.counts(counts)
        self._counts[:] = counts  # one kind of array, for which the kernel is compiled once
        return int(balance(self.layer, self._counts, self.slack, self._work))

    def split(self, counts: npt.ArrayLike) -> Split:
        """Plan a micro-batch: a value of its own, checked."""
        slots = self.slots
        self.largest(slots.counts(counts))
        used, plan = int(self.plan.used[0]), self.plan
        tokens = np.zeros(slots.holds.shape, np.int64)
        np.add.at(tokens, (plan.rank[:used], plan.expert[:used]), plan.tokens[:used])
        return _made(slots, counts, tokens)


@dataclass(frozen=True, eq=False)
class SplitAnswer:
    """A split, and what is known of the least that any copies and split can do.

    solver    who made it
    before    the largest load without copies, by the best split
    bracket   value and bound, tokens; the bound's witness is checked by `railopt check`
    """

    solver: str
    split: Split
    before: int
    bracket: Bracket

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "solver": self.solver,
            "before": self.before,
            "bound": int(self.bracket.bound),
            "optimum": str(self.bracket.status),
            **self.split.as_dict(),
        }

    def certificate(self) -> Certificate:
        """The certificate for `railopt check`."""
        slots, split = self.split.slots, self.split
        problem: dict[str, Any] = {
            "kind": "split",
            "counts": split.counts.tolist(),
            "holds": [np.flatnonzero(row).tolist() for row in slots.holds],
            "spare": slots.spare.tolist(),
        }
        if slots.within_node:
            problem["node"] = (np.arange(slots.ranks) // slots.gpus).tolist()
        gpu, expert = np.nonzero((split.tokens > 0) | split.copies)
        rows = np.stack([expert, gpu, split.tokens[gpu, expert]], axis=1).tolist()
        attained = {"assignment": rows or [[0, int(slots.holds[:, 0].argmax()), 0]]}
        value = Fraction(split.largest)
        return Certificate(problem, self.bracket.bound, self.bracket.witness, value, attained)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the certificate, if the checker accepts it; one that is too large is an error."""
        made, slots = self.certificate(), self.split.slots
        verdict = made.check()
        if not verdict.ok:
            why = verdict.message.removeprefix("refused: ")
            raise InputError(
                f"no certificate of {slots.experts} experts on {slots.ranks} GPUs is saved, since "
                f"railopt check would refuse it: {why}; split fewer experts or GPUs"
            )
        made.save(path, force=force)


def split(
    slots: SpareSlots,
    counts: npt.ArrayLike,
    solver: str = "auto",
    *,
    slack: int = 0,
    limit_s: float | None = None,
) -> SplitAnswer:
    """Copies in spare slots and tokens on GPUs such that the fullest GPU has little to do, and what
    no copies can beat.

    counts    int [experts]: this micro-batch's tokens, exact
    slack     of greedy and flow: see `Greedy`
    limit_s   what is best then is the answer, and its optimum open (default: 10 for exact, none
              for the others)
    """
    if solver not in SOLVERS:
        raise InputError(
            f"solver {quoted(solver)}: expected {', '.join(SOLVERS)}{did_you_mean(solver, SOLVERS)}"
        )
    if solver == "auto":
        solver = "flow" if slack or slots.holds.size > SMALL else "exact"
    tokens = slots.counts(counts)
    usual_s = EXACT_S if solver == "exact" else math.inf
    deadline = time.monotonic() + (usual_s if limit_s is None else limit_s)
    found = Greedy(slots, slack).split(tokens)
    home = _made(slots, tokens, evened(_at_home(slots, tokens), slots.holds, deadline)[0])
    if solver == "greedy":  # which does not split well over what is held twice
        found, bound = _bounded([home, found], 0, deadline, program=False)
    else:
        plans = [home, _flowed(found, deadline)]
        if slack:
            plans.append(_flowed(Greedy(slots).split(tokens), deadline))
        found, bound = _bounded(plans, slack, deadline, program=True)
    if solver == "exact":
        found, bound = _closed(found, bound, deadline)
    value, witness = bound
    met = Status.KNOWN if found.largest == value else Status.OPEN
    known = Bracket(Fraction(found.largest), Fraction(value), met, witness)
    return SplitAnswer(solver, found, home.largest, known)


def _bounded(
    plans: list[Split], slack: int, deadline: float, *, program: bool
) -> tuple[Split, tuple[int, Witness]]:
    """The best of these splits and, if asked for, of a linear program's, and the best bound that
    one set of experts gives.  Of splits that are no more than `slack` / 1024 above it the one with
    the fewest copies is best.
    """
    slots, counts, case = plans[0].slots, plans[0].counts, Case.of(plans[0].slots)
    bound = closed_bound(case, counts, deadline)
    left_s = deadline - time.monotonic()
    if min(plan.largest for plan in plans) > bound.tokens and is_small(case) and left_s > 0:
        solved = relaxed(case, counts, left_s)
        if solved is not None:
            shares, sets = solved
            bound = max(bound, best_of(case, counts, sets, deadline))
            if program:
                plans = [*plans, _made(slots, counts, rounded(case, counts, shares)[0])]
    enough = bound.tokens * (1024 + slack) // 1024
    found = min(plans, key=lambda plan: _ranked(plan, enough))
    return found, (bound.tokens, bound.witness)


def _ranked(split: Split, enough: int) -> tuple[int, int]:
    """Evener first; where loads up to `enough` are even enough, fewer copies first."""
    return max(split.largest, enough), int(split.copies.sum())


def _made(slots: SpareSlots, counts: npt.ArrayLike, tokens: Ints) -> Split:
    return Split(slots, slots.counts(counts), tokens, (tokens > 0) & ~slots.holds)


def _at_home(slots: SpareSlots, tokens: Ints) -> Ints:
    """Every token on the first GPU that holds its expert."""
    start = np.zeros(slots.holds.shape, np.int64)
    start[slots.holds.argmax(axis=0), np.arange(slots.experts)] = tokens
    return start


def _flowed(found: Split, deadline: float) -> Split:
    """The best split over the same copies."""
    has = found.slots.holds | found.copies
    return _made(found.slots, found.counts, evened(found.tokens, has, deadline)[0])


def _closed(
    found: Split, bound: tuple[int, Witness], deadline: float
) -> tuple[Split, tuple[int, Witness]]:
    """Better and better plans until one is refuted or time is up: the last, and the bound.  A case
    beyond `is_small` stays as it is: one linear program of it could take longer than the limit.
    """
    case = Case.of(found.slots)
    if not is_small(case):
        return found, bound
    try:
        while found.largest > bound[0]:
            plan = within(case, found.counts, found.largest - 1, deadline)
            if isinstance(plan, np.ndarray):
                found = _made(found.slots, found.counts, plan)
            else:
                bound = found.largest, plan
    except OutOfTimeError:
        pass
    return found, bound
