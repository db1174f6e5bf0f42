"""What each policy promises."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from railopt import POLICIES, Chunks, Fabric, Planner, plan, workloads
from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.base.kernels import kernel
from railopt.evidence.bounds import lower_bound
from railopt.policies import by_size, common, rounds, unequal_rails
from railopt.policies.by_size import Spread, WordLayout
from railopt.policies.common import Columns, rail_turns
from railopt.policies.longest_first import PAIR_WEIGHT
from tests.in_process import interpreted


def uniform_flows(nodes: int) -> Chunks:
    src, dst = np.nonzero(~np.eye(nodes, dtype=bool))
    return Chunks.from_arrays(src=src, dst=dst, size=np.full(len(src), 1000))


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_whole_flow_lpt_receives_n_times_the_optimum(rails: int) -> None:
    """Theorem T2: perfect senders, a receiver rail at N times its share, on a plain uniform
    all-to-all.
    """
    fabric, chunks = Fabric.uniform(rails + 1, rails), uniform_flows(rails + 1)
    lpt, even = plan(fabric, chunks, "lpt"), plan(fabric, chunks, "equitable")
    assert np.all(lpt.send == 1000)
    assert lpt.recv.max() == rails * 1000
    assert np.all(even.send == 1000)
    assert np.all(even.recv == 1000)


def test_unknown_policy_lists_the_known() -> None:
    with pytest.raises(InputError, match="own-nic, pxn, hash"):
        plan(Fabric.uniform(2, 2), uniform_flows(2), "greedy")


def test_rail_of_the_gpu() -> None:
    fabric = Fabric.uniform(2, 4)
    chunks = workloads.uniform(fabric, size=1000).chunks("flow")
    assert np.array_equal(plan(fabric, chunks, "own-nic").rail, chunks.src_gpu % 4)
    assert np.array_equal(plan(fabric, chunks, "pxn").rail, chunks.dst_gpu % 4)
    with pytest.raises(InputError, match="GPUs"):
        plan(fabric, uniform_flows(2), "own-nic")


@pytest.mark.parametrize(("gpus", "rails"), [(8, 4), (4, 8), (3, 5), (1, 4)])
def test_more_or_fewer_gpus_than_rails(gpus: int, rails: int) -> None:
    fabric = Fabric.uniform(3, rails, gpus=gpus)
    chunks = workloads.zipf(fabric, seed=1).chunks("32KiB")
    for policy in ("own-nic", "pxn"):
        made = plan(fabric, chunks, policy)
        assert len(np.unique(made.rail)) >= min(gpus, rails)


def test_a_flow_keeps_its_hashed_rail_and_chunks_are_sprayed() -> None:
    fabric = Fabric.uniform(4, 8)
    chunks = workloads.uniform(fabric, size="1MiB").chunks("64KiB")
    hashed = plan(fabric, chunks, "hash")
    for flow in range(0, chunks.flow.max(), 37):
        assert len(set(hashed.rail[chunks.flow == flow].tolist())) == 1
    assert plan(fabric, chunks, "hash", seed=1) != hashed
    counts = np.bincount(plan(fabric, chunks, "random", seed=1).rail)
    assert counts.min() > 0.8 * counts.mean()


def test_round_robin_and_rotate_start_where_they_say() -> None:
    fabric = Fabric.uniform(3, 4)
    chunks = Chunks.from_arrays(src=[0, 0, 0, 1, 1], dst=[1, 1, 2, 2, 2], size=[5] * 5, nodes=3)
    assert plan(fabric, chunks, "round-robin").rail.tolist() == [0, 1, 0, 0, 1]
    assert plan(fabric, chunks, "rotate").rail.tolist() == [1, 2, 2, 3, 0]


def test_lpt_by_hand() -> None:
    chunks = Chunks.from_arrays(src=[0] * 6, dst=[1] * 6, size=[2, 9, 4, 9, 7, 1], nodes=2)
    made = plan(Fabric.uniform(2, 3), chunks, "lpt")
    # 9 9 7 | 4 -> rail 2 | 2 -> rail 0 | 1 -> rail 1
    assert made.rail.tolist() == [0, 0, 2, 1, 2, 1]
    assert made.send[0].tolist() == [11, 10, 11]


def test_lpt_random_ties_keep_every_sender_as_balanced() -> None:
    fabric = Fabric.uniform(6, 4)
    chunks = workloads.moe(fabric, seed=3).chunks("256KiB")
    plain, drawn = plan(fabric, chunks, "lpt"), plan(fabric, chunks, "lpt", seed=7)
    assert not np.array_equal(plain.rail, drawn.rail)
    assert np.array_equal(np.sort(plain.send, axis=1), np.sort(drawn.send, axis=1))
    assert drawn == plan(fabric, chunks, "lpt", seed=7)


@kernel
def sorted_words(chunks: Columns, rows: Ints, layout: WordLayout) -> Ints:
    return by_size.sorted_words(chunks, rows, layout, np.int64(-1))


@pytest.mark.parametrize("seed", range(40))
def test_words_are_sorted_as_numpy_sorts_them(seed: int) -> None:
    """By sender, largest first, equal sizes in order, whatever the digits: small and large, skewed,
    constant, more words than a cache holds.
    """
    rng = np.random.default_rng(seed)
    count, nodes = int(rng.choice([1, 2, 40, 3000, 20_000])), int(rng.choice([1, 2, 37, 128]))
    src, dst = rng.integers(0, nodes, (2, count)).astype(np.int32)
    size = 1 + rng.integers(0, 1 << int(rng.choice([1, 9, 15])), count) ** (1 + seed % 2)
    chunks = Columns(src, dst, size, int(size.max()), int(size.sum()))
    rows = rng.permutation(count)[: count // 2 + 1]
    grouped = WordLayout.of(chunks, nodes, ends=1, grouped=True)
    words = sorted_words(chunks, rows, grouped)
    order = rows[np.lexsort((-size[rows], src[rows]))]
    index = (words >> grouped.index_at) & ((1 << (grouped.size_at - grouped.index_at)) - 1)
    assert np.array_equal(index, order)
    assert np.array_equal(words >> grouped.group_at, src[order])
    assert np.array_equal(words & ((1 << grouped.node_bits) - 1), dst[order])
    if size.max() < 1 << 31:
        words = by_size.descending(size)
        assert np.array_equal(words & by_size.INDEX, np.argsort(-size, kind="stable"))
        assert np.array_equal(words >> 32, size.max() - size[words & by_size.INDEX])


@pytest.mark.slow
def test_equal_rails_and_rails_that_differ_follow_the_same_rule() -> None:
    """Equal rails take the packed kernels, others the general ones: the same rails, chunk by
    chunk.
    """
    rng = np.random.default_rng(0)
    for largest, most in [(30, 60)] * 50 + [(2**20, 20_000), (2**30, 20_000), (2**12, 70_000)] * 2:
        nodes, rails, count = (
            int(rng.integers(2, 6)),
            int(rng.integers(1, 10)),
            int(rng.integers(1, most)),
        )
        fabric = Fabric.uniform(nodes, rails)
        src = rng.integers(0, nodes, count)
        dst, size = (
            (src + rng.integers(1, nodes, count)) % nodes,
            np.minimum(rng.integers(1, largest, count), largest * 2 // 3),
        )
        chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes)
        columns, costs = Columns.of(chunks), common.costs(fabric)
        words, general = by_size.descending(chunks.size), np.empty(count, np.int16)
        unequal_rails.lpt(words, columns, costs, general)
        assert np.array_equal(plan(fabric, chunks, "lpt").rail, general)
        unequal_rails.lpt_global(words, columns, costs, general)
        assert np.array_equal(plan(fabric, chunks, "lpt-global").rail, general)
        rows, packed = rng.permutation(count)[: count // 2 + 1], np.empty(count, np.int16)
        packed[:] = general[:] = -1
        by_size.lpt_local(columns, rows, Spread(nodes, nodes, rails, 3, 4), packed)
        words = by_size.descending(chunks.size[rows])
        pairs = rounds.pair_numbers(chunks.src[rows], chunks.dst[rows], costs.tx, nodes)
        unequal_rails.lpt_local(words, rows, pairs, columns, costs._replace(first=3), 4, general)
        assert np.array_equal(packed, general)


def test_lpt_dealt_deals_the_largest_chunks_and_spreads_the_others() -> None:
    rng = np.random.default_rng(18)
    for _ in range(40):
        nodes, rails, count = (int(rng.integers(*ends)) for ends in ((2, 9), (1, 9), (1, 120)))
        src = rng.integers(0, nodes, count)
        dst = (src + rng.integers(1, nodes, count)) % nodes
        size = rng.integers(1, 1 + int(rng.integers(1, 9)), count)
        chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes)
        largest = [size[src == k].max(initial=0) for k in range(nodes)]
        dealt = Counter[tuple[int, int]]()
        load, expected = np.zeros((nodes, nodes, rails), np.int64), np.empty(count, np.int64)
        for c in np.argsort(-size, kind="stable").tolist():
            k, f = int(src[c]), int(dst[c])
            score = load[k].sum(axis=0) + PAIR_WEIGHT * load[k, f]
            n = min(range(rails), key=lambda n: (score[n], (n - k - f) % rails))
            if size[c] == largest[k]:
                apart, turn = (f - k - 1) % nodes, dealt[k, f]
                start = apart // 2 * rails // (nodes // 2)
                start = apart // 2 * 2 if nodes > 2 * rails else start
                n = (start - 1 - turn if apart % 2 else start + turn) % rails
                dealt[k, f] += 1
            load[k, f, n] += size[c]
            expected[c] = n
        assert np.array_equal(
            plan(Fabric.uniform(nodes, rails), chunks, "lpt-dealt").rail, expected
        )


@pytest.mark.parametrize(("nodes", "rails", "most"), [(3, 8, 1), (4, 8, 2), (6, 4, 2), (7, 3, 2)])
def test_lpt_dealt_on_equal_chunks(nodes: int, rails: int, most: int) -> None:
    """Where the optimum is one chunk per NIC, no more than T18's bound; T18d: three nodes."""
    rng = np.random.default_rng(nodes)
    for _ in range(100):
        ends = [(k, f) for _ in range(rails) for k, f in enumerate(rng.permutation(nodes))]
        some = [(k, f) for k, f in ends if k != f and rng.random() < 0.5]
        src, dst = np.array(some, np.int64).reshape(-1, 2).T
        chunks = Chunks.from_arrays(src=src, dst=dst, size=np.ones_like(src), nodes=nodes)
        assert plan(Fabric.uniform(nodes, rails, "1B/s"), chunks, "lpt-dealt").makespan <= most


