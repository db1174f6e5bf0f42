"""CBC through PuLP, of which releases 3 and 4 differ in how a program is put together.

PuLP 3 brings a CBC for most machines; PuLP 4 brings none, and takes the one of `cbcbox` (its extra
"cbc") or the system's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pulp

from railopt.base.errors import BackendError
from railopt.solver.program.backends import Answer
from railopt.solver.program.mip import MixedProgram


def solve(program: MixedProgram, limit_s: float, emit: Callable[[Answer], None]) -> None:
    """PuLP 3 calls an answer cut off by the time limit "Optimal": only its solution status, and
    time to spare, count.
    """
    solver, given = cbc(limit_s), program.in_floats()
    problem = pulp.LpProblem("railopt", pulp.LpMinimize)
    variable = getattr(problem, "add_variable", pulp.LpVariable)
    sum_of = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    bounds = zip(given.low.tolist(), given.high.tolist(), given.whole.tolist(), strict=True)
    v = [
        variable(f"v{i}", low, high, "Integer" if whole else "Continuous")
        for i, (low, high, whole) in enumerate(bounds)
    ]
    problem += sum_of([(v[i], cost) for i, cost in enumerate(given.cost.tolist()) if cost])
    for entries, low, high in zip(
        given.by_row(), given.row_low.tolist(), given.row_high.tolist(), strict=True
    ):
        terms = sum_of([(v[column], value) for column, value in entries])
        if low == high:
            problem += terms == high
            continue
        problem += terms >= low
        if high < np.inf:
            problem += terms <= high
    began = time.monotonic()
    found, optimal = outcome(problem, problem.solve(solver))
    in_time = time.monotonic() - began < 0.95 * limit_s
    infeasible = not found and problem.status == pulp.LpStatusInfeasible
    status = "optimal" if optimal else "infeasible" if infeasible else ""
    values = [round(each.value() or 0.0) for each in v] if found else None
    emit(Answer(values, status if in_time else ""))


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
