"""Chunks weighed in parts of a cap: never a bound above the optimum, always one that checks."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from railopt import Chunks, Fabric
from railopt.base.arrays import Ints
from railopt.checker import WORK, Meter, prove_local
from railopt.solver.coupled.cap_weights import MOST, cap_weights
from railopt.solver.coupled.race import Progress
from railopt.solver.coupled.solve import solve

# the remainders of 24 messages, beside 99 caps of 512: eight rails of 7102 would have room for all,
# but at 7105 the configuration LP still shows that they can't be filled
OTHERS = (487, 464, 464, 397, 393, 393, 364, 343, 337, 319, 290, 273)
OTHERS += (265, 241, 211, 165, 148, 136, 122, 117, 93, 61, 21, 19)
SIZES = 8192 * np.array([512] * 99 + list(OTHERS))


def optimum(sizes: Ints, rails: int) -> int:
    """The least load of the fullest rail: caps go wherever the others leave most room."""
    others, caps = sizes[sizes < sizes[0]], int((sizes == sizes[0]).sum())
    best = int(sizes.sum())
    for place in product(range(rails), repeat=len(others)):
        loads = np.bincount(place, others, rails).astype(np.int64)
        for _ in range(caps):
            loads[loads.argmin()] += sizes[0]
        best = min(best, int(loads.max()))
    return best


@pytest.mark.slow
def test_no_bound_exceeds_the_optimum_and_all_of_them_check() -> None:
    better = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rails, cap = int(rng.integers(2, 4)), int(rng.integers(5, 40))
        others = np.sort(rng.integers(1, cap, int(rng.integers(1, 6))))[::-1]
        caps = np.full(int(rng.integers(rails, 4 * rails)), cap)
        sizes = int(rng.choice([1, 6])) * np.concatenate([caps, others])
        average = -(-int(sizes.sum()) // rails)
        found = cap_weights(sizes, rails, average)
        if found is not None:
            bound, witness = found
            better += 1
            assert average < bound <= optimum(sizes, rails)
            assert prove_local(
                sizes.tolist(), [1] * rails, Fraction(bound), witness, Meter(WORK)
            ) == ("dual")
    assert better > 20


def test_remainders_that_fill_no_rail_raise_the_bound() -> None:
    average = -(-int(SIZES.sum()) // 8)
    found = cap_weights(SIZES, 8, average)
    assert found is not None
    assert 7103 <= found[0] // 8192 <= 7106
    assert cap_weights(SIZES, 8, found[0]) is None  # only what is better is said


def test_sizes_without_caps_or_with_many_others_are_left_alone() -> None:
    assert cap_weights(np.array([9, 9, 9, 5, 3]), 4, 1) is None
    assert cap_weights(np.full(30, 7), 4, 1) is None
    assert cap_weights(np.append(np.full(9, 99), np.arange(MOST + 1, 0, -1)), 4, 1) is None


def test_what_takes_long_to_check_is_not_said() -> None:
    """With many caps, loads weigh much, and the kernel's knapsack goes through their weights."""
    many = np.append(np.full(4000, 512), OTHERS)
    found = cap_weights(many, 8, 0)
    if found is not None:
        prove_local(many.tolist(), [1] * 8, Fraction(found[0]), found[1], Meter(WORK))


@pytest.mark.slow
def test_a_coupled_solve_says_so_before_any_exact_method() -> None:
    seen: list[Progress] = []
    chunks = Chunks.from_arrays(src=[0] * len(SIZES), dst=[1] * len(SIZES), size=SIZES, nodes=2)
    within = Fraction(5, 10_000)
    solved = solve(Fabric.uniform(2, 8), chunks, 20, tolerance=within, report=seen.append)
    assert "cap weights" in [progress.stage for progress in seen]
    assert solved.gap <= within
    assert solved.certificate.check().ok
