"""CP-SAT of OR-tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from railopt.solver.program.backends import Answer
from railopt.solver.program.program import IntegerProgram


def solve(
    program: IntegerProgram, limit_s: float, threads: int, emit: Callable[[Answer], None]
) -> None:
    """Emits each better plan as it comes; integers only."""
    model = cp_model.CpModel()
    types, rails = program.allowed.shape
    count = program.count.tolist()
    x: dict[tuple[int, int], Any] = {
        (j, n): model.new_int_var(0, count[j], "") for j, n in np.argwhere(program.allowed).tolist()
    }
    _, nodes, _ = program.r.shape
    most = (
        int(program.size @ program.count)
        * int(program.a.max())
        // int(program.r[program.r > 0].min())
        + 1
    )
    t = model.new_int_var(program.lower, program.upper if program.upper >= 0 else most, "t")
    for j in range(types):
        mine = [x[j, n] for n in range(rails) if (j, n) in x]
        model.add_exactly_one(mine) if count[j] == 1 else model.add(sum(mine) == count[j])
    for side, ends in enumerate((program.src, program.dst)):
        for k in range(nodes):
            here = np.flatnonzero(ends == k).tolist()
            for n in range(rails):
                terms = [(x[j, n], int(program.size[j])) for j in here if (j, n) in x]
                if terms:
                    a, r = int(program.a[side, k, n]), int(program.r[side, k, n])
                    model.add(sum(v * (a * size) for v, size in terms) <= r * t)
    if program.upper >= 0:
        for (j, n), variable in x.items():
            model.add_hint(variable, int(program.hint[j, n]))
    model.minimize(t)

    def counts(value: Callable[[Any], int]) -> list[list[int]]:
        return [
            [int(value(x[j, n])) if (j, n) in x else 0 for n in range(rails)] for j in range(types)
        ]

    class Improvements(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            emit(Answer(counts(self.value)))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = threads
    status = solver.solve(model, Improvements())
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    emit(Answer(counts(solver.value) if found else None, status == cp_model.OPTIMAL))
