"""Packings that are even on the newest steps, too."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.eplb import eplb, twins
from railopt.moe.placement.hedge import DECAY, PAYS, TRUST
from railopt.moe.placement.replicate import balance, rebalance

RNG = np.random.default_rng(0)
FORECAST = RNG.pareto(1.2, (3, 12)) + 0.1
RECENT = np.stack([FORECAST * RNG.lognormal(0, 0.7, FORECAST.shape) for _ in range(4)])
RECENT[:, 2] = 0  # a layer that stands still


def value(phy2log: np.ndarray, gpus: int, layer: int) -> float:
    """What is made small, by its definition."""
    ages = DECAY ** np.arange(3, -1, -1)
    row = phy2log[layer : layer + 1]
    past = [balance(step[layer : layer + 1], row, gpus)[0] for step in RECENT]
    now = balance(FORECAST[layer : layer + 1], row, gpus)[0]
    return float(TRUST * now + (1 - TRUST) * np.dot(ages, past) / ages.sum())


@pytest.mark.parametrize(("replicas", "groups", "nodes", "gpus"), [(16, 1, 1, 4), (20, 4, 2, 4)])
def test_the_mean_over_scenes_falls_and_the_rules_hold(
    replicas: int, groups: int, nodes: int, gpus: int
) -> None:
    plain = rebalance(FORECAST, replicas, groups, nodes, gpus)[0]
    made, where, count = rebalance(FORECAST, replicas, groups, nodes, gpus, RECENT)
    if nodes == 1:  # else each node's own mean is made small
        assert all(value(made, gpus, layer) < value(plain, gpus, layer) for layer in range(2))
    still = [balance(FORECAST[2:], plan[2:], gpus)[0] for plan in (made, plain)]
    assert still[0] <= still[1] * (1 + 1e-12)  # the forecast is all that counts there
    assert twins(made, gpus) == 0
    for layer, row in enumerate(made):
        assert np.bincount(row, minlength=12).tolist() == count[layer].tolist()
        assert count[layer].min() >= 1
        assert all((row[w[w >= 0]] == e).all() for e, w in enumerate(where[layer]))
        if nodes > 1:  # groups of three experts stay on one node each
            node = np.arange(replicas) // (replicas // nodes)
            assert all(len(set(node[row // 3 == g])) == 1 for g in range(4))


def test_no_single_change_is_left_that_pays() -> None:
    """Brute force: every exchange, and every copy given to another expert."""
    made = rebalance(FORECAST, 16, 1, 1, 4, RECENT)[0]
    owner = np.arange(16) // 4
    for layer in range(2):
        least = value(made, 4, layer) * PAYS
        tried = []
        for s, t in np.argwhere(owner[:, None] < owner[None, :]).tolist():
            other = made.copy()
            other[layer, [s, t]] = other[layer, [t, s]]
            tried.append(other)
        for s, e in np.ndindex(16, 12):
            other = made.copy()
            other[layer, s] = e
            tried.append(other)
        for other in tried:
            if len(set(other[layer].tolist())) == 12 and not twins(other[layer : layer + 1], 4):
                assert value(other, 4, layer) >= least * (1 - 1e-9)


def test_recent_steps_of_another_shape_are_refused() -> None:
    for wrong in (RECENT[0], RECENT[:, :2], -RECENT):
        with pytest.raises(InputError, match=r"recent steps of shape|at least 0"):
            rebalance(FORECAST, 16, 1, 1, 4, wrong)
    np.testing.assert_array_equal(
        rebalance(FORECAST, 16, 1, 1, 4, RECENT[:0])[0], rebalance(FORECAST, 16, 1, 1, 4)[0]
    )


def zipf(seed: int, experts: int, layers: int = 6) -> np.ndarray:
    """A few experts have most tokens."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(np.arange(1, experts + 1) ** -1.2) for _ in range(layers)])


@pytest.mark.parametrize(
    ("experts", "replicas", "gpus"), [(16, 24, 8), (64, 96, 32), (96, 128, 16)]
)
def test_very_popular_experts_are_packed_no_worse_than_by_eplb_without_twins(
    experts: int, replicas: int, gpus: int
) -> None:
    for seed in range(3):
        load = zipf(seed, experts)
        made, _, count = rebalance(load, replicas, 1, 1, gpus, tries=64)
        plain = eplb(load, replicas, 1, 1, gpus)
        assert (balance(load, made, gpus) <= balance(load, plain, gpus)).all()
        assert balance(load, made, gpus).mean() < balance(load, plain, gpus).mean()
        assert twins(made, gpus) == 0
        assert count.min() >= 1
        assert (count.sum(axis=1) == replicas).all()
        np.testing.assert_array_equal(made, rebalance(load, replicas, 1, 1, gpus, tries=64)[0])


def test_more_tries_are_never_worse_and_experts_stay_on_their_nodes() -> None:
    load = zipf(5, 32)
    before = np.full(6, np.inf)
    for tries in (0, 4, 32):
        made = rebalance(load, 48, 8, 2, 8, tries=tries)[0]
        now = balance(load, made, 8)
        assert (now <= before * (1 + 1e-12)).all()
        before = now
        node = np.arange(48) // 24
        assert all(len(set(node[row // 4 == g])) == 1 for row in made for g in range(8))
    plain = rebalance(np.zeros((1, 32)), 48, 8, 2, 8, tries=8)[0]  # no tokens: any packing will do
    assert twins(plain, 8) == 0
