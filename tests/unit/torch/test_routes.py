"""Ways of all ranks, walked together on plain lists: every row ends where it belongs."""

from __future__ import annotations

import gc
import sys
from itertools import chain, product

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic, plan
from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.model.inside import Inside
from railopt.policies.planner import NODE_POLICIES
from railopt.torch.routes import Route, Router, rail_groups
from railopt.torch.stages import scheduled
from railopt.torch.ways import Exchange, Reorder, Turn, back, transposed

Rows = list[object]


def walk(fabric: Fabric, ways: list[tuple], held: list[Rows]) -> list[Rows]:
    """Every rank takes the same steps of its way."""
    gpus = fabric.gpus
    for steps in zip(*ways, strict=True):
        if isinstance(steps[0], Reorder):
            held = [reordered(step, rows) for step, rows in zip(steps, held, strict=True)]
            continue
        sent = [cut(rows, step.send) for step, rows in zip(steps, held, strict=True)]
        held = []
        for rank, step in enumerate(steps):
            node, local = divmod(rank, gpus)
            inside = step.within == "node"
            peers = (
                range(node * gpus, (node + 1) * gpus) if inside else range(local, len(ways), gpus)
            )
            got = [sent[peer][local if inside else node] for peer in peers]
            assert [len(rows) for rows in got] == step.recv
            held.append(list(chain(*got)))
    return held


