"""Plans that nodes make of their own rows, carried out by the senders."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Planner, Traffic, plan, workloads
from railopt.base.errors import BackendError, InputError
from railopt.policies.planner import NODE_POLICIES, planned_by
from railopt.runtime import RowSender
from railopt.runtime.senders.one_node import packed, unpacked
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.structs import IBV_WC_RETRY_EXC_ERR
from tests.contract.sender_world import World, carry

FABRIC = Fabric.uniform(3, 2).degraded({(0, 1): "0.5"})
TRAFFIC = workloads.zipf(FABRIC, mean="6KiB", skew=1.0, seed=5)
POLICIES = ("lpt", "lpt-local", "even-excess", "spill")


class Tensor:
    """What a tensor of PyTorch looks like from here: on the CPU after `cpu()`."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> np.ndarray:
        return self._array


def row_of(node: int, policy: str) -> np.ndarray:
    rows = slice(None) if policy == "spill" else slice(2 * node, 2 * node + 2)
    return np.ascontiguousarray(TRAFFIC.bytes[rows])


def parts_of(policy: str) -> list[Any]:
    return [
        Planner(FABRIC, node, "1KiB", policy).plan(row_of(node, policy))
        for node in range(FABRIC.nodes)
    ]


@lru_cache(16)
def payload(node: int, turn: int) -> np.ndarray:
    drawn = np.random.default_rng((node, turn)).integers(0, 256, 1 << 20, np.uint8)
    drawn.flags.writeable = False
    return drawn


