"""HiGHS as SciPy ships it, through `scipy.optimize.milp`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from railopt.solver.program.backends import Answer
from railopt.solver.program.mip import MixedProgram


def solve(program: MixedProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """One call."""
    given = program.in_floats()
    places = given.rows.astype(np.int32), given.columns.astype(np.int32)  # SciPy 1.14 wants these
    table = csc_array((given.values, places), shape=(len(given.row_low), len(given.cost)))
    result = milp(
        given.cost,
        integrality=given.whole,
        bounds=Bounds(given.low, given.high),
        constraints=LinearConstraint(table, given.row_low, given.row_high),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    values = None if result.x is None else np.rint(result.x).astype(np.int64).tolist()
    emit(Answer(values, {0: "optimal", 2: "infeasible"}.get(result.status, "")))
