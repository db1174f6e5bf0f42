"""One node whose rails carry many chunks of few sizes (cut traffic: the cap and some remainders),
by the configuration LP.

`solve_local` asks the LP only where loads are short; here loads are long but mostly caps, and
pricing stays easy.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.arrays import Ints
from railopt.bounds import Witness, pigeonhole
from railopt.bracket import Bracket, Status
from railopt.solver.local import values
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.lp import ConfigurationLP, assignment_of, start
from railopt.solver.local.remainders import filled

DIVES = 4
FILLS = 1000  # tries, 1 to 2 us each, at each of a few capacities above the bound
ABOVE = 0, 1, 2, 3, 4, 6, 8, 12, 16  # in units of the sizes' common divisor


class Packed(NamedTuple):
    """What is known of one node on equal rails, in bytes, and `rail` int64 [n], which attains the
    value.
    """

    bracket: Bracket
    rail: Ints


def pack(sizes: Ints, rails: int, deadline: Deadline, seed: int) -> Packed:
    """The best bound and arrangement by the deadline; sizes int64 [n] in descending order."""
    packing = Packing(sizes, rails)
    packing.fill(deadline, seed)
    packing.refute(deadline)
    packing.dive(deadline, seed)
    return packing.packed()


class Packing:
    """The best so far, in units of the sizes' common divisor: no arrangement is below `low`, by
    `witness`, and `rail` attains `value`.
    """

    def __init__(self, sizes: Ints, rails: int) -> None:
        self.rails, self.unit = rails, int(np.gcd.reduce(sizes))
        self.jobs = np.ascontiguousarray(sizes // self.unit)
        self.types, self.counts = np.unique(self.jobs, return_counts=True)
        bound, self.witness = pigeonhole(sizes, rails)
        self.low = bound // self.unit
        self.take(values.lpt(self.jobs, rails))
        self.lp = ConfigurationLP(
            self.types,
            self.counts,
            np.array([rails]),
            start(self.types, self.jobs, self.rail, rails),
        )

    def take(self, rail: Ints) -> None:
        """An arrangement, whose value is computed here."""
        self.rail = rail
        self.value = int(values.loads_of(self.jobs, rail, self.rails).max())

    def fill(self, deadline: Deadline, seed: int) -> None:
        """Rails filled to the last unit, at capacities from the bound on."""
        for above in ABOVE:
            if self.low + above >= self.value or deadline.over:
                return
            found = filled(self.jobs, np.full(self.rails, self.low + above), FILLS, seed)
            if found is not None:
                self.take(found)
                return

    def refute(self, deadline: Deadline) -> None:
        """The largest capacity below the value that the LP refutes: that just below the value, or
        else one found by bisection from the bound on.
        """
        if self.low >= self.value or self._refuted(self.value - 1, deadline):
            return
        high, probe = self.value - 2, self.low
        while self.low <= high and not deadline.over:
            if not self._refuted(probe, deadline):
                high = probe - 1
            probe = (self.low + high) // 2

    def _refuted(self, capacity: int, deadline: Deadline) -> bool:
        weights = self.lp.refute(np.array([capacity]), deadline)
        if weights is None:
            return False
        self.low = capacity + 1
        self.witness = self._witness(capacity, weights)
        return True

    def _witness(self, capacity: int, weights: Ints) -> Witness:
        """Weights int64 [types] that refute a capacity, as [size in bytes, weight] by falling
        size.
        """
        pairs = [
            [int(size) * self.unit, int(weight)]
            for size, weight in zip(self.types[::-1], weights[::-1], strict=True)
            if weight
        ]
        return {"kind": "dual", "weights": pairs, "capacity": (capacity + 1) * self.unit - 1}

    def dive(self, deadline: Deadline, seed: int) -> None:
        """The LP's own arrangements, at the bound and then ever higher."""
        rng = np.random.default_rng(seed)
        keep = max(2, min(self.rails, 28 * self.rails // len(self.jobs)))
        above = 0
        while self.low + above < self.value and not deadline.over:
            for _ in range(DIVES):
                loads = self.lp.dive(np.array([self.low + above]), keep, rng, deadline)
                if loads is not None:
                    self.take(assignment_of(self.jobs, self.types, loads))
                    break
            above = 2 * above + 1

    def packed(self) -> Packed:
        """What is known now, in bytes; the weights' knapsack was solved in integers, as the kernel
        does.
        """
        value, bound = Fraction(self.value * self.unit), Fraction(self.low * self.unit)
        status = Status.PROVED if value == bound else Status.OPEN
        return Packed(Bracket(value, bound, status, self.witness, "configurations"), self.rail)