def cut(rows: Rows, sizes: list[int]) -> list[Rows]:
    assert sum(sizes) == len(rows)
    ends = np.cumsum(sizes).tolist()
    return [rows[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def reordered(step: Reorder, rows: Rows) -> Rows:
    pieces = cut(rows, step.sizes)
    return list(chain(*(pieces[piece] for piece in step.order)))


def inputs(counts: np.ndarray) -> list[Rows]:
    """Rows named (source, destination, number), by destination."""
    return [
        [(s, d, i) for d in range(len(counts)) for i in range(counts[s, d])]
        for s in range(len(counts))
    ]


def routes(fabric: Fabric, counts: np.ndarray, policy: str, **options: bool) -> list[Route]:
    return [Router(fabric, rank, policy).route(counts, **options) for rank in range(len(counts))]


def some_counts(ranks: int, seed: int, most: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most, (ranks, ranks))
    counts[rng.random((ranks, ranks)) < 0.3] = 0
    return counts


FABRICS = {
    "2x4": Fabric.uniform(2, 4),
    "3x2": Fabric.uniform(3, 2),
    "one node": Fabric.uniform(1, 4),
    "one GPU a node": Fabric.uniform(4, 1),
    "two NICs a GPU": Fabric.uniform(2, 4, gpus=2),
    "two GPUs a NIC": Fabric.uniform(2, 2, gpus=4),
    "a slow and a dead NIC": Fabric.uniform(3, 4).degraded({(0, 1): "0.5", (2, 3): "0"}),
}


def decided(fabric: Fabric, counts: np.ndarray, policy: str, **options: bool) -> list[Route]:
    """The routes of all ranks when each node decides alone, and tells the others."""
    nodes, gpus = fabric.nodes, fabric.gpus
    routers = [Router(fabric, rank, policy) for rank in range(nodes * gpus)]
    rows = counts.reshape(nodes, gpus, -1)
    out = np.stack([router.decide(rows[router.node]) for router in routers])
    received = out.reshape(nodes, gpus, nodes, -1).swapaxes(0, 2).reshape(nodes * gpus, nodes, -1)
    return [router.finish(received[router.rank], **options) for router in routers]


@pytest.mark.slow
@pytest.mark.parametrize("policy", NODE_POLICIES)
@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("to_nodes", [False, True])
def test_each_node_alone_decides_as_all_together(name: str, policy: str, to_nodes: bool) -> None:
    fabric = FABRICS[name]
    for seed, most in ((1, 900), (2, 3)):
        counts = some_counts(fabric.nodes * fabric.gpus, seed, most)
        counts[: fabric.gpus] *= 3  # nodes that cut into pieces of different sizes
        together = routes(fabric, counts, policy, to_nodes=to_nodes)
        alone = decided(fabric, counts, policy, to_nodes=to_nodes)
        for whole, own in zip(together, alone, strict=True):
            assert own.way == whole.way
            for mine, right in zip(own[1:], whole[1:], strict=True):
                assert np.array_equal(mine, right)


def test_spill_needs_the_matrix() -> None:
    assert not Router(FABRICS["2x4"], 0, "spill").alone
    assert Router(FABRICS["2x4"], 0, "rotate").alone


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["even-excess", "lpt", "lpt-local", "spill", "own-nic", "pxn"])
@pytest.mark.parametrize("name", FABRICS)
def test_every_row_arrives_in_torchs_order_and_comes_back(name: str, policy: str) -> None:
    fabric = FABRICS[name]
    ranks = fabric.nodes * fabric.gpus
    for seed in range(2):
        counts = some_counts(ranks, seed)
        ways = [route.way for route in routes(fabric, counts, policy)]
        arrived = walk(fabric, ways, inputs(counts))
        for d in range(ranks):
            wanted = [(s, d, i) for s in range(ranks) for i in range(counts[s, d])]
            assert arrived[d] == wanted
        assert walk(fabric, [back(way) for way in ways], arrived) == inputs(counts)


def planned(fabric: Fabric, counts: Ints, policy: str, node: int | None = None) -> Plan:
    """On the chunks that a `Router` cuts for 3 nodes of 4 GPUs: of what `node` sends, or the node
    that sends most.
    """
    out = counts.reshape(3, 4, 3, 4).sum(axis=(1, 3))
    out = out.sum(axis=1) - out.diagonal()
    cap = -(-int(out.max() if node is None else out[node]) // (4 * 64))
    return plan(fabric, Traffic(counts, 3).chunks(cap), policy)


@pytest.mark.parametrize("policy", NODE_POLICIES)
def test_rails_carry_what_the_policys_plan_says(policy: str) -> None:
    """Of the whole matrix, cut as each node cuts, what the node sends."""
    fabric = FABRICS["a slow and a dead NIC"]
    counts = some_counts(12, 5, 400)
    counts[:4] *= 5
    made = [planned(fabric, counts, policy, node) for node in range(3)]
    received = sum(one_sender(plan, node).recv for node, plan in enumerate(made))
    for rank, route in enumerate(routes(fabric, counts, policy)):
        node = rank // 4
        assert np.array_equal(route.sent, made[node].send[node]), rank
        assert np.array_equal(route.received, received[node]), rank


def one_sender(made: Plan, node: int) -> Plan:
    """The part of a plan that a node sends."""
    own = made.chunks.src == node
    return Plan(made.fabric, made.chunks.take(own), made.rail[own])


@pytest.mark.slow
def test_spill_in_a_loop_is_close_to_its_plan() -> None:
    for fabric in (FABRICS["a slow and a dead NIC"], Fabric.uniform(3, 4)):
        for seed in range(4):
            counts = some_counts(12, seed, 400)
            best, even = (planned(fabric, counts, name) for name in ("spill", "even-excess"))
            every = routes(fabric, counts, "spill")[:: fabric.gpus]
            sent, received = (np.stack(side) for side in zip(*(r[1:3] for r in every), strict=True))
            times = [
                np.max(carried[rate > 0] / rate[rate > 0])
                for carried, rate in ((sent, fabric.tx), (received, fabric.rx))
            ]
            assert float(best.makespan) <= max(times) * 1.0001
            assert max(times) <= min(1.02 * float(best.makespan), 1.01 * float(even.makespan))


def test_rail_groups_get_as_much_as_their_rails() -> None:
    """Rows over the network of each rank are those of its NIC's rail."""
    fabric, counts = FABRICS["2x4"], some_counts(8, 7, 100)
    for rank, route in enumerate(routes(fabric, counts, "even-excess")):
        node, local = divmod(rank, 4)
        rail = next(s for s in route.way if isinstance(s, Exchange) and s.within == "rail")
        assert sum(rail.send) - rail.send[node] == route.sent[local]
        assert sum(rail.recv) - rail.recv[node] == route.received[local]


def test_even_excess_evens_a_hot_gpu_out() -> None:
    counts = np.zeros((8, 8), np.int64)
    counts[0, 4:] = 256  # all of node 0's bytes are at GPU 0
    route = Router(FABRICS["2x4"], 0).route(counts)
    assert route.sent.tolist() == [256] * 4
    assert Router(FABRICS["2x4"], 5).route(counts).received.tolist() == [256] * 4
    own = Router(FABRICS["2x4"], 0, "own-nic").route(counts)
    assert own.sent.tolist() == [1024, 0, 0, 0]
    assert own.way[1].send == [1024, 0, 0, 0]  # nothing is staged


def test_rows_for_a_node_stay_at_the_rail_group() -> None:
    fabric = FABRICS["2x4"]
    counts = np.zeros((8, 8), np.int64)
    rng = np.random.default_rng(2)
    for s in range(8):
        counts[s, [s % 4, 4 + s % 4]] = rng.integers(1, 90, 2)
    made = routes(fabric, counts, "even-excess", to_nodes=True)
    ways = [route.way for route in made]
    arrived = walk(fabric, ways, inputs(counts))
    assert [len(rows) for rows in arrived] == [int(route.sources.sum()) for route in made]
    for rank, rows in enumerate(arrived):
        assert all(d // 4 == rank // 4 for _, d, _ in rows)
        assert rows == sorted(rows)
    assert sorted(chain(*arrived)) == sorted(chain(*inputs(counts)))
    assert walk(fabric, [back(way) for way in ways], arrived) == inputs(counts)


def test_a_router_can_be_used_again() -> None:
    router = Router(FABRICS["2x4"], 3)
    first, second = some_counts(8, 1), some_counts(8, 2, 900)
    before = router.route(first)
    router.route(second)
    again = router.route(first)
    assert before.way == again.way
    assert np.array_equal(before.sent, again.sent)


def test_no_rows_at_all() -> None:
    route = Router(FABRICS["2x4"], 1).route(np.zeros((8, 8), np.int64))
    assert all(sum(step.send) == 0 for step in route.way if isinstance(step, Exchange))


def test_rail_groups_of_shared_and_several_nics() -> None:
    assert np.array_equal(rail_groups(Fabric.uniform(2, 4))[1, 2], np.arange(4))
    two = rail_groups(Fabric.uniform(2, 4, gpus=2))  # rails 0 and 1 are GPU 0's
    assert two[0, 1].tolist() == [0, 0, 1, 1]
    shared = rail_groups(Fabric.uniform(2, 2, gpus=4))  # GPUs 0 and 1 have rail 0
    assert shared[1, 0].tolist() == [1, 2]
    assert shared[1, 3].tolist() == [1, 3]
    assert Inside.usual(4, 2).owner.tolist() == [0, 2]


def test_reorder_and_its_way_back() -> None:
    step = transposed(np.array([[1, 0, 2], [3, 4, 0]]))
    assert step == Reorder([1, 2, 3, 4], [0, 2, 3, 1])
    assert step.moves
    assert reordered(step.back(), reordered(step, list("abbcccdddd"))) == list("abbcccdddd")
    assert not transposed(np.array([[1, 2, 3]])).moves


@pytest.mark.parametrize("pieces", [0, -3, "64", 1.5, None])
def test_pieces_are_counted(pieces: object) -> None:
    with pytest.raises(InputError, match=r"pieces = .*: expected a whole number from 1"):
        Router(FABRICS["2x4"], 0, pieces=pieces)


def test_bad_ranks_and_policies_are_refused() -> None:
    with pytest.raises(InputError, match="rank 8: expected 0 to 7"):
        Router(FABRICS["2x4"], 8)
    with pytest.raises(InputError, match="unknown policy"):
        Router(FABRICS["2x4"], 0, "evenexcess")


@pytest.mark.slow
def test_no_allocation_grows_with_calls() -> None:
    router = Router(Fabric.uniform(2, 4), 1)
    rng = np.random.default_rng(7)
    some = [rng.integers(0, 200, (8, 8)) for _ in range(20)]
    blocks = []
    for _ in range(9):
        for _, counts in product(range(8), some):
            router.route(counts)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    # a leak adds a block per call in every round, kernels that are compiled on the way in some
    assert np.diff(blocks).min() < 8 * len(some)


@pytest.mark.parametrize("kind", ["compact", "fast", "spreadout", True])
def test_stages_bring_all_rows_and_no_node_has_two_peers(kind: str | bool) -> None:
    rng = np.random.default_rng(3)
    for nodes in (1, 2, 5):
        rows = rng.integers(0, 50, (nodes, nodes)) * rng.integers(0, 2, (nodes, nodes))
        every = []
        for own in range(nodes):
            step = Exchange("rail", rows[own].tolist(), rows[:, own].tolist())
            made = step.in_turn(own) if kind is True else scheduled(own, rows, str(kind))
            every.append(step._replace(turns=made))
        for steps in (every, [step.back() for step in every]):
            sent, got = np.zeros((2, nodes, nodes), np.int64)
            queues = [[t for t in step.turns if t.out or t.into] for step in steps]
            while any(queues):  # a node goes on once those it waits for are there too
                ready = [
                    own
                    for own, turns in enumerate(queues)
                    if turns
                    and (not turns[0].out or meets(queues, own, turns[0].to))
                    and (not turns[0].into or meets(queues, turns[0].source, own))
                ]
                assert ready
                for turn, own in [(queues[own].pop(0), own) for own in ready]:
                    sent[own, turn.to] += turn.out
                    got[turn.source, own] += turn.into
            wanted = np.array([step.send for step in steps])
            np.fill_diagonal(wanted, 0)
            assert np.array_equal(sent, wanted)
            assert np.array_equal(got, wanted)


def meets(queues: list[list[Turn]], source: int, target: int) -> bool:
    """Whether two nodes are at the stage in which one sends to the other."""
    if not queues[source] or not queues[target]:
        return False
    one, other = queues[source][0], queues[target][0]
    return (one.to, other.source) == (target, source) and one.out == other.into
