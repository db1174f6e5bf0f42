"""Each workload gives the same bytes for ever, and what it says."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from railopt import Fabric, Traffic, workloads
from railopt.base.errors import InputError
from railopt.model.workloads import ROUTED, WORKLOADS, doubly_even, from_spec

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
    "fast-zipf:seed=1": "895db12c2e30be0a742027abeed2e64f",
    "fast-zipf:s=0.1,mean=1MiB,seed=2": "dad240c82f0e6ea88fcbfc572ef4322b",
    "fast-random:seed=1": "12a207859ff07c7f58183fb63345f399",
    "prophet:seed=1": "ad180bc52e626112e29221fc7c4f539c",
    "prophet:gate=balanced,top_k=2,width=1024,seed=3": "fbd22e213008724d466601724ccb10d0",
    "rails-sparse:seed=1": "f4fc6741f99208e22eb31b467f8eaf8c",
    "rails-sparse:sparsity=0.9,skew=0.4,per_gpu=1MiB,seed=2": "291b33a2d5e3efd1c4371a3725240e5b",
    "birkhoff:seed=1": "d4eb04d5a789b7c01a374afc8f459297",
    "birkhoff:sparsity=0,spread=10,size=1GiB,seed=2": "eebfc70875bee2bf403d2260397daba4",
    "megatron:w=0,step=4,tokens=256,seed=1": "6c5fd0cd47fb47e1d645271f5e2b0ab6",
    "megatron:w=1,step=4,tokens=256,seed=1": "469620550c0f6c2b5ea4f8a08ff09af8",
    "megatron:w=2,step=4,tokens=256,seed=1": "1ffe83da3dfce2bbe88ef3fc390f1091",
    "megatron:w=3,step=4,tokens=256,seed=1": "ca684b8f9e834b5e082c46185a874b8e",
    "megatron:w=4,step=4,tokens=256,seed=1": "34e4318e6c762dfbda8c1de5ec173750",
    "megatron:w=5,step=4,tokens=256,seed=1": "c6a50b9af0ff5c552d9534a575bb0ebd",
    "megatron:w=6,step=4,tokens=256,seed=1": "0907b7cbb6d2e6a864d0f55809bf6587",
    "megatron:w=7,step=3,tokens=256,seed=1": "610fa62b92a8b3d032748be207eef165",
    "maxvio:seed=1": "fcf27063800e99abb096d63962a531ba",
    "maxvio:vio=0.5,experts=64,top=6,tokens=300,step=2,seed=3": "3b4856bc03f1678331b56b74d11161e1",
    "drift:tokens=256,seed=1": "dff1fdd55d7c183c6a1d725d959164b4",
    "drift:step=7,drift=0.5,tokens=256,seed=2": "4b48d1ad475d2d2c93082a9a32b22447",
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", [spec for spec in GOLDEN if spec.split(":")[0] not in ROUTED])
def test_rows_that_are_drawn_apart_are_the_same(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railopt.model.routed.BLOCK", 40)
    monkeypatch.setattr("railopt.base.dice._SERIES", 7)
    assert from_spec(spec, FABRIC).digest == GOLDEN[spec]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "most"),
    [
        *((spec, 2.3) for spec in ("uniform", "permutation", "incast", "hot-node", "birkhoff")),
        *((spec, 2.3) for spec in ("zipf", "dirichlet", "fast-zipf", "fast-random", "sparse")),
        *((spec, 16.0) for spec in ("moe", "prophet:batch=512")),  # gammas of all pairs at once
    ],
)
def test_drawing_takes_little_more_memory_than_the_matrix(
    spec: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railopt.model.routed.BLOCK", 1 << 12)
    monkeypatch.setattr("railopt.base.dice._SERIES", 1 << 12)
    fabric = Fabric.uniform(32, 8)
    tracemalloc.start()
    try:
        made = from_spec(spec, fabric)
        assert isinstance(made, Traffic)
        assert tracemalloc.get_traced_memory()[1] < most * made.bytes.nbytes
    finally:
        tracemalloc.stop()


def test_popularity_that_too_many_pairs_see_is_refused_before_it_is_drawn() -> None:
    for spec, nodes in (("moe:experts=65536", 1024), ("moe", 1024), ("prophet:batch=256", 1024)):
        with pytest.raises(InputError, match="expected at most 16777216 pairs"):
            from_spec(spec, Fabric.uniform(nodes, 8))


def test_every_workload_has_golden_digests() -> None:
    assert {spec.partition(":")[0] for spec in GOLDEN} == set(WORKLOADS)


@pytest.mark.slow
@pytest.mark.parametrize("spec", GOLDEN)
def test_golden_digests(spec: str) -> None:
    assert from_spec(spec, FABRIC).digest == GOLDEN[spec]


@pytest.mark.slow
def test_a_seed_draws_and_another_draws_otherwise() -> None:
    for name in ("permutation", "zipf", "dirichlet", "sparse", "birkhoff", "moe", *ROUTED):
        name += ":w=1" if name == "megatron" else ":tokens=64" if name in ROUTED else ":"
        one, same, other = (from_spec(f"{name},seed={seed}", FABRIC) for seed in (1, 1, 2))
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


@pytest.mark.slow
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
        "routing:step=20000",
        "megatron:w=8",
        "megatron:w=-1",
        "megatron:w=one",
        "megatron:sigma=1",
        "maxvio:vio=32",
        "maxvio:vio=-1",
        "maxvio:tokens=1000000",
        "drift:drift=1.5",
        "drift:sigma=9",
        "drift:step=16384,experts=65536",
        "maxvio:vio=0.5,top=4096,experts=8192,tokens=256",
        "birkhoff:sparsity=0.96",
        "birkhoff:spread=0.5",
        "birkhoff:size=0",
    ],
)
def test_routing_refuses(spec: str) -> None:
    with pytest.raises(InputError):
        from_spec(spec, FABRIC)


def test_birkhoff_sends_and_receives_the_same_everywhere() -> None:
    for sparsity in (0.0, 0.3, 0.5, 0.9):
        matrix = doubly_even(64, 1_000_003, (sparsity, 3.0), 4)
        assert set(matrix.sum(axis=0).tolist()) == set(matrix.sum(axis=1).tolist()) == {1_000_003}
        assert abs((matrix == 0).mean() - sparsity) < 0.03
    assert doubly_even(1, 5, (0.5, 3.0), 0).tolist() == [[5]]
    sent = from_spec("birkhoff:size=1MiB", FABRIC).bytes.sum(axis=1)
    assert sent.max() <= 1 << 20 < 2 * sent.min()


def test_an_option_without_its_value() -> None:
    with pytest.raises(InputError, match="'megatron:w': found 'w', expected w=VALUE") as refused:
        from_spec("megatron:w", FABRIC)
    assert "did you mean" not in str(refused.value)
    with pytest.raises(InputError, match=r"unknown option 'stp'.*did you mean 'step'"):
        from_spec("megatron:stp", FABRIC)


def test_drift_is_the_same_in_whatever_order_steps_are_asked_for() -> None:
    """After an earlier step, none, a later one and itself: as a process that asks for it alone."""
    seventh = "drift:step=7,drift=0.5,tokens=256,seed=2"
    for before in (2, 0, 9, 7):
        from_spec(seventh.replace("step=7", f"step={before}"), FABRIC)
        assert from_spec(seventh, FABRIC).digest == GOLDEN[seventh]
