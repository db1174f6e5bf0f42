"""HiGHS as SciPy ships it, through `scipy.optimize.milp`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from railopt.solver.program.backends import Answer, rails_of
from railopt.solver.program.program import IntegerProgram, linear


def solve(program: IntegerProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """One call."""
    matrix = linear(program)
    x = len(matrix.place)
    places = matrix.rows.astype(np.int32), matrix.columns.astype(np.int32)  # SciPy 1.14 wants these
    table = csc_array((matrix.values, places), shape=(len(matrix.row_lower), x + 1))
    result = milp(
        np.append(np.zeros(x), 1.0),
        integrality=np.append(np.ones(x), float(program.exact)),
        bounds=Bounds(0.0, np.append(np.ones(x), np.inf)),
        constraints=LinearConstraint(table, matrix.row_lower, matrix.row_upper),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    found = result.x is not None
    rail = rails_of(matrix.place, result.x[:-1], len(program.src)) if found else None
    emit(Answer(rail, result.status == 0 and found))