def arrived(traffic: np.ndarray, nodes: int, node: int, turn: int) -> np.ndarray:
    """What a node should have received: pair by pair, by (GPU here, GPU there)."""
    gpus = len(traffic) // nodes
    between = traffic.copy()
    for k in range(nodes):
        between[k * gpus : (k + 1) * gpus, k * gpus : (k + 1) * gpus] = 0
    parts = []
    for there in range(node * gpus, (node + 1) * gpus):
        for here in range(len(traffic)):
            first = here // gpus * gpus
            start = between[first:here].sum() + between[here, :there].sum()
            parts.append(payload(here // gpus, turn)[start : start + between[here, there]])
    return np.concatenate(parts)


def sent_and_right(rows: RowSender, traffic: np.ndarray, turn: int) -> tuple[bool, Any]:
    """A run of this node's row: whether the right bytes are there, and its report."""
    sender, rank = rows.sender, rows.sender.group.rank
    gpus = len(traffic) // sender.group.size
    send, recv = (m[0].keep for m in (sender.send, sender.recv))
    send[:], recv[:] = payload(rank, turn), 0
    sender.group.allgather(turn)
    report = rows.run(np.ascontiguousarray(traffic[gpus * rank : gpus * (rank + 1)])).wait()
    wanted = arrived(traffic, sender.group.size, rank, turn)
    return bool(
        np.array_equal(recv[: len(wanted)], wanted) and not recv[len(wanted) :].any()
    ), report


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_every_node_gives_its_row_and_the_plan_of_all_is_carried_out(policy: str) -> None:
    """Rows that change from run to run, with nodes that send nothing, and a plan of all between."""
    turns = [TRAFFIC.bytes, TRAFFIC.bytes.T.copy(), np.where(np.arange(6) < 2, TRAFFIC.bytes, 0)]
    turns += [np.zeros_like(TRAFFIC.bytes), TRAFFIC.bytes]
    whole = [plan(FABRIC, Traffic(t, 3).chunks("1KiB"), policy) for t in turns]

    def work(sender: Verbs) -> list[Any]:
        rows, found = RowSender(sender, FABRIC, policy, "1KiB"), []
        assert rows.alone == (policy != "spill")
        for turn, traffic in enumerate(turns):
            fine, report = sent_and_right(rows, traffic, turn)
            loads = [(link.peer, link.rail, link.bytes, link.chunks) for link in report.links]
            found.append((fine, loads))
            assert carry(sender, whole[0], turn)[0] == 0
        return found

    for node, found in enumerate(World(3, 2).run(work)):
        assert isinstance(found, list), found
        for (fine, loads), all_of_it in zip(found, whole, strict=True):
            own = all_of_it.chunks.src == node
            cells = np.zeros((2, 3, 2), np.int64)
            at = all_of_it.chunks.dst[own], all_of_it.rail[own]
            np.add.at(cells[0], at, all_of_it.chunks.size[own])
            np.add.at(cells[1], at, 1)
            right = [(k, n, *cells[:, k, n].tolist()) for k in range(3) for n in range(2)]
            assert fine
            assert loads == [cell for cell in right if cell[3]]


def test_the_plan_of_a_row_is_that_of_the_matrix() -> None:
    """64 nodes of 8 GPUs: what rank 5 runs, chunk by chunk."""
    fabric = Fabric.uniform(64, 8)
    rows = np.random.default_rng(0).integers(1, 1 << 20, (64, 8, 512))  # one chunk per pair
    for policy in NODE_POLICIES:
        made = planned_by(Planner(fabric, None, "1GiB", policy), rows.reshape(512, 512))
        own = planned_by(Planner(fabric, 5, "1GiB", policy), rows[5])
        part = made.chunks.take(np.flatnonzero(made.chunks.src == 5))
        assert len(own.chunks) == 8 * 504
        assert own.rail.tolist() == made.rail[made.chunks.src == 5].tolist()
        for name in ("src_gpu", "dst_gpu", "offset", "size"):
            assert np.array_equal(getattr(own.chunks, name), getattr(part, name))


@pytest.mark.parametrize(
    ("setup", "row", "says"),
    [
        ({"policy": "even-excess"}, None, "another fabric, with another policy or cap"),
        ({"cap": "2KiB"}, None, "another fabric, with another policy or cap"),
        ({"fabric": Fabric.uniform(3, 2)}, None, "another fabric, with another policy or cap"),
        ({}, np.full((2, 6), -1), "a negative number of bytes from node 1"),
        ({}, np.zeros((2, 5), np.int64), "expected int64 or int32"),
        ({}, np.full((2, 6), 1 << 18), "send buffer 0 has"),
        ({"policy": "spill"}, np.zeros((2, 5), np.int64), "expected int64 or int32"),
    ],
)
def test_an_error_at_one_rank_is_one_at_all(setup: Any, row: Any, says: str) -> None:
    everywhere = row is not None

    def work(sender: Verbs) -> None:
        mine = sender.group.rank == 1
        given = {"fabric": FABRIC, "policy": "lpt", "cap": "1KiB"}
        rows = RowSender(sender, **{**given, **(setup if mine or everywhere else {})})
        rows.run(row if mine else row_of(sender.group.rank, "lpt")).wait()

    begun = time.monotonic()
    for node, error in enumerate(World(3, 2).run(work)):
        assert isinstance(error, BackendError | InputError), error
        who = "" if node == 1 and everywhere else f"node {0 if node == 1 else 1} "
        assert who in str(error)
        assert says in str(error) or "another fabric" in says
    assert time.monotonic() - begun < 15  # they are told, and need not wait for a stall


def test_memory_that_is_too_small_for_what_arrives_ends_the_run_everywhere() -> None:
    many = np.zeros((6, 6), np.int64)
    many[:, 2] = 1 << 19  # 2 MiB for node 1, which has 1

    def work(sender: Verbs) -> None:
        rank = sender.group.rank
        RowSender(sender, FABRIC, "lpt").run(many[2 * rank : 2 * rank + 2]).wait()

    first, second, third = World(3, 2).run(work)
    assert "recv buffer 0 has 1048576 bytes, what arrives needs 2097152" in str(second)
    for error in (first, third):
        assert "node 1 " in str(error)
        assert "gave up: recv buffer 0 has" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize(("after", "bytes_too"), [(0, False), *((n, True) for n in range(4))])
def test_a_rail_that_dies_while_nodes_tell_each_other_what_comes(
    after: int, bytes_too: bool
) -> None:
    """Request number `after` of node 0 to node 1 on rail 0 fails: SIZES, READY, a write or DONE."""
    world, traffic = World(3, 2), TRAFFIC.bytes.copy()
    if not bytes_too:
        traffic[:4, :4] = 0

    def work(sender: Verbs) -> list[bool]:
        rows, found = RowSender(sender, FABRIC, "lpt", "1KiB"), []
        for turn in range(3):
            if (sender.group.rank, turn) == (0, 1):
                link = sender.wiring.on(1, 0)[0]
                world.lib.inject(link.qp.pointer, IBV_WC_RETRY_EXC_ERR, after)
            fine, report = sent_and_right(rows, traffic, turn)
            found.append((fine, [(f.peer, f.rail) for f in report.faults]))
        return found

    for node, found in enumerate(world.run(work)):
        assert isinstance(found, list), found
        assert [fine for fine, _ in found] == [True] * 3
        seen = {place for _, faults in found for place in faults}
        assert seen == ({(1, 0)} if node == 0 else {(0, 0)} if node == 1 else set())


def test_a_row_sender_for_another_world() -> None:
    def work(sender: Verbs) -> None:
        RowSender(sender, Fabric.uniform(2, 2))

    for error in World(3, 2).run(work):
        assert "the fabric has 2 nodes with 2 rails, this run 3 ranks with 2" in str(error)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_planner_of_all_nodes_makes_all_parts(policy: str) -> None:
    parts = parts_of(policy)
    planner = Planner(FABRIC, None, "1KiB", policy)
    made = planned_by(planner, np.array(TRAFFIC.bytes))
    assert made.digest == plan(FABRIC, TRAFFIC.chunks("1KiB"), policy).digest
    every = planner.plan(np.array(TRAFFIC.bytes))
    for column, columns in zip(every, zip(*parts, strict=True), strict=True):
        assert column.tolist() == np.concatenate(columns).tolist()
    lonely = Fabric.uniform(3, 2).degraded({(2, 0): "0", (2, 1): "0"})
    with pytest.raises(InputError, match="no living rail from node 0 to node 2"):
        Planner(lonely, None, "1KiB", "lpt").plan(np.array(TRAFFIC.bytes))


@pytest.mark.parametrize("policy", POLICIES)
def test_int32_rows_and_tensors(policy: str) -> None:
    planner = Planner(FABRIC, 1, "1KiB", policy)
    row = row_of(1, policy)
    right = [column.tolist() for column in planner.plan(row)]
    for given in (row.astype(np.int32), Tensor(row), Tensor(row.astype(np.int32))):
        assert [column.tolist() for column in planner.plan(given)] == right
    for bad in (row.astype(np.float32), row[:, :-1], Tensor(row.astype(np.int16)), [[1], [1, 2]]):
        with pytest.raises(InputError, match=r"expected int64 or int32|not a 2-dimensional array"):
            planner.plan(bad)


def test_a_row_on_the_wire_and_what_is_none() -> None:
    row = row_of(2, "lpt")
    assert np.array_equal(unpacked(packed(row), row.shape, "node 2"), row)
    rng = np.random.default_rng(1)
    text = packed(row)
    for place in rng.integers(len(text), size=200).tolist():
        for broken in (text[: place // 4 * 4 + 1], text[:place] + "\x1b" + text[place + 1 :]):
            with pytest.raises(BackendError, match="node 2 sent no row of bytes"):
                unpacked(broken, row.shape, "node 2")
    for broken in (None, 7, [text], {}, packed(row[:1]), packed(np.zeros((500, 500), int))):
        with pytest.raises(BackendError, match="node 2 sent no row of bytes"):
            unpacked(broken, row.shape, "node 2")
