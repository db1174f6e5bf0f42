"""Rails filled to the last unit."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.solver.local import fill, subsets
from railopt.solver.local.filling import pool_width
from railopt.solver.local.values import loads_of


@pytest.mark.parametrize("seed", [4, 6, 10])
def test_four_jobs_a_rail_are_filled_with_three_where_three_do(seed: int) -> None:
    """Loads of three jobs leave the last rails enough of them; with the largest job left set on
    every rail, a hundred attempts found none of these assignments.
    """
    sizes = np.sort(np.random.default_rng(seed).integers(1, 10_001, 100))[::-1]
    sizes = np.ascontiguousarray(sizes, dtype=np.int64)
    capacities = np.full(25, -(-int(sizes.sum()) // 25))
    assignment = np.zeros(len(sizes), np.int64)
    subsets.seeded(0)
    filling = fill.Filling(sizes, capacities, 8, pool_width(sizes), True)
    assert fill.fit(filling, 100, assignment)
    assert (loads_of(sizes, assignment, 25) <= capacities).all()
