"""Plans for steps to come: EPLB's, mended, unless the steps seen speak for ours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from railopt.moe.placement import foreseen as module
from railopt.moe.placement.eplb import eplb, twins
from railopt.moe.placement.foreseen import AGED, CAUTION, TRIES, Sizes, foreseen, mended
from railopt.moe.placement.replicate import balance, rebalance
from railopt.moe.routing.window import WHOLE, Seen, Window, seen

SIZES = Sizes(16, 1, 1, 4)


def still(tokens: int, layers: int = 6, steps: int = 16) -> np.ndarray:
    """Popularity that stays, load [step, layer, expert]."""
    rng = np.random.default_rng(7)
    share = rng.dirichlet(np.full(12, 0.8), layers)
    return np.stack([[rng.multinomial(tokens, p) for p in share] for _ in range(steps)])


def shown(load: np.ndarray, ahead: int, window: Window = WHOLE) -> Seen:
    return seen(load[:, :, None], window, ahead)


def test_where_steps_are_noise_the_plan_is_eplb_s_to_the_slot() -> None:
    load = still(200)
    made, ours = foreseen(shown(load, 4, Window(decay=1.0)), SIZES)
    plain = eplb(load.sum(axis=0), *SIZES)
    assert not ours.any()
    apart = np.array([twins(row[None], 4) > 0 for row in plain])
    assert 0 < apart.sum() < len(apart), "layers of both kinds"
    np.testing.assert_array_equal(made[~apart], plain[~apart])
    assert twins(made, 4) == 0


def test_where_steps_are_all_alike_the_evener_plan_is_taken() -> None:
    load = np.repeat(still(10**6, steps=1), 8, axis=0)
    made, taken = foreseen(shown(load, 2), SIZES)
    ours, plain = rebalance(load[0], *SIZES, tries=TRIES)[0], eplb(load[0], *SIZES)
    lower = balance(load[0], ours, 4) <= balance(load[0], plain, 4)
    assert lower.sum() > 3
    assert taken.tolist() == lower.tolist()
    np.testing.assert_array_equal(made[lower], ours[lower])


def test_a_plan_for_what_it_saw_and_one_that_eplb_has_not_are_ours() -> None:
    load = still(200)
    sizes = Sizes(18, 1, 1, 4)
    for steps, ahead, size in ((load, 0, SIZES), (load, 4, sizes), (load[:1], 4, SIZES)):
        made, ours = foreseen(shown(steps, ahead), size)
        assert ours.all()
        np.testing.assert_array_equal(made, rebalance(steps.sum(axis=0), *size, tries=TRIES)[0])


def drifting(jump: int, seed: int) -> np.ndarray:
    """Four layers whose popular experts change every `jump` steps, load [24, 4, 12]."""
    rng = np.random.default_rng(seed)
    shares = [rng.dirichlet(np.ones(12), 4) for _ in range(24 // jump)]
    return np.stack([[rng.multinomial(10**5, p) for p in s] for s in shares for _ in range(jump)])


def test_a_forecast_serves_several_steps_only_where_it_has_before() -> None:
    lasting = np.concatenate([drifting(24, 4)[:8], drifting(24, 3)[8:]])
    for load, pays in ((lasting, True), (drifting(1, 3), False)):
        sees = shown(load, 6)._replace(decay=np.full(4, 0.5))
        drifts = sees.decay < 1
        assert module._forecast_pays(sees, drifts, SIZES) is pays
        plain = eplb(load.sum(axis=0), *SIZES)
        mends = np.stack([mended(plain[k], load[:, k], AGED, SIZES) for k in range(4)])
        made, ours = foreseen(sees, SIZES)
        assert (made == mends).all() == (not pays)
        assert (ours == pays).all()
        assert module._forecast_pays(sees._replace(ahead=1), drifts, SIZES), "tried already"
        asked = sees._replace(window=Window(decay=0.5))
        assert module._forecast_pays(asked, drifts, SIZES), "asked for"


def loss(slots: np.ndarray, plain: np.ndarray, load: np.ndarray, aged: float) -> float:
    """What a mend is chosen by, by its definition; steps of equally many tokens."""
    weight = aged ** np.arange(len(load) - 1, -1, -1)
    weight = weight / weight.sum()
    before, after = (
        np.array([balance(step[None], p[None], 4)[0] for step in load]) for p in (plain, slots)
    )
    mean = weight @ (after - before)
    spread = weight @ (after - before - mean) ** 2
    return float(mean + CAUTION * np.sqrt(spread * (weight**2).sum()))


@pytest.mark.parametrize("aged", [1.0, AGED])
def test_no_other_mend_of_one_pair_of_twins_loses_less(aged: float) -> None:
    """Brute force: every exchange, and every copy given to another expert."""
    load = still(200, layers=24)
    plain = eplb(load.sum(axis=0), *SIZES)
    tried = [layer for layer, row in enumerate(plain) if twins(row[None], 4) == 1]
    assert len(tried) > 2
    for layer in tried:
        row, steps = plain[layer], load[:, layer]
        others = []
        for s, t in itertools.combinations(range(16), 2):
            other = row.copy()
            other[[s, t]] = other[[t, s]]
            others.append(other)
        pair = [s for s in range(16) if (row[s // 4 * 4 : s // 4 * 4 + 4] == row[s]).sum() > 1]
        for s, e in itertools.product(pair, range(12)):
            other = row.copy()
            other[s] = e
            others.append(other)
        whole = [o for o in others if not twins(o[None], 4)]
        least = min(loss(o, row, steps, aged) for o in whole)
        assert loss(mended(row, steps, aged, SIZES), row, steps, aged) == pytest.approx(least)


@pytest.mark.parametrize("sizes", [Sizes(32, 4, 2, 8), Sizes(64, 1, 1, 16), Sizes(48, 1, 2, 4)])
def test_mended_plans_keep_every_expert_and_their_nodes(sizes: Sizes) -> None:
    rng = np.random.default_rng(5)
    load = rng.integers(0, 3, (3, 30, 12)) * rng.integers(0, 900, (3, 30, 12))
    load[:, 0] = 0  # a layer without tokens
    plain = eplb(load.sum(axis=0), *sizes)
    assert twins(plain, sizes.gpus) > 0
    made = np.stack([mended(plain[k], load[:, k], 1.0, sizes) for k in range(30)])
    assert twins(made, sizes.gpus) == 0
    assert all(len(set(row.tolist())) == 12 for row in made)
    if sizes.groups > 1:
        for row, old in zip(made, plain, strict=True):
            assert set(row[:16].tolist()) == set(old[:16].tolist()), "the experts of a node"


def test_more_copies_than_a_node_takes_fall_back_to_the_global_policy() -> None:
    made = rebalance(np.arange(1.0, 9.0)[None], 32, 2, 2, 4)[0]
    assert twins(made, 4) == 0
    np.testing.assert_array_equal(made, rebalance(np.arange(1.0, 9.0)[None], 32, 1, 1, 4)[0])
