"""What `solve` and `gap` answer: a plan, what no plan can beat, and how that is known."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from railopt.base.units import format_time
from railopt.evidence.bracket import Bracket, Status, gap_between
from railopt.evidence.certificate import Certificate, certify, save_certificate
from railopt.model.plan import Bottleneck, Plan

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