def test_sizes_beyond_the_packed_words_still_plan() -> None:
    sizes = [2**60, 2**59, 2**59, 5]
    made = plan(
        Fabric.uniform(2, 2),
        Chunks.from_arrays(src=[0] * 4, dst=[1] * 4, size=sizes, nodes=2),
        "lpt",
    )
    assert sorted(made.send[0].tolist()) == [2**60, 2**60 + 5]
    for policy in ("lpt-local", "lpt-dealt", "lpt-global", "equitable"):
        assert plan(made.fabric, made.chunks, policy).send.sum() == 2**61 + 5


@pytest.mark.parametrize("policy", [p for p in POLICIES if p not in ("own-nic", "pxn")])
def test_dead_and_slow_rails_are_respected(policy: str) -> None:
    fabric = Fabric.uniform(4, 4).degraded({(0, 1): "0", (2, 3): "0", (1, 0): "0.25"})
    chunks = workloads.uniform(fabric, size="4MiB").chunks("64KiB")
    made = plan(fabric, chunks, policy)  # the constructor refuses a chunk on a dead NIC
    assert made.send[0, 1] == made.recv[0, 1] == made.send[2, 3] == 0
    assert made.send[1, 0] < 0.6 * made.send[1, 1]


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_node_without_a_living_nic_is_named(policy: str) -> None:
    fabric = Fabric.uniform(3, 2).degraded({(1, 0): "0", (1, 1): "0"})
    chunks = workloads.uniform(fabric, size=100).chunks("flow")
    with pytest.raises(InputError, match="node 1"):
        plan(fabric, chunks, policy)
    quiet = chunks.take((chunks.src != 1) & (chunks.dst != 1))
    assert plan(fabric, quiet, policy).makespan > 0


