"""Rails filled to the last unit."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from railopt.base.arrays import Ints
from railopt.base.kernels import kernel
from railopt.solver.local import fill, steps, subsets
from railopt.solver.local.filling import beside_caps, closer, perfect, pool_width
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import constructions, far_from_the_bound, single_jobs
from railopt.solver.local.values import loads_of
from tests.bench.solver_instances import instance


def four_jobs_a_rail(seed: Any) -> Ints:
    """A hundred sizes of up to 10,000, for 25 rails."""
    sizes = np.sort(np.random.default_rng(seed).integers(1, 10_001, 100))[::-1]
    return np.ascontiguousarray(sizes, dtype=np.int64)


def filling_of(sizes: Ints, keep: int) -> fill.Filling:
    capacities = np.full(25, -(-int(sizes.sum()) // 25))
    subsets.seeded(0)
    return fill.Filling(sizes, capacities, keep, pool_width(sizes), True, 0)


@pytest.mark.parametrize("seed", [4, 6, 10])
def test_four_jobs_a_rail_are_filled_with_three_where_three_do(seed: int) -> None:
    """Loads of three jobs leave the last rails enough of them; with the largest job left set on
    every rail, a hundred attempts found none of these assignments.
    """
    filling = filling_of(four_jobs_a_rail(seed), 8)
    assignment = np.zeros(100, np.int64)
    assert any(
        fill.fill_up(filling, assignment) and fill.fit(filling, 0, assignment) for _ in range(100)
    )
    assert (loads_of(filling.sizes, assignment, 25) <= filling.capacities).all()


@pytest.mark.parametrize("seed", [1881242362, 1172293304, 1273864014])
def test_walks_find_what_fillings_do_not(seed: int) -> None:
    """At most one unit is to spare; two hundred fillings alone find none of these."""
    filling = filling_of(four_jobs_a_rail([0, 10000, 25, 100, seed]), 4)
    assignment = np.zeros(100, np.int64)
    for _ in range(200):
        assert not (fill.fill_up(filling, assignment) and fill.fit(filling, 0, assignment))
    assert any(
        fill.fill_up(filling, assignment) and fill.fit(filling, 400, assignment) for _ in range(40)
    )
    assert (loads_of(filling.sizes, assignment, 25) <= filling.capacities).all()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cut_traffic_is_filled_beside_its_caps(seed: int) -> None:
    """114 of 160 jobs are caps, and 5 units are to spare on 16 rails: pairs and triples of the
    others, and as many caps as they leave room for, leave enough of them to the last five rails.
    """
    sizes = instance(16, 10.0, "moe-cut", 2045768009) // 8192
    cap, kept = beside_caps(sizes, 16)
    assert (cap, int((sizes == cap).sum())) == (512, 114)
    assert 5 in kept
    subsets.seeded(seed)
    capacities, found = np.full(16, -(-int(sizes.sum()) // 16)), np.zeros(160, np.int64)
    filling = fill.Filling(sizes, capacities, 5, pool_width(sizes), False, cap)
    filled = 0
    for _ in range(1000):
        if fill.fill_up(filling, found):
            filled += 1
            assert ((found >= 0) & (sizes < cap)).sum() < 3 * 11
            if fill.fit(filling, 0, found):
                break
    assert filled > 0
    assert (loads_of(sizes, found, 16) <= capacities).all()


def test_what_is_hardly_cut_is_not_filled_beside_caps() -> None:
    assert beside_caps(instance(16, 10.0, "u6", 1), 16) == (0, [])
    assert beside_caps(np.array([9, 9, 9, 5, 4, 1]), 4) == (0, [])


@pytest.mark.parametrize("seed", [1985669274, 238338232])  # not solved in a second
def test_a_walk_goes_on_from_turn_to_turn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filling that has begun a walk stays the one that it goes on from, and the longer it lasts
    the more jobs are left to the search.
    """
    left: dict[int, list[int]] = {}

    def fit(filling: fill.Filling, walks: int, assignment: Ints) -> bool:
        found = original(filling, walks, assignment)
        if walks and not found:
            left.setdefault(filling.keep, []).append(int((assignment < 0).sum()))
        return found

    original = fill.fit
    monkeypatch.setattr(fill, "fit", fit)
    solve_local(
        four_jobs_a_rail([0, 10000, 25, 100, seed]),
        25,
        limit_s=60,
        chosen=(constructions, lambda state: perfect(state, 1.0)),
    )
    assert left
    for counts in left.values():
        assert counts == sorted(counts)


