"""The state of one coupled solve: the best plan and bound so far, and the clock.

`shared_out` and `first_bound` need no kernel: they are the answer where an interrupt comes in the
first moment of a solve, or where no kernel can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from railopt.base.arrays import Rails, by_key
from railopt.base.kernels import wall_s
from railopt.evidence.bounds import Bound, Witness, average, node_sizes
from railopt.evidence.bracket import Bracket, Status
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import SIDES
from railopt.policies.common import make_plan
from railopt.solver.local.deadline import Deadline, Now
from railopt.solver.outcome import INTERRUPTED, Outcome

if TYPE_CHECKING:
    from railopt.solver.coupled.search import Cells


class Progress(NamedTuple):
    """How far a race is: the best value and bound in seconds (None where none is known), and the
    step that runs.
    """

    value: Fraction | None
    bound: Fraction | None
    stage: str


@dataclass
class Race:
    """The best plan and the best bound so far, and who found them; `limit_s` is in seconds of
    `clock`.

    rail       int16 [C], the best plan, of `value` seconds, by `plan_by`; None before the first
    bound      seconds, by `witness`, found by `bound_by`
    claimed_by the back-end on whose word the plan is optimal
    unchecked  a bound that the checker could not check, and by what
    done       (side, node) whose local optimum raises the bound no further
    step_s     seconds that a recent step of the search took
    """

    fabric: Fabric
    chunks: Chunks
    limit_s: float
    seed: int = 0
    tolerance: Fraction = Fraction(0)
    report: Callable[[Progress], None] | None = None
    clock: Now = wall_s
    began: float = field(init=False)
    rail: Rails | None = None
    value: Fraction = Fraction(-1)
    bound: Fraction = Fraction(0)
    witness: Witness = field(default_factory=lambda: dict(NOTHING))
    plan_by: str = ""
    bound_by: str = "average"
    claimed_by: str = ""
    unchecked: tuple[Fraction, str] = (Fraction(0), "")
    done: set[tuple[str, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    step_s: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.clock()

    @cached_property
    def cells(self) -> Cells:
        """The problem as the search sees it; loads numba."""
        from railopt.solver.coupled.search import Cells

        return Cells(self.fabric, self.chunks)

    @property
    def left_s(self) -> float:
        return self.limit_s - self.time_s

    @property
    def time_s(self) -> float:
        return self.clock() - self.began

    @property
    def deadline(self) -> Deadline:
        """The race's end."""
        return Deadline(self.clock, self.began + self.limit_s)

    @property
    def best_bound(self) -> Fraction:
        """Checked or not."""
        return max(self.bound, self.unchecked[0])

    @property
    def met(self) -> bool:
        """Value and bound have met, within the tolerance, or a back-end says that they would."""
        return bool(self.claimed_by) or (
            self.rail is not None and self.value <= self.best_bound * (1 + self.tolerance)
        )

    @property
    def over(self) -> bool:
        return self.met or self.left_s <= 0

    def offer(self, rail: Rails, value: Fraction, by: str) -> None:
        """A plan, and its makespan as summed up from its rails; kept if it is better."""
        if self.rail is not None and value >= self.value:
            return
        if value < self.best_bound:
            self._distrust(value, by)
        self.rail, self.value, self.plan_by = rail, value, by
        self.tell(by)

    def lift(self, bound: Fraction, witness: Witness, by: str) -> None:
        """A bound with its witness; kept if it is better."""
        if self.rail is not None and bound > self.value:
            self._refused(bound, by, self.value, self.plan_by)
        elif bound > self.bound:
            self.bound, self.witness, self.bound_by = bound, witness, by
            self.tell(by)

    def lift_closed(self, best: Bound) -> None:
        """The best closed-form bound of all nodes."""
        self.lift(best.value, best.lifted, best.witness["kind"])

    def lift_unchecked(self, bound: Fraction, by: str) -> None:
        """A bound that the checker could not check; kept if it is better."""
        if self.rail is not None and bound > self.value:
            self._refused(bound, by, self.value, self.plan_by)
        elif bound > self.best_bound:
            self.unchecked = (bound, by)

    def _distrust(self, value: Fraction, by: str) -> None:
        """A plan is faster than a bound: the bound is wrong; fall back to the first one."""
        self._refused(self.best_bound, self.unchecked[1] or self.bound_by, value, by)
        self.unchecked, self.claimed_by = (Fraction(0), ""), ""
        self.bound, self.witness = first_bound(self.fabric, self.chunks)
        self.bound_by = "average"

    def _refused(self, bound: Fraction, by: str, value: Fraction, plan_by: str) -> None:
        self.note(
            f"a bound of {bound} s by {by} above a plan of {value} s by {plan_by} is not used: "
            f"please report this with the traffic"
        )

    def note(self, text: str) -> None:
        """Something that went wrong, for the outcome's notes; each text once."""
        if text not in self.notes:
            self.notes.append(text)

    def tell(self, stage: str) -> None:
        if self.report is not None:
            value = None if self.rail is None else self.value
            self.report(Progress(value, self.bound or None, stage))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, Ctrl-C ends the race and is noted."""
        try:
            yield
        except KeyboardInterrupt:
            self.note(INTERRUPTED)

    def outcome(self) -> Outcome:
        """The answer; where no step got as far as a plan, one that needs no kernel."""
        if self.rail is None:
            self.rail, self.plan_by = shared_out(self.fabric, self.chunks), SHARES
            self.value = make_plan(self.fabric, self.chunks, self.rail, self.plan_by).makespan
        if not self.bound and len(self.chunks):
            self.bound, self.witness = first_bound(self.fabric, self.chunks)
        plan = make_plan(self.fabric, self.chunks, self.rail, f"solve: {self.plan_by}")
        return Outcome(plan, self._bracket(), plan, self.time_s, tuple(self.notes))

    def _bracket(self) -> Bracket:
        """What is known; beside a claim, the bound that has a witness."""
        value, bound, witness = self.value, self.bound, self.witness
        if value == bound:
            by = f"{self.plan_by} = {self.bound_by}"
            return Bracket(value, bound, Status.KNOWN, witness, by)
        if claimed := self.claimed_by or (self.unchecked[1] if value == self.unchecked[0] else ""):
            word, by = {"kind": "claimed", "by": claimed}, f"{self.plan_by}, {claimed}"
            return Bracket(value, value, Status.CLAIMED, word, by, (bound, witness))
        return Bracket(value, bound, Status.OPEN, witness, f"{self.plan_by} > {self.bound_by}")


NOTHING: Witness = {"kind": "node", "node": 0, "side": "send", "witness": {"kind": "average"}}


GOLDEN = 0.6180339887498949  # turns the first rail of each pair of nodes, evenly
SHARES = "shares of rates"


def shared_out(fabric: Fabric, chunks: Chunks) -> Rails:
    """int16 [C]: the bytes of each pair of nodes, laid end to end, are cut into shares of its
    rails' rates, the slower end's; a chunk goes to the rail in whose share its middle lies.
    """
    pair = chunks.src.astype(np.int64) * fabric.nodes + chunks.dst
    order = by_key(pair)
    pairs, first, count = np.unique(pair[order], return_index=True, return_counts=True)
    size = chunks.size[order].astype(np.float64)
    ends = np.cumsum(size)
    begin = (ends - size)[first]
    whole = ends[first + count - 1] - begin
    place = (ends - size / 2 - np.repeat(begin, count)) / np.repeat(whole, count)
    rates = np.minimum(fabric.tx[pairs // fabric.nodes], fabric.rx[pairs % fabric.nodes])
    share = np.cumsum(rates / rates.sum(axis=1, keepdims=True), axis=1)
    last = fabric.rails - 1 - np.argmax(rates[:, ::-1] > 0, axis=1)  # whatever the sum rounds to
    share[np.arange(fabric.rails) >= last[:, None]] = np.inf
    place = (place + np.repeat(pairs * GOLDEN, count)) % 1.0
    which = np.repeat(np.arange(len(pairs)), count)
    rail = np.zeros(len(chunks), np.int16)
    for n in range(fabric.rails - 1):
        rail[order] += place >= share[which, n]
    return rail


def first_bound(fabric: Fabric, chunks: Chunks) -> tuple[Fraction, Witness]:
    """The average bound, in seconds, of the node and side that has the most to carry for its
    rates.
    """
    side, node = most_loaded(fabric, chunks)
    sizes = node_sizes(chunks, side, node)
    bound, witness = average(sizes, fabric.rates(side)[node].tolist())
    return bound, {"kind": "node", "node": node, "side": side, "witness": witness}


def most_loaded(fabric: Fabric, chunks: Chunks) -> tuple[str, int]:
    """(side, node) with the most bytes for its rates."""
    means = []
    for side, ends in zip(SIDES, (chunks.src, chunks.dst), strict=True):
        total = np.zeros(fabric.nodes, np.int64)
        np.add.at(total, ends, chunks.size)
        means.append(total / np.maximum(fabric.rates(side).sum(axis=1), 1))
    row, node = divmod(int(np.argmax(means)), fabric.nodes)
    return SIDES[row], node
