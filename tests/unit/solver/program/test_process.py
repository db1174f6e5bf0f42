"""A program in whole numbers, handed to a back-end in a process of its own."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from railopt.base import processes
from railopt.solver.epochs.exchange import ChunkExchange
from railopt.solver.epochs.program import build
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run


def scaled(unit: int) -> ChunkExchange:
    """Server 0 sends 8 chunks to 1, of 2 units, and server 2 sends 1 to 0, of 3: one stage."""
    times = np.array([[2], [2], [3]]) * unit
    near = np.ones((1, 1), np.bool_)
    demand = np.array([[0, 8, 0], [0, 0, 0], [1, 0, 0]])
    return ChunkExchange(demand, times, times, near, unit, unit, 1, 0, Fraction(1))


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_a_row_without_an_end_has_none() -> None:
    program, _ = build(scaled(1 << 48), 3, 20 << 48)
    assert run(BACKENDS["cpsat"], program, 60).answers[-1].status == "optimal"
    program, _ = build(scaled(1 << 58), 3, 20 << 58)
    assert "invalid" in str(run(BACKENDS["cpsat"], program, 60).failure)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_says_that_a_program_has_no_solution(backend: str) -> None:
    program, _ = build(scaled(1), 3, 10)
    assert [answer.status for answer in run(BACKENDS[backend], program, 60).answers] == [
        "infeasible"
    ]


def test_a_backend_that_is_killed_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.0)
    program, _ = build(scaled(1), 3, 20)
    done = run(BACKENDS["cpsat"], program, 0.01)
    assert (done.answers, done.timed_out) == ([], True)
