"""How far a plan is from the best possible: value, bound, gap, bottleneck, and whether that is proved."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from railopt.bounds import Bound, lower_bound
from railopt.plan import Bottleneck, Plan
from railopt.units import format_time


@dataclass(frozen=True)
class GapReport:
    """A plan against a certified lower bound.  Times in seconds, exact.

    value       the plan's makespan, re-evaluated from its chunks
    bound       no plan is faster; its witness checks in integers
    gap         (value - bound) / bound
    proved      value == bound: the plan is optimal
    """

    plan: Plan
    bound_: Bound

    @property
    def value(self) -> Fraction:
        return self.plan.makespan

    @property
    def bound(self) -> Fraction:
        return self.bound_.value

    @property
    def gap(self) -> Fraction:
        return (self.value - self.bound) / self.bound if self.bound else Fraction(0)

    @property
    def proved(self) -> bool:
        return self.value == self.bound

    @property
    def bottleneck(self) -> Bottleneck:
        """The NIC that finishes last under this plan."""
        return self.plan.bottleneck

    def as_dict(self) -> dict[str, Any]:
        """For JSON: exact times as "p/q" seconds."""
        worst = self.bottleneck
        return {"policy": self.plan.policy, "chunks": len(self.plan.chunks), "largest_chunk": self.plan.chunks.largest,
                "value": str(self.value), "bound": str(self.bound), "gap": str(self.gap), "proved": self.proved,
                "max_send": int(self.plan.send.max()), "max_recv": int(self.plan.recv.max()), "bottleneck": worst._asdict(),
                "witness": self.bound_.lifted}

    def __str__(self) -> str:
        worst = self.bottleneck
        status = "optimal" if self.proved else f"{float(self.gap) * 100:.3g} % above the bound"
        return (f"{self.plan.policy}: {format_time(self.value)} against {format_time(self.bound)}, {status}; "
                f"slowest: node {worst.node} {worst.side} rail {worst.rail}")


def gap(plan: Plan, *, limit_s: float = 10.0) -> GapReport:
    """Compare a plan with the best lower bound."""
    return GapReport(plan, lower_bound(plan.fabric, plan.chunks))
