"""CP-SAT of OR-tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from railopt.solver.program.backends import Answer
from railopt.solver.program.program import IntegerProgram


def solve(program: IntegerProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """Emits each better plan as it comes; integers only."""
    model = cp_model.CpModel()
    x: dict[tuple[int, int], Any] = {
        (j, n): model.new_bool_var("") for j, n in np.argwhere(program.allowed).tolist()
    }
    chunks, rails = program.allowed.shape
    slowest = int(program.r[program.r > 0].min())
    most = int(program.size.sum()) * int(program.a.max()) // slowest + 1
    t = model.new_int_var(0, most, "t")
    for j in range(chunks):
        model.add_exactly_one(x[j, n] for n in range(rails) if (j, n) in x)
    for side, ends in enumerate((program.src, program.dst)):
        for k in range(program.r.shape[1]):
            here = np.flatnonzero(ends == k).tolist()
            for n in range(rails):
                terms = [x[j, n] * int(program.size[j]) for j in here if (j, n) in x]
                if terms:
                    a, r = int(program.a[side, k, n]), int(program.r[side, k, n])
                    model.add(sum(terms) * a <= r * t)
    model.minimize(t)

    def rail(value: Callable[[Any], int]) -> list[int]:
        on = {j: n for (j, n), variable in x.items() if value(variable)}
        return [on[j] for j in range(chunks)]

    class Improvements(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            emit(Answer(rail(self.value)))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model, Improvements())
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    emit(Answer(rail(solver.value) if found else None, status == cp_model.OPTIMAL))
