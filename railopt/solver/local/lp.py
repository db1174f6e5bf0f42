"""The configuration LP (Gilmore, Gomory 1961): the fewest rails, fractionally, over all loads of at
most a capacity.

    minimise sum over loads of x    sum over loads of load[t] x[load] >= count[t]    x >= 0

A capacity at which that needs more than N rails is refuted, by the prices w[t] of the types.
Column generation on HiGHS.  The LP lives in floating point; what is proved does not: prices are
rounded down to integers before the exact knapsack decides, so rounding can only weaken a bound,
never falsify it.  The columns also lead to good assignments: `dive` fixes the loads that the LP
likes best, rail by rail, and leaves the last rails to exact search.
"""

from __future__ import annotations

from collections.abc import Iterable

import highspy
import numpy as np

from railopt.arrays import Floats, Ints
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.dual import (
    NODES_A_SECOND,
    PRICING_NODES,
    heaviest_load,
    refuting_weights,
)
from railopt.solver.local.fill import complete
from railopt.solver.local.state import LARGEST

SCALE = 10**7
# of rounded prices; the smallest that still proves is used
SCALES = (12, 60, 420, 5040, 10**5, 10**6, SCALE)
OPTIONS = (("output_flag", False), ("presolve", "off"), ("threads", 1), ("solver", "simplex"))


class Master:
    """The LP: rows are types of jobs to be covered, columns are loads; one of more than `capacity`
    is not used.

    One model serves all capacities, so that each begins with the last one's basis.
    """

    def __init__(self, sizes: Ints, counts: Ints, loads: list[Ints]) -> None:
        self.sizes, self.counts, self.model = sizes, counts, highspy.Highs()
        self.capacity = int(sizes @ counts)
        self.loads: list[Ints] = []
        for option, value in OPTIONS:
            self.model.setOptionValue(option, value)
        for count in counts.tolist():
            self.model.addRow(
                float(count), highspy.kHighsInf, 0, np.empty(0, np.int32), np.empty(0)
            )
        for load in loads:
            self.add(load)

    def add(self, load: Ints) -> None:
        used = np.flatnonzero(load).astype(np.int32)
        self.model.addCol(
            1.0, 0.0, highspy.kHighsInf, len(used), used, load[used].astype(np.float64)
        )
        self.loads.append(load)

    def limit(self, capacity: int) -> Master:
        """Itself, with loads of at most `capacity`."""
        totals = np.array(self.loads) @ self.sizes
        for column in np.flatnonzero((totals <= capacity) != (totals <= self.capacity)).tolist():
            self.model.changeColBounds(
                column, 0.0, highspy.kHighsInf if totals[column] <= capacity else 0.0
            )
        self.capacity = capacity
        return self

    def demand(self, counts: Ints, rows: Iterable[int]) -> None:
        """Ask for so many jobs of some types."""
        for row in rows:
            self.model.changeRowBounds(row, float(counts[row]), highspy.kHighsInf)

    def solve(self) -> tuple[float, Floats]:
        """(rails needed, price of each type) over the columns so far."""
        self.model.run()
        return self.model.getObjectiveValue(), np.asarray(self.model.getSolution().row_dual)

    def price(
        self, counts: Ints, weights: Ints, enough: int, deadline: Deadline
    ) -> tuple[Ints | None, bool]:
        """(a load heavier than `enough`, or None; whether the search was complete)."""
        load = np.zeros(len(self.sizes), np.int64)
        nodes = deadline.afford(PRICING_NODES, NODES_A_SECOND)
        weight, complete_ = heaviest_load(
            self.sizes, counts, weights, self.capacity, enough, nodes, load
        )
        return (load if weight > enough else None), bool(complete_)


