"""HiGHS as OR-Tools ships it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from railopt.solver.program.backends import Answer
from railopt.solver.program.mip import MixedProgram, minimise


def solve(program: MixedProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """Branch and cut."""
    gap = 0.99 if program.whole[program.cost > 0].all() else 0.0  # whole costs: less than one step
    found = minimise(program.in_floats(), limit_s, gap)
    values = None if found.values is None else np.rint(found.values).astype(np.int64).tolist()
    emit(Answer(values, found.status))
