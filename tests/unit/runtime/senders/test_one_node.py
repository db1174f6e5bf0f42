"""Plans that nodes make of their own rows, carried out by the senders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Planner, plan, workloads
from railopt.base.errors import BackendError, InputError
from railopt.policies.planner import joined_plan
from railopt.runtime import Loopback, gather_plan
from railopt.runtime.senders.one_node import packed, unpacked
from railopt.runtime.senders.verbs import Verbs
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


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_parts_are_the_plan_of_all_and_loopback_carries_it(policy: str) -> None:
    joined = joined_plan(FABRIC, parts_of(policy), policy)
    assert joined.digest == plan(FABRIC, TRAFFIC.chunks("1KiB"), policy).digest
    report = Loopback().run(joined).wait()
    assert (report.wrong, report.bytes) == (0, joined.chunks.total)


def test_every_node_gives_its_row_and_verbs_carry_them() -> None:
    def work(sender: Verbs) -> list[tuple[int, str]]:
        found = []
        for turn, policy in enumerate(("lpt", "spill")):
            planner = Planner(FABRIC, None, "1KiB", policy)
            made = gather_plan(sender.group, planner, row_of(sender.group.rank, "lpt"))
            found.append((carry(sender, made, turn)[0], made.digest))
        return found

    right = [
        (0, plan(FABRIC, TRAFFIC.chunks("1KiB"), policy).digest) for policy in ("lpt", "spill")
    ]
    assert World(3, 2).run(work) == [right] * 3


@pytest.mark.parametrize(("policy", "cap"), [("even-excess", "1KiB"), ("lpt", "2KiB")])
def test_nodes_that_differ_are_told_so(policy: str, cap: str) -> None:
    def work(sender: Verbs) -> None:
        planner = Planner(FABRIC, None, "1KiB", "lpt")
        if sender.group.rank == 0:
            planner = Planner(FABRIC, None, cap, policy)
        gather_plan(sender.group, planner, row_of(sender.group.rank, "lpt"))

    for node, error in enumerate(World(3, 2).run(work)):
        assert isinstance(error, BackendError | InputError)
        who = 1 if node == 0 else 0
        assert f"node {who} " in str(error)


def test_rows_of_many_ranks_are_not_too_many() -> None:
    """64 nodes of 8 GPUs, as far as one process goes: what rank 5 makes of all answers."""
    fabric = Fabric.uniform(64, 8)
    rows = np.random.default_rng(0).integers(1, 1 << 20, (64, 8, 512))  # one chunk per pair
    setup = {"fabric": fabric.digest, "policy": "even-excess", "cap": 1 << 30}

    class Ranks:
        rank, size, names = 5, 64, [f"node {k}" for k in range(64)]

        def allgather(self, data: dict[str, Any]) -> list[dict[str, Any]]:
            assert data == {**setup, "row": packed(rows[5])}
            return [{**setup, "row": packed(row)} for row in rows]

    planner = Planner(fabric, None, "1GiB", "even-excess")
    made = gather_plan(Ranks(), planner, rows[5])  # type: ignore[arg-type]
    assert len(made.chunks) == 512 * 504
    assert made.send.sum() == made.recv.sum() == made.chunks.total
    own = Planner(fabric, 5, "1GiB", "even-excess").plan(rows[5])
    assert np.array_equal(own.rail, made.rail[made.chunks.src == 5])


def test_a_planner_of_one_node_and_other_rows() -> None:
    class Ranks:
        rank, size, names = 0, 3, ["node 0", "node 1", "node 2"]

    for planner, row, says in (
        (Planner(FABRIC, 1), row_of(1, "lpt"), "a planner of node 1 alone"),
        (Planner(FABRIC, None), TRAFFIC.bytes, "expected int64 or int32"),
        (Planner(Fabric.uniform(2, 2), None), row_of(0, "lpt"), "the fabric has 2 nodes"),
    ):
        with pytest.raises(InputError, match=says):
            gather_plan(Ranks(), planner, row)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_planner_of_all_nodes_makes_all_parts(policy: str) -> None:
    parts = parts_of(policy)
    every = Planner(FABRIC, None, "1KiB", policy).plan(np.array(TRAFFIC.bytes))
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


def test_parts_that_do_not_fit() -> None:
    parts = parts_of("lpt")
    with pytest.raises(InputError, match="parts of 2 nodes, the fabric has 3"):
        joined_plan(FABRIC, parts[:2])
    with pytest.raises(InputError, match=r"part 0 has chunks of nodes \[1\]"):
        joined_plan(FABRIC, [parts[1], parts[0], parts[2]])
    nothing = parts[0]._make(column[:0] for column in parts[0])
    assert len(joined_plan(FABRIC, [nothing] * 3).chunks) == 0


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
