"""The best timetable."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.evidence.bracket import Status
from railopt.solver.epochs import program
from railopt.solver.epochs.best import best
from railopt.solver.epochs.exchange import ChunkExchange
from tests.drawn import exchange


def test_nothing_to_send_takes_no_epoch() -> None:
    fabric = Fabric.uniform(3, 1)
    traffic = Traffic.from_matrix(np.zeros((3, 3), np.int64), fabric)
    nothing = ChunkExchange.of(fabric, traffic, 50_000, Fraction(1, 10**6), stages=False)
    assert best(nothing).bracket.value == 0
    with pytest.raises(InputError, match="unknown back-end 'scip'"):
        best(nothing, "scip")


@pytest.mark.usefixtures("in_this_process")
def test_a_program_that_is_too_large_leaves_the_best_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, asked = exchange(Fraction(1, 2 * 10**6))
    monkeypatch.setitem(program.MOST, "variables", program.sizes(asked, 5)["variables"])
    found = best(asked)
    assert (found.bracket.status, found.notes) == (Status.OPEN, ())
    assert found.bracket.value == Fraction(10, 10**6)
    assert "the search ends before a program of" in found.ended
    assert 0 < found.solver_s < found.time_s
    monkeypatch.setitem(program.MOST, "variables", 1)
    with pytest.raises(InputError, match="too large for memory, at most 1;"):
        best(asked)


@pytest.mark.usefixtures("in_this_process")
def test_stages_without_start_ups_go_to_cbc_too() -> None:
    found = best(exchange(Fraction(0))[1], "pulp")
    assert (found.bracket.status, found.notes) == (Status.KNOWN, ())
