"""What a solver answers: the best plan, what no plan can beat, and on whose word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from railopt.base.errors import InputError
from railopt.base.units import format_time
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate, certify, save_certificate
from railopt.model.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """The answer to one coupled problem.  Times are exact seconds.

    plan      the best plan found; None where no plan exists
    bracket   the optimum lies from `bound`, whose witness the checker re-checks, unless a back-end
              claims it, to `value`, the plan's makespan, re-evaluated by railopt whoever found it
    time_s    seconds that it took, without those in which kernels were compiled
    notes     what went wrong on the way: back-ends that crashed, hung or lied, by name; an
              interrupt
    """

    plan: Plan | None
    bracket: Bracket
    time_s: float
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction | None:
        """The plan's makespan; None where no plan exists."""
        return self.bracket.value

    @property
    def bound(self) -> Fraction:
        """No plan takes less."""
        return self.bracket.bound

    @property
    def status(self) -> Status:
        """Of the optimum: known, claimed, open; infeasible, where some chunk has no living
        rail.
        """
        return self.bracket.status

    @property
    def witness(self) -> Mapping[str, Any]:
        """Why no plan takes less than `bound`: what the checker re-checks."""
        return self.bracket.witness

    @property
    def by(self) -> str:
        """What found the plan and the bound."""
        return self.bracket.by

    @property
    def optimal(self) -> bool:
        """The plan is optimal, by a witness that the checker re-checks."""
        return self.bracket.optimum_known

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound."""
        return self.bracket.gap

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the solve; the best so far is what this is."""
        return "interrupted" in self.notes

    @cached_property
    def certificate(self) -> Certificate | None:
        """The record that `railopt check` re-checks, chunks and rails in full; built on first
        use.
        """
        return None if self.plan is None else certify(self.plan, self.bracket)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate, with the plan beside it where that is large; the files written."""
        if self.plan is None:
            raise InputError("no plan exists, so there is nothing to certify")
        return save_certificate(self.plan, self.bracket, path, force=force)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: exact times as "p/q" seconds; "optimal" is said of the plan, "optimum"
        of the problem.
        """
        return {
            **self.bracket.as_dict(),
            "optimal": self.optimal,
            "witness": dict(self.witness),
            "time_s": round(self.time_s, 6),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if self.value is None:
            return f"infeasible: {self.by}"
        return (
            f"{self.status}: {format_time(self.value)} against {format_time(self.bound)} "
            f"({float(self.gap) * 100:.3g} % above), {self.by}, {self.time_s:.3g} s"
        )
