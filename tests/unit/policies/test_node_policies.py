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
from railopt.policies.spilling import _begun

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


def test_the_excess_and_nothing_else_is_staged() -> None:
    """Traffic that divides: every (node, destination) is even, by moving only the excess."""
    counts = np.random.default_rng(1).integers(0, 50, (4, 4, 4))
    counts -= counts.sum(axis=1, keepdims=True) % 4 * (np.arange(4) == 0)[None, :, None]
    counts = np.maximum(counts, 0)
    counts[:, 0] += (-counts.sum(axis=1)) % 4
    src_gpu, dst = np.nonzero(counts.reshape(16, 4) * (np.arange(16)[:, None] // 4 != np.arange(4)))
    repeats = counts.reshape(16, 4)[src_gpu, dst]
    src_gpu, dst = np.repeat(src_gpu, repeats), np.repeat(dst, repeats)
    chunks = Chunks.from_units(FABRIC, src_gpu=src_gpu, dst=dst, size=np.full(len(dst), 7))
    made = plan(FABRIC, chunks, "even-excess")
    own = np.zeros((4, 4, 4), np.int64)
    np.add.at(own, (chunks.src, chunks.src_gpu % 4, chunks.dst), chunks.size)
    assert made.staged == np.maximum(own - own.sum(axis=1, keepdims=True) // 4, 0).sum()
    carried = np.zeros((4, 4, 4), np.int64)
    np.add.at(carried, (chunks.src, made.rail, chunks.dst), chunks.size)
    assert np.array_equal(carried, np.broadcast_to(carried[:, :1], carried.shape))
    assert made.makespan == nodes_bound(chunks, FABRIC)


def plain_even_excess(fabric: Fabric, chunks: Chunks) -> list[int]:
    """The rule of `even-excess` on a healthy fabric with a NIC a GPU, word for word."""
    rails, rail = fabric.rails, [-1] * len(chunks)
    for k in range(fabric.nodes):
        debt = [0] * rails
        due = [chunks.node_matrix[k, f] // rails for f in range(fabric.nodes)]
        over = {(f, n): -int(due[f]) for f in range(fabric.nodes) for n in range(rails)}

        def put(c: int, n: int, over: dict = over, debt: list = debt) -> None:  # type: ignore[type-arg]
            f, size = int(chunks.dst[c]), int(chunks.size[c])
            debt[n] += max(over[f, n] + size, 0) - max(over[f, n], 0)
            over[f, n] += size
            rail[c] = n

        rows = np.flatnonzero(chunks.src == k).tolist()
        for c in rows:
            own = int(chunks.src_gpu[c]) % rails
            if over[int(chunks.dst[c]), own] + int(chunks.size[c]) // 2 <= 0:
                put(c, own)
        largest = max((int(chunks.size[c]) for c in rows), default=0)
        for c in sorted(rows, key=lambda c: int(chunks.size[c]) < largest):
            f = int(chunks.dst[c])
            lowest = min(((i + k + f) % rails for i in range(rails)), key=lambda n: over[f, n])
            if rail[c] < 0 and over[f, lowest] + int(chunks.size[c]) // 2 <= 0:
                put(c, lowest)
        for c in rows:
            if rail[c] < 0:
                f, own = int(chunks.dst[c]), int(chunks.src_gpu[c]) % rails
                order = [own, *((i + k + f) % rails for i in range(rails))]
                put(c, min(order, key=lambda n: over[f, n] + debt[n] // 4))
    return rail


def test_even_excess_is_its_rule() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chunks = tokens(FABRIC, seed)
        chunks = replace(chunks, size=rng.integers(1, 1000 if seed % 2 else 4, len(chunks)))
        assert plan(FABRIC, chunks, "even-excess").rail.tolist() == plain_even_excess(
            FABRIC, chunks
        )


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
    begun, _ = _begun(fabric, chunks, np.empty(2, np.int16))
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


@pytest.mark.parametrize("policy", ["own-nic", "rotate"])
@pytest.mark.parametrize("fabric", [DEGRADED, SHARED, CROSSED, SEVERAL])
def test_policies_of_a_chunk_alone_in_a_planner(fabric: Fabric, policy: str) -> None:
    traffic = workloads.moe(fabric, seed=2)
    whole = plan(fabric, traffic.chunks("64KiB"), policy)
    assert np.array_equal(
        Planner(fabric, None, "64KiB", policy).plan(traffic.bytes).rail, whole.rail
    )
    rows = traffic.bytes.reshape(fabric.nodes, fabric.gpus, -1)
    for node in range(fabric.nodes):
        own = Planner(fabric, node, "64KiB", policy).plan(rows[node])
        assert np.array_equal(own.rail, whole.rail[whole.chunks.src == node])


@pytest.mark.parametrize(
    ("nodes", "gpus", "rails"), [(8, 1, 2), (5, 1, 4), (4, 3, 6), (2, 2, 4), (7, 2, 6)]
)
@pytest.mark.parametrize("policy", ["own-nic", "pxn"])
def test_a_gpus_nics_take_turns(nodes: int, gpus: int, rails: int, policy: str) -> None:
    fabric = Fabric.uniform(nodes, rails, gpus=gpus)
    made = plan(fabric, workloads.uniform(fabric, size=1), policy, chunk=1)
    flows = (nodes - 1) * gpus  # of each GPU, over its own NICs
    most = -(-flows // (rails // gpus))
    assert made.send.max() == made.recv.max() == most


@pytest.mark.parametrize("policy", ["own-nic", "pxn"])
def test_a_dead_nic_is_replaced_by_another_of_its_gpu(policy: str) -> None:
    fabric = Fabric.uniform(2, 6, gpus=2).degraded({(0, 1): "0", (1, 4): "0"})
    made = plan(fabric, workloads.uniform(fabric, size="1MiB"), policy, chunk="64KiB")
    gpu = made.chunks.src_gpu if policy == "own-nic" else made.chunks.dst_gpu
    assert np.array_equal(made.rail // 3, gpu % 2)


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


@pytest.mark.parametrize("fabric", [FABRIC, DEGRADED, SHARED, SEVERAL])
def test_trades_move_fewer_bytes_in_the_same_time(fabric: Fabric) -> None:
    from railopt.policies import spill_rails
    from railopt.policies.spilling import TimedRails

    for seed in range(5):
        chunks = tokens(fabric, seed)
        away = plan(fabric, chunks, "lpt-global").rail
        rail = away.copy()
        units, prices = _begun(fabric, chunks, np.empty_like(rail))
        busy = spill_rails.times(units, prices, rail)
        kept = int(np.max(busy))
        state = spill_rails.SwapState(units, prices, busy[0], busy[1], rail)
        assert spill_rails.trade_home(state, kept) > 0
        again = spill_rails.times(units, prices, rail)
        assert np.array_equal(again[0], busy[0])
        assert np.array_equal(again[1], busy[1])
        assert TimedRails(rail, kept).moved(units) < TimedRails(away, kept).moved(units)
        assert Plan(fabric, chunks, rail).moved < Plan(fabric, chunks, away).moved


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


def test_one_node_breaks_ties_as_the_whole_plan_does() -> None:
    """Equal sizes, so many ties: they go round from rail (src + dst) mod N, whoever plans."""
    fabric = Fabric.uniform(nodes=4, rails=4)
    matrix = np.random.default_rng(0).integers(0, 6, (16, 16)) * 50
    whole = plan(fabric, Traffic(matrix, 4), "even-excess", chunk=100)
    for node in range(4):
        own = Planner(fabric, node, 100, "even-excess").plan(matrix[4 * node : 4 * node + 4])
        assert np.array_equal(own.rail, whole.rail[whole.chunks.src == node])
