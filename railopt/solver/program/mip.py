"""Mixed-integer programs in plain arrays, and HiGHS as OR-Tools ships it (through MathOpt).

What HiGHS says is a claim.  MathOpt takes no number of threads for it.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints


class MixedProgram(NamedTuple):
    """min cost . v where row_low <= A v <= row_high and low <= v <= high.

    cost, low, high float64 [columns]; whole bool [columns]: which must be integers
    rows, columns int64 [entries], values float64 [entries]: A by entry
    row_low, row_high float64 [rows]
    hint float64: values of the first so many columns to start from, or none
    """

    cost: Floats
    low: Floats
    high: Floats
    whole: Bools
    rows: Ints
    columns: Ints
    values: Floats
    row_low: Floats
    row_high: Floats
    hint: Floats


class Found(NamedTuple):
    """The best values float64 [columns], None where there are none; whether HiGHS calls them
    optimal; and what it says that no others are below.
    """

    values: Floats | None
    optimal: bool
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
    optimal = ended.reason == mathopt.TerminationReason.OPTIMAL
    return Found(values, optimal, float(ended.objective_bounds.dual_bound))
