"""A whole-number program in CP-SAT or CBC (through PuLP), in a process of its own.

`python -m railopt.solver.epochs.process PROGRAM ANSWERS UNTIL BACKEND` is the child.  What it says
of an optimum is a claim.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from railopt.base import processes
from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, InputError
from railopt.base.extras import missing
from railopt.solver.epochs.program import FREE, WholeProgram
from railopt.solver.program.backends import BACKENDS

NAMES = ("cpsat", "pulp")


class WholeAnswer(NamedTuple):
    """What a back-end found.

    values    int64 [columns], or None
    status    "optimal", "infeasible" or "" on the back-end's word
    failure   what went wrong, one sentence, or None
    """

    values: Ints | None
    status: str
    failure: str | None
    interrupted: bool = False


def check_name(backend: str) -> None:
    """Refuse a back-end that this program has no way to."""
    if backend not in NAMES:
        raise InputError(f"unknown back-end {backend!r}; known back-ends: {', '.join(NAMES)}")


def minimise(program: WholeProgram, backend: str, limit_s: float) -> WholeAnswer:
    """What the back-end finds within `limit_s` seconds, its start included."""
    known = BACKENDS[backend]
    if not known.available:
        return WholeAnswer(None, "", missing(known.imports, f"the back-end {backend}"))
    output = processes.ask(__name__, program.save, limit_s, backend)
    late = output.ended.timed_out  # killed at its limit: nothing but time ran out
    failure = f"{known.title} {output.failure}" if output.failure and not late else None
    if output.ended.code == BackendError.exit_code:
        failure = f"{known.title} can't run here: {output.said}"
    for line in reversed(output.lines):
        said = json.loads(line)
        values = None if said["values"] is None else np.array(said["values"], np.int64)
        interrupted = output.ended.interrupted
        return WholeAnswer(values, said["status"], failure, interrupted)
    return WholeAnswer(None, "", failure, output.ended.interrupted)


def _by_row(program: WholeProgram) -> list[list[tuple[int, int]]]:
    """(column, factor) of each row."""
    rows: list[list[tuple[int, int]]] = [[] for _ in program.row_low]
    for row, column, value in zip(
        program.rows.tolist(), program.columns.tolist(), program.values.tolist(), strict=True
    ):
        rows[row].append((column, value))
    return rows


def _cpsat(program: WholeProgram, limit_s: float) -> dict[str, Any]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    v = [model.new_int_var(0, high, "") for high in program.high.tolist()]
    low, high = program.row_low.tolist(), program.row_high.tolist()
    for i, entries in enumerate(_by_row(program)):
        terms = sum(v[column] * factor for column, factor in entries)
        if entries:
            model.add_linear_constraint(terms, low[i], high[i])
    if program.cost.any():  # an objective of 0 takes CP-SAT longer than none
        model.minimize(sum(v[i] * int(c) for i, c in enumerate(program.cost.tolist()) if c))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status == cp_model.MODEL_INVALID:
        raise BackendError(f"it takes the program for invalid: {model.validate()[:100]}")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    named = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
    return {
        "values": [solver.value(each) for each in v] if found else None,
        "status": named.get(status, ""),
    }


def _pulp(program: WholeProgram, limit_s: float) -> dict[str, Any]:
    import pulp

    from railopt.solver.program.backends.cbc import cbc, outcome

    problem = pulp.LpProblem("railopt", pulp.LpMinimize)
    variable = getattr(problem, "add_variable", pulp.LpVariable)
    sum_of = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    v = [variable(f"v{i}", 0, high, "Integer") for i, high in enumerate(program.high.tolist())]
    problem += sum_of([(v[i], c) for i, c in enumerate(program.cost.tolist()) if c])
    low, high = program.row_low.tolist(), program.row_high.tolist()
    for i, entries in enumerate(_by_row(program)):
        terms = sum_of([(v[column], factor) for column, factor in entries])
        if low[i] == high[i]:
            problem += terms == high[i]
            continue
        problem += terms >= low[i]
        if high[i] < FREE:
            problem += terms <= high[i]
    began = time.monotonic()
    answer = problem.solve(cbc(limit_s))
    found, optimal = outcome(problem, answer)
    in_time = time.monotonic() - began < 0.95 * limit_s
    infeasible = not found and in_time and problem.status == pulp.LpStatusInfeasible
    values = [round(each.value() or 0.0) for each in v] if found else None
    status = "optimal" if optimal and in_time else "infeasible" if infeasible else ""
    return {"values": values, "status": status}


def main(path: str, answers: str, until: str, backend: str) -> None:
    """The child: one answer."""
    program = WholeProgram.read(path)
    left_s = max(0.1, float(until) - time.time())
    with processes.answers(answers) as say:
        try:
            say((_cpsat if backend == "cpsat" else _pulp)(program, left_s))
        except BackendError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
