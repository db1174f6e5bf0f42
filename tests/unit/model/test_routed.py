"""Tokens routed to experts: what each router says of itself."""

from __future__ import annotations

import time

import numpy as np
import pytest

from railopt import Fabric, workloads
from railopt.base.dice import Dice
from railopt.model.routed import Drift, MaxVio, Megatron
from railopt.model.workloads import workload

FABRIC = Fabric.uniform(4, 4)


def test_routing_chooses_as_often_as_popular() -> None:
    """All experts alike: a token of 8 x 8 GPUs misses another node with (7/8)^8 about."""
    fabric = Fabric.uniform(8, 8)
    made = workloads.Routing(fabric, sigma=0, tokens=512, seed=1).made()
    sent = made.number.sum() / (64 * 512)
    assert sent == pytest.approx(7 * (1 - (7 / 8) ** 8), rel=0.02)
    once = workloads.Routing(fabric, sigma=0, tokens=512, dedup="none", seed=1).made()
    assert once.number.sum() / (64 * 512) == pytest.approx(8 * 7 / 8, rel=0.01)
    assert made.targets.any(axis=1).all()


def test_routing_batches_are_ragged() -> None:
    drawn = workloads.Routing(Fabric.uniform(64, 8), ragged=0.3, tokens=100, seed=4).batches()
    assert (drawn.min(), drawn.max()) == (70, 130)
    assert drawn.mean() == pytest.approx(100, rel=0.03)
    assert set(workloads.Routing(FABRIC, tokens=9).batches().tolist()) == {9}


@pytest.mark.slow
def test_routing_with_its_own_popularity_receives_more_evenly() -> None:
    fabric = Fabric.uniform(8, 8)
    peaks = []
    for own in (0, 1):
        received = workloads.Routing(fabric, own=own, seed=3).made().chunks("flow").node_matrix
        peaks.append(received.sum(axis=0).max() / received.sum(axis=0).mean())
    assert peaks[0] > peaks[1]


def _chosen(w: int, step: int = 0) -> np.ndarray:
    return Megatron(FABRIC, w=w, step=step, tokens=512, seed=1).counts()


@pytest.mark.slow
def test_megatrons_workloads_isolate_what_they_say() -> None:
    total = [_chosen(w).sum(axis=0) for w in range(8)]
    over = [counts.max() / counts.mean() for counts in total]
    assert over[0] == 1.0
    assert all(3.0 < over[w] < 3.6 for w in (1, 2, 6))
    assert 1.6 < over[3] < 2.2
    assert total[3][1::2].max() < 0.4 * total[3][::2].min()
    assert over[4] < 1.3
    batches = _chosen(4).sum(axis=1)
    assert batches.max() > 1.5 * batches.min()
    assert set(_chosen(1).sum(axis=1).tolist()) == {512 * 8}
    assert total[5][:128].sum() == 0
    assert total[5][128:].min() > 0
    assert _chosen(6, 2).sum(axis=0)[:64].mean() > 3 * _chosen(6, 3).sum(axis=0)[:64].mean()
    assert _chosen(6, 3).sum(axis=0)[64:128].mean() > 3 * _chosen(6, 2).sum(axis=0)[64:128].mean()
    burst = [_chosen(7, step).sum(axis=0)[:64].mean() for step in range(5)]
    assert burst[3] > 2 * max(burst[0], burst[2], burst[4])


def test_maxvio_hits_its_target() -> None:
    """Within 2 %, on few tokens too, and no token has an expert twice."""
    for seed, vio in enumerate((0.25, 0.5, 1.0, 2.0, 8.0, 31.0)):
        drawn = MaxVio(FABRIC, vio=vio, tokens=256, ragged=0.3, seed=seed)
        counts = drawn.counts().sum(axis=0)
        assert abs((counts.max() / counts.mean() - 1) / vio - 1) < 0.02
        rows = np.sort(drawn.chosen(3, int(drawn.batches()[3])), axis=1)
        assert (np.diff(rows, axis=1) > 0).all()


