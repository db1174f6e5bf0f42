"""What a solver answers: the best plan, what no plan can beat, and on whose word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from railopt.certificate import Certificate
from railopt.errors import InputError
from railopt.plans import Plan
from railopt.units import format_time

INLINE = 20_000  # chunks: beyond this a certificate names the plan's file instead of listing them


@dataclass(frozen=True)
class Outcome:
    """The answer to one coupled problem.  Times are exact seconds.

    plan      the best plan found; None where no plan exists
    value     its makespan, re-evaluated by railopt whoever found it
    bound     no plan is faster: by `witness`, which the kernel re-checks, or on a solver's word if
              status is "claimed"
    status    "proved": value == bound and the witness checks; "claimed": a back-end says that the
              plan is optimal; "open": neither; "infeasible": some chunk has no living rail
    method    what found the plan and the bound
    time      seconds that it took, but for the compilation of kernels on a first run
    notes     what went wrong on the way: back-ends that crashed, hung or lied, by name; an
              interrupt
    """

    plan: Plan | None
    value: Fraction | None
    bound: Fraction
    status: str
    witness: Mapping[str, Any] = field(repr=False)
    method: str
    time: float
    notes: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Optimal, by a witness that the kernel re-checks."""
        return self.status == "proved"

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound."""
        return (
            (self.value - self.bound) / self.bound
            if self.bound and self.value is not None
            else Fraction(0)
        )

    @cached_property
    def certificate(self) -> Certificate | None:
        """The record that `railopt check` re-checks, chunks and rails in full; built on first
        use.
        """
        return None if self.plan is None else certify(self.plan, self.bound, self.witness)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate (see `save_certificate`); the files written."""
        if self.plan is None:
            raise InputError("no plan exists, so there is nothing to certify")
        return save_certificate(self.plan, self.bound, self.witness, path, force=force)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: exact times as "p/q" seconds."""
        return {
            "status": self.status,
            "value": None if self.value is None else str(self.value),
            "bound": str(self.bound),
            "gap": str(self.gap),
            "witness": dict(self.witness),
            "method": self.method,
            "time": round(self.time, 6),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if self.value is None:
            return f"infeasible: {self.method}"
        return (
            f"{self.status}: {format_time(self.value)} against {format_time(self.bound)} "
            f"({float(self.gap) * 100:.3g} % above), {self.method}, {self.time:.3g} s"
        )


def certify(plan: Plan, bound: Fraction, witness: Mapping[str, Any]) -> Certificate:
    """A certificate of a plan's value and of a bound on every plan of its chunks."""
    return Certificate.coupled(
        plan.fabric, plan.chunks, bound, witness, value=plan.makespan, rail=plan.rail.tolist()
    )


def save_certificate(
    plan: Plan,
    bound: Fraction,
    witness: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    force: bool = False,
) -> list[Path]:
    """Write a certificate; one of more than `INLINE` chunks names a plan file that is written
    beside it.  The files written.
    """
    target = Path(path)
    if len(plan.chunks) <= INLINE:
        certify(plan, bound, witness).save(target, force=force)
        return [target]
    beside = target.with_suffix(".plan.npz")
    plan.save(beside, force=force)
    Certificate.of_plan(plan.fabric, beside, bound, witness, plan.makespan).save(
        target, force=force
    )
    return [target, beside]
