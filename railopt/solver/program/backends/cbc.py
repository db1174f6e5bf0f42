"""CBC through PuLP, of which releases 3 and 4 differ in how a program is put together.

PuLP 3 brings a CBC for most machines; PuLP 4 brings none, and takes the one of `cbcbox` (its extra
"cbc") or the system's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pulp

from railopt.base.errors import BackendError
from railopt.solver.program.backends import Answer, rails_of
from railopt.solver.program.program import IntegerProgram, linear


def solve(program: IntegerProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """PuLP 3 calls an answer cut off by the time limit "Optimal": only its solution status, and
    time to spare, count.
    """
    solver, matrix = cbc(limit_s), linear(program)
    problem = pulp.LpProblem("railopt", pulp.LpMinimize)
    variable = getattr(problem, "add_variable", pulp.LpVariable)
    sum_of = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    x = [variable(f"x_{j}_{n}", 0, 1, "Integer") for j, n in matrix.place.tolist()]
    columns = [*x, variable("t", 0, None, "Integer" if program.exact else "Continuous")]
    problem += sum_of([(columns[-1], 1)])
    for entries, low, high in zip(
        matrix.by_row(), matrix.row_lower.tolist(), matrix.row_upper.tolist(), strict=True
    ):
        terms = sum_of([(columns[c], value) for c, value in entries])
        problem += (terms == high) if low == high else (terms <= high)
    began = time.monotonic()
    found, optimal = outcome(problem, problem.solve(solver))
    in_time = time.monotonic() - began < 0.95 * limit_s
    if found:
        values = [variable.value() or 0.0 for variable in x]
        emit(Answer(rails_of(matrix.place, values, len(program.src)), optimal and in_time))


def outcome(problem: Any, answer: Any) -> tuple[bool, bool]:
    """(a plan was found, CBC calls it optimal), of what `LpProblem.solve` returned."""
    if hasattr(answer, "has_solution"):
        return answer.has_solution, answer.status == pulp.LpSolveStatus.Optimal
    status = problem.sol_status
    optimal = status == pulp.LpSolutionOptimal
    return optimal or status == pulp.LpSolutionIntegerFeasible, optimal


def cbc(limit_s: float) -> Any:
    """The CBC that PuLP brings, or the system's; there is none for every machine."""
    options = {"msg": False, "timeLimit": limit_s, "threads": 1, "gapRel": 0.0, "keepFiles": False}
    for name in ("PULP_CBC_CMD", "COIN_CMD"):
        try:
            solver = getattr(pulp, name)(**options)
            if solver.available():
                return solver
        except (AttributeError, pulp.PulpSolverError):
            continue
    raise BackendError(
        f"PuLP {pulp.__version__} has no CBC for this machine ({os.uname().machine}): "
        "pip install 'pulp[cbc]', or Debian's: apt-get install coinor-cbc"
    )
