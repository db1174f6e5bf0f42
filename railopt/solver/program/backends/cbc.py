"""CBC through PuLP."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import pulp

from railopt.solver.program.backends import Answer, counts_of
from railopt.solver.program.program import Model, linear


def solve(model: Model, limit_s: float, threads: int, emit: Callable[[Answer], None]) -> None:
    """PuLP calls an answer cut off by the time limit "Optimal": only its solution status, and time
    to spare, count.
    """
    solver = _cbc(limit_s, threads, model.upper >= 0)
    program = linear(model)
    problem = pulp.LpProblem("railopt", pulp.LpMinimize)
    t = pulp.LpVariable(
        "t",
        model.lower,
        model.upper if model.upper >= 0 else None,
        "Integer" if model.exact else "Continuous",
    )
    x = [
        pulp.LpVariable(f"x_{j}_{n}", 0, int(model.count[j]), "Integer")
        for j, n in program.place.tolist()
    ]
    if model.upper >= 0:
        for variable, value in zip(x, model.hint[tuple(program.place.T)].tolist(), strict=True):
            variable.setInitialValue(value)
        t.setInitialValue(model.upper)
    problem += t
    variables = [*x, t]
    order = np.argsort(program.rows, kind="stable")
    bounds = np.searchsorted(program.rows[order], np.arange(len(program.row_lower) + 1))
    for row, (low, high) in enumerate(
        zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    ):
        entries = order[bounds[row] : bounds[row + 1]]
        terms = pulp.LpAffineExpression(
            [
                (variables[c], v)
                for c, v in zip(
                    program.columns[entries].tolist(), program.values[entries].tolist(), strict=True
                )
            ]
        )
        problem += (terms == high) if low == high else (terms <= high)
    began = time.monotonic()
    problem.solve(solver)
    in_time = time.monotonic() - began < 0.95 * limit_s
    if problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        values = [variable.value() or 0.0 for variable in x]
        optimal = problem.sol_status == pulp.LpSolutionOptimal and in_time
        emit(Answer(counts_of(program.place, values, *model.allowed.shape), optimal))


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
