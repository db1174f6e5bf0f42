"""The configuration LP (Gilmore, Gomory 1961): how many times the rails there are, fractionally, it
takes to carry all jobs, over all loads within the capacities of their rails.

    minimise z    sum over loads of load[t] x[k, load] >= count[t]
                  sum over loads of x[k, load] <= z rails[k]          x >= 0

t are the types of jobs, k the classes of rails.  Capacities at which z is more than 1 are refuted,
by the prices w[t] of the types.  Column generation on GLOP.  The LP lives in floating point; what
is proved does not: prices are rounded down to integers before the exact knapsack decides, so
rounding can only weaken a bound, never falsify it.  The columns also lead to good assignments:
`dive` fixes the loads that the LP likes best, rail by rail, and leaves the last rails to exact
search.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from ortools.linear_solver import pywraplp

from railopt.base.arrays import Floats, Ints
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.dual import (
    NODES_A_SECOND,
    PRICING_NODES,
    heaviest_load,
    refuting_weights,
)
from railopt.solver.local.fill import complete

SCALE = 10**7  # of rounded prices
FIRST_NODES = 2000  # of the knapsack, where any load worth more will do
NOISE = 10  # of the LP's prices so scaled
PARAMETERS = "use_preprocessing: false"


class Column(NamedTuple):
    """A load int64 [types] of a rail of class `number`."""

    number: int
    load: Ints


class Master:
    """The LP: rows are types of jobs to be covered and then classes of rails, columns are z and
    then loads; one of more than its class's capacity is not used.

    One model serves all capacities, so that each begins with the last one's basis.  z costs as much
    as there are rails: so a rail is worth about 1.
    """

    def __init__(self, sizes: Ints, counts: Ints, rails: Ints) -> None:
        self.sizes, self.rails, self.model = sizes, rails, pywraplp.Solver.CreateSolver("GLOP")
        self.capacities = np.full(len(rails), sizes @ counts)
        self.columns: list[Column] = []
        self.model.SetSolverSpecificParametersAsString(PARAMETERS)
        self.endless = self.model.infinity()
        self.rows = [self.model.Constraint(float(count), self.endless) for count in counts.tolist()]
        self.rows += [self.model.Constraint(-self.endless, 0.0) for _ in range(len(rails))]
        self.z = self.model.NumVar(0.0, self.endless, "")
        self.uses: list[Any] = []  # the variable of each column
        self.model.Objective().SetCoefficient(self.z, float(rails.sum()))
        self.allow(rails)

    def add(self, column: Column) -> None:
        variable = self.model.NumVar(0.0, self.endless, "")
        for row in np.flatnonzero(column.load).tolist():
            self.rows[row].SetCoefficient(variable, float(column.load[row]))
        self.rows[len(self.sizes) + column.number].SetCoefficient(variable, 1.0)
        self.uses.append(variable)
        self.columns.append(column)

    def limit(self, capacities: Ints) -> Master:
        """Itself, with loads of at most `capacities` int64 [classes]."""
        totals = np.array([column.load for column in self.columns]) @ self.sizes
        numbers = np.array([column.number for column in self.columns])
        open_, before = totals <= capacities[numbers], totals <= self.capacities[numbers]
        for column in np.flatnonzero(open_ != before).tolist():
            self.uses[column].SetUb(self.endless if open_[column] else 0.0)
        self.capacities = capacities
        return self

    def demand(self, counts: Ints, rows: Iterable[int]) -> None:
        """Ask for so many jobs of some types."""
        for row in rows:
            self.rows[row].SetLb(float(counts[row]))

    def allow(self, rails: Ints) -> None:
        """So many rails of each class."""
        for row, count in zip(self.rows[len(self.sizes) :], rails.tolist(), strict=True):
            row.SetCoefficient(self.z, -float(count))

    def solve(self) -> tuple[float, Floats, Floats]:
        """(z, price of each type, price of a rail of each class) over the columns so far."""
        self.model.Solve()
        prices = np.array([row.dual_value() for row in self.rows])
        return self.z.solution_value(), prices[: len(self.sizes)], -prices[len(self.sizes) :]

    def widen(
        self, counts: Ints, weights: Ints, enough: Ints, worth: Ints, deadline: Deadline
    ) -> tuple[bool, bool]:
        """(whether loads were added, whether the search for them was complete).  The loads are, for
        each class, the heaviest load of some of these jobs where it weighs more than `enough` int64
        [classes], then others heavier than `worth` that share no type with those before.
        """
        before, sure = len(self.columns), True
        for number in range(len(self.rails)):
            limits = int(enough[number]), int(worth[number])
            complete_ = self._add_disjoint(number, counts, weights, limits, deadline)
            sure &= complete_ or len(self.columns) > before
        return len(self.columns) > before, sure

    def _add_disjoint(
        self,
        number: int,
        counts: Ints,
        weights: Ints,
        limits: tuple[int, int],
        deadline: Deadline,
    ) -> bool:
        """Loads of a class, each the heaviest without the types of those before; whether the last
        search was complete.
        """
        free, least = np.where(weights > 0, counts, 0), limits[0]
        while free.any():
            load, complete_ = self.heavier(number, free, weights, least, deadline)
            if load is None:
                return complete_
            self.add(Column(number, load))
            free[load > 0] = 0
            least = limits[1]
        return True

    def heavier(
        self, number: int, counts: Ints, weights: Ints, enough: int, deadline: Deadline
    ) -> tuple[Ints | None, bool]:
        """(a load of a class that is heavier than `enough`, None where none was found; whether all
        were looked at).  It need not be the heaviest, so a short search comes first.
        """
        types = np.flatnonzero(counts)
        part, load = np.zeros(len(types), np.int64), np.zeros(len(counts), np.int64)
        offered = self.sizes[types], counts[types], weights[types], int(self.capacities[number])
        for most in (FIRST_NODES, PRICING_NODES):
            nodes = deadline.afford(most, NODES_A_SECOND)
            weight, complete_ = heaviest_load(*offered, enough, nodes, part)
            if weight > enough:
                load[types] = part
                return load, True
            if complete_:
                return None, True
        return None, False


class ConfigurationLP:
    """Types of jobs (sizes and counts) on rails int64 [classes], how many there are of each class,
    the class of the largest capacity first; columns found at some capacities serve the others.
    """

    def __init__(self, sizes: Ints, counts: Ints, rails: Ints, loads: Ints) -> None:
        """`loads` int64 [sum(rails), types]: those of a good assignment, to begin with."""
        self.sizes, self.counts, self.rails = sizes, counts, rails
        self.master = Master(sizes, counts, rails)
        for load in np.eye(len(sizes), dtype=np.int64):
            self.master.add(Column(0, load))
        for number, load in zip(np.repeat(np.arange(len(rails)), rails), loads, strict=True):
            self.master.add(Column(int(number), load))

    def refute(self, capacities: Ints, deadline: Deadline) -> Ints | None:
        """Weights int64 [types] that refute capacities int64 [classes], or None where the LP does
        not, or time is over.
        """
        master, rails = self.master.limit(capacities), int(self.rails.sum())
        while not deadline.over:
            needed, prices, class_prices = master.solve()
            weights, held = rounded(prices), rounded(class_prices)
            beyond = int(weights @ self.counts) - int(held @ self.rails)
            if needed <= 1 + 1e-10 or beyond <= 0:
                return None
            enough = held + (beyond - 1) // rails
            more, sure = master.widen(self.counts, weights, enough, held + NOISE, deadline)
            if not more:
                shown = sure and refuting_weights(
                    self.sizes, self.counts, weights, self.rails, capacities, deadline.left_s
                )
                return weights if shown else None
        return None

    def dive(
        self, capacities: Ints, keep: int, rng: np.random.Generator, deadline: Deadline
    ) -> list[Ints] | None:
        """Loads of at most `capacities` for every rail that carry all jobs, or None where this
        attempt found none.
        """
        left, free = self.counts.copy(), self.rails.copy()
        chosen = self._fixed((left, free), capacities, keep, rng, deadline)
        self.master.demand(self.counts, range(len(left)))
        self.master.allow(self.rails)
        rest = None if chosen is None else self._complete(left, free, capacities)
        if chosen is None or rest is None:
            return None
        return [column.load for column in sorted(chosen + rest, key=lambda column: column.number)]

    def _fixed(
        self,
        there: tuple[Ints, Ints],
        capacities: Ints,
        keep: int,
        rng: np.random.Generator,
        deadline: Deadline,
    ) -> list[Column] | None:
        """Loads for all but `keep` rails, one after the other by the LP's liking; takes their jobs
        and rails from `there`, what is left of each type and each class.
        """
        left, free = there
        master, chosen = self.master.limit(capacities), list[Column]()
        while free.sum() > keep and left.any():
            if not self._feasible(left, deadline):
                return None
            use = np.array([variable.solution_value() for variable in master.uses])
            number, load = master.columns[int(np.argmax(use * rng.uniform(0.6, 1.0, len(use))))]
            load = np.minimum(load, left)
            chosen.append(Column(number, load))
            left -= load
            free[number] -= 1
            master.demand(left, np.flatnonzero(load).tolist())
            master.allow(free)
        return chosen

    def _feasible(self, left: Ints, deadline: Deadline) -> bool:
        """Generate columns until the jobs left fractionally fit on the rails left."""
        while not deadline.over:
            needed, prices, class_prices = self.master.solve()
            if needed <= 1 + 1e-8:
                return True
            weights, worth = rounded(prices), rounded(class_prices) + NOISE
            if not self.master.widen(left, weights, worth, worth, deadline)[0]:
                return False
        return False

    def _complete(self, left: Ints, free: Ints, capacities: Ints) -> list[Column] | None:
        """Exact search for the last rails."""
        number, room = np.repeat(np.arange(len(free)), free), np.repeat(capacities, free)
        jobs = np.repeat(np.arange(len(self.sizes)), left)[::-1]
        rail_of = np.zeros(len(jobs), np.int64)
        if not complete(np.ascontiguousarray(self.sizes[jobs]), room, 20_000, 20_000_000, rail_of):
            return None
        loads = np.zeros((len(room), len(self.sizes)), np.int64)
        np.add.at(loads, (rail_of, jobs), 1)
        return [Column(int(k), load) for k, load in zip(number, loads, strict=True)]


def rounded(prices: Floats) -> Ints:
    """Prices as integers over SCALE, rounded down but for the solver's own noise."""
    return np.maximum(0, np.floor(prices * SCALE + 1e-6)).astype(np.int64)


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
