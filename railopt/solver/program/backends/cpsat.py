"""CP-SAT of OR-tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from railopt.solver.program.backends import Answer
from railopt.solver.program.program import Model


def solve(model: Model, limit_s: float, threads: int, emit: Callable[[Answer], None]) -> None:
    """Emits each better plan as it comes; integers only, so its bound is exact if it can be
    trusted.
    """
    program = cp_model.CpModel()
    types, rails = model.allowed.shape
    count = model.count.tolist()
    x: dict[tuple[int, int], Any] = {
        (j, n): program.new_int_var(0, count[j], "") for j, n in np.argwhere(model.allowed).tolist()
    }
    _, nodes, _ = model.r.shape
    most = int(model.size @ model.count) * int(model.a.max()) // int(model.r[model.r > 0].min()) + 1
    t = program.new_int_var(model.lower, model.upper if model.upper >= 0 else most, "t")
    for j in range(types):
        mine = [x[j, n] for n in range(rails) if (j, n) in x]
        program.add_exactly_one(mine) if count[j] == 1 else program.add(sum(mine) == count[j])
    for side, ends in enumerate((model.src, model.dst)):
        for k in range(nodes):
            here = np.flatnonzero(ends == k).tolist()
            for n in range(rails):
                terms = [(x[j, n], int(model.size[j])) for j in here if (j, n) in x]
                if terms:
                    a, r = int(model.a[side, k, n]), int(model.r[side, k, n])
                    program.add(sum(v * (a * size) for v, size in terms) <= r * t)
    if model.upper >= 0:
        for (j, n), variable in x.items():
            program.add_hint(variable, int(model.hint[j, n]))
    program.minimize(t)

    def counts(value: Callable[[Any], int]) -> list[list[int]]:
        return [
            [int(value(x[j, n])) if (j, n) in x else 0 for n in range(rails)] for j in range(types)
        ]

    class Report(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            emit(Answer(counts(self.value)))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = threads
    status = solver.solve(program, Report())
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = round(solver.best_objective_bound) if found else None
    emit(Answer(counts(solver.value) if found else None, status == cp_model.OPTIMAL, bound))