def test_equitable_on_rails_of_different_speed() -> None:
    """A rail of double rate is two colours: equal chunks reach the proportional split (theorem
    T9).
    """
    tx = np.tile([100, 100, 200, 0], (5, 1))
    fabric = Fabric(5, 4, 4, tx, tx)
    assert np.bincount(rail_turns(fabric), minlength=4).tolist() == [1, 1, 2, 0]
    src, dst = np.nonzero(~np.eye(5, dtype=bool))
    chunks = Chunks.from_arrays(
        src=np.repeat(src, 7), dst=np.repeat(dst, 7), size=np.full(7 * len(src), 10)
    )
    made = plan(fabric, chunks, "equitable")
    assert made.send.max(axis=0).tolist() == [70, 70, 140, 0]
    assert made.makespan == lower_bound(fabric, chunks).value


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lpt", "lpt-local", "own-nic"])
@pytest.mark.parametrize("nics", [{}, {(1, 2): "0.5"}, {(3, 0): "0"}])
def test_planner_is_the_policy_of_one_node(policy: str, nics: dict[tuple[int, int], str]) -> None:
    fabric = Fabric.uniform(4, 4).degraded(nics)
    for seed, cap in ((1, "256KiB"), (2, "8KiB"), (3, "64MiB")):
        traffic = workloads.moe(fabric, tokens=700, seed=seed)
        chunks = traffic.chunks(cap)
        whole = plan(fabric, chunks, policy)
        for node in range(4):
            own = Planner(fabric, node, cap, policy).plan(
                np.ascontiguousarray(traffic.bytes[4 * node : 4 * node + 4])
            )
            mine = chunks.src == node
            assert np.array_equal(own.rail, whole.rail[mine])
            for name in ("src_gpu", "dst_gpu", "offset", "size"):
                assert np.array_equal(getattr(own, name), getattr(chunks, name)[mine])


