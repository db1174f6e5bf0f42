"""`even-excess` and `spill`: balance while hardly a byte changes its GPU."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, Planner, Traffic, plan, workloads
from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.model.inside import Inside
from railopt.model.plan import rail_costs
from railopt.policies.spilling import PlacedUnits, times, trade_home, units_and_costs

FABRIC = Fabric.uniform(4, 4, gpus=4)
DEGRADED = FABRIC.degraded({(0, 1): "0.5", (2, 3): "0"})
SHARED = Fabric.uniform(3, 2, gpus=4)
SEVERAL = Fabric.uniform(3, 6, gpus=3)
CROSSED = replace(FABRIC, inside=Inside(np.eye(4, dtype=np.bool_)[::-1]))


def tokens(fabric: Fabric, seed: int, most: int = 12, size: int = 100) -> Chunks:
    """Single tokens from ragged ranks, each to the GPUs of one other node that need it."""
    rng = np.random.default_rng(seed)
    ranks = fabric.nodes * fabric.gpus
    counts = rng.integers(0, 4 * most, (ranks, fabric.nodes))
    counts[np.arange(ranks), np.arange(ranks) // fabric.gpus] = 0
    src_gpu, dst = np.nonzero(counts)
    repeats = counts[src_gpu, dst]
    src_gpu, dst = np.repeat(src_gpu, repeats), np.repeat(dst, repeats)
    targets = rng.random((len(dst), fabric.gpus)) < 0.3
    sizes = np.full(len(dst), size)
    return Chunks.from_units(fabric, src_gpu=src_gpu, dst=dst, size=sizes, targets=targets)


def nodes_bound(chunks: Chunks, fabric: Fabric) -> Fraction:
    """A node's bytes over the rates of all its NICs."""
    sides = (
        (chunks.node_matrix.sum(axis=1), fabric.tx),
        (chunks.node_matrix.sum(axis=0), fabric.rx),
    )
    return max(
        Fraction(int(total), int(rates.sum()))
        for totals, matrix in sides
        for total, rates in zip(totals, matrix, strict=True)
    )


def least_moved(fabric: Fabric, chunks: Chunks, time: Fraction) -> float:
    """The linear program: units that divide, NICs that keep the time."""
    from scipy.optimize import linprog

    moves, rails = rail_costs(fabric, chunks), fabric.rails
    count = len(chunks)
    sums, nics = np.zeros((count, count * rails)), np.zeros((2, fabric.nodes, rails, count * rails))
    for unit in range(count):
        for n in range(rails):
            place = unit * rails + n
            sums[unit, place] = 1
            nics[0, chunks.src[unit], n, place] = chunks.size[unit]
            nics[1, chunks.dst[unit], n, place] = chunks.size[unit]
    room = float(time) * np.stack([fabric.tx, fabric.rx]).ravel()
    answer = linprog(
        (moves * chunks.size[:, None]).ravel(),
        A_ub=nics.reshape(-1, count * rails) / room[:, None],
        b_ub=np.ones(len(room)),
        A_eq=sums,
        b_eq=np.ones(count),
    )
    assert answer.success
    return float(answer.fun)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["even-excess", "spill"])
@pytest.mark.parametrize("fabric", [FABRIC, DEGRADED, SHARED, SEVERAL, CROSSED])
def test_close_to_the_nodes_bound(policy: str, fabric: Fabric) -> None:
    for seed in range(5):
        chunks = tokens(fabric, seed, most=60)
        made = plan(fabric, chunks, policy)
        slack = {"even-excess": 1.08, "spill": 1.002}[policy] if fabric is not DEGRADED else 1.15
        token = Fraction(100, int(fabric.tx.max()))
        assert made.makespan <= slack * nodes_bound(chunks, fabric) + token
        assert made.moved < plan(fabric, chunks, "lpt").moved
        assert made.staged < 0.5 * chunks.total


@pytest.mark.slow
@pytest.mark.parametrize("fabric", [FABRIC, SHARED, CROSSED])
def test_spill_moves_about_the_least(fabric: Fabric) -> None:
    for seed in range(3):
        chunks = tokens(fabric, seed, most=6)
        made = plan(fabric, chunks, "spill")
        assert made.moved <= 1.05 * least_moved(fabric, chunks, made.makespan) + 200


def test_spill_is_never_slower_than_plans_that_ignore_moves() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix = rng.integers(1, 10**6, (16, 16)) * (rng.random((16, 16)) < 0.5)
        chunks = Traffic(matrix, 4).chunks("flow")
        made = plan(FABRIC, chunks, "spill")
        for other in ("lpt-global", "equitable", "own-nic"):
            assert made.makespan <= plan(FABRIC, chunks, other).makespan * Fraction(2049, 2048)


def test_a_hurried_spill_settles_like_the_whole_one() -> None:
    for fabric in (FABRIC, DEGRADED, SHARED):
        planner = Planner(fabric, None, 500, "spill", fast=True)
        for seed in range(3):
            rng, ranks = np.random.default_rng(seed), fabric.nodes * fabric.gpus
            matrix = rng.integers(0, 10**5, (ranks, ranks)) * (rng.random((ranks, ranks)) < 0.7)
            chunks = Traffic(matrix, fabric.nodes).chunks(500)
            made, best = planner.plan(matrix), plan(fabric, chunks, "spill")
            assert np.array_equal(made.size, chunks.size)
            fast = Plan(fabric, chunks, made.rail)
            assert fast.makespan <= best.makespan * Fraction(101, 100)
            assert fast.moved <= 1.1 * best.moved
    with pytest.raises(InputError, match="fast: expected spill of all nodes, found lpt of None"):
        Planner(FABRIC, None, 500, "lpt", fast=True)


