"""Each workload gives the same bytes for ever, and what it says."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from railopt import Fabric, Traffic, workloads
from railopt.base.dice import Dice
from railopt.base.errors import InputError
from railopt.model.routed import Drift, MaxVio, Megatron
from railopt.model.workloads import ROUTED, WORKLOADS, doubly_even, from_spec, workload

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


def test_an_option_without_its_value() -> None:
    with pytest.raises(InputError, match="'megatron:w': found 'w', expected w=VALUE") as refused:
        from_spec("megatron:w", FABRIC)
    assert "did you mean" not in str(refused.value)
    with pytest.raises(InputError, match=r"unknown option 'stp'.*did you mean 'step'"):
        from_spec("megatron:stp", FABRIC)


def test_drift_goes_its_way_and_stays_as_skewed() -> None:
    def logs(step: int, drift: float) -> np.ndarray:
        return np.log(Drift(FABRIC, step=step, drift=drift, seed=5).popularity / 2.0**30)

    start = logs(0, 0.1)
    alike = [np.corrcoef(start, logs(step, 0.1))[0, 1] for step in (1, 5, 20)]
    assert alike[0] > 0.8 > alike[1] > 0.4 > alike[2]
    assert all(0.8 < logs(step, 0.1).std() < 1.2 for step in (0, 20, 60))
    assert np.array_equal(logs(0, 0.0), logs(9, 0.0))


def test_drift_is_the_same_in_whatever_order_steps_are_asked_for() -> None:
    """After an earlier step, none, a later one and itself: as a process that asks for it alone."""
    seventh = "drift:step=7,drift=0.5,tokens=256,seed=2"
    for before in (2, 0, 9, 7):
        from_spec(seventh.replace("step=7", f"step={before}"), FABRIC)
        assert from_spec(seventh, FABRIC).digest == GOLDEN[seventh]


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
