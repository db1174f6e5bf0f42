"""CBC through PuLP."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pulp

from railopt.solver.program.backends import Answer, counts_of
from railopt.solver.program.program import IntegerProgram, linear


def solve(
    program: IntegerProgram, limit_s: float, threads: int, emit: Callable[[Answer], None]
) -> None:
    """PuLP calls an answer cut off by the time limit "Optimal": only its solution status, and time
    to spare, count.
    """
    solver = _cbc(limit_s, threads, program.upper >= 0)
    matrix = linear(program)
    problem = pulp.LpProblem("railopt", pulp.LpMinimize)
    t = pulp.LpVariable(
        "t",
        program.lower,
        program.upper if program.upper >= 0 else None,
        "Integer" if program.exact else "Continuous",
    )
    x = [
        pulp.LpVariable(f"x_{j}_{n}", 0, int(program.count[j]), "Integer")
        for j, n in matrix.place.tolist()
    ]
    if program.upper >= 0:
        for variable, value in zip(x, program.hint[tuple(matrix.place.T)].tolist(), strict=True):
            variable.setInitialValue(value)
        t.setInitialValue(program.upper)
    problem += t
    variables = [*x, t]
    for entries, low, high in zip(
        matrix.by_row(), matrix.row_lower.tolist(), matrix.row_upper.tolist(), strict=True
    ):
        terms = pulp.LpAffineExpression([(variables[c], v) for c, v in entries])
        problem += (terms == high) if low == high else (terms <= high)
    began = time.monotonic()
    problem.solve(solver)
    in_time = time.monotonic() - began < 0.95 * limit_s
    if problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        values = [variable.value() or 0.0 for variable in x]
        optimal = problem.sol_status == pulp.LpSolutionOptimal and in_time
        emit(Answer(counts_of(matrix.place, values, *program.allowed.shape), optimal))


def _cbc(limit_s: float, threads: int, warm: bool) -> pulp.LpSolver:
    """The CBC that PuLP brings, or the system's; there is none for every machine."""
    options = {
        "msg": False,
        "timeLimit": limit_s,
        "threads": threads,
        "gapRel": 0.0,
        "warmStart": warm,
        "keepFiles": False,
    }
    for make in (pulp.PULP_CBC_CMD, pulp.COIN_CMD):
        try:
            solver = make(**options)
            if solver.available():
                return solver
        except pulp.PulpSolverError:
            continue
    raise RuntimeError(
        f"no CBC for this machine ({os.uname().machine}): PuLP brings none that runs here; "
        "install one (Debian: apt-get install coinor-cbc)"
    )
