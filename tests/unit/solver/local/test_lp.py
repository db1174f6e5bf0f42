"""The configuration LP on classes of rails: what it refutes can't be done, what it dives to is
within the capacities.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from railopt.checker import Meter, Packing, refute
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.lp import ConfigurationLP, start
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import BY_WEIGHTS


def possible(sizes: list[int], rooms: list[int]) -> bool:
    """Whether some assignment keeps every rail's room, by trying all."""
    for rails in product(range(len(rooms)), repeat=len(sizes)):
        loads = [0] * len(rooms)
        for size, rail in zip(sizes, rails, strict=True):
            loads[rail] += size
        if all(load <= room for load, room in zip(loads, rooms, strict=True)):
            return True
    return False


@pytest.mark.slow
def test_what_the_lp_refutes_is_impossible_and_its_weights_convince_the_kernel() -> None:
    rng, refuted, dived, deadline = np.random.default_rng(21), 0, 0, Deadline.after(600)
    for _ in range(60):
        sizes = np.sort(rng.integers(1, 13, 6))[::-1].copy()
        fast = int(rng.integers(sizes[0], sizes[0] + 8))
        rails, capacities = np.array([2, 1]), np.array([fast, int(rng.integers(1, fast))])
        types, counts = np.unique(sizes, return_counts=True)
        lp = ConfigurationLP(types, counts, rails, start(types, sizes, np.zeros(6, np.int64), 3))
        weights, rooms = lp.refute(capacities, deadline), np.repeat(capacities, rails).tolist()
        if weights is not None:
            pairs = [[int(t), int(w)] for t, w in zip(types, weights, strict=True)]
            packing, witness = Packing(sizes.tolist(), rooms, 1), {"kind": "dual", "weights": pairs}
            assert refute(packing, witness, Meter(10**6)) == "dual"
            assert not possible(sizes.tolist(), rooms)
            refuted += 1
        loads = lp.dive(capacities, 2, rng, deadline)
        if loads is not None:
            assert np.sum(loads, axis=0).tolist() == counts.tolist()
            assert all(load @ types <= room for load, room in zip(loads, rooms, strict=True))
            assert weights is None
            dived += 1
    assert min(refuted, dived) >= 10


def test_long_loads_of_caps_on_rails_of_two_speeds_are_settled_by_weights() -> None:
    """One sender's 131 chunks, 107 of them caps, on six rails and two of half speed: the mean,
    which would leave no rail a token to spare, is refuted, and the next time is attained.
    """
    others = [506, 503, 464, 448, 440, 432, 422, 392, 389, 373, 365, 331, 286, 228, 213, 211, 187]
    given = [512] * 107 + others + [151, 125, 105, 83, 67, 36, 9]
    found = solve_local(given, speeds=[2] * 6 + [1] * 2, limit_s=600, chosen=BY_WEIGHTS)
    assert sum(given) == 7 * 8793 - 1
    assert found.bound == found.value == Fraction(8794, 2)
    assert found.witness["kind"] == "dual"
    assert found.checkable