def test_a_walk_that_can_not_move_gives_way_to_another_filling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rails of two jobs have none to exchange: to search them again would find nothing else."""
    begun: dict[int, list[tuple[int, ...]]] = {}

    def fit(filling: fill.Filling, walks: int, assignment: Ints) -> bool:
        if walks:
            begun.setdefault(filling.keep, []).append(tuple(assignment))
        return original(filling, walks, assignment)

    original = fill.fit
    monkeypatch.setattr(fill, "fit", fit)
    sizes = np.sort(np.random.default_rng(2).integers(50, 201, 50))[::-1].astype(np.int64)
    chosen = (constructions, lambda state: perfect(state, 1.0))
    solve_local(sizes, 20, limit_s=60, chosen=chosen)
    assert any(len(fillings) > 1 for fillings in begun.values())
    for fillings in begun.values():
        assert all(last != now for last, now in pairwise(fillings))


@kernel
def exchanges(filling: fill.Filling, turns: int, assignment: Ints) -> Ints:
    """Of each turn: what `exchange` said, how many jobs changed, and how many stayed marked."""
    scratch, said = fill.scratch_of(filling), np.zeros((turns, 3), np.int64)
    filled = len(filling.capacities) - filling.keep
    for turn in range(turns):
        before = assignment.copy()
        said[turn, 0] = fill.exchange(filling, scratch, turn % filled, assignment)
        said[turn, 1] = (assignment != before).sum()
        said[turn, 2] = scratch.taken.sum()
    return said


def test_an_exchange_says_whether_it_changed_anything() -> None:
    filling, assignment = filling_of(four_jobs_a_rail(7), 5), np.zeros(100, np.int64)
    assert fill.fill_up(filling, assignment)
    said, jobs, marked = exchanges(filling, 400, assignment).T
    assert set(said) == {0, 1}
    assert (said == (jobs > 0)).all()
    assert not marked.any()


@pytest.mark.parametrize("keep", [3, 5, 8])
@pytest.mark.parametrize("kind", ["four", "six", "unequal"])
def test_a_walk_leaves_the_loads_of_filled_rails(keep: int, kind: str) -> None:
    sizes = four_jobs_a_rail(7) if kind != "six" else four_jobs_a_rail(7)[:90]
    filling = filling_of(sizes, keep)
    if kind == "six":
        filling = filling._replace(capacities=np.full(15, -(-int(sizes.sum()) // 15) + 2))
    elif kind == "unequal":
        speeds = np.array([3] * 10 + [2] * 15)
        filling = filling._replace(capacities=int(sizes.sum()) * speeds // speeds.sum() + 3)
    rails = len(filling.capacities)
    before, after = np.zeros((2, len(sizes)), np.int64)
    assert any(fill.fill_up(filling, before) for _ in range(100))
    after[:] = before
    moved = 0
    for _ in range(100):
        if fill.fit(filling, 1, after):
            assert (loads_of(sizes, after, rails) <= filling.capacities).all()
            break
        for rail in range(rails - keep):
            assert sizes[after == rail].sum() == sizes[before == rail].sum()
            assert np.count_nonzero(after == rail) <= np.count_nonzero(before == rail)
        assert after.max() < rails - keep
        moved += int(np.count_nonzero(after != before))
    else:
        assert moved > 0


def test_what_is_open_is_halved_and_halved_again() -> None:
    """80 jobs of up to a million on 16 rails: hardly to be proved, but close to the bound."""
    sizes = np.sort(np.random.default_rng(5).integers(1, 10**6 + 1, 80))[::-1].astype(np.int64)
    open_after = [
        outcome.bracket.value - outcome.bracket.bound
        for outcome in (
            solve_local(sizes, 16, limit_s=60, chosen=chosen)
            for chosen in ((constructions,), (constructions, lambda state: closer(state, 2.0)))
        )
    ]
    assert 0 < 8 * open_after[1] < open_after[0]


def test_where_halving_finds_nothing_times_near_the_bound_are_tried() -> None:
    """79 lognormal jobs on 15 rails: in between, rails have too many loads to look through."""
    sizes = np.sort(instance(16, 5, "lognormal", 1035601292))[::-1][1:].astype(np.int64)
    chosen = (constructions, single_jobs, lambda state: closer(state, 4.0))
    found = solve_local(sizes, 15, limit_s=60, chosen=chosen).bracket
    assert found.gap < Fraction(1, 20_000)  # 1/3,400 before


def test_assignments_far_from_the_bound_are_bettered(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 jobs of up to 10,000 on 16 rails of four speeds.  With the first assignment, some per cent
    above the bound, all the time may go into excluding what lies between.
    """
    monkeypatch.setattr(steps, "CLOSER_S", 2.0)
    sizes = np.sort(np.random.default_rng(3).integers(1, 10_001, 40))[::-1].astype(np.int64)
    speeds = [4, 4, 2, 4, 1, 4, 3, 4] * 2
    before, after = (
        solve_local(sizes, speeds=speeds, limit_s=60, chosen=chosen).bracket
        for chosen in ((constructions,), (constructions, far_from_the_bound))
    )
    assert before.value > before.bound * Fraction(201, 200)
    assert after.value < before.value
