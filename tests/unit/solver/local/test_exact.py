"""Loads sifted by weight: those that a cover can have are all kept, and what is refuted is
impossible.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from railopt.base.arrays import Ints
from railopt.checker import Meter, Packing, check_certificate, refute
from railopt.solver.local import prices, steps
from railopt.solver.local.cover import FOUND, REFUTED
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.exact import Windows
from railopt.solver.local.lp import ConfigurationLP, rounded, start
from railopt.solver.local.solve import solve_local

SPEEDS = [4, 4, 2, 4, 1, 3]


def drawn(rng: np.random.Generator) -> tuple[Ints, Ints, dict[int, int]]:
    """(sizes, capacities of two fast rails and a slow one with little slack, the LP's prices of the
    sizes there: other weights sift little).
    """
    sizes = np.sort(rng.integers(100, 400, 9))[::-1].copy()
    mean = int(sizes.sum()) // 5 + int(rng.integers(1, 9))
    types, counts = np.unique(sizes, return_counts=True)
    loads = start(types, sizes, np.zeros(9, np.int64), 3)
    lp = ConfigurationLP(types, counts, np.array([2, 1]), loads)
    found = lp.optimum(np.array([2 * mean, mean]), Deadline.after(600))
    assert found is not None
    weights = dict(zip(types.tolist(), rounded(found[1], 10**4).tolist(), strict=True))
    return sizes, np.array([2 * mean, 2 * mean, mean]), weights


def sets_of(windows: Windows) -> Ints:
    """int64 [sets, types]: all sets of the jobs, one at least."""
    every = list(product(*(range(count + 1) for count in windows.counts.tolist())))
    return np.array([one for one in every if any(one)])


@pytest.mark.slow
def test_loads_are_sifted_as_by_looking_at_every_set() -> None:
    rng, sifted_out = np.random.default_rng(5), 0
    for _ in range(30):
        sizes, capacities, weights = drawn(rng)
        windows = Windows(sizes, capacities)
        plain = windows.count(capacities, 10**6)
        windows.sift(weights)
        sets, slack = sets_of(windows), int(capacities.sum() - sizes.sum())
        sums, weight = sets @ windows.types, sets @ windows.weights
        heaviest = {c: int(weight[sums <= c].max()) for c in capacities.tolist()}
        all_jobs = sum(weights[size] for size in sizes.tolist())
        spare = sum(heaviest[c] for c in capacities.tolist()) - all_jobs
        expected = sum(
            np.count_nonzero((sums >= c - slack) & (sums <= c) & (weight >= heaviest[c] - spare))
            for c in set(capacities.tolist())
        )
        assert windows.count(capacities, 10**6) == expected
        sifted_out += plain - expected
    assert sifted_out > 50


@pytest.mark.slow
def test_sifting_changes_no_decision_and_convinces_the_kernel() -> None:
    rng, seen = np.random.default_rng(6), {FOUND: 0, REFUTED: 0}
    for _ in range(60):
        sizes, capacities, weights = drawn(rng)
        windows = Windows(sizes, capacities)
        plain, _ = windows.decide(capacities, 10**6, 10**9)
        windows.sift(weights)
        status, assignment = windows.decide(capacities, 10**6, 10**9)
        assert status == plain
        seen[status] += 1
        if status == FOUND:
            loads = np.bincount(assignment, weights=sizes, minlength=3)
            assert (loads <= capacities).all()
        else:
            packing = Packing(sizes.tolist(), capacities.tolist(), 1)
            assert refute(packing, windows.witness(1), Meter(10**7)) == "cover"
    assert min(seen.values()) >= 10


def test_unequal_jobs_on_rails_of_four_speeds_are_settled_by_sifted_loads() -> None:
    """Four lognormal chunks a rail: the LP leaves a gap, which is closed over the few loads that
    its prices leave, without a dive.  Nor does the kernel look at all loads: that would take it
    328,000 steps, not 133,000.
    """
    sizes = np.exp(np.random.default_rng(8).normal(np.log(2**20), 1.0, 24)).astype(np.int64)
    chosen = (steps.constructions, prices.prices_at_the_value, prices.sifted_search)
    found = solve_local(sizes, speeds=SPEEDS, limit_s=600, chosen=chosen)
    assert found.closed
    assert found.witness["kind"] == "cover"
    assert len(found.witness["weights"]) == 24
    assert check_certificate(found.certificate(sizes, speeds=SPEEDS).as_dict(), work=230_000).ok