def test_what_is_planned_how_and_where_is_of_its_type() -> None:
    fabric = Fabric.uniform(2, 2)
    traffic = workloads.uniform(fabric)
    for arguments, complaint in (
        ((fabric, np.zeros((4, 4))), "chunks is of type ndarray: expected Chunks, Traffic"),
        ((traffic, fabric), "fabric is of type Traffic: expected a Fabric"),
        ((fabric, traffic, None), "policy is of type NoneType: expected a name or a function"),
    ):
        with pytest.raises(InputError, match=complaint):
            plan(*arguments)  # type: ignore[arg-type]


def test_planner_refuses() -> None:
    fabric = Fabric.uniform(2, 2).degraded({(1, 0): "0", (1, 1): "0"})
    for arguments in (
        {"node": 2},
        {"node": 0, "policy": "equitable"},
        {"node": 0, "cap": "0B"},
        {"node": 0, "cap": "4GiB"},
    ):
        with pytest.raises(InputError):
            Planner(fabric, **arguments)  # type: ignore[arg-type]
    planner = Planner(fabric, 0)
    with pytest.raises(InputError, match="expected int64"):
        planner.plan(np.zeros((2, 4)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no living rail"):
        planner.plan(np.ones((2, 4), np.int64))
    assert len(planner.plan(np.zeros((2, 4), np.int64)).rail) == 0


def digests() -> list[str]:
    """Of a plan by each policy, of two kinds of traffic; a process runs this by its source."""
    from railopt import POLICIES, Fabric, plan, workloads

    fabric = Fabric.uniform(4, 4)
    some = workloads.moe(fabric, tokens=64, seed=1), workloads.uniform(fabric, size="3MiB")
    chunks = [traffic.chunks("1MiB") for traffic in some]
    return [plan(fabric, each, policy).digest for each in chunks for policy in POLICIES]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_here")
def test_plans_are_the_same_without_numba() -> None:
    found = digests()
    assert found == interpreted(digests)
    assert len(found) == 2 * len(POLICIES)


@pytest.mark.parametrize("degraded", [False, True])
@pytest.mark.parametrize("sizes", [[7], [7, 7, 7, 5, 2]])
def test_few_chunks_get_the_same_rails_without_tables_over_all_pairs(
    monkeypatch: pytest.MonkeyPatch, degraded: bool, sizes: list[int]
) -> None:
    """`equitable` colours equal chunks one by one then: the same loads, on other rails."""
    rng = np.random.default_rng(5)
    fabric = Fabric.uniform(9, 4, gpus=1)
    if degraded:
        fabric = fabric.degraded({(2, 1): 0, (5, 3): "1/4"})
    src, dst = rng.integers(0, 9, (2, 300))
    apart = src != dst
    size = rng.choice(sizes, int(apart.sum()))
    chunks = Chunks.from_arrays(src=src[apart], dst=dst[apart], size=size, nodes=9)
    dense = {policy: plan(fabric, chunks, policy) for policy in POLICIES}
    monkeypatch.setattr(rounds, "TABLE", 0)
    monkeypatch.setattr(rounds, "ENTRIES", 0)
    for policy, expected in dense.items():
        made = plan(fabric, chunks, policy)
        if policy == "equitable" and len(sizes) == 1 and not degraded:
            for ours, theirs in ((made.send, expected.send), (made.recv, expected.recv)):
                assert np.array_equal(np.sort(ours, axis=1), np.sort(theirs, axis=1))
        else:
            assert np.array_equal(made.rail, expected.rail), policy


@pytest.mark.slow
def test_one_chunk_on_many_nodes_takes_little_memory() -> None:
    """A table over all pairs and rails would have 150 MB."""
    fabric = Fabric.uniform(1500, 8, gpus=1).degraded({(3, 0): "1/2", (4, 0): 0})
    for nics in (fabric, Fabric.uniform(1500, 8, gpus=1)):
        chunks = Chunks.from_units(nics, src_gpu=[0], dst=[1], size=[1 << 20])
        tracemalloc.start()
        try:
            for policy in POLICIES:
                plan(nics, chunks, policy)
            assert tracemalloc.get_traced_memory()[1] < 1 << 25
        finally:
            tracemalloc.stop()
