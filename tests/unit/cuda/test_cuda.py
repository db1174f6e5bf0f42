"""The GPU kernels on the CPU (host.py) against the host's policies, bit by bit; and what is said
where there is no GPU or something is wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import railopt
from railopt.base.errors import BackendError, InputError
from railopt.cuda import GpuPlanner, planner
from railopt.model.inside import Inside
from railopt.policies.planner import Planner
from tests.unit.cuda.host import Host, OnDevice, Tensor

Ints = np.ndarray[Any, np.dtype[np.int64]]
ROOM = 600
POLICIES = ["rotate", "even-excess", "lpt", "lpt-local", "own-nic"]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ with which the kernels could be compiled for the CPU")
    monkeypatch.setattr(Host, "folder", tmp_path_factory.getbasetemp(), raising=False)
    monkeypatch.setattr(planner, "Gpu", Host)


def drawn(fabric: railopt.Fabric, largest: int, seed: int, unit: int = 1) -> Ints:
    """int64 [ranks, ranks]: bytes in multiples of `unit`, a third of the flows without any."""
    rng, ranks = np.random.default_rng(seed), fabric.nodes * fabric.gpus
    sizes = (rng.random((ranks, ranks)) ** 3 * 4 * largest).astype(np.int64) // unit * unit
    return np.where(rng.random((ranks, ranks)) < 1 / 3, 0, sizes)


def assert_as_on_the_host(planner: GpuPlanner, matrix: Ints) -> None:
    fabric = planner.fabric
    plan = railopt.plan(
        fabric, railopt.Traffic(matrix, fabric.nodes), planner.policy, chunk=planner.cap
    )
    chunks = plan.chunks
    wanted = (chunks.src_gpu, chunks.dst_gpu, chunks.offset, chunks.size, plan.rail)
    senders = range(fabric.nodes) if planner.node is None else [planner.node]
    rows = slice(senders[0] * fabric.gpus, (senders[-1] + 1) * fabric.gpus)
    made = planner.plan(OnDevice(np.ascontiguousarray(matrix[rows])))
    planner.check()
    *columns, count = [column.copy_to_host() for column in made]
    for row, k in enumerate(senders):
        own = chunks.src == k
        assert count[row] == own.sum()
        for column, want in zip(columns, wanted, strict=True):
            assert np.array_equal(column[row, : count[row]], want[own])


@pytest.mark.slow
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("policy", POLICIES)
def test_all_nodes_at_once(policy: str) -> None:
    """Chunks whose sums words of 32 bits don't hold, and a cap that no flow reaches."""
    fabric = railopt.Fabric.uniform(nodes=3, rails=2)
    planner = GpuPlanner(fabric, 1 << 30, policy, capacity=ROOM)
    for largest, seed in ((1 << 30, 1), (1 << 30, 2), (40, 3), (2, 4), (0, 5)):
        assert_as_on_the_host(planner, drawn(fabric, largest, seed))


@pytest.mark.slow
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("policy", POLICIES)
def test_one_node_of_eight_rails(policy: str) -> None:
    """Small words; more chunks than the kernels list in shared memory."""
    fabric = railopt.Fabric.uniform(nodes=2, rails=8)
    planner = GpuPlanner(fabric, 1 << 10, policy, 1, capacity=4000)
    for largest, seed, unit in ((1 << 10, 6, 32), (1 << 10, 7, 1), (1 << 14, 8, 8)):
        assert_as_on_the_host(planner, drawn(fabric, largest, seed, unit))


@pytest.mark.slow
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("policy", ["even-excess", "lpt", "lpt-local", "own-nic"])
def test_a_slow_and_a_dead_nic(policy: str) -> None:
    fabric = railopt.Fabric.uniform(nodes=3, rails=3).degraded({(0, 1): "0.5", (2, 2): "0"})
    planner = GpuPlanner(fabric, 64, policy, capacity=ROOM)
    for seed in range(3):
        assert_as_on_the_host(planner, drawn(fabric, 64, seed))


@pytest.mark.slow
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("policy", POLICIES)
def test_senders_with_caps_of_their_own(policy: str) -> None:
    fabric = railopt.Fabric.uniform(nodes=3, rails=2)
    planner, host = (
        GpuPlanner(fabric, None, policy, capacity=ROOM),
        Planner(fabric, None, 1, policy),
    )
    for seed in range(3):
        matrix, caps = drawn(fabric, 60, seed), np.array([64, 7, 100])
        made = planner.launch(matrix.ctypes.data, caps.ctypes.data, 0)
        wanted = host.plan(matrix, caps)
        *columns, count = [column.copy_to_host() for column in made]
        for column, want in zip(columns, wanted, strict=True):
            found = [row[:many] for row, many in zip(column, count, strict=True)]
            assert np.array_equal(np.concatenate(found), want)


