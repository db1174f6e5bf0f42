"""Bounds on moves: beside every map of small layers, tried out."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.moves import CurvePoint, MovesBound, least_moves, moves_curve
from railopt.moe.placement.packing import balance
from railopt.moe.placement.repair import FewMoves, repaired_map
from railopt.moe.placement.replicate import rebalance

EXPERTS, GPUS, EACH = 4, 3, 2


def fullest(load: list[int], held: tuple[tuple[int, ...], ...]) -> Fraction:
    copies = [sum(e in gpu for gpu in held) for e in range(len(load))]
    return max(sum(Fraction(load[e], copies[e]) for e in gpu) for gpu in held)


def fewest(load: list[int], old: tuple[tuple[int, ...], ...], most: Fraction) -> int | None:
    """Moves of the best map within `most`, looking at all of them."""
    found = [
        sum(len(set(new) - set(was)) for new, was in zip(made, old, strict=True))
        for made in product(combinations(range(EXPERTS), EACH), repeat=GPUS)
        if {e for gpu in made for e in gpu} == set(range(EXPERTS)) and fullest(load, made) <= most
    ]
    return min(found, default=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_map_as_even_moves_fewer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps = [
        made
        for made in product(combinations(range(EXPERTS), EACH), repeat=GPUS)
        if {e for gpu in made for e in gpu} == set(range(EXPERTS))
    ]
    old = maps[int(rng.integers(len(maps)))]
    load = rng.integers(0, 40, EXPERTS).tolist()
    row = np.array(old, np.int32).ravel()
    for most in sorted({fullest(load, made) for made in maps}):
        bound, least = least_moves(np.array(load), row, GPUS, most), fewest(load, old, most)
        assert least is not None
        assert bound.moves <= least
        assert (bound.moves > 0) == (least > 0)
        assert bound.holds(np.array(load), row, GPUS, most)
        more = bound._replace(moves=least + 1)
        assert not more.holds(np.array(load), row, GPUS, most), "no witness shows what is not so"
    assert least_moves(np.array(load), row, GPUS, fullest(load, old)).moves == 0


def test_the_witness_says_why() -> None:
    old = np.array([0, 1, 2, 3, 0, 2], np.int32)
    few = least_moves(np.array([90, 0, 0, 0]), old, 3, Fraction(30))
    assert few == (1, {"kind": "copies", "experts": [[0, 2, 3]]})
    full = least_moves(np.array([10, 20, 10, 20]), old, 3, Fraction(22))
    assert full.moves == 1
    assert full.witness["gpus"] == [0, 1]
    with pytest.raises(InputError, match="expert 4 is in no slot"):
        least_moves(np.ones(5, np.int64), old, 3, Fraction(3))


def test_a_curve_of_moves_falls_and_is_bounded() -> None:
    rng = np.random.default_rng(4)
    load = rng.integers(1, 1000, (3, 32))
    old = rebalance(load, 48, 1, 1, 8)[0]
    later = (load * rng.uniform(0.5, 2, load.shape)).astype(np.int64)
    points = moves_curve(later, old, (48, 1, 1, 8))
    assert points[0]._replace(bounds=()) == CurvePoint(
        0, 0, 0, *(getattr(balance(later, old, 8), f)() for f in ("mean", "max"))
    )
    for one, more in pairwise(points):
        assert more.balance <= one.balance
        assert more.least <= more.moves <= 3 * more.budget
    assert points[-1].least > 0


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.05, 0.5])
def test_a_repair_is_even_enough_with_few_moves(drift: float) -> None:
    rng = np.random.default_rng(7)
    load = np.exp(rng.normal(size=(6, 128)))
    old = rebalance(load, 160, 1, 1, 16)[0]
    later = load * np.exp(drift * rng.normal(size=load.shape))
    made = rebalance(later, 160, 1, 1, 16, old, FewMoves(1.02, 1.02))[0]
    assert balance(later, made, 16).max() <= 1.02
    fresh = rebalance(later, 160, 1, 1, 16)[0]
    assert (made != old).sum() < (fresh != old).sum() / 3
    same = rebalance(later, 160, 1, 1, 16, old, FewMoves(stays=100.0))[0]
    np.testing.assert_array_equal(same, old)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 8])
def test_a_repair_keeps_groups_on_their_nodes(groups: int) -> None:
    rng = np.random.default_rng(8)
    load = np.exp(rng.normal(size=(4, 64)))
    old = rebalance(load, 80, groups, 4, 16)[0]
    later = load * np.exp(0.3 * rng.normal(size=load.shape))
    made = rebalance(later, 80, groups, 4, 16, old)[0]
    assert all(set(row.tolist()) == set(range(64)) for row in made)
    if groups > 1:
        node = np.repeat(np.arange(4), 20)
        for row in made:
            for group in range(groups):
                assert len(set(node[row // 8 == group].tolist())) == 1


def moved(new: np.ndarray, old: np.ndarray, gpus: int) -> np.ndarray:
    """Copies that a GPU did not hold before, int [layer]."""
    rows = (one.reshape(len(one), gpus, -1).tolist() for one in (new, old))
    return np.array(
        [
            sum(len(set(now) - set(was)) for now, was in zip(*layer, strict=True))
            for layer in zip(*rows, strict=True)
        ]
    )


def grouped(drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Loads that changed, and the map before, whose groups can't be even on 4 nodes."""
    rng = np.random.default_rng(8)
    load = np.exp(rng.normal(size=(4, 64)))
    old = rebalance(load, 80, 8, 4, 16)[0]
    return load * np.exp(drift * rng.normal(size=load.shape)), old


