"""HiGHS as SciPy ships it, through `scipy.optimize.milp`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from railopt.solver.program.backends import Answer, counts_of
from railopt.solver.program.program import IntegerProgram, linear


def solve(
    program: IntegerProgram, limit_s: float, threads: int, emit: Callable[[Answer], None]
) -> None:
    """One call; milp knows neither hints nor threads."""
    matrix = linear(program)
    columns = len(matrix.upper)
    places = matrix.rows.astype(np.int32), matrix.columns.astype(np.int32)  # SciPy 1.14 wants these
    table = csc_array((matrix.values, places), shape=(len(matrix.row_lower), columns))
    result = milp(
        matrix.objective,
        integrality=np.append(np.ones(columns - 1), float(program.exact)),
        bounds=Bounds(np.append(np.zeros(columns - 1), float(program.lower)), matrix.upper),
        constraints=LinearConstraint(table, matrix.row_lower, matrix.row_upper),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    counts = (
        None if result.x is None else counts_of(matrix.place, result.x[:-1], *program.allowed.shape)
    )
    emit(Answer(counts, result.status == 0 and counts is not None))
