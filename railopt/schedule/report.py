"""What a schedule costs, in the parts that one total hides: wire, start-up, balance,
redistribution, synthesis.

Two bounds have two names.  The *bound* is exact: what the busiest server's NICs need at the rates
of the fabric (`Schedule.bound`, with a certificate).  The *model's bound* is what they need at the
constants of the alpha-beta model (`Breakdown.bound`); the modelled parts and their ratio belong to
it.  `least_us` is that with start-ups and scale-up (`railopt.schedule.model.least`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from railopt.base.kernels import compiling_s
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule.compact import GoOn
from railopt.schedule.kinds import KINDS
from railopt.schedule.model import LINKS, Breakdown, LinkTimes, least, modelled
from railopt.schedule.synthesis import synthesise
from railopt.schedule.value import Schedule

REPEATS = 3  # calls that are timed
LONG_S = 1.0  # a first call that takes so long is timed itself


@dataclass(frozen=True)
class ScheduleCost:
    """One schedule: its modelled time in parts, and how long it took to compute (microseconds,
    hot); None where it was loaded; what none of its kind takes less than.
    """

    schedule: Schedule
    parts: Breakdown
    synthesis_us: float | None = None
    least_us: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the schedule's figures, exact ones as "p/q", and the modelled parts in
        microseconds.
        """
        made = self.schedule
        return {
            "kind": made.kind,
            "order": made.order,
            "barriers": KINDS[made.kind].barriers,
            "stages": made.stages,
            "line_sum": made.line_sum,
            "total": made.total,
            "excess": str(made.excess),
            "bound": {
                "seconds": str(made.bound.value),
                "node": made.bound.node,
                "side": made.bound.side,
            },
            "modelled_us": self.parts.as_dict(),
            "least_us": self.least_us,
            "synthesis_us": self.synthesis_us,
            "ratio_with_synthesis": self.ratio_with_synthesis,
        }

    @property
    def ratio_with_synthesis(self) -> float:
        """(Modelled time + synthesis) over the model's bound."""
        spent = self.synthesis_us or 0.0
        return self.parts.ratio + (spent / self.parts.bound if self.parts.bound else 0.0)


def timed(make: Callable[[], Schedule]) -> tuple[Schedule, float]:
    """A schedule and how long it takes, microseconds: the least of three calls after a first one,
    which may compile; of the first alone, less what it spent on compiling, where that is long.
    """
    start, compiled_s = time.perf_counter(), compiling_s()
    made = make()
    best = time.perf_counter() - start - (compiling_s() - compiled_s)
    if best < LONG_S:
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            make()
            best = min(best, time.perf_counter() - start)
    return made, best * 1e6


def cost(
    fabric: Fabric,
    traffic: Traffic,
    kind: str = "compact",
    *,
    order: str | None = None,
    eps: Fraction | str | int | None = None,
    startup: str | int | None = None,
    links: LinkTimes = LINKS["h100-400g"],
    go_on: GoOn | None = None,
) -> ScheduleCost:
    """Synthesise, time and model one kind; for the options see `synthesise`."""
    make = partial(synthesise, order=order, eps=eps, startup=startup, go_on=go_on)
    made, spent = timed(partial(make, fabric, traffic, kind))
    return ScheduleCost(made, modelled(made, links), spent, least(made, links))


def compare(
    fabric: Fabric,
    traffic: Traffic,
    kinds: Iterable[str] = tuple(KINDS),
    links: LinkTimes = LINKS["h100-400g"],
    go_on: GoOn | None = None,
    startup: str | int | None = None,
) -> list[ScheduleCost]:
    """Several kinds side by side on the same traffic; `startup` for those that it acts on."""
    acts = {name: startup for name, kind in KINDS.items() if kind.tunable}
    return [
        cost(fabric, traffic, kind, startup=acts.get(kind), links=links, go_on=go_on)
        for kind in kinds
    ]
