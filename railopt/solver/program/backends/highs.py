"""HiGHS through highspy."""

from __future__ import annotations

from collections.abc import Callable

import highspy
import numpy as np

from railopt.solver.program.backends import Answer, counts_of
from railopt.solver.program.program import IntegerProgram, linear


def solve(
    program: IntegerProgram, limit_s: float, threads: int, emit: Callable[[Answer], None]
) -> None:
    """Branch and cut; a warm start where the program has a hint."""
    matrix = linear(program)
    columns, rows = len(matrix.upper), len(matrix.row_lower)
    order = np.lexsort((matrix.rows, matrix.columns))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, rows
    lp.col_cost_ = matrix.objective
    lp.col_lower_ = np.append(np.zeros(columns - 1), float(program.lower))
    lp.col_upper_ = np.where(np.isinf(matrix.upper), highspy.kHighsInf, matrix.upper)
    lp.row_lower_ = np.where(np.isinf(matrix.row_lower), -highspy.kHighsInf, matrix.row_lower)
    lp.row_upper_ = matrix.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(matrix.columns[order], np.arange(columns + 1)).astype(
        np.int32
    )
    lp.a_matrix_.index_ = matrix.rows[order].astype(np.int32)
    lp.a_matrix_.value_ = matrix.values[order]
    last = highspy.HighsVarType.kInteger if program.exact else highspy.HighsVarType.kContinuous
    lp.integrality_ = [highspy.HighsVarType.kInteger] * (columns - 1) + [last]
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("time_limit", limit_s),
        ("threads", threads),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 0.99 if program.exact else 0.0),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(lp)
    if program.upper >= 0:
        start = highspy.HighsSolution()
        start.col_value = [*program.hint[tuple(matrix.place.T)].astype(float), float(program.upper)]
        solver.setSolution(start)
    solver.run()
    info = solver.getInfo()
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = solver.getSolution().col_value
        emit(Answer(counts_of(matrix.place, values[:-1], *program.allowed.shape), optimal))
    else:
        emit(Answer())
