"""What each mechanism is worth: what is simulated, what is bounded, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from railopt.base.dice import Dice
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.moe.found_placement import find_placement, split_over
from railopt.moe.joint import Demand, NodePrices
from railopt.moe.routing.sources import trace_from
from railopt.moe.routing.trace import Trace
from railopt.moe.weigh import (
    ANY_COPIES,
    ANY_PLACEMENT,
    ANY_RAILS,
    ANY_SPLIT,
    LEFT_OUT,
    MECHANISMS,
    Farthest,
    LayerBound,
    Weighed,
    WeighQuestion,
    Worth,
    in_domains,
    near_first,
    weakness,
    weigh,
)

FABRIC = Fabric.uniform(2, 2, "100Gb/s", gpus=2)
QUICK = {"model": "mixtral-8x7b", "steps": 1}


def drifting(steps: int = 6) -> Trace:
    return trace_from(f"drift:steps={steps},experts=64", ranks=4)


@pytest.mark.parametrize("seed", range(8))
def test_near_first_keeps_both_sums_and_prefers_near(seed: int) -> None:
    dice = Dice(seed, "near")
    gpus, devices, experts = 2, 6, 5
    counts = dice.below(20, (devices, experts))
    tokens = np.zeros((devices, experts), np.int64)
    for expert in range(experts):
        left = int(counts[:, expert].sum())
        cuts = np.sort(dice.below(left + 1, devices - 1))
        tokens[:, expert] = np.diff([0, *cuts.tolist(), left])
    routed = near_first(counts, tokens, gpus)
    assert routed.min() >= 0
    assert np.array_equal(routed.sum(axis=2), counts)
    assert np.array_equal(routed.sum(axis=0).T, tokens)
    own = routed[np.arange(devices), :, np.arange(devices)]
    assert np.array_equal(own, np.minimum(counts, tokens))
    node = np.arange(devices) // gpus
    inside = (routed * (node[:, None] == node)[:, None, :]).sum()
    sides = [each.reshape(-1, gpus, experts).sum(axis=1) for each in (counts, tokens)]
    assert inside == np.minimum(*sides).sum()


def test_domains_hold_their_nodes_experts() -> None:
    home = np.array([[0, 1, 2, 3, 4, 5, 6, 7]], np.int32)
    pairs = in_domains(home, 4, 2, 2)[0]
    assert pairs[0].tolist() == [True, False, True, False, False, False, False, False]
    assert pairs[7].tolist() == [False, False, False, False, False, True, False, True]
    assert np.array_equal(in_domains(home, 4, 2, 1)[0], np.eye(8, dtype=bool))


@pytest.mark.slow
def test_every_row_is_above_its_bound_and_the_last() -> None:
    found = weigh(drifting(), FABRIC, WeighQuestion(**QUICK))
    assert [row.added for row in found.rows] == ["", *MECHANISMS]
    for row in found.rows:
        assert row.bound_ps <= row.exchange_ps
        assert row.iteration_bound_ps <= row.iteration_ps
        if row.added != "experts":  # which is not held to the slots
            assert row.exchange_ps >= found.exchange_bound_ps <= row.bound_ps
            assert row.iteration_ps >= found.iteration_bound_ps
    assert found.found_ps >= found.exchange_bound_ps
    assert found.rows[1].exchange_ps <= found.rows[0].exchange_ps
    kinds = {row.added: (row.bounds, row.witness) for row in found.rows}
    assert kinds[""] == kinds["rails"] == kinds["stages"] == (ANY_RAILS, "none")
    assert kinds["placement"] == (ANY_SPLIT, "placement")
    assert kinds["split"] == (ANY_COPIES, "split")
    assert set(found.witness) == {row.witness for row in found.rows} | {ANY_PLACEMENT}
    every = found.certificates()
    for row in found.rows:
        mine = [each for name, each in every.items() if name.startswith(f"{row.witness}-")]
        assert int(sum(each.require().bound for each in mine) * 10**12) == row.bound_ps
    assert found.scored_on == (int(drifting().iterations[5]),)


@pytest.mark.slow
def test_tokens_that_stay_in_a_node_cross_scale_up() -> None:
    slow = replace(FABRIC, scaleup=10**8)
    found = weigh(drifting(), slow, WeighQuestion(order=("experts",), **QUICK))
    fast = weigh(drifting(), FABRIC, WeighQuestion(order=("experts",), **QUICK))
    assert found.rows[1].exchange_ps > 100 * fast.rows[1].exchange_ps > 0


@pytest.mark.slow
def test_stages_are_left_out_where_nics_are_shared() -> None:
    shared = Fabric.uniform(FABRIC.nodes, 1, gpus=FABRIC.gpus)
    found = weigh(drifting(), shared, WeighQuestion(**QUICK))
    assert "stages" not in [row.added for row in found.rows]


@pytest.mark.slow
def test_bounds_hold_where_nics_send_and_receive_at_different_rates() -> None:
    slow = replace(FABRIC, rx=FABRIC.rx // np.array([[1, 4], [2, 1]]))
    found = weigh(drifting(), slow, WeighQuestion(**QUICK))
    for row in found.rows:
        assert row.bound_ps <= row.exchange_ps
        if row.added != "experts":
            assert row.exchange_ps >= found.exchange_bound_ps


@pytest.mark.slow
def test_each_alone_is_beside_none() -> None:
    alone = weigh(
        drifting(), FABRIC, WeighQuestion(order=("split", "rails"), each_alone=True, **QUICK)
    )
    one = weigh(drifting(), FABRIC, WeighQuestion(order=("rails",), **QUICK))
    assert alone.rows[0] == one.rows[0]
    assert alone.rows[2].exchange_ps == one.rows[1].exchange_ps


@pytest.mark.slow
def test_no_plan_sees_what_it_is_scored_on() -> None:
    """Other tokens in the held-out step change no choice: only that step's own times."""
    trace = drifting()
    counts = trace.counts.copy()
    counts[-1] = counts[-1][:, :, ::-1]
    other = Trace(counts, trace.top_k, trace.tokens_per_rank, trace.model_dim, trace.iterations)
    question = WeighQuestion(order=("placement",), **QUICK)
    kept = [weigh(each, FABRIC, question).rows[1] for each in (trace, other)]
    assert kept[0].detail == kept[1].detail
    assert kept[0].kept == kept[1].kept


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"order": ("rails", "magic")}, "unknown mechanism 'magic'"),
        ({"order": ("rails", "rails")}, "named twice"),
        ({"spare": -1}, "spare"),
        ({"steps": 0}, "steps"),
    ],
)
def test_what_can_not_be_weighed_is_refused(question: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        WeighQuestion(**question)  # type: ignore[arg-type]


def test_a_trace_must_have_two_steps_and_fit() -> None:
    with pytest.raises(InputError, match="at least two"):
        weigh(drifting(1), FABRIC, WeighQuestion(**QUICK))
    with pytest.raises(InputError, match="held out"):
        weigh(drifting(3), FABRIC, WeighQuestion(held_out=3, **QUICK))
    with pytest.raises(InputError, match="4"):
        weigh(drifting(), Fabric.uniform(3, 2, "100Gb/s", gpus=2), WeighQuestion(**QUICK))


@pytest.mark.parametrize("seed", [1, 5])
def test_a_weak_bound_names_the_freedom_that_makes_it(seed: int) -> None:
    """Four nodes with a slot each, whose tokens want all experts."""
    one = np.ones(4, np.int64)
    demand = Demand(Dice(seed, "crowded").below(60, (4, 4)), one, 10 * one, 10 * one, 1)
    near = demand.relaxed()
    found = find_placement(demand, near.held)
    worst = max(
        (split_over(demand, np.eye(4, dtype=bool)[list(each)]) for each in permutations(range(4))),
        key=lambda each: each.seconds(demand),
    )
    cases = {
        "placement: it holds parts of": (near.prices, found),
        "placement: ": (near.prices, worst),
        "prices: one set": (NodePrices(one, 0 * one, 0 * one), found),
    }
    for said, (prices, placed) in cases.items():
        far = Farthest(LayerBound(3, 1, demand, prices), placed)
        parts = far.parts()
        assert sum(parts.values()) == far.distance()
        assert min(parts.values()) >= -far.distance() / 10**5  # prices are rounded
        assert max(parts, key=parts.__getitem__).startswith(said)
        assert "50% below the best found; in layer 1 of step 3, where" in weakness(5, 10, far)
        assert weakness(10, 11, far) == ""


def test_rows_come_back_from_json_and_say_why_they_are_left_out() -> None:
    rows = (
        Worth("", 200, 900, 150, 850, ANY_RAILS, True, 0.0),
        Worth("stages", 190, 880, 150, 850, ANY_RAILS, False, 0.0, "compact"),
        Worth("placement", 300, 990, 60, 700, ANY_SPLIT, False, 0.0, "copies near"),
    )
    found = Weighed(rows, 50, 100, 60, (3,), 2, False, "gpt", "weak")
    data = found.as_dict()
    hows = [row["how"] for row in data["rows"]]
    assert hows[1:] == [f"compact; {LEFT_OUT}", "copies near; loses, left out"]
    back = Weighed.from_dict(data)
    assert (back.rows, back.weakness) == (rows, "weak")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("experts", "placement"), ("experts", "placement", "split")])
def test_a_placement_after_experts_keeps_their_domains(order: tuple[str, ...]) -> None:
    """Each node holds every expert then, so that NICs carry nothing."""
    trace = trace_from("drift:steps=8,experts=16,top=2,tokens=16384", ranks=8)
    asked = WeighQuestion(model="deepseek-v2-lite", steps=1, order=order)
    found = weigh(trace, Fabric.uniform(2, 4, "5Gb/s", gpus=4), asked)
    assert all(row.bound_ps == 0 for row in found.rows[1:])
    assert all(row.exchange_ps < found.rows[0].exchange_ps / 2 for row in found.rows[1:])
