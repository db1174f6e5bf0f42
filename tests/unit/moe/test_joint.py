"""The bound on any placement is never above what the best placement takes, all of them tried."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from railopt.base.dice import Dice
from railopt.base.errors import InputError
from railopt.checker import check_certificate
from railopt.moe.found_placement import find_placement
from railopt.moe.joint import Demand, NodePrices


def drawn(seed: int) -> Demand:
    """Two or three nodes, two to four experts, slots for all of them and a few more."""
    dice = Dice(seed, "joint")
    nodes, experts = 2 + int(dice.below(2)[0]), 2 + int(dice.below(3)[0])
    tokens = dice.below(40, (nodes, experts)) * dice.below(3, (nodes, experts))
    slots = np.full(nodes, -(-experts // nodes)) + dice.below(2, nodes)
    rates = [np.array([100, 50, 25])[dice.below(3, nodes)] for _ in range(2)]
    return Demand(tokens, slots, *rates, token_bytes=8)


def least_time(demand: Demand, holds: np.ndarray) -> float:
    """Seconds of the best split over given copies: a linear program written out in full."""
    nodes, experts = demand.tokens.shape
    ways = [
        (a, e, b)
        for a, e, b in product(range(nodes), range(experts), range(nodes))
        if holds[b, e] and demand.tokens[a, e]
    ]
    needs = [(a, e) for a, e in product(range(nodes), range(experts)) if demand.tokens[a, e]]
    limits = np.zeros((2 * nodes, len(ways) + 1))
    for place, (a, _, b) in enumerate(ways):
        if a != b:
            limits[a, place] = limits[nodes + b, place] = demand.token_bytes
    limits[:, -1] = [-rate for rates in (demand.tx, demand.rx) for rate in rates]
    met = [[float((a, e) == need) for a, e, _ in ways] + [0.0] for need in needs]
    made = linprog(
        [0.0] * len(ways) + [1.0],
        A_ub=limits,
        b_ub=np.zeros(2 * nodes),
        A_eq=met or None,
        b_eq=[demand.tokens[need] for need in needs] or None,
    )
    assert made.status == 0
    return float(made.fun)


def placements(demand: Demand) -> list[np.ndarray]:
    """Every way to hold all experts: the copies that are there, and others within the slots."""
    nodes, experts = demand.tokens.shape
    found = []
    for bits in product([False, True], repeat=nodes * experts):
        holds = np.array(bits).reshape(nodes, experts)
        new = holds & ~demand.held
        if holds.any(axis=0).all() and (new.sum(axis=1) <= demand.slots).all():
            found.append(holds | demand.held)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_placement_is_below_the_bound(seed: int) -> None:
    demand = drawn(seed)
    every = placements(demand)
    times = [least_time(demand, holds) for holds in every]
    prices = demand.prices()
    bound = demand.bound(prices)
    assert float(bound) <= min(times) * (1 + 1e-9)
    assert bound == demand.bound(prices)
    dice = Dice(seed, "any prices")
    for _ in range(20):
        free = NodePrices(*(dice.below(9, len(demand.slots)) for _ in range(3)))
        if free.recv.any() or free.send.any():
            assert float(demand.bound(free)) <= min(times) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_the_bound_of_copies_as_given_is_their_best_split(seed: int) -> None:
    demand = drawn(seed)
    for holds in placements(demand)[::7]:
        given, least = demand.holding(holds, 0 * demand.slots), least_time(demand, holds)
        prices = given.prices()
        bound = given.bound(prices)
        assert float(bound) == pytest.approx(least, rel=1e-4, abs=1e-12)
        assert given.certificate(prices).require().bound == bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_copies_beside_those_that_are_there_are_below_the_bound(seed: int) -> None:
    demand = drawn(seed)
    dice = Dice(seed, "there")
    held = placements(demand)[int(dice.below(len(placements(demand)))[0])]
    some = demand.holding(held, dice.below(2, len(demand.slots)))
    times = [least_time(some, holds) for holds in placements(some)]
    free = NodePrices(*(dice.below(9, len(demand.slots)) + 1 for _ in range(3)))
    for prices in (some.prices(), free):
        assert float(some.bound(prices)) <= min(times) * (1 + 1e-9)
        assert some.certificate(prices).require().bound == some.bound(prices)
    assert some.bound(some.prices()) >= demand.bound(demand.prices()) or some.slots.any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_what_is_found_can_be_done_and_is_near_the_best(seed: int) -> None:
    demand = drawn(seed)
    found = find_placement(demand, demand.relaxed().held)
    assert (found.holds.sum(axis=1) <= demand.slots).all()
    assert found.holds.any(axis=0).all()
    away = np.where(found.holds, 0, demand.tokens)
    assert np.array_equal(found.sent, away.sum(axis=1))
    assert (found.received.sum(), found.received.min() >= 0) == (away.sum(), True)
    best, mine = (
        min(least_time(demand, holds) for holds in placements(demand)),
        found.seconds(demand),
    )
    assert best * (1 - 1e-9) <= least_time(demand, found.holds)
    token = Fraction(demand.token_bytes, int(min(demand.tx.min(), demand.rx.min())))
    assert float(mine) >= best * (1 - 1e-9)
    assert float(mine - 2 * token) <= 1.25 * best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_the_way_back_is_bounded_by_the_same_prices(seed: int) -> None:
    """Tokens that A sends to B in the dispatch go from B to A in the combine."""
    demand = drawn(seed)
    back = Demand(demand.tokens, demand.slots, demand.rx, demand.tx, demand.token_bytes)
    times = [least_time(back, holds) for holds in placements(demand)]
    assert float(demand.back.bound(demand.prices())) <= min(times) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_certificate_holds_and_no_larger_one_does(seed: int) -> None:
    demand = drawn(seed)
    for way in (demand, demand.back):
        made = way.certificate(demand.prices())
        assert made.require().bound == way.bound(demand.prices())
        larger = replace(made, bound=made.bound + Fraction(1, 10**9))
        assert not larger.check().ok


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("problem", "slots", [1]),
        ("problem", "slots", [2, 1]),
        ("problem", "tokens", [[6, 6], [6, 5]]),
        ("problem", "tokens", [[6, 6]]),
        ("problem", "tokens", [[6], [6]]),
        ("problem", "rx", [4, 5]),
        ("problem", "token_bytes", 7),
        ("problem", "holds", [[1, 1], [0, 0]]),
        ("problem", "holds", [[0, 0]]),
        ("problem", "holds", [[0], [0]]),
        ("witness", "recv", [0, 0]),
        ("witness", "slot", [0, 0]),
        ("witness", "slot", [9, 6]),
        ("witness", "send", [-1, 0]),
        ("witness", "kind", "line"),
    ],
)
def test_a_changed_certificate_does_not_hold(where: str, name: str, value: Any) -> None:
    demand = Demand(np.full((2, 2), 6), np.array([1, 1]), *2 * [np.array([4, 4])], 8)
    prices = NodePrices(np.array([1, 1]), np.array([0, 0]), np.array([6, 6]))
    record = demand.certificate(prices).as_dict()
    assert (check_certificate(record).ok, record["claim"]["bound"]) == (True, "12")
    assert not check_certificate({**record, where: {**record[where], name: value}}).ok
    assert not check_certificate({**record, "assignment": [[0, 0, 6]]}).ok


def test_tokens_that_fit_their_node_cost_nothing() -> None:
    demand = Demand(np.array([[9, 0], [0, 9]]), np.array([1, 1]), *2 * [np.array([5, 5])], 8)
    assert demand.bound(demand.prices()) == 0


def test_one_slot_for_two_experts_that_both_want() -> None:
    """Each node wants both experts and holds one: 6 tokens of 8 bytes cross, 4 per second."""
    demand = Demand(np.full((2, 2), 6), np.array([1, 1]), *2 * [np.array([4, 4])], 8)
    assert demand.bound(demand.prices()) == Fraction(12)


def test_negative_prices_are_refused() -> None:
    one = np.array([1, 1])
    demand = Demand(np.full((2, 2), 6), one, 4 * one, 4 * one, 8)
    with pytest.raises(InputError, match="none negative"):
        demand.bound(NodePrices(one, one, np.array([-1, 0])))
    with pytest.raises(InputError, match="one that is not zero"):
        demand.bound(NodePrices(0 * one, 0 * one, one))