def test_own_nics_that_are_even_stay_as_they_are() -> None:
    matrix = np.full((16, 16), 1000)
    chunks = Traffic(matrix, 4).chunks("flow")
    for policy in ("even-excess", "spill"):
        assert plan(FABRIC, chunks, policy).staged == 0


@pytest.mark.parametrize("policy", ["even-excess", "spill"])
def test_a_dead_nic_makes_its_gpu_stage(policy: str) -> None:
    fabric = FABRIC.degraded({(0, 1): "0"})
    chunks = tokens(fabric, 3)
    made = plan(fabric, chunks, policy)
    stuck = chunks.size[chunks.src_gpu == 1].sum()
    assert stuck <= made.staged < stuck + 0.3 * chunks.total


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["even-excess", "spill"])
def test_sizes_at_the_limit(policy: str) -> None:
    chunks = Chunks.from_units(
        FABRIC, src_gpu=[0, 1, 2, 5], dst=[1, 1, 1, 0], size=[1 << 59, 1 << 60, 3, 1 << 59]
    )
    made = plan(FABRIC.degraded({(0, 0): "1/3"}), chunks, policy)
    assert isinstance(made, Plan)
    assert plan(FABRIC, chunks.take(np.zeros(0, np.int64)), policy).makespan == 0


@pytest.mark.parametrize("units", [1, 1 << 59])
@pytest.mark.parametrize("targets", [False, True])
def test_kernels_are_given_one_type_whatever_the_sizes(units: int, targets: bool) -> None:
    """They would be compiled once more for another."""
    needed = np.ones((2, FABRIC.gpus), bool) if targets else None
    chunks = Chunks.from_units(FABRIC, src_gpu=[0, 5], dst=[1, 0], size=[units] * 2, targets=needed)
    fabric = FABRIC.degraded({(0, 0): "1/3"})
    begun, _ = units_and_costs(fabric, chunks, np.empty(2, np.int16))
    assert [column.flags.writeable for column in begun] == [False, False, False, True]


def test_chunks_must_name_their_gpus() -> None:
    chunks = Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=4)
    for policy in ("even-excess", "spill"):
        with pytest.raises(InputError, match="from_units"):
            plan(FABRIC, chunks, policy)


@pytest.mark.parametrize("fabric", [FABRIC, DEGRADED, SHARED, SEVERAL])
@pytest.mark.parametrize("policy", ["even-excess", "spill"])
def test_a_planner_makes_them(fabric: Fabric, policy: str) -> None:
    traffic = workloads.moe(fabric, skew=0.8, seed=2)
    whole = plan(fabric, traffic.chunks("64KiB"), policy)
    for node in range(fabric.nodes):
        planner = Planner(fabric, node, "64KiB", policy)
        mine: Ints = traffic.bytes
        if policy == "even-excess":
            mine = traffic.bytes[node * fabric.gpus : (node + 1) * fabric.gpus]
        made, own = planner.plan(mine), whole.chunks.src == node
        assert np.array_equal(made.rail, whole.rail[own])
        assert np.array_equal(made.size, whole.chunks.size[own])
    with pytest.raises(InputError, match="expected int64"):
        planner.plan(traffic.bytes[:1])


@pytest.mark.parametrize(
    ("spec", "nodes", "chunk"),
    [("sparse", 4, "1MiB"), ("moe:skew=0.5,seed=2", 2, "1MiB"), ("zipf:seed=1", 2, "256KiB")],
)
def test_few_bytes_are_moved_where_chunks_are_large(spec: str, nodes: int, chunk: str) -> None:
    """There the plan comes from `lpt-global`, which ignores moves, and its units go home."""
    fabric = Fabric.uniform(nodes, 8)
    traffic = workloads.from_spec(spec, fabric)
    made = plan(fabric, traffic, "spill", chunk=chunk)
    away = plan(fabric, traffic, "lpt-global", chunk=chunk)
    assert made.makespan <= away.makespan
    assert made.staged < away.staged / 2
    assert made.moved < 1.2 * plan(fabric, traffic, "own-nic", chunk=chunk).moved


@pytest.mark.slow
def test_slow_scale_up_counts_where_it_is_in_the_time() -> None:
    slow = replace(FABRIC, scaleup=20 * 10**9)
    for seed in range(5):
        chunks = tokens(slow, seed, most=60)
        beside = plan(slow, chunks, "spill")
        within = plan(slow, chunks, "spill", scale_up="in-time")
        own = plan(slow, chunks, "own-nic")
        assert within.time_with_scaleup <= min(beside.time_with_scaleup, own.time_with_scaleup)
        assert within.time_with_scaleup == max(within.makespan, within.scaleup_time)
    assert within.makespan > beside.makespan
    assert plan(slow, chunks, "lpt", scale_up="in-time") == plan(slow, chunks, "lpt")
    with pytest.raises(InputError, match="beside or in-time"):
        plan(slow, chunks, "spill", scale_up="never")


@pytest.mark.parametrize("fabric", [FABRIC, DEGRADED, SHARED, SEVERAL])
def test_trades_move_fewer_bytes_in_the_same_time(fabric: Fabric) -> None:
    for seed in range(5):
        chunks = tokens(fabric, seed)
        away = plan(fabric, chunks, "lpt-global").rail
        rail = away.copy()
        units, prices = units_and_costs(fabric, chunks, np.empty_like(rail))
        placed = PlacedUnits(units, prices, *times(units, prices, rail), rail)
        before, kept = placed.moved, placed.time
        assert trade_home(placed, kept) > 0
        again = times(units, prices, rail)
        assert np.array_equal(again[0], placed.sent)
        assert np.array_equal(again[1], placed.received)
        assert placed.time <= kept
        assert placed.moved < before
        assert Plan(fabric, chunks, rail).moved < Plan(fabric, chunks, away).moved
