"""CP-SAT of OR-tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ortools.sat.python import cp_model

from railopt.base.errors import BackendError
from railopt.solver.program.backends import Answer
from railopt.solver.program.mip import MixedProgram


def solve(program: MixedProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """Emits each better solution as it comes; every column is an integer here."""
    model = cp_model.CpModel()
    v = [
        model.new_int_var(low, high, "")
        for low, high in zip(program.low.tolist(), program.high.tolist(), strict=True)
    ]

    def total(entries: list[tuple[int, int]]) -> Any:
        columns, values = zip(*entries, strict=True)
        return cp_model.LinearExpr.weighted_sum([v[column] for column in columns], values)

    for entries, low, high in zip(
        program.by_row(), program.row_low.tolist(), program.row_high.tolist(), strict=True
    ):
        if entries:
            model.add_linear_constraint(total(entries), low, high)
    paid = [(column, cost) for column, cost in enumerate(program.cost.tolist()) if cost]
    if paid:  # an objective of 0 takes CP-SAT longer than none
        model.minimize(total(paid))

    class Improvements(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            emit(Answer([self.value(each) for each in v]))

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model, Improvements())
    if status == cp_model.MODEL_INVALID:
        raise BackendError(f"it takes the program for invalid: {model.validate()[:100]}")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    named = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
    emit(Answer([solver.value(each) for each in v] if found else None, named.get(status, "")))
