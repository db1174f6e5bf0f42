"""Each workload gives the same bytes for ever, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from railopt import Fabric, Traffic, workloads
from railopt.errors import InputError
from railopt.workloads import WORKLOADS, from_spec

FABRIC = Fabric.uniform(4, 4)

# Never to be changed: digests of what a seed has always given.
GOLDEN = {
    "uniform:size=3KiB": "229326da3dde4b83f4bf1529191146f5",
    "permutation:seed=1": "b17a1fd3ae1f6c8a0f654f5321421387",
    "incast:target=5": "2146fd9a07d9d0f6691eeed7d3e246bc",
    "hot-node:node=2,factor=2.5": "9f3fbbe4d9e971075d43dbeb13605d45",
    "zipf:seed=1": "01c4353b7c464fee24788481f236e64d",
    "zipf:skew=1.3,mean=1GiB,seed=7": "b483e71c21d633d668f20fea41977e47",
    "dirichlet:seed=1": "957af6b31115ea596f085c0f125bbf3d",
    "dirichlet:concentration=0.05,seed=2": "04194f44da2294f00901e1b0df302530",
    "sparse:seed=1": "986b438a6183f718f4c5e24288fe7d4f",
    "sparse:zeros=0.9,skew=0.5,seed=3": "58f1a97fb06ca71714ba94cb37811838",
    "moe:seed=1": "6e1eb697d605d21d10eca12e364d813a",
    "moe:tokens=100000,top_k=4,skew=0.3,jitter=0.7,seed=5": "b76667097afd7ed32aa4be787e42cec3",
    "routing:seed=1": "7ea13d3ceec4087dd9ce07e46c0b54a1",
    "routing:experts=8,top=2,sigma=2,tokens=300,seed=3": "419f789a477938b4c32250dd82351d90",
    "routing:ragged=0.3,own=1,dedup=gpu,hidden=4KiB,seed=2": "ae2aa21b301fe6995dee6d7d061b4d05",
    "routing:ragged=1,dedup=none,tokens=64": "0bbf89dd5e3671533f85690129e138da",
}


def test_every_workload_has_golden_digests() -> None:
    assert {spec.partition(":")[0] for spec in GOLDEN} == set(WORKLOADS)


@pytest.mark.parametrize("spec", GOLDEN)
def test_golden_digests(spec: str) -> None:
    assert from_spec(spec, FABRIC).digest == GOLDEN[spec]


def test_a_seed_draws_and_another_draws_otherwise() -> None:
    for name in ("permutation", "zipf", "dirichlet", "sparse", "moe", "routing"):
        one, same, other = (from_spec(f"{name}:seed={seed}", FABRIC) for seed in (1, 1, 2))
        assert one == same
        assert one != other


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_seeds_that_are_none(seed: float) -> None:
    for name in ("permutation", "zipf", "dirichlet", "sparse", "moe"):
        with pytest.raises(InputError, match="whole number"):
            WORKLOADS[name](FABRIC, seed=seed)


def test_whole_numbers_are_meant_as_numbers() -> None:
    assert workloads.zipf(FABRIC, skew=1) == workloads.zipf(FABRIC, skew=1.0)
    assert workloads.moe(FABRIC, skew=1, jitter=2) == workloads.moe(FABRIC, skew=1.0, jitter=2.0)
    assert workloads.dirichlet(FABRIC, concentration=1) == workloads.dirichlet(FABRIC)
    assert workloads.sparse(FABRIC, zeros=1).bytes.sum() == 0
    assert workloads.hot_node(FABRIC, factor=2) == workloads.hot_node(FABRIC, factor=2.0)


def test_bytes_are_as_many_as_asked_for() -> None:
    fabric = Fabric.uniform(16, 8)
    for name, mean in (("zipf", 1 << 18), ("dirichlet", 1 << 18), ("sparse", 1 << 19)):
        made = WORKLOADS[name](fabric, seed=3)
        assert isinstance(made, Traffic)
        matrix = made.bytes
        assert matrix.sum() / matrix.size == pytest.approx(mean, rel=0.1)
    received = workloads.zipf(fabric, skew=1.0, seed=3).bytes.sum(axis=0)
    ranked = np.sort(received)[::-1]
    assert ranked[0] / ranked[9] == pytest.approx(10, rel=0.15)
    assert np.all(
        workloads.moe(fabric, tokens=100, top_k=2, hidden=10, seed=1).bytes.sum(1) == 2000
    )


@pytest.mark.parametrize("jitter", [0.5, 4.0, 100.0])
def test_sources_see_popularity_through_gamma_noise(jitter: float) -> None:
    """Var(count) = trials p + (trials p)^2 / jitter for one expert of many, to first order."""
    fabric = Fabric.uniform(64, 4)
    matrix = workloads.moe(fabric, tokens=2048, hidden=1, skew=0, jitter=jitter, seed=2).bytes
    mean = 2 * 2048 / 256
    assert matrix.mean() == mean
    assert matrix.var() == pytest.approx(mean + mean**2 / jitter, rel=0.1)


def test_a_workload_too_large_for_any_file_is_refused() -> None:
    for spec in ("zipf:mean=2305843009213693952B", "dirichlet:mean=1048576TiB"):
        with pytest.raises(InputError):
            from_spec(spec, FABRIC)


def test_many_tokens_cost_no_more_than_a_few() -> None:
    matrix = workloads.moe(FABRIC, tokens=10**9, hidden=1, seed=1).bytes
    assert np.all(matrix.sum(axis=1) == 2 * 10**9)


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


@pytest.mark.parametrize(
    "spec",
    [
        "routing:top=5,experts=8",
        "routing:top=0",
        "routing:experts=1,top=1",
        "routing:experts=100000",
        "routing:sigma=3.1",
        "routing:ragged=1.1",
        "routing:own=2",
        "routing:dedup=rack",
        "routing:tokens=0",
        "routing:tokens=100000000",
        "routing:hidden=0",
        "routing:top_k=2",
    ],
)
def test_routing_refuses(spec: str) -> None:
    with pytest.raises(InputError):
        from_spec(spec, FABRIC)
