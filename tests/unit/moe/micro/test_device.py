"""The greedy kernel for GPUs, run on the CPU, against the host's: the same parts, one by one."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.micro import device
from railopt.moe.micro.device import DeviceGreedy
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import Greedy
from tests.unit.cuda.host import Host, OnDevice


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ with which the kernel could be compiled for the CPU")
    monkeypatch.setattr(Host, "folder", tmp_path_factory.getbasetemp(), raising=False)
    monkeypatch.setattr(device, "Gpu", Host)


def layer_of(case: str) -> SpareSlots:
    """Six GPUs of two nodes: experts held once; some held twice; copies that can't leave a node."""
    holds = np.repeat(np.eye(6, dtype=bool), 2, axis=1)
    if case == "held twice":
        holds[0, 7] = holds[3, 7] = holds[5, 0] = True
    return SpareSlots(2, 3, holds, np.array([2, 0, 1, 1, 1, 0]), within_node=case == "within nodes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "slack"), [("held once", 0), ("held twice", 30), ("within nodes", 0)]
)
def test_the_same_parts_as_on_the_host(case: str, slack: int) -> None:
    rng = np.random.default_rng(11)
    slots, batches = layer_of(case), 12
    greedy, there = Greedy(slots, slack), DeviceGreedy(slots, slack, batches)
    counts = (rng.lognormal(3, 2, (batches, slots.experts))).astype(np.int64)
    counts[0] = 0
    counts[1, 1:] = 0
    parts = there.plan(OnDevice(counts))
    there.check()
    expert, rank, tokens, load, used = (column.copy_to_host() for column in parts)
    for b in range(batches):
        greedy.largest(counts[b])
        wanted, many = greedy.plan, int(greedy.plan.used[0])
        assert used[b] == many
        for found, want in ((expert, wanted.expert), (rank, wanted.rank), (tokens, wanted.tokens)):
            assert np.array_equal(found[b, :many], want[:many])
        assert np.array_equal(load[b], wanted.load)


@pytest.mark.slow
def test_counts_that_can_not_be_planned() -> None:
    greedy = DeviceGreedy(layer_of("held once"))
    for first, words in ((-1, "micro-batch 0: a negative"), (1 << 31, "2147483648 tokens or more")):
        counts = np.zeros(12, np.int64)
        counts[0] = first
        parts = greedy.plan(OnDevice(counts))
        with pytest.raises(InputError, match=words):
            greedy.check()
        assert parts.used.copy_to_host().tolist() == [0]
    with pytest.raises(
        InputError, match=r"<i8 \(11,\), expected int64 \(<i8\) \(12,\) or \(1, 12\)"
    ):
        greedy.plan(OnDevice(np.zeros(11, np.int64)))
