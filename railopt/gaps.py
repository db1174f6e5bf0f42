"""How far a plan is from the best possible: value, certified bound, gap, and whether the optimum is
known.

Bounds are asked first; where they leave a gap, the solver gets its time, once for all plans of the
same chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from railopt.bounds import local_bound, lower_bound, node_sizes
from railopt.plans import Bottleneck, Plan
from railopt.units import format_time

if TYPE_CHECKING:
    from railopt.certificate import Certificate
    from railopt.solver.coupled.race import Progress


@dataclass(frozen=True)
class Guarantee:
    """What is known of `lpt` on the send side, as ratios to the slowest sender's own optimum (it
    knows no receivers).

    apriori     4/3 - 1/(3N), for any sizes (Graham 1969)
    aposteriori (k + 1)/k - 1/(kN) with k chunks on the rail that finishes last (Coffman, Sethi
    1976)
    measured    its time over that sender's lower bound
    """

    chunks_on_critical: int
    apriori: Fraction
    aposteriori: Fraction
    measured: Fraction


@dataclass(frozen=True)
class GapReport:
    """A plan against a lower bound.  Times in seconds, exact.

    bound    no plan is faster; the kernel re-checks `witness`, unless `status` is "claimed"
    best     the fastest plan known, this one included: the optimum lies from `bound` to `best`
    status   of the gap: "proved" if a known plan attains the bound, so that the gap is exact;
             "claimed" if only a solver says so; "open" otherwise
    time     seconds spent on this plan's chunks
    notes    what went wrong on the way, e.g. a back-end that crashed, or "interrupted"
    """

    plan: Plan
    bound: Fraction
    witness: Mapping[str, Any] = field(repr=False)
    best: Fraction
    status: str
    time: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        """The plan's makespan, re-evaluated from its chunks."""
        return self.plan.makespan

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound."""
        return (self.value - self.bound) / self.bound if self.bound else Fraction(0)

    @property
    def bracket(self) -> Fraction:
        """(best - bound) / bound: what is not known of the optimum."""
        return (self.best - self.bound) / self.bound if self.bound else Fraction(0)

    @property
    def proved(self) -> bool:
        """The plan is optimal: value == bound, by a witness."""
        return self.status == "proved" and self.value == self.bound

    @property
    def bottleneck(self) -> Bottleneck:
        """The NIC that finishes last under this plan."""
        return self.plan.bottleneck

    @cached_property
    def guarantee(self) -> Guarantee | None:
        """LPT's textbook guarantees beside what was measured; None for other policies and unequal
        rails.
        """
        return (
            _guarantee(self.plan) if self.plan.policy == "lpt" and len(self.plan.chunks) else None
        )

    @cached_property
    def certificate(self) -> Certificate:
        """The record of value and bound that `railopt check` re-checks; built on first use."""
        from railopt.solver.outcome import certify

        return certify(self.plan, self.bound, self.witness)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate, with the plan beside it where that is large; the files written."""
        from railopt.solver.outcome import save_certificate

        return save_certificate(self.plan, self.bound, self.witness, path, force=force)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: exact times and ratios as "p/q"."""
        known = self.guarantee
        guarantee = (
            None
            if known is None
            else {
                "chunks_on_critical": known.chunks_on_critical,
                "apriori": str(known.apriori),
                "aposteriori": str(known.aposteriori),
                "measured": str(known.measured),
            }
        )
        return {
            "policy": self.plan.policy,
            "chunks": len(self.plan.chunks),
            "largest_chunk": self.plan.chunks.largest,
            "value": str(self.value),
            "bound": str(self.bound),
            "gap": str(self.gap),
            "best": str(self.best),
            "bracket": str(self.bracket),
            "status": self.status,
            "proved": self.proved,
            "time": round(self.time, 6),
            "max_send": int(self.plan.send.max()),
            "max_recv": int(self.plan.recv.max()),
            "bottleneck": self.bottleneck._asdict(),
            "send_guarantee": guarantee,
            "witness": dict(self.witness),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        worst = self.bottleneck
        status = "optimal" if self.proved else f"{float(self.gap) * 100:.3g} % above the bound"
        return (
            f"{self.plan.policy}: {format_time(self.value)} against {format_time(self.bound)}, "
            f"{status}; "
            f"slowest: node {worst.node} {worst.side} rail {worst.rail}"
        )


@overload
def gap(plans: Plan, *, limit_s: float = ..., seed: int = ...) -> GapReport: ...
@overload
def gap(plans: Sequence[Plan], *, limit_s: float = ..., seed: int = ...) -> list[GapReport]: ...


def gap(
    plans: Plan | Sequence[Plan], *, limit_s: float = 10.0, seed: int = 0
) -> GapReport | list[GapReport]:
    """Compare a plan, or several, with the best lower bound that `limit_s` seconds a set of chunks
    can find.

    `limit_s=0` asks the closed-form bounds alone.
    """
    if isinstance(plans, Plan):
        return next(gaps([plans], limit_s=limit_s, seed=seed))
    return list(gaps(plans, limit_s=limit_s, seed=seed))


def gaps(
    plans: Sequence[Plan],
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[Progress], None] | None = None,
) -> Iterator[GapReport]:
    """As `gap`, one report at a time, in the order given; plans of the same fabric and chunks share
    one solve.

    An interrupt (Ctrl-C) ends the solve at work: its reports carry the best bound so far and the
    note "interrupted".
    """
    known: dict[tuple[str, str], GapReport] = {}
    for plan in plans:
        key = plan.fabric.digest, plan.chunks.digest
        if key not in known:
            known[key] = _settle(
                [p for p in plans if (p.fabric.digest, p.chunks.digest) == key],
                limit_s,
                seed,
                report,
            )
        shared = known[key]
        yield GapReport(
            plan,
            shared.bound,
            shared.witness,
            shared.best,
            shared.status,
            shared.time,
            shared.notes,
        )


def _settle(
    plans: Sequence[Plan], limit_s: float, seed: int, report: Callable[[Progress], None] | None
) -> GapReport:
    """The report of the fastest of several plans of the same chunks."""
    import time

    began = time.perf_counter()
    fastest = min(plans, key=lambda plan: plan.makespan)
    first = lower_bound(fastest.fabric, fastest.chunks)
    if fastest.makespan == first.value or limit_s <= 0:
        status = "proved" if fastest.makespan == first.value else "open"
        return GapReport(
            fastest,
            first.value,
            first.lifted,
            fastest.makespan,
            status,
            time.perf_counter() - began,
        )
    from railopt.solver.coupled.solve import solve

    outcome = solve(
        fastest.fabric, fastest.chunks, limit_s, seed=seed, start=fastest, report=report
    )
    assert outcome.value is not None
    return GapReport(
        fastest,
        outcome.bound,
        outcome.witness,
        outcome.value,
        outcome.status,
        outcome.time,
        outcome.notes,
    )


def _guarantee(plan: Plan) -> Guarantee | None:
    """For the sender that finishes last, where each of its rails is alive and of one rate."""
    tx, rails = plan.fabric.tx, plan.fabric.rails
    times = (plan.send / np.maximum(tx, 1)).max(axis=1)
    node = int(times.argmax())
    if len(set(tx[node].tolist())) > 1 or plan.fabric.rx.min() == 0 or tx[node, 0] == 0:
        return None
    rail = int(plan.send[node].argmax())
    k = int(np.count_nonzero((plan.chunks.src == node) & (plan.rail == rail)))
    bound, _ = local_bound(node_sizes(plan.fabric, plan.chunks, "send", node), tx[node].tolist())
    measured = Fraction(int(plan.send[node, rail]), int(tx[node, rail])) / bound
    return Guarantee(
        k,
        Fraction(4, 3) - Fraction(1, 3 * rails),
        Fraction(k + 1, k) - Fraction(1, k * rails),
        measured,
    )
