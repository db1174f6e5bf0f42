"""Plans are scored on steps that they did not see, beside plain EPLB on the same steps."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.model.fabric import Fabric
from railopt.moe.assess import dimensions, scored, scored_map
from railopt.moe.comparison import compare
from railopt.moe.placement.packing import balance
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.replicate import rebalance
from railopt.moe.question import ExpertRoom, Fold, PlacementBefore, PlacementQuestion, StepChoice
from railopt.moe.routing.dispatch import RULES, split
from railopt.moe.routing.trace import Trace
from railopt.moe.routing.window import Window

FABRIC = Fabric.uniform(2, 2)
META = {"model": {"ffn": 64, "shared": 0}}


def drifting(steps: int = 16, layers: int = 2, experts: int = 16, seed: int = 0) -> Trace:
    """Popularity that wanders: the sum of all steps is a poor guess of the next."""
    rng = np.random.default_rng(seed)
    state, rows = rng.normal(size=(layers, experts)), []
    for _ in range(steps):
        state = 0.97 * state + 0.243 * rng.normal(size=state.shape)
        share = np.exp(state) / np.exp(state).sum(axis=1, keepdims=True)
        rows.append([rng.multinomial(800, p, 4) for p in share])
    return Trace(np.array(rows), 2, 400, 64, meta=META)


def test_a_plan_is_scored_on_what_comes_after_it() -> None:
    trace = drifting(8)
    assert StepChoice().folds(trace) == [Fold(range(6), range(6, 8))]
    rolling = StepChoice(held_out=3, rolling=2).folds(trace)
    assert rolling == [Fold(range(5), range(5, 7)), Fold(range(7), range(7, 8))]
    assert StepChoice(held_out=0).folds(trace) == [Fold(range(8), range(8))]
    assert StepChoice().folds(drifting(1)) == [Fold(range(1), range(1))]
    assert StepChoice(only=3).folds(trace) == [Fold(range(3, 4), range(3, 4))]


def replicated(counts: np.ndarray) -> Placement:
    phy2log = rebalance(counts.sum(axis=(0, 2)), 9, 1, 2, 4)[0]
    return Placement.from_phy2log(phy2log, 2, 2, counts.shape[3])


@pytest.mark.parametrize("rule", RULES)
def test_scores_are_those_of_the_split_but_for_whole_tokens(rule: str) -> None:
    counts = 840 * np.random.default_rng(1).integers(0, 9, (3, 1, 4, 6))
    placed = replicated(counts)
    for step, found in enumerate(scored(counts, placed, rule).ratio[:, 0]):
        shares = split(counts[step, 0], placed.holds[0], placed.home[0], 2, rule)
        load = shares.sum(axis=(0, 1))
        assert found == pytest.approx(load.max() / load.mean())
    if rule == "even":
        theirs = scored_map(counts, placed.phy2log(3), 4)
        full = Placement.from_phy2log(placed.phy2log(3), 2, 2, 6)
        np.testing.assert_allclose(theirs.ratio, scored(counts, full, rule).ratio)
        one = balance(counts[1].sum(axis=1), placed.phy2log(3), 4)
        np.testing.assert_allclose(theirs.ratio[1], one)


@pytest.mark.parametrize("ffn", [64, 1024])
def test_one_layer_alone_hides_no_transfers(ffn: int) -> None:
    """Copies of large experts do not pay there, and none are planned."""
    trace = drifting(4, layers=1)
    trace = Trace(trace.counts, 2, 400, 64, meta={"model": {"ffn": ffn, "shared": 0}})
    made = compare(trace, FABRIC, PlacementQuestion("pro-prophet", steps=StepChoice(only=-1)))
    before, after = (made.sides[name].timeline.total_ps for name in ("before", "after"))
    assert after < before if ffn == 64 else after == before


def test_layers_without_tokens_are_in_no_mean() -> None:
    """A dense layer in a recording is not one that is perfectly even."""
    counts = 840 * np.random.default_rng(1).integers(1, 9, (3, 2, 4, 6))
    placed = replicated(counts)
    counts[:, 1], counts[0] = 0, 0
    score = scored(counts, placed, "even")
    assert np.isnan(score.ratio).sum() == 4
    assert score.mean == pytest.approx(score.ratio[1:, 0].mean()) == score.worst > 1
    assert score.steps == (score.ratio[1:, 0].min(), score.ratio[1:, 0].max())
    assert set(scored(0 * counts, placed, "even").as_dict().values()) == {1.0}


def test_layers_without_tokens_move_nothing() -> None:
    trace = drifting(4)
    alone = Trace(trace.counts[:, :1], 2, 400, 64, meta=META)
    dense = Trace(trace.counts * np.array([1, 0])[:, None, None], 2, 400, 64, meta=META)
    one, two = (
        compare(t, FABRIC, PlacementQuestion("replicate", ExpertRoom(24))) for t in (alone, dense)
    )
    assert one.moves.new_copies == two.moves.new_copies > 0
    assert one.moves.least_new_copies == two.moves.least_new_copies
    np.testing.assert_array_equal(one.moves.traffic.bytes, two.moves.traffic.bytes)


def test_contiguous_weighs_no_step() -> None:
    assert compare(drifting(), FABRIC, PlacementQuestion("contiguous")).steps.decay == 1
    made = compare(drifting(), FABRIC, PlacementQuestion("replicate", ExpertRoom(24)))
    assert made.steps.decay < 1


def test_on_a_drifting_trace_replicate_beats_plain_eplb_on_the_same_steps() -> None:
    made = compare(
        drifting(), FABRIC, PlacementQuestion("replicate", ExpertRoom(24), StepChoice(rolling=1))
    )
    assert made.steps.replans == len(made.steps.scored_on) == 4
    assert made.steps.held_out
    assert made.steps.seen == list(range(16))
    ours, plain = made.scores["after"], made.scores["eplb"]
    assert (ours.ratio.mean(axis=0) <= plain.ratio.mean(axis=0)).all()
    assert ours.mean < 0.95 * plain.mean < made.scores["before"].mean
    sum_only = PlacementQuestion(
        "replicate", ExpertRoom(24), StepChoice(Window(decay=1.0), rolling=1)
    )
    assert compare(drifting(), FABRIC, sum_only).scores["after"].mean > ours.mean


def test_the_saved_placement_is_planned_on_all_steps_and_scores_are_of_unseen_ones() -> None:
    trace = drifting()
    made = compare(trace, FABRIC, PlacementQuestion("replicate", ExpertRoom(24)))
    assert made.steps.held_out
    assert (made.steps.seen, made.steps.scored_on) == (list(range(16)), [12, 13, 14, 15])
    every = compare(
        trace, FABRIC, PlacementQuestion("replicate", ExpertRoom(24), StepChoice(rolling=1))
    )
    np.testing.assert_array_equal(made.placed.placement.holds, every.placed.placement.holds)
    before = Trace(trace.counts[:12], 2, 400, 64, meta=META)
    judged = compare(before, FABRIC, PlacementQuestion("replicate", ExpertRoom(24)))
    unseen = scored(trace.counts[12:], judged.placed.placement, made.rule)
    np.testing.assert_array_equal(made.scores["after"].ratio, unseen.ratio)


@pytest.mark.slow
def test_planning_on_a_sum_is_planning_on_its_mean() -> None:
    one = drifting(1)
    trace = Trace(np.repeat(one.counts, 5, axis=0), 2, 400, 64, meta=META)
    for planner in ("pro-prophet", "shadow", "replicate"):
        several = compare(trace, FABRIC, PlacementQuestion(planner, ExpertRoom(24)))
        single = compare(
            trace, FABRIC, PlacementQuestion(planner, ExpertRoom(24), StepChoice(only=0))
        )
        np.testing.assert_array_equal(several.placed.placement.holds, single.placed.placement.holds)


def test_room_that_nobody_gave_is_one_slot_more_or_as_before() -> None:
    trace = drifting(4)
    for planner in ("pro-prophet", "shadow"):
        made = compare(trace, FABRIC, PlacementQuestion(planner))
        least = -(-trace.experts // 4)
        assert made.assumed is not None
        assert made.assumed.slots == least + 1
        assert made.placed.placement.holds.sum(axis=2).max() <= least + 1
        each = dimensions(trace, None).expert_bytes()
        assert made.assumed.bytes == (least + 1) * len(trace.layers) * each
    full = Placement.from_home(
        made.placed.placement.home, 2, 2, np.ones(made.placed.placement.holds.shape, bool)
    )
    again = compare(trace, FABRIC, PlacementQuestion("pro-prophet", before=PlacementBefore(full)))
    assert again.assumed is not None
    assert again.assumed.slots == trace.experts
    assert compare(trace, FABRIC, PlacementQuestion("contiguous")).assumed is None
