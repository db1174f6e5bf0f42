"""Linear programs over the rationals, solved exactly from a guess of the optimal basis.

    minimise cost . x    column[0] x[0] + column[1] x[1] + ... <= right, or = right where a row is
                         an equation; x >= 0

A solver in floats finds a basis that is optimal or nearly so.  From there the simplex method goes
on in fractions until the basis is optimal.  If it is infeasible, the costs are first raised to
where it would be optimal but for that, and the dual method makes it feasible.  Then the primal
method brings the true costs to their least.  Any guess will do, an empty one too; a good one saves
pivots.  Rows have a unit column each, their slack, which is 0 in an equation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Floats
from railopt.base.errors import NotProved
from railopt.base.extras import installed
from railopt.solver.rational import Factors, Number, divide


@dataclass(frozen=True)
class LinearProgram:
    """See the module's docstring.

    columns    row -> coefficient, of each variable
    equation   of each row: whether it is one
    """

    columns: Sequence[dict[int, int]]
    cost: Sequence[int]
    right: Sequence[int]
    equation: Sequence[bool]


class FloatOptimum(NamedTuple):
    """An optimum as a solver sees it in floats: the basic variables, as `optimum` takes them, and
    the prices of the rows; whether it says that it is one.
    """

    basic: list[int]
    price: Floats
    optimal: bool


class Vertex(NamedTuple):
    """x[j] of an optimal vertex, and the prices of the rows that prove it, each the cost of one
    more unit on its right side.  No column is worth more than its cost, price . right is cost . x,
    and a price is at most 0 but for equations.  `pivots`: how far the guess was off.
    """

    x: list[Number]
    price: list[Number]
    pivots: int


def optimum(
    program: LinearProgram, basic: Iterable[int] = (), *, limit_s: float | None = None
) -> Vertex:
    """The exact optimum, from a guess of the basic variables: j for x[j], and the number of
    variables + i for the slack of row i.  NotProved if there is none, or after `limit_s` seconds.
    """
    tableau = _Tableau(program, basic, None if limit_s is None else time.monotonic() + limit_s)
    tableau.make_feasible()
    tableau.make_optimal()
    return tableau.answer()


def guess(
    program: LinearProgram,
    x_unit: Sequence[float] | Floats,
    row_unit: Sequence[float] | Floats,
    *,
    limit_s: float | None = None,
) -> FloatOptimum:
    """The optimum as GLOP sees it in floats, whose basic variables `optimum` goes on from; without
    OR-Tools nothing is known, and `optimum` begins with the slacks.

    x_unit, row_unit   what x[j] and row i are counted in there, so that numbers are near 1
    """
    unseen = FloatOptimum([], np.zeros(len(program.right)), optimal=False)
    if not installed("ortools") or (limit_s is not None and limit_s <= 0):
        return unseen
    from ortools.linear_solver import linear_solver_pb2, pywraplp

    cost = np.array(program.cost, np.float64) * x_unit
    cost_unit = float(np.abs(cost).max()) or 1.0
    right = (np.array(program.right, np.float64) / row_unit).tolist()
    units, row_units = (np.asarray(unit, np.float64).tolist() for unit in (x_unit, row_unit))
    # as one message: a call for every coefficient would take longer than to solve
    model = linear_solver_pb2.MPModelProto()
    entries: list[tuple[list[int], list[float]]] = [([], []) for _ in right]
    for j, (column, price) in enumerate(
        zip(program.columns, (cost / cost_unit).tolist(), strict=True)
    ):
        model.variable.add(lower_bound=0.0, upper_bound=np.inf, objective_coefficient=price)
        for i, value in column.items():
            entries[i][0].append(j)
            entries[i][1].append(float(value * units[j] / row_units[i]))
    for most, equation, (places, values) in zip(right, program.equation, entries, strict=True):
        least = most if equation else -np.inf
        model.constraint.add(
            lower_bound=least, upper_bound=most, var_index=places, coefficient=values
        )
    solver = pywraplp.Solver.CreateSolver("GLOP")
    solver.LoadModelFromProto(model)
    variables, rows = solver.variables(), solver.constraints()
    if limit_s is not None:
        solver.SetTimeLimit(max(1, int(limit_s * 1000)))
    status = solver.Solve()
    if status not in (solver.OPTIMAL, solver.FEASIBLE):
        return unseen
    basic = [j for j, v in enumerate([*variables, *rows]) if v.basis_status() == solver.BASIC]
    paid = np.array([row.dual_value() for row in rows])
    return FloatOptimum(basic, paid * cost_unit / np.asarray(row_unit), status == solver.OPTIMAL)


class _Tableau:
    """The simplex method at one of its bases.  The first variable that may enter or leave does
    (Bland's rule), so that it never goes round in circles.

    cost     of every variable, slacks included
    basis    of each row, the variable that stands for it;  values: what that variable is
    """

    def __init__(
        self, program: LinearProgram, basic: Iterable[int], deadline: float | None
    ) -> None:
        self.program, self.count = program, len(program.columns)
        self.deadline = deadline
        self.cost: list[Number] = [*program.cost, *(0 for _ in program.right)]
        self.pivots = 0
        self._factor(basic)

    def _factor(self, basic: Iterable[int]) -> None:
        chosen = list(basic)
        columns = {j: self.program.columns[j] for j in chosen if j < self.count}
        slacks = [j - self.count for j in chosen if j >= self.count]
        self.factors = Factors(len(self.program.right), columns, slacks)
        self.basis = [self.count + i if j is None else j for i, j in enumerate(self.factors.holds)]
        self.values = self.factors.solve(self.program.right)

    def make_feasible(self) -> None:
        """The dual method, with costs raised so that no variable outside the basis pays to enter;
        the true costs are restored at the end.
        """
        if not self._infeasible():
            return
        true, prices = list(self.cost), self._prices()
        for j in self._outside():
            self.cost[j] -= min(0, self._reduced(j, prices))
        while rows := self._infeasible():
            self._pivot(rows[0], self._entering(rows[0]))
        self.cost = true

    def make_optimal(self) -> None:
        """The primal method."""
        while (entering := self._paying()) is not None:
            self._pivot(self._leaving(self._direction(entering)), entering)

    def answer(self) -> Vertex:
        x: list[Number] = [0] * self.count
        for j, value in zip(self.basis, self.values, strict=True):
            if j < self.count:
                x[j] = value
        return Vertex(x, self._prices(), self.pivots)

    def _paying(self) -> int | None:
        """The first variable outside the basis that costs less than the rows pay for it."""
        prices = self._prices()
        return next((j for j in self._outside() if self._reduced(j, prices) < 0), None)

    def _infeasible(self) -> list[int]:
        """Rows whose variable is below 0, or not 0 though it must be; first variables first."""
        found = [
            i
            for i, value in enumerate(self.values)
            if value < 0 or (value and self._must_be_zero(self.basis[i]))
        ]
        return sorted(found, key=self.basis.__getitem__)

    def _entering(self, row: int) -> int:
        """The variable that takes a row's place in the dual method: the first that would pay if
        its cost fell in proportion to how fast it mends the row.
        """
        sign = 1 if self.values[row] < 0 else -1
        prices = self._prices()
        weights = self.factors.solve_transposed([int(i == row) for i in range(len(self.basis))])
        best, entering = None, -1
        for j in self._outside():
            mends = -sign * self._times(j, weights)
            if mends > 0:
                ratio = divide(self._reduced(j, prices), mends)
                if best is None or ratio < best:
                    best, entering = ratio, j
        if best is None:
            raise NotProved("a linear program without a solution: its rows contradict each other")
        return entering

    def _leaving(self, direction: list[Number]) -> int:
        """The row whose variable is the first to become 0 as the entering one grows."""
        best, leaving = None, -1
        for i, change in enumerate(direction):
            j = self.basis[i]
            if change > 0 or (change and self._must_be_zero(j)):
                key = divide(self.values[i], _size(change)), j
                if best is None or key < best:
                    best, leaving = key, i
        if best is None:
            raise NotProved("a linear program without an optimum: it is unbounded")
        return leaving

    def _pivot(self, row: int, entering: int) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise NotProved(
                f"the time was up after {self.pivots} pivots of an exact simplex method"
            )
        self.pivots += 1
        self._factor([*self.basis[:row], entering, *self.basis[row + 1 :]])

    def _direction(self, j: int) -> list[Number]:
        """How much each basic variable falls for a unit of x[j]."""
        column: list[Number] = [0] * len(self.basis)
        for i, value in self._entries(j):
            column[i] = value
        return self.factors.solve(column)

    def _prices(self) -> list[Number]:
        return self.factors.solve_transposed([self.cost[j] for j in self.basis])

    def _reduced(self, j: int, prices: Sequence[Number]) -> Number:
        """What a unit of a variable costs, less what the rows pay for it."""
        return self.cost[j] - self._times(j, prices)

    def _times(self, j: int, weights: Sequence[Number]) -> Number:
        return sum(weights[i] * value for i, value in self._entries(j) if weights[i])

    def _entries(self, j: int) -> Iterable[tuple[int, int]]:
        return self.program.columns[j].items() if j < self.count else ((j - self.count, 1),)

    def _must_be_zero(self, j: int) -> bool:
        """Whether a variable is the slack of an equation."""
        return j >= self.count and self.program.equation[j - self.count]

    def _outside(self) -> Iterator[int]:
        """The variables that may enter the basis, in order."""
        inside = set(self.basis)
        for j in range(len(self.cost)):
            if j not in inside and not self._must_be_zero(j):
                yield j


def _size(number: Number) -> Number:
    return number if number > 0 else -number
