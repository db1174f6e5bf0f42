"""Mixed-integer programs in plain arrays, and HiGHS as OR-Tools ships it (through MathOpt).

What HiGHS says is a claim.  MathOpt takes no number of threads for it.
"""

from __future__ import annotations

import datetime
import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Floats, Ints

FREE = int(np.iinfo(np.int64).max)
"""In whole numbers, of a row that has no upper end; CP-SAT takes it so too."""
_NO_HINT = np.empty(0)


class MixedProgram(NamedTuple):
    """min cost . v where row_low <= A v <= row_high and low <= v <= high; all numbers int64, for
    any solver, or all float64, for HiGHS alone.

    cost, low, high [columns]; whole bool [columns]: which must be integers
    rows, columns int64 [entries], values [entries]: A by entry
    row_low, row_high [rows]
    hint: values of the first so many columns to start from, or none
    """

    cost: Array
    low: Array
    high: Array
    whole: Bools
    rows: Ints
    columns: Ints
    values: Array
    row_low: Array
    row_high: Array
    hint: Array = _NO_HINT

    def save(self, path: str | os.PathLike[str]) -> None:
        """As a plain `.npz`, for the process that solves it."""
        arrays: dict[str, Any] = self._asdict()
        # no keyword of savez's own: to numpy before 2.2 allow_pickle was an array's name
        np.savez(path, **arrays)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> MixedProgram:
        with np.load(path, allow_pickle=False) as data:
            return cls(**data)

    def by_row(self) -> Iterator[list[tuple[int, Any]]]:
        """(column, value) of the entries, row by row."""
        return _grouped(self.rows, self.columns, self.values, len(self.row_low))

    def by_column(self) -> Iterator[list[tuple[int, Any]]]:
        """(row, value) of the entries, column by column."""
        return _grouped(self.columns, self.rows, self.values, len(self.cost))

    def in_floats(self) -> MixedProgram:
        """The same of whole numbers for solvers that count in floats: each row in its smallest
        coefficient, so that what they take for 0 is less than any.
        """
        unit = np.full(len(self.row_low), np.inf)
        np.minimum.at(unit, self.rows, np.abs(self.values).astype(np.float64))
        unit[np.isinf(unit)] = 1.0  # of a row without entries
        return self._replace(
            values=self.values / unit[self.rows],
            row_low=self.row_low / unit,
            row_high=np.where(self.row_high == FREE, np.inf, self.row_high / unit),
        )


def _grouped(of: Ints, other: Ints, values: Array, groups: int) -> Iterator[list[tuple[int, Any]]]:
    """(other, value) of the entries of each group, in their order."""
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], np.arange(groups + 1)).tolist()
    columns, entries = other[order].tolist(), values[order].tolist()
    for begin, end in itertools.pairwise(begins):
        yield list(zip(columns[begin:end], entries[begin:end], strict=True))


class Found(NamedTuple):
    """The best values float64 [columns], None where there are none; "optimal", "infeasible" or ""
    as HiGHS says; and what it says that no others are below.
    """

    values: Floats | None
    status: str
    bound: float


def minimise(program: MixedProgram, limit_s: float, gap: float = 0.0) -> Found:
    """What HiGHS finds within `limit_s` seconds, to within `gap` of the optimum."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    variables = [
        model.add_variable(lb=low, ub=high, is_integer=whole)
        for low, high, whole in zip(
            program.low.tolist(), program.high.tolist(), program.whole.tolist(), strict=True
        )
    ]
    rows = [
        model.add_linear_constraint(lb=low, ub=high)
        for low, high in zip(program.row_low.tolist(), program.row_high.tolist(), strict=True)
    ]
    entries = program.rows.tolist(), program.columns.tolist(), program.values.tolist()
    for row, column, value in zip(*entries, strict=True):
        held = rows[row].get_coefficient(variables[column])
        rows[row].set_coefficient(variables[column], held + value)
    for variable, cost in zip(variables, program.cost.tolist(), strict=True):
        model.objective.set_linear_coefficient(variable, cost)
    start = mathopt.ModelSolveParameters()
    if len(program.hint):
        known = dict(zip(variables, program.hint.tolist(), strict=False))
        start.solution_hints.append(mathopt.SolutionHint(variable_values=known))
    limits = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=limit_s),
        relative_gap_tolerance=0.0,
        absolute_gap_tolerance=gap,
    )
    result: Any = mathopt.solve(model, mathopt.SolverType.HIGHS, params=limits, model_params=start)
    ended = result.termination
    values = None
    if result.has_primal_feasible_solution():
        values = np.array(result.variable_values(variables), np.float64)
    reasons = mathopt.TerminationReason
    status = {reasons.OPTIMAL: "optimal", reasons.INFEASIBLE: "infeasible"}.get(ended.reason, "")
    return Found(values, status, float(ended.objective_bounds.dual_bound))