def test_groups_that_nodes_can_not_even_out_are_not_packed_anew() -> None:
    later, old = grouped(0.03)
    assert balance(later, old, 16).mean() > 1.05
    made = rebalance(later, 80, 8, 4, 16, old)[0]
    assert moved(made, old, 16).mean() <= 4
    later[:, :8] *= 20  # a new packing is evener by more than 1.05: groups change their nodes
    fresh, made = rebalance(later, 80, 8, 4, 16)[0], rebalance(later, 80, 8, 4, 16, old)[0]
    assert np.all(balance(later, made, 16) <= 1.05 * balance(later, fresh, 16))


def test_layers_with_groups_that_are_even_stay() -> None:
    load = np.ones((2, 64))
    old = rebalance(load, 64, 8, 4, 16)[0]
    np.testing.assert_array_equal(rebalance(load, 64, 8, 4, 16, old)[0], old)


def test_a_budget_goes_to_the_fullest_node() -> None:
    later, old = grouped(0.3)
    kept = balance(later, old, 16)
    made = rebalance(later, 80, 8, 4, 16, old, FewMoves(moves=2))[0]
    assert np.all(moved(made, old, 16) <= 2)
    assert np.all(balance(later, made, 16) < kept)
    mixed = np.tile(np.arange(80, dtype=np.int32) % 64, (4, 1))  # groups on several nodes
    made = rebalance(later, 80, 8, 4, 16, mixed, FewMoves(moves=6))[0]
    assert np.all(moved(made, mixed, 16) <= 6)
    assert np.all(balance(later, made, 16) < balance(later, mixed, 16))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_budget_holds_where_a_gpu_has_twins(groups: int) -> None:
    rng = np.random.default_rng(2)
    load = rng.pareto(1.2, (6, 16)) + 0.1
    old = np.tile(np.r_[:8, 0, 1, 0, 0, 8:16, 8, 8, 9, 9].astype(np.int32), (6, 1))
    kept = balance(load, old, 4)
    for budget in (0, 1, 2, 5, 24):
        made = rebalance(load, 24, groups, 2, 4, old, FewMoves(moves=budget))[0]
        assert np.all(moved(made, old, 4) <= budget)
        assert np.all(balance(load, made, 4) <= kept)
    assert balance(load, made, 4).mean() < kept.mean()
    same = rebalance(load, 24, groups, 2, 4, old, FewMoves(stays=100.0))[0]
    np.testing.assert_array_equal(same, old)


@pytest.mark.parametrize(
    ("few", "message"),
    [
        ({"tolerance": 0.9}, "tolerance = 0.9"),
        ({"stays": float("nan")}, "stays = nan"),
        ({"moves": -1}, "moves = -1"),
    ],
)
def test_aims_that_are_none_are_refused(few: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FewMoves(**few)


@pytest.mark.parametrize("text", ["tolerance=0.9", "moves=1.5", "moves=4,stays=2", "budget=3"])
def test_repairs_are_read_from_text(text: str) -> None:
    assert FewMoves.parse("", "X") == FewMoves()
    assert FewMoves.parse("tolerance=1.1,stays=1.2", "X") == FewMoves(1.1, 1.2)
    assert FewMoves.parse("moves=3", "X") == FewMoves(moves=3)
    with pytest.raises(InputError):
        FewMoves.parse(text, "X")


@pytest.mark.parametrize(
    ("old", "message"),
    [
        (np.zeros((1, 11), int), "the map before has shape"),
        (np.zeros((1, 12)), "type float64"),
        (np.full((1, 12), 10**8), "expected 0 to 7"),
        (np.full((1, 12), -2), "expected 0 to 7"),
    ],
)
def test_maps_that_are_none_are_refused(old: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rebalance(np.ones((1, 8)), 12, 1, 1, 4, old)


@pytest.mark.parametrize(
    ("load", "moves", "experts"),
    [
        ([12, 5, 5, 5], 2, [[-4, 1, 2], [0, 1, 2]]),  # expert 0 under two numbers
        ([6, 6, 5, 5], 1, [[0, 1, 1.5], [1, 1, 1.5]]),
        ([12, 5, 5, 5], 1, [[4, 1, 2]]),
    ],
)
def test_forged_witnesses_show_nothing(load: list[int], moves: int, experts: list[Any]) -> None:
    row = np.arange(4, dtype=np.int32)
    forged = MovesBound(moves, {"kind": "copies", "experts": experts})
    assert not forged.holds(np.array(load), row, 4, Fraction(10))
    true = MovesBound(1, {"kind": "copies", "experts": [[0, 1, 2]]})
    assert true.holds(np.array([12, 5, 5, 5]), row, 4, Fraction(10))


def test_a_layer_within_the_tolerance_stays() -> None:
    load = np.array([[2.98, 3.05, 1.16, 1.78, 0.62, 2.33]])
    old = np.array([[3, 0, 0, 1, 2, 5, 4, 1]], np.int32)
    assert (repaired_map(load, old, (8, 1, 1, 2), FewMoves(1.3, 1.05)) == old).all()
