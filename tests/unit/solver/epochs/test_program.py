"""The size of a program, and what is left out of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.solver.epochs.exchange import ChunkExchange
from railopt.solver.epochs.program import MOST, build, check_size, sizes


def slow_inside(nodes: int, stages: bool, startup: int = 0) -> ChunkExchange:
    """Servers of 2 GPUs, one NIC dead, scale-up as slow as a NIC; three of them exchange chunks of
    1 us.
    """
    fabric = Fabric.uniform(nodes, 2, scaleup="50GB/s").degraded({(0, 1): 0})
    matrix = np.zeros((2 * nodes,) * 2, np.int64)
    matrix[:6, :6] = 50_000 * (1 - np.eye(6, dtype=np.int64))
    traffic = Traffic.from_matrix(matrix, fabric)
    return ChunkExchange.of(fabric, traffic, 50_000, Fraction(startup, 10**6), stages=stages)


@pytest.mark.parametrize("nodes", [3, 9])
@pytest.mark.parametrize(("stages", "startup"), [(True, 1), (False, 0), (False, 2)])
def test_columns_are_those_of_hops_that_can_be(nodes: int, stages: bool, startup: int) -> None:
    asked = slow_inside(nodes, stages, startup)
    for periods in (15, 150):
        size, (program, _) = sizes(asked, periods), build(asked, periods, 99)
        assert size["variables"] == len(program.cost)
        assert len(program.values) <= size["entries"]
        assert program.values.all()


def test_start_ups_of_many_epochs_are_refused_before_they_are_built() -> None:
    asked = slow_inside(3, False, 2)
    assert sizes(asked, 900)["variables"] < MOST["variables"]
    with pytest.raises(InputError, match=r"a program of \d+ entries .*900 periods\): too large"):
        check_size(asked, 900)


def test_tables_of_too_many_servers_are_refused() -> None:
    with pytest.raises(InputError, match=r"21120000 places \(24 pairs x 2 rails, 400 servers, 66"):
        check_size(slow_inside(400, True), 66)


def test_nics_that_differ_have_beats_in_common() -> None:
    """Chunks of 1 us on the one and 4/3 us on the other NIC: a third of a microsecond is a beat."""
    fabric = Fabric.uniform(3, 1).degraded({(0, 0): "3/4"})
    traffic = Traffic.from_matrix(50_000 * (1 - np.eye(3, dtype=np.int64)), fabric)
    asked = ChunkExchange.of(fabric, traffic, 50_000, Fraction(0))
    program, columns = build(asked, 5, 1 << 20)
    among = np.isin(program.rows, program.rows[np.isin(program.columns, columns.beats[1::2])])
    wire = np.isin(program.columns, columns.table.wire)
    assert set(program.values[among & wire].tolist()) == {-3, -4}
    together = program.rows[program.columns == columns.beats[1]]
    assert 2 * 4 in program.row_low[together]
