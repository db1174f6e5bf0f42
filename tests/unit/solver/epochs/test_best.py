"""The best timetable."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.solver.epochs.best import best
from railopt.solver.epochs.exchange import ChunkExchange


def test_nothing_to_send_takes_no_epoch() -> None:
    fabric = Fabric.uniform(3, 1)
    traffic = Traffic.from_matrix(np.zeros((3, 3), np.int64), fabric)
    nothing = ChunkExchange.of(fabric, traffic, 50_000, Fraction(1, 10**6), stages=False)
    assert best(nothing).bracket.value == 0
    with pytest.raises(InputError, match="unknown back-end 'scip'"):
        best(nothing, "scip")
