"""One coupled solve: the best plan and bound so far, the clock, and what `solve` and `gap` answer.

A random plan and `first_bound` need no kernel: they are the answer where an interrupt comes in the
first moment of a solve.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from railopt.base.arrays import Rails
from railopt.base.kernels import wall_s
from railopt.base.units import format_time
from railopt.evidence.bounds import Witness, by_load
from railopt.evidence.bracket import Bracket, Status, gap_between
from railopt.evidence.certificate import Certificate, certify, save_certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Bottleneck, Plan
from railopt.policies.fixed import random
from railopt.solver.local.deadline import Deadline, Now

if TYPE_CHECKING:
    from railopt.solver.coupled.search import Cells


INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Outcome:
    """A plan against the optimum of its chunks.  Times are exact seconds.

    plan      the plan that was asked about; of `solve`, the best one found
    bracket   the optimum lies from `bound`, whose witness the checker re-checks, unless a back-end
              claims it, to the time of `best`, re-evaluated by railopt whoever found it
    best      the fastest plan known, maybe `plan`
    time_s    seconds that it took, without those in which kernels were compiled
    notes     what went wrong on the way: back-ends that crashed, hung or lied, by name; an
              interrupt
    """

    plan: Plan
    bracket: Bracket
    best: Plan = field(repr=False)
    time_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        """The plan's makespan, re-evaluated from its chunks."""
        return self.plan.makespan

    @property
    def bound(self) -> Fraction:
        """No plan takes less."""
        return self.bracket.bound

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound, of this plan; `bracket.gap` is that of the best one."""
        return gap_between(self.value, self.bound)

    @property
    def optimal(self) -> bool:
        """This plan is optimal: value == bound, by a witness that the checker re-checks."""
        return self.optimum is Status.KNOWN and self.value == self.bound

    @property
    def optimum(self) -> Status:
        """Whether the optimum is known, by whichever plan: then the gap is exact."""
        return self.bracket.status

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the solve; this is the best so far."""
        return INTERRUPTED in self.notes

    @property
    def bottleneck(self) -> Bottleneck:
        """The NIC that finishes last under this plan."""
        return self.plan.bottleneck

    @cached_property
    def certificate(self) -> Certificate:
        """The record that `railopt check` re-checks, chunks and rails in full, with the best plan
        where that is another; built on first use.
        """
        return certify(self.plan, self.bracket, self._better)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate, with plans beside it where they are large; the files written."""
        return save_certificate(self.plan, self.bracket, path, best=self._better, force=force)

    @property
    def _better(self) -> Plan | None:
        return None if self.best.makespan == self.value else self.best

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: exact times and ratios as "p/q"; "optimal" is said of this plan,
        "optimum" of the problem.
        """
        return {
            "policy": self.plan.policy,
            "chunks": len(self.plan.chunks),
            "largest_chunk": self.plan.chunks.largest,
            **self.bracket.as_dict(),
            "value": str(self.value),
            "gap": str(self.gap),
            "optimal": self.optimal,
            "best": str(self.bracket.value),
            "best_gap": str(self.bracket.gap),
            "time_s": round(self.time_s, 6),
            "max_send": int(self.plan.send.max()),
            "max_recv": int(self.plan.recv.max()),
            "bottleneck": {**self.bottleneck._asdict(), "nic": self.plan.slowest},
            "witness": dict(self.bracket.witness),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        worst = self.bottleneck
        state = "optimal" if self.optimal else f"{float(self.gap) * 100:.3g} % above the bound"
        return (
            f"{self.plan.policy}: {format_time(self.value)} against {format_time(self.bound)}, "
            f"{state}; slowest: node {worst.node} {worst.side} rail {worst.rail}"
        )


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
    def needed(self) -> Fraction:
        """The bound that ends the race."""
        return self.value / (1 + self.tolerance)

    @property
    def met(self) -> bool:
        """Value and bound have met, within the tolerance, or a back-end says that they would."""
        return bool(self.claimed_by) or (self.rail is not None and self.needed <= self.best_bound)

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

    def outcome(self) -> Outcome:
        """The answer; where no step got as far as a plan, one that needs no kernel."""
        if self.rail is None:
            plan = random(self.fabric, self.chunks)
            self.rail, self.value, self.plan_by = plan.rail, plan.makespan, plan.policy
        if not self.bound and len(self.chunks):
            self.bound, self.witness = first_bound(self.fabric, self.chunks)
        plan = Plan.of(self.fabric, self.chunks, self.rail, f"solve: {self.plan_by}")
        if self.bound < self.needed <= self.unchecked[0] < self.value:
            self.note(f"within the tolerance by {self.unchecked[1]}")
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


def first_bound(fabric: Fabric, chunks: Chunks) -> tuple[Fraction, Witness]:
    """The seconds that the most loaded node needs with all its NICs at work."""
    *_, side, node, bytes_ = by_load(fabric, chunks)[0]
    bound = Fraction(bytes_, sum(fabric.rates(side)[node].tolist()))
    return bound, {"kind": "node", "node": node, "side": side, "witness": {"kind": "average"}}
