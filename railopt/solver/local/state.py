"""One search: the best bound and assignment so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.local import values
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.outcome import Witness

if TYPE_CHECKING:
    from railopt.solver.local.lp import ConfigurationLP

LARGEST = 1 << 62  # what the kernels' sums stay below, so that they never wrap


class State:
    """The search so far, sizes in units of their common divisor, times in ticks.

    sizes       int64 [n], descending, together below `LARGEST`
    slowness    ticks that each rail takes for a unit, rising; rails of one slowness are a class.
                On equal rails that is 1: there a time is the load of the fullest rail
    bound       nothing is done in less, by `witness` (its sizes and capacity in bytes)
    value       when the last rail of `assignment` int64 [n] is done
    lp          the configuration LP, once a step has built it
    notes       steps that failed, and how
    lp_open     whether the LP's time was over before its bound was known
    attempt_s   the longest that an attempt to fill all rails has taken
    """

    def __init__(
        self, sizes: Ints, slowness: Sequence[int], unit: int, deadline: Deadline, seed: int
    ) -> None:
        self.sizes, self.slowness, self.unit, self.seed = sizes, list(slowness), unit, seed
        self.rails, self.total = len(self.slowness), int(sizes.sum())
        classes = Counter(self.slowness)
        self.ticks, self.class_rails = list(classes), np.array(list(classes.values()), np.int64)
        self.deadline = deadline
        self.bound, self.bound_by = 0, "average"
        self.witness: Witness = {"kind": "average"}
        self.value, self.value_by = self.total * self.slowness[0], "one rail"
        self.assignment = np.zeros(len(sizes), np.int64)
        self.lp: ConfigurationLP | None = None
        self.notes: list[str] = []
        self.lp_open = False
        self.attempt_s = 0.0

    @property
    def done(self) -> bool:
        return self.bound >= self.value

    def over(self) -> bool:
        """Whether bound and value meet or time is up."""
        return self.done or self.deadline.over

    @property
    def alike(self) -> bool:
        """Whether the rails are equal."""
        return len(self.ticks) == 1

    def class_capacities(self, time: int) -> Ints:
        """int64 [classes]: the units that a rail of each class carries within `time`, at most all
        there are.
        """
        return np.array([min(self.total, time // ticks) for ticks in self.ticks], np.int64)

    def capacities(self, time: int) -> Ints:
        """int64 [rails]: the same for each rail."""
        return np.repeat(self.class_capacities(time), self.class_rails)

    def slack(self, time: int) -> int:
        """What all rails together may leave of their capacities."""
        return _dot(self.class_capacities(time), self.class_rails) - self.total

    @property
    def fits(self) -> bool:
        """Whether what all rails carry up to the value is small enough for the kernels' sums."""
        return self.slack(self.value) + self.total < LARGEST

    def improve(self, assignment: Ints, by: str) -> None:
        """Keep an assignment if it is better; its value is computed here, never taken from a
        search.
        """
        loads = values.loads_of(self.sizes, assignment, self.rails).tolist()
        value = max(load * ticks for load, ticks in zip(loads, self.slowness, strict=True))
        if value < self.value:
            self.value, self.value_by, self.assignment = value, by, assignment.copy()

    def refuted(self, time: int, witness: Witness, by: str) -> None:
        """Nothing is done within `time`: the last rail is done when some rail could carry a unit
        more, one that does not carry everything even before.
        """
        later = [(time // ticks + 1) * ticks for ticks in self.ticks if time // ticks < self.total]
        if min(later, default=0) > self.bound:
            self.bound, self.bound_by = min(later), by
            named = self.alike and "jobs" not in witness
            capacity = {"capacity": self.bound * self.unit - 1} if named else {}
            self.witness = {**witness, **capacity}


def _dot(numbers: Ints, counts: Ints) -> int:
    """Their product, however large."""
    return sum(a * b for a, b in zip(numbers.tolist(), counts.tolist(), strict=True))
