"""Loads of rails: those that a cover can have are all counted, and what is refuted is
impossible.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from railopt.base.arrays import Ints
from railopt.checker import Meter, Packing, refute
from railopt.solver.local.cover import FOUND, REFUTED
from railopt.solver.local.exact import Windows


def drawn(rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(sizes, capacities of two fast rails and a slow one with little slack)."""
    sizes = np.sort(rng.integers(100, 400, 9))[::-1].copy()
    mean = int(sizes.sum()) // 5 + int(rng.integers(1, 9))
    return sizes, np.array([2 * mean, 2 * mean, mean])


def test_loads_are_counted_as_by_looking_at_every_set() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        sizes, capacities = drawn(rng)
        windows, slack = Windows(sizes, capacities), int(capacities.sum() - sizes.sum())
        every = product(*(range(count + 1) for count in windows.counts.tolist()))
        sums = np.array(list(every)) @ windows.types
        within = [
            np.count_nonzero((sums >= max(1, c - slack)) & (sums <= c))
            for c in set(capacities.tolist())
        ]
        assert windows.count(capacities, 10**6) == sum(within)


@pytest.mark.slow
def test_decisions_are_assignments_or_convince_the_checker() -> None:
    rng, seen = np.random.default_rng(6), {FOUND: 0, REFUTED: 0}
    for _ in range(60):
        sizes, capacities = drawn(rng)
        status, assignment = Windows(sizes, capacities).decide(capacities, 10**6, 10**9)
        seen[status] += 1
        if status == FOUND:
            loads = np.bincount(assignment, weights=sizes, minlength=3)
            assert (loads <= capacities).all()
        else:
            packing = Packing(sizes.tolist(), capacities.tolist(), 1)
            assert refute(packing, {"kind": "cover"}, Meter(10**7)) == "cover"
    assert min(seen.values()) >= 10
