"""Jobs too large to share a rail are set apart, and what is found of the others holds for all."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from math import lcm

import numpy as np

from railopt.checker import WORK, Meter, prove_local
from railopt.solver.local import apart, steps
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.solve import solve_local
from railopt.solver.local.state import State
from tests.bench.solver_instances import instance


def least_time(sizes: list[int], slowness: list[int]) -> int:
    """The optimum, by trying all assignments."""
    best = sum(sizes) * max(slowness)
    for rails in product(range(len(slowness)), repeat=len(sizes)):
        loads = [0] * len(slowness)
        for size, rail in zip(sizes, rails, strict=True):
            loads[rail] += size
        best = min(best, max(load * ticks for load, ticks in zip(loads, slowness, strict=True)))
    return best


def test_what_is_known_of_the_others_holds_for_all() -> None:
    rng, kinds = np.random.default_rng(4), Counter[str]()
    for turn in range(300):
        speeds = sorted(rng.choice([[1, 1, 1], [2, 1, 1], [3, 2, 2]]).tolist(), reverse=True)
        common = lcm(*speeds)
        slowness = [common // speed for speed in speeds]
        small = rng.integers(3, 12, 6)
        large = int(small.sum() * speeds[0] / sum(speeds) * rng.uniform(0.9, 1.6))
        sizes = np.sort(np.append(small, large))[::-1].copy()
        state = State(sizes, slowness, 1, Deadline.after(600), 0)
        steps.first_bound_and_value(state)
        alone, before = apart.too_large(state), state.bound
        if not alone:
            continue
        others = apart.others_of(state, alone)
        steps.search(others, steps.BY_WEIGHTS if turn % 2 else steps.STEPS)
        apart.take(state, others, alone)
        assert state.bound <= least_time(sizes.tolist(), slowness) <= state.value, sizes
        if state.bound > before:
            kinds[state.witness["kind"]] += 1
            bound = Fraction(state.bound, common)
            prove_local(sizes.tolist(), speeds, bound, state.witness, Meter(WORK))
    assert kinds["dual"] > 3, kinds
    assert kinds["cover"] > 1, kinds


def test_no_job_is_set_apart_where_that_leaves_no_rail_or_no_job() -> None:
    for sizes, rails in (([9, 9], 2), ([9, 9, 1], 2), ([9], 3), ([5, 5, 5], 2)):
        state = State(np.array(sizes), [1] * rails, 1, Deadline.after(600), 0)
        steps.first_bound_and_value(state)
        assert apart.too_large(state) < rails
        assert solve_local(sizes, rails, limit_s=600).proved


def test_a_job_that_wastes_most_of_the_slack_does_not_hide_what_the_others_leave() -> None:
    """One job leaves less than the smallest on its rail: with it there are many loads to look at,
    without it few.
    """
    rng = np.random.default_rng(0)
    others = rng.integers(200_000, 1_500_000, 21)
    mean = int(others.sum()) // 5
    found = solve_local([*others.tolist(), mean - 100_000], 6, limit_s=600)
    alone = solve_local(others, 5, limit_s=600)
    assert found.proved
    assert found.value == alone.value


def test_what_a_job_alone_wastes_is_a_bound_whatever_becomes_of_the_others() -> None:
    """The largest job has its rail alone, or with the smallest too much: 3e-4 above the mean."""
    sizes = np.sort(instance(16, 5, "lognormal", 1338310335))[::-1].astype(np.int64)
    chosen = (steps.constructions, steps.large_jobs_apart)
    found = solve_local(sizes, 16, limit_s=3, chosen=chosen).bracket
    wasted = Fraction(int(sizes[1:].sum()), 15) - Fraction(int(sizes.sum()), 16)
    assert wasted > 0
    assert found.bound >= Fraction(int(sizes[1:].sum()), 15)
