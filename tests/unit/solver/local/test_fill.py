"""Rails filled to the last unit."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.arrays import Ints
from railopt.base.kernels import seeded
from railopt.solver.local import fill
from railopt.solver.local.filling import pool_width
from railopt.solver.local.values import loads_of


def drawn(seed: int, jobs: int, top: int) -> Ints:
    sizes = np.sort(np.random.default_rng(seed).integers(1, top + 1, jobs))[::-1]
    return np.ascontiguousarray(sizes, dtype=np.int64)


@pytest.mark.parametrize("kind", ["equal", "two speeds"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_filling_keeps_every_rail_within_its_capacity(kind: str, seed: int) -> None:
    """Eight jobs per rail and some five units per rail to spare, of 4,000."""
    sizes, speeds = (
        drawn(seed, 80, 1000),
        np.array([2] * 5 + [1 if kind == "two speeds" else 2] * 5),
    )
    capacities = int(sizes.sum()) * speeds // speeds.sum() + 5
    found, draws = np.zeros(80, np.int64), seeded(seed)
    assert any(fill.fill(sizes, capacities, 1, pool_width(sizes), draws, found) for _ in range(100))
    assert (loads_of(sizes, found, 10) <= capacities).all()


def test_nothing_is_filled_beyond_its_capacity() -> None:
    found, draws = np.zeros(5, np.int64), seeded(0)
    sizes = np.array(
        [6, 6, 6, 4, 4]
    )  # two rails of 13 would do by their sum, but not by their jobs
    assert not any(fill.fill(sizes, np.array([13, 13]), 1, 12, draws, found) for _ in range(20))
    assert fill.fill(sizes, np.array([14, 14]), 1, 12, draws, found)
