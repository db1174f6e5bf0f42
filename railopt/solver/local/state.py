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

if TYPE_CHECKING:  # HiGHS, which most problems never need, is imported with it
    from railopt.solver.local.lp import ConfigurationLP

LARGEST = 1 << 59  # rails x units that are searched: below, no sum in a kernel wraps


class LocalState:
    """The search so far, sizes in units of their common divisor, times in ticks.

    sizes       int64 [n], descending
    slowness    ticks that each rail takes for a unit, rising; rails of one slowness are a class.
                On equal rails that is 1: there a time is the load of the fullest rail
    speeds      float64 [rails], the same as parts of the fastest rail's speed
    bound       nothing is done in less, by `witness` (its sizes in bytes)
    value       when the last rail of `assignment` int64 [n] is done
    needed      the bound that ends the search: the value, or less
    lp          the configuration LP, once a step has built it
    notes       steps that failed, and how
    """

    def __init__(
        self,
        sizes: Ints,
        slowness: Sequence[int],
        unit: int,
        deadline: Deadline,
        seed: int,
        needed: int | None = None,
    ) -> None:
        self.sizes, self.slowness, self.unit, self.seed = sizes, list(slowness), unit, seed
        self.rails, self.total = len(self.slowness), int(sizes.sum())
        self.speeds = np.array([self.slowness[0] / ticks for ticks in self.slowness])
        classes = Counter(self.slowness)
        self.ticks, self.class_rails = list(classes), np.array(list(classes.values()), np.int64)
        self.deadline = deadline
        self.bound, self.bound_by = 0, "average"
        self.witness: Witness = {"kind": "average"}
        self.value, self.value_by = self.total * self.slowness[0], "one rail"
        self.assignment = np.zeros(len(sizes), np.int64)
        self._needed = self.value if needed is None else needed
        self.lp: ConfigurationLP | None = None
        self.notes: list[str] = []

    @property
    def done(self) -> bool:
        return self.bound >= self.value

    @property
    def needed(self) -> int:
        return min(self.value, self._needed)

    def over(self) -> bool:
        """Whether the bound is as high as needed or time is up."""
        return self.bound >= self.needed or self.deadline.over

    @property
    def equal_rails(self) -> bool:
        return len(self.ticks) == 1

    def class_capacities(self, time: int) -> Ints:
        """int64 [classes]: the units that a rail of each class carries within `time`, at most all
        there are.
        """
        return np.array([min(self.total, time // ticks) for ticks in self.ticks], np.int64)

    def capacities(self, time: int) -> Ints:
        """int64 [rails]: the same for each rail."""
        return np.repeat(self.class_capacities(time), self.class_rails)

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
            self.bound, self.bound_by, self.witness = min(later), by, witness
