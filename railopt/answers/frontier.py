"""Time against bytes moved inside nodes: what is possible at all, and where each policy stands.

No plan that takes a time moves fewer bytes than the *front* says there, by prices that the checker
re-checks.  Prices found for one time prove something of every other (`MovedBound.at`), so the
front between the times that were looked at is the best of what all of them prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from railopt.base.errors import InputError
from railopt.base.units import exact, time_limit
from railopt.evidence.bracket import bytes_above
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import plan as make_plan
from railopt.solver.fluid import least_time
from railopt.solver.moving.bound import MovedBound, MovedBounds
from railopt.solver.moving.classes import classes_of

DEFAULT_POLICIES = ("own-nic", "pxn", "lpt", "equitable", "even-excess", "spill")
TIMES = 9  # at which the front is looked at, beside those of the policies' plans
DRAWN = 200  # points of a front that is drawn


class Stand(NamedTuple):
    """A policy's plan, and the least bytes that plans as fast as it move."""

    plan: Plan
    least: int

    @property
    def gap(self) -> Fraction | None:
        """(bytes moved - least) / least; None where the least is 0 and bytes are moved."""
        return bytes_above(self.plan.moved, self.least)


@dataclass(frozen=True)
class Frontier:
    """The front and the policies.

    total    bytes between nodes
    bounds   of the least bytes moved, by rising time, from the least time that there is
    stands   of the policies, as they were given
    """

    total: int
    bounds: tuple[MovedBound, ...] = field(repr=False)
    stands: tuple[Stand, ...]

    def least(self, time: Fraction) -> int:
        """Bytes that every plan of this time, or less, moves at least."""
        return max(ceil(bound.at(time)) for bound in self.bounds)

    def curve(self, last: Fraction) -> list[tuple[Fraction, Fraction]]:
        """(time, bytes) of the front from the least time to `last`, in steps that grow."""
        first = self.bounds[0].time
        times = [first + (last - first) * Fraction(i, DRAWN - 1) ** 3 for i in range(DRAWN)]
        return [(time, max(bound.at(time) for bound in self.bounds)) for time in times]

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times as "p/q" seconds, bytes."""
        front = [
            {"time": bound.time, "least": bound.bytes, "exact": bound.exact}
            for bound in self.bounds
        ]
        policies = [
            {
                "policy": stand.plan.policy,
                "time": stand.plan.makespan,
                "moved": stand.plan.moved,
                "least": stand.least,
                "above": stand.gap,
            }
            for stand in self.stands
        ]
        return exact({"total": self.total, "front": front, "policies": policies})


def frontier(
    fabric: Fabric,
    chunks: Chunks,
    policies: Sequence[str] = DEFAULT_POLICIES,
    *,
    limit_s: float = 10.0,
) -> Frontier:
    """The front from the least time that divisible traffic takes to that of own NICs, and the plans
    of these policies, each once, against it.  `limit_s` is the seconds for each bound, which with 0
    is what plans of any time move.
    """
    limit_s = time_limit(limit_s, 0)
    if not len(chunks):
        raise InputError("no bytes cross between nodes: there is no time, and nothing to move")
    plans = [make_plan(fabric, chunks, policy) for policy in dict.fromkeys(policies)]
    own = make_plan(fabric, chunks, "own-nic").makespan
    first = least_time(fabric, chunks)
    last = max(own, first)
    times = {first + (last - first) * i / (TIMES - 1) for i in range(TIMES)}
    times |= {made.makespan for made in plans}
    classes, bounds = classes_of(fabric, chunks), MovedBounds()
    found = tuple(bounds.within(fabric, classes, time, limit_s=limit_s) for time in sorted(times))
    made = Frontier(chunks.total, found, ())
    stands = tuple(Stand(plan, made.least(plan.makespan)) for plan in plans)
    return Frontier(chunks.total, found, stands)