@pytest.mark.slow
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("near", [[[1, 0], [1, 1]], [[1, 1, 0], [0, 0, 1]]])
def test_even_excess_with_shared_nics_and_with_several_of_a_gpu(near: list[list[int]]) -> None:
    inside = Inside(np.array(near, bool))
    fabric = railopt.Fabric.uniform(nodes=3, rails=len(near[0]), gpus=2, inside=inside)
    planner = GpuPlanner(fabric, 64, "even-excess", capacity=ROOM)
    for seed in range(3):
        assert_as_on_the_host(planner, drawn(fabric, 64, seed))


@pytest.mark.slow
@pytest.mark.usefixtures("host")
def test_what_counts_can_have_wrong_is_told_by_check() -> None:
    dead = railopt.Fabric.uniform(nodes=3, rails=2).degraded({(2, 0): "0", (2, 1): "0"})
    planner = GpuPlanner(dead, 100, "even-excess", capacity=6)
    for to, flow, words in (
        (0, -1, "node 1: a negative number"),
        (0, 700, "node 1: more than 6 chunks of 100"),
        (0, 400, "larger capacity"),
        (4, 5, "node 1: bytes for a node to which no living rail leads"),
    ):
        matrix = np.zeros((6, 6), np.int64)
        matrix[2, to : to + 2] = flow
        made = planner.plan(OnDevice(matrix))
        with pytest.raises(InputError, match=words):
            planner.check()
        assert made.count.copy_to_host().tolist() == [0, 0, 0]
    planner.plan(OnDevice(np.zeros((3, 2, 6), np.int64)))
    planner.check()


@pytest.mark.slow
@pytest.mark.usefixtures("host")
def test_counts_by_dlpack_and_counts_that_are_none() -> None:
    planner = GpuPlanner(railopt.Fabric.uniform(nodes=2, rails=2), 100, "rotate", capacity=ROOM)
    good = np.arange(16).reshape(4, 4) * 50
    wanted = planner.plan(OnDevice(good)).size.copy_to_host()
    assert np.array_equal(planner.plan(Tensor(good)).size.copy_to_host(), wanted)
    with pytest.raises(InputError, match="ndarray, which is not on a GPU"):
        planner.plan(good)
    for lent in (OnDevice, Tensor):
        with pytest.raises(InputError, match=r"<i4 \(4, 4\), expected int64"):
            planner.plan(lent(good.astype(np.int32)))
        with pytest.raises(InputError, match=r"<i8 \(2, 4\), expected .* \(4, 4\) or \(2, 2, 4\)"):
            planner.plan(lent(good[:2]))
        with pytest.raises(InputError, match=r"strides \(8, 32\): make them contiguous"):
            planner.plan(lent(good.T))


@pytest.mark.slow
@pytest.mark.usefixtures("host")
def test_a_fabric_that_no_block_has_room_for() -> None:
    with pytest.raises(InputError, match="bytes of shared memory"):
        GpuPlanner(railopt.Fabric.uniform(nodes=256, rails=8), 9, "even-excess", 0, capacity=9)


FABRIC = railopt.Fabric.uniform(nodes=2, rails=2)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("'spill' has no GPU kernel", lambda: GpuPlanner(FABRIC, 9, "spill", capacity=9)),
        ("node = 2: expected", lambda: GpuPlanner(FABRIC, 9, "lpt", 2, capacity=9)),
        ("capacity = 0: expected", lambda: GpuPlanner(FABRIC, 9, "lpt", capacity=0)),
        ("chunks of 2147483648 bytes", lambda: GpuPlanner(FABRIC, 1 << 31, "lpt", capacity=9)),
        (
            "one rate, all alive: take even-excess or lpt",
            lambda: GpuPlanner(FABRIC.degraded({(0, 0): "0.5"}), 9, "rotate", capacity=9),
        ),
        (
            "33 rails: a cuda.GpuPlanner takes at most 32",
            lambda: GpuPlanner(railopt.Fabric.uniform(nodes=2, rails=33), 9, "lpt", capacity=9),
        ),
    ],
)
def test_planners_that_can_not_be_are_refused(words: str, made: Callable[[], GpuPlanner]) -> None:
    with pytest.raises(InputError, match=words):
        made()


def test_without_a_gpu_the_error_says_what_to_do() -> None:
    try:
        from cuda.bindings import driver
    except ImportError:
        pass
    else:
        if int(driver.cuInit(0)[0]) == 0:
            pytest.skip("there is a GPU")
    with pytest.raises(BackendError, match=r"pip install 'railopt\[cuda\]'"):
        GpuPlanner(FABRIC, capacity=9)
