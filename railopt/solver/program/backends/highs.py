"""HiGHS as OR-Tools ships it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from railopt.solver.program.backends import Answer, counts_of
from railopt.solver.program.mip import MixedProgram, minimise
from railopt.solver.program.program import IntegerProgram, linear


def solve(
    program: IntegerProgram, limit_s: float, threads: int, emit: Callable[[Answer], None]
) -> None:
    """Branch and cut, from the program's hint where it has one; it takes no number of threads."""
    matrix = linear(program)
    columns = len(matrix.upper)
    hint = np.empty(0)
    if program.upper >= 0:
        hint = np.append(program.hint[tuple(matrix.place.T)], program.upper).astype(np.float64)
    found = minimise(
        MixedProgram(
            matrix.objective,
            np.append(np.zeros(columns - 1), float(program.lower)),
            matrix.upper,
            np.append(np.ones(columns - 1, np.bool_), bool(program.exact)),
            matrix.rows,
            matrix.columns,
            matrix.values,
            matrix.row_lower,
            matrix.row_upper,
            hint,
        ),
        limit_s,
        0.99 if program.exact else 0.0,
    )
    if found.values is None:
        emit(Answer())
    else:
        counts = counts_of(matrix.place, found.values[:-1], *program.allowed.shape)
        emit(Answer(counts, found.optimal))
