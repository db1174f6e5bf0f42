"""One search on equal rails: the best bound and assignment so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from railopt.arrays import Ints
from railopt.solver.local import values
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.outcome import Witness

if TYPE_CHECKING:
    from railopt.solver.local.lp import ConfigurationLP

LARGEST = 1 << 62  # what the kernels' sums stay below, so that they never wrap


class State:
    """The search so far, in units of the sizes' common divisor.

    sizes       int64 [n], descending, together below `LARGEST`
    bound       nothing fits within less, by `witness` (its sizes and capacity in bytes)
    value       the fullest rail of `assignment` int64 [n]
    lp          the configuration LP, once a step has built it
    notes       steps that failed, and how
    attempt_s   the longest that an attempt to fill all rails has taken
    """

    def __init__(self, sizes: Ints, rails: int, unit: int, deadline: Deadline, seed: int) -> None:
        self.sizes, self.rails, self.unit, self.seed = sizes, rails, unit, seed
        self.deadline = deadline
        self.bound, self.bound_by = 0, "average"
        self.witness: Witness = {"kind": "average"}
        self.value, self.value_by = int(sizes.sum()), "one rail"
        self.assignment = np.zeros(len(sizes), np.int64)
        self.lp: ConfigurationLP | None = None
        self.notes: list[str] = []
        self.attempt_s = 0.0

    @property
    def done(self) -> bool:
        return self.bound >= self.value

    def over(self) -> bool:
        """Whether bound and value meet or time is up."""
        return self.done or self.deadline.over

    @property
    def fits(self) -> bool:
        """Whether what all rails carry up to the value is small enough for the kernels' sums."""
        return self.rails * self.value < LARGEST

    def improve(self, assignment: Ints, by: str) -> None:
        """Keep an assignment if it is better; its value is computed here, never taken from a
        search.
        """
        value = int(values.loads_of(self.sizes, assignment, self.rails).max())
        if value < self.value:
            self.value, self.value_by, self.assignment = value, by, assignment.copy()

    def refuted(self, capacity: int, witness: Witness, by: str) -> None:
        """Nothing fits within `capacity` units."""
        if capacity + 1 > self.bound:
            self.bound, self.bound_by = capacity + 1, by
            named = {} if "jobs" in witness else {"capacity": self.bound * self.unit - 1}
            self.witness = {**witness, **named}