class ConfigurationLP:
    """Types of jobs (sizes and counts) on `rails` rails; columns found at one capacity serve the
    others.
    """

    def __init__(self, sizes: Ints, counts: Ints, rails: int, loads: Ints) -> None:
        """`loads` int64 [k, types]: loads to begin with, such as those of a good assignment."""
        self.sizes, self.counts, self.rails = sizes, counts, rails
        self.master = Master(sizes, counts, [*np.eye(len(sizes), dtype=np.int64), *loads])

    def refute(self, capacity: int, deadline: Deadline) -> Ints | None:
        """Weights int64 [types] that refute `capacity`, or None where the LP does not, or time is
        over.
        """
        master = self.master.limit(capacity)
        while not deadline.over:
            needed, prices = master.solve()
            weights = rounded(prices, SCALE)
            total = int(weights @ self.counts)
            if needed <= self.rails + 1e-9 or total <= self.rails * SCALE:
                return None
            load, sure = master.price(self.counts, weights, (total - 1) // self.rails, deadline)
            if load is None:
                return self._coarsest(prices, capacity, deadline) if sure else None
            master.add(load)
        return None

    def weights(self, capacity: int, deadline: Deadline, scale: int = 1000) -> Ints | None:
        """The LP's optimal prices at `capacity` as integers, for `exact` to sift loads with; None
        where time is over.
        """
        master = self.master.limit(capacity)
        while not deadline.over:
            _, prices = master.solve()
            load, sure = master.price(self.counts, rounded(prices, SCALE), SCALE + 10, deadline)
            if load is None:
                return rounded(prices, scale) if sure else None
            master.add(load)
        return None

    def _coarsest(self, prices: Floats, capacity: int, deadline: Deadline) -> Ints | None:
        """The prices as integers, as coarse as they still refute: short to write and fast to
        check.
        """
        for scale in SCALES:
            weights = rounded(prices, scale)
            if refuting_weights(
                self.sizes, self.counts, weights, self.rails, capacity, deadline.left_s
            ):
                return weights
        return None

    def dive(
        self, capacity: int, keep: int, rng: np.random.Generator, deadline: Deadline
    ) -> list[Ints] | None:
        """Loads of at most `capacity` for every rail that carry all jobs, or None where this
        attempt found none.
        """
        left = self.counts.copy()
        chosen = self._fixed(left, capacity, keep, rng, deadline)
        self.master.demand(self.counts, range(len(left)))
        rest = None if chosen is None else self._complete(left, self.rails - len(chosen), capacity)
        return None if chosen is None or rest is None else chosen + rest

    def _fixed(
        self, left: Ints, capacity: int, keep: int, rng: np.random.Generator, deadline: Deadline
    ) -> list[Ints] | None:
        """Loads for all but `keep` rails, one after the other by the LP's liking; takes their jobs
        from `left`.
        """
        master, chosen = self.master.limit(capacity), list[Ints]()
        while self.rails - len(chosen) > keep and left.any():
            if not self._feasible(left, self.rails - len(chosen), deadline):
                return None
            use = np.asarray(master.model.getSolution().col_value)
            liked = use * rng.uniform(0.6, 1.0, len(use))
            load = np.minimum(master.loads[int(np.argmax(liked))], left)
            chosen.append(load)
            left -= load
            master.demand(left, np.flatnonzero(load).tolist())
        return chosen

    def _feasible(self, left: Ints, rails: int, deadline: Deadline) -> bool:
        """Generate columns until the jobs left fractionally fit on the rails left."""
        while not deadline.over:
            needed, prices = self.master.solve()
            if needed <= rails + 1e-7:
                return True
            load, _ = self.master.price(left, rounded(prices, SCALE), SCALE + 10, deadline)
            if load is None:
                return False
            self.master.add(load)
        return False

    def _complete(self, left: Ints, rails: int, capacity: int) -> list[Ints] | None:
        """Exact search for the last rails."""
        if rails * capacity >= LARGEST:
            return None
        jobs = np.repeat(np.arange(len(self.sizes)), left)[::-1]
        rail_of = np.zeros(len(jobs), np.int64)
        if not complete(
            np.ascontiguousarray(self.sizes[jobs]), rails, capacity, 20_000, 20_000_000, rail_of
        ):
            return None
        loads = np.zeros((rails, len(self.sizes)), np.int64)
        np.add.at(loads, (rail_of, jobs), 1)
        return list(loads)


def rounded(prices: Floats, scale: int) -> Ints:
    """Prices as integers over `scale`, rounded down but for the solver's own noise."""
    return np.maximum(0, np.floor(prices * scale + 1e-6)).astype(np.int64)


def assignment_of(sizes: Ints, types: Ints, loads: list[Ints]) -> Ints:
    """The rail of each job from the loads of the rails; types rise."""
    assignment = np.zeros(len(sizes), np.int64)
    jobs = [list(np.flatnonzero(sizes == size)) for size in types]
    for rail, load in enumerate(loads):
        for t in np.flatnonzero(load):
            for _ in range(load[t]):
                assignment[jobs[t].pop()] = rail
    return assignment


def start(types: Ints, sizes: Ints, assignment: Ints, rails: int) -> Ints:
    """The loads int64 [rails, types] of an assignment."""
    loads = np.zeros((rails, len(types)), np.int64)
    np.add.at(loads, (assignment, np.searchsorted(types, sizes)), 1)
    return loads
