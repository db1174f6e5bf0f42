"""Each workload gives the same bytes for ever, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from railopt import Fabric, workloads
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
}


def test_every_workload_has_golden_digests() -> None:
    assert {spec.partition(":")[0] for spec in GOLDEN} == set(WORKLOADS)


@pytest.mark.parametrize("spec", GOLDEN)
def test_golden_digests(spec: str) -> None:
    assert from_spec(spec, FABRIC).digest == GOLDEN[spec]


def test_a_seed_draws_and_another_draws_otherwise() -> None:
    for name in ("permutation", "zipf", "dirichlet", "sparse", "moe"):
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
        matrix = WORKLOADS[name](fabric, seed=3).bytes
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