@pytest.mark.parametrize(
    ("experts", "vio", "seed"), [(16, 9.0, 83), (4, 3.0, 220989), (2, 0.4008, 930104), (2, 1.0, 1)]
)
def test_maxvio_hits_its_target_however_steep(experts: int, vio: float, seed: int) -> None:
    """Where two experts are nearly as popular, or one has all tokens."""
    counts = MaxVio(FABRIC, experts=experts, top=1, vio=vio, tokens=512, seed=seed).numbers
    assert counts.max() / counts.mean() == pytest.approx(1 + vio, rel=0.002)


@pytest.mark.slow
def test_maxvio_hits_its_target_whatever_the_seed() -> None:
    """On the way to the most that can be asked for, and there, as many seeds."""
    for seed in range(300):
        experts, top = (2, 8, 16, 64)[seed % 4], (1, 1, 2, 6)[seed % 4]
        vio = (experts / top - 1) * min(1.0, (seed % 25) / 20)
        drawn = MaxVio(FABRIC, experts=experts, top=top, vio=vio, tokens=512, seed=seed)
        counts = drawn.numbers
        assert counts.sum() == 16 * 512 * top
        assert counts.max() / counts.mean() == pytest.approx(1 + vio, rel=0.02)


def test_equally_popular_experts_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dice, "normal", lambda _, count: np.zeros(count))
    counts = MaxVio(FABRIC, experts=4, top=1, vio=2.0, tokens=512).numbers
    assert counts.max() / counts.mean() == pytest.approx(3, rel=0.002)


@pytest.mark.parametrize(("experts", "tokens"), [(256, 16), (64, 3), (24, 7)])
def test_megatrons_balanced_workload_is_balanced_on_few_tokens(experts: int, tokens: int) -> None:
    counts = Megatron(FABRIC, experts=experts, tokens=tokens, ragged=0.4).counts().sum(axis=0)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(
    "spec",
    [
        "routing:sigma=3,top=2000,experts=4000,tokens=64",
        "routing:sigma=3,top=16,experts=32,tokens=512",
        "megatron:w=5,top=128,tokens=512",
        "megatron:w=1,top=512,experts=1024,tokens=64",
        "drift:sigma=3,top=500,experts=1000,tokens=64",
    ],
)
def test_tokens_with_many_experts_take_no_longer(spec: str) -> None:
    """Each of these took from seconds to hours where experts were drawn again and again."""
    made = workload(spec, Fabric.uniform(1, 2))
    begun = time.process_time()
    chosen = made.chosen(0, made.tokens)
    assert time.process_time() - begun < 2
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()


def test_drift_goes_its_way_and_stays_as_skewed() -> None:
    def logs(step: int, drift: float) -> np.ndarray:
        return np.log(Drift(FABRIC, step=step, drift=drift, seed=5).popularity / 2.0**30)

    start = logs(0, 0.1)
    alike = [np.corrcoef(start, logs(step, 0.1))[0, 1] for step in (1, 5, 20)]
    assert alike[0] > 0.8 > alike[1] > 0.4 > alike[2]
    assert all(0.8 < logs(step, 0.1).std() < 1.2 for step in (0, 20, 60))
    assert np.array_equal(logs(0, 0.0), logs(9, 0.0))


def test_steps_draw_other_tokens_of_one_popularity() -> None:
    steps = [workload(f"routing:tokens=512,step={k}", FABRIC).counts() for k in range(3)]
    assert not np.array_equal(steps[0], steps[1])
    assert np.corrcoef(steps[1].sum(axis=0), steps[2].sum(axis=0))[0, 1] > 0.98


@pytest.mark.parametrize(
    ("vio", "ranks", "tokens", "most"),
    [(1.1, 4, 16, 4), (2.1, 2, 16, 3), (0.3, 8, 32, 10), (0.05, 8, 32, 8), (0, 5, 3, 1)],
)
def test_maxvio_of_small_batches_is_as_near_as_whole_numbers_allow(
    vio: float, ranks: int, tokens: int, most: int
) -> None:
    drawn = MaxVio(Fabric.uniform(ranks, 1), experts=256, top=8, tokens=tokens, vio=vio)
    assert drawn.numbers.sum() == ranks * tokens * 8
    assert drawn.numbers.max() == most
