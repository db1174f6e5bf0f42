"""Pro-Prophet's released planner and constants, in the experiments' own small file."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.pro_prophet_common import Cluster, trace


def cluster(devices: int = 4, tokens: int = 1024) -> Cluster:
    return Cluster.published(devices, tokens)


def skewed(devices: int, tokens: int, hot: int) -> np.ndarray:
    counts = np.full((devices, devices), (tokens - hot) // devices)
    counts[:, 0] += hot
    return counts


@pytest.mark.parametrize(
    ("tokens", "gbps"), [(10, 6), (30, 16), (100, 42), (1000, 100)], ids=lambda value: str(value)
)
def test_bandwidth_follows_the_busiest_receivers_bytes(tokens: int, gbps: int) -> None:
    """Three GPUs send `tokens` tokens of 2 KiB each to GPU 0."""
    counts = np.zeros((4, 4), np.int64)
    counts[1:, 0] = tokens
    found = cluster().terms(counts, None).a2a
    assert found == pytest.approx(3 * tokens * 2048 * 8 / (gbps * 1e9) * 1e12, rel=1e-3)


def test_a_copy_takes_its_share_of_15_gbps() -> None:
    holds = np.eye(4, dtype=np.bool_)
    holds[:, 0] = True
    size = 2 * 512 * 1408 * 4
    found = cluster().terms(skewed(4, 1024, 512), holds)
    assert found.trans == pytest.approx(3 / 4 * size * 8 / 15e9 * 1e12, rel=1e-6)


def test_the_released_planner_stops_at_three_times_the_mean() -> None:
    """16 GPUs, 1,024 tokens each: a hot expert above three times the mean is copied to all but at
    most one GPU, one below is left alone.
    """
    made = cluster(16)
    mild = made.released(skewed(16, 1024, 128))
    assert np.array_equal(mild, np.eye(16, dtype=np.bool_))
    hot = made.released(skewed(16, 1024, 768))
    assert hot[:, 0].sum() >= 15
    assert np.array_equal(hot[:, 1:], np.eye(16, dtype=np.bool_)[:, 1:])


@pytest.mark.parametrize(("ranks", "tokens"), [(16, 1024), (32, 512)])
@pytest.mark.parametrize("gate", ["", "-aux"])
def test_the_traces_have_the_published_batch(ranks: int, tokens: int, gate: str) -> None:
    for top_k in (1, 2):
        routed = trace(f"gpt{ranks}-top{top_k}{gate}")
        assert set(routed.counts.sum(axis=3).ravel().tolist()) == {tokens * top_k}
