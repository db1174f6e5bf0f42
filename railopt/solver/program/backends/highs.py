"""HiGHS as OR-Tools ships it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from railopt.solver.program.backends import Answer, rails_of
from railopt.solver.program.mip import MixedProgram, minimise
from railopt.solver.program.program import IntegerProgram, linear


def solve(program: IntegerProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """Branch and cut."""
    matrix = linear(program)
    x = len(matrix.place)
    found = minimise(
        MixedProgram(
            np.append(np.zeros(x), 1.0),
            np.zeros(x + 1),
            np.append(np.ones(x), np.inf),
            np.append(np.ones(x, np.bool_), bool(program.exact)),
            matrix.rows,
            matrix.columns,
            matrix.values,
            matrix.row_lower,
            matrix.row_upper,
            np.empty(0),
        ),
        limit_s,
        0.99 if program.exact else 0.0,
    )
    if found.values is None:
        emit(Answer())
    else:
        rail = rails_of(matrix.place, found.values[:-1], len(program.src))
        emit(Answer(rail, found.optimal))
