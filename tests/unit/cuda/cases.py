"""What test_cuda.py runs in a process of its own, under numba's CUDA simulator: the very kernels,
against the host's policies, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import railopt
from railopt.cuda import Planner
from railopt.errors import InputError
from railopt.inside import Inside
from tests.unit.cuda.simulator import OnDevice

Ints = np.ndarray[Any, np.dtype[np.int64]]
ROOM = 600


def drawn(fabric: railopt.Fabric, cap: int, seed: int, unit: int = 1) -> Ints:
    """int64 [ranks, ranks]: bytes in multiples of `unit`, a third of the flows without any."""
    rng, ranks = np.random.default_rng(seed), fabric.nodes * fabric.gpus
    sizes = (rng.random((ranks, ranks)) ** 3 * 4 * cap).astype(np.int64) // unit * unit
    return np.where(rng.random((ranks, ranks)) < 1 / 3, 0, sizes)


def planned(planner: Planner, matrix: Ints) -> Any:
    """What the kernel makes of a matrix, on the host."""
    rows = slice(None)
    if planner.node is not None:
        rows = slice(planner.node * planner.fabric.gpus, (planner.node + 1) * planner.fabric.gpus)
    made = planner.plan(OnDevice(np.ascontiguousarray(matrix[rows])))
    planner.check()
    return [column.copy_to_host() for column in made]


def assert_as_on_the_host(planner: Planner, matrix: Ints) -> None:
    fabric = planner.fabric
    traffic = railopt.Traffic(matrix, fabric.nodes)
    plan = railopt.plan(fabric, traffic, planner.policy, chunk=planner.cap)
    chunks = plan.chunks
    wanted = (chunks.src_gpu, chunks.dst_gpu, chunks.offset, chunks.size, plan.rail)
    *columns, count = planned(planner, matrix)
    for row, k in enumerate(range(fabric.nodes) if planner.node is None else [planner.node]):
        own = chunks.src == k
        assert count[row] == own.sum()
        for column, want in zip(columns, wanted, strict=True):
            assert np.array_equal(column[row, : count[row]], want[own])


POLICIES = ["rotate", "even-excess", "lpt", "lpt-local"]


@pytest.mark.parametrize("policy", POLICIES)
def test_all_nodes_at_once(policy: str) -> None:
    fabric = railopt.Fabric.uniform(nodes=3, rails=2)
    planner = Planner(fabric, 96, policy, capacity=ROOM)
    assert_as_on_the_host(planner, drawn(fabric, 96, seed=1))
    assert_as_on_the_host(planner, np.zeros((6, 6), np.int64))


@pytest.mark.parametrize("policy", POLICIES)
def test_one_node_of_eight_rails_small_words(policy: str) -> None:
    """Sizes are multiples of 32, so that words are 32 bits long."""
    fabric = railopt.Fabric.uniform(nodes=2, rails=8)
    planner = Planner(fabric, 1 << 20, policy, 1, capacity=ROOM)
    assert_as_on_the_host(planner, drawn(fabric, 1 << 20, seed=2, unit=32))


@pytest.mark.parametrize("policy", ["lpt", "lpt-local"])
def test_long_words(policy: str) -> None:
    """Odd sizes whose loads don't fit in 31 bits."""
    fabric = railopt.Fabric.uniform(nodes=2, rails=4)
    planner = Planner(fabric, 1 << 30, policy, 1, capacity=ROOM)
    assert_as_on_the_host(planner, drawn(fabric, 1 << 30, seed=3))


@pytest.mark.parametrize("policy", ["lpt", "lpt-local"])
def test_no_flow_reaches_the_cap(policy: str) -> None:
    fabric = railopt.Fabric.uniform(nodes=3, rails=3)
    planner = Planner(fabric, "1MiB", policy, 2, capacity=ROOM)
    assert_as_on_the_host(planner, drawn(fabric, 2, seed=4))


def test_even_excess_with_a_slow_and_a_dead_nic_and_shared_nics() -> None:
    near = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool)
    usual = railopt.Fabric.uniform(nodes=3, rails=3).degraded({(0, 1): "0.5", (2, 2): "0"})
    shared = railopt.Fabric.uniform(nodes=2, rails=2, gpus=4, inside=Inside(near))
    for fabric in (usual, shared):
        planner = Planner(fabric, 64, "even-excess", capacity=ROOM)
        assert_as_on_the_host(planner, drawn(fabric, 64, seed=5))


def test_what_counts_can_have_wrong_is_told_by_check() -> None:
    dead = railopt.Fabric.uniform(nodes=2, rails=2).degraded({(1, 0): "0", (1, 1): "0"})
    for fabric, flow, capacity, words in (
        (railopt.Fabric.uniform(nodes=2, rails=2), -1, ROOM, "node 0: a negative number"),
        (railopt.Fabric.uniform(nodes=2, rails=2), 700, 6, "node 0: more than 6 chunks of 100"),
        (railopt.Fabric.uniform(nodes=2, rails=2), 300, 4, "larger capacity"),
        (dead, 5, ROOM, "node 0: bytes for a node to which no living rail leads"),
    ):
        planner = Planner(fabric, 100, "even-excess", capacity=capacity)
        matrix = np.zeros((4, 4), np.int64)
        matrix[0, 2:] = flow
        made = planner.plan(OnDevice(matrix))
        with pytest.raises(InputError, match=words):
            planner.check()
        assert made.count.copy_to_host().tolist() == [0, 0]
        planner.plan(OnDevice(np.zeros((2, 2, 4), np.int64)))
        planner.check()


def test_counts_that_are_no_counts_are_refused() -> None:
    planner = Planner(railopt.Fabric.uniform(nodes=2, rails=2), 100, "rotate", capacity=ROOM)
    good = np.zeros((4, 4), np.int64)
    with pytest.raises(InputError, match="ndarray, which is not on a GPU"):
        planner.plan(good)
    with pytest.raises(InputError, match=r"<i4 \(4, 4\), expected int64"):
        planner.plan(OnDevice(good.astype(np.int32)))
    with pytest.raises(InputError, match=r"<i8 \(2, 4\), expected .* \(4, 4\) or \(2, 2, 4\)"):
        planner.plan(OnDevice(good[:2]))
    with pytest.raises(InputError, match=r"strides \(8, 32\), expected \(32, 8\)"):
        planner.plan(OnDevice(good.T))


def test_planners_that_can_not_be_are_refused() -> None:
    fabric = railopt.Fabric.uniform(nodes=2, rails=2)
    for words, made in (
        ("'spill' has no GPU kernel", lambda: Planner(fabric, 9, "spill", capacity=9)),
        ("node = 2: expected", lambda: Planner(fabric, 9, "lpt", 2, capacity=9)),
        ("capacity = 0: expected", lambda: Planner(fabric, 9, "lpt", capacity=0)),
        ("chunks of 2147483648 bytes", lambda: Planner(fabric, 1 << 31, "lpt", capacity=9)),
        (
            "one rate, all alive: take even-excess",
            lambda: Planner(fabric.degraded({(0, 0): "0.5"}), 9, "lpt", capacity=9),
        ),
        (
            "bytes of shared memory",
            lambda: Planner(railopt.Fabric.uniform(nodes=128, rails=8), 9, "lpt", capacity=9),
        ),
    ):
        with pytest.raises(InputError, match=words):
            made()
