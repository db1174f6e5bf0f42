"""Tables of a rank from kernels on the CPU (host.py) against the host's."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import railopt
from railopt.base.arrays import Array
from railopt.cuda import planner, routing
from railopt.cuda.routing import PieceTable, RouteKernels, TableOffsets
from railopt.torch.routes import Router
from railopt.torch.ways import Exchange, Reorder
from tests.unit.cuda.host import Host

pytestmark = pytest.mark.slow
HEAD = 4


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ with which the kernels could be compiled for the CPU")
    monkeypatch.setattr(Host, "folder", tmp_path_factory.getbasetemp(), raising=False)
    monkeypatch.setattr(planner, "Gpu", Host)
    monkeypatch.setattr(routing, "Gpu", Host)
    monkeypatch.setattr(routing, "_BLOCKS", 3)  # of 512 coroutines each, one after another


def messages_of(counts: Array) -> Array:
    """What all ranks tell each other: heads, rows to each rank, rows from each."""
    return np.concatenate([np.full((len(counts), HEAD), 0), counts, counts.T], axis=1)


def planned(kernels: RouteKernels, every: Array) -> tuple[Array, TableOffsets]:
    ranks = len(every)
    at = TableOffsets.of(kernels.fabric, 1)
    tables, work = np.zeros(at.came.stop, np.int64), np.empty(ranks * ranks + ranks, np.int64)
    addresses = every.ctypes.data, True, work.ctypes.data, tables.ctypes.data
    kernels.plan(*addresses, at, 0)
    return tables, at


@pytest.mark.parametrize("policy", ["even-excess", "lpt"])
def test_exchanges_and_orders_of_a_rank(policy: str) -> None:
    fabric = railopt.Fabric.uniform(2, 2).degraded({(1, 0): "0.5"})
    counts = np.random.default_rng(5).integers(0, 300, (4, 4))
    counts[2] = 0
    for rank in (1, 2):
        router = Router(fabric, rank, policy)
        kernels = RouteKernels(fabric, rank, policy, router.pieces, router.via, HEAD)
        tables, at = planned(kernels, messages_of(counts))
        route = router.route(counts)
        names = ("staged", "gathered"), ("there", "here"), ("passed", "into")
        steps = [step for step in route.way if isinstance(step, Exchange)]
        for (out, into), step in zip(names, steps, strict=True):
            assert tables[getattr(at, out)].tolist() == step.send
            assert tables[getattr(at, into)].tolist() == step.recv
        assert tables[at.status].tolist() == [0]
        assert tables[at.sent].tolist() == route.sent.tolist()
        assert tables[at.received].tolist() == route.received.tolist()
        shapes = {"own": (4, 2, 2, 1), "blocks": (2, 2, 2, 1), "arrived": (4, 2, 2, 1)}
        shapes["came"] = (2, 4, 1, 2)
        lengths = [int(tables[getattr(at, name)].sum()) for name in shapes]
        index = [np.full((2, length), -1, np.int32) for length in lengths]
        pieces = [
            PieceTable(
                tables[getattr(at, name)].ctypes.data, *shape, *(part.ctypes.data for part in one)
            )
            for (name, shape), one in zip(shapes.items(), index, strict=True)
        ]
        kernels.expand(0, *pieces)
        reorders = [step for step in route.way if isinstance(step, Reorder)]
        for (found, inverse), step in zip(index, reorders, strict=True):
            begins = np.cumsum(step.sizes) - step.sizes
            wanted = [np.arange(b, b + n) for b, n in zip(begins, step.sizes, strict=True)]
            wanted = np.concatenate([wanted[place] for place in step.order] or [np.zeros(0, int)])
            assert found.tolist() == wanted.tolist()
            assert inverse[found].tolist() == list(range(len(found)))


def test_ranks_that_tell_different_things() -> None:
    fabric = railopt.Fabric.uniform(2, 1)
    kernels = RouteKernels(fabric, 0, "own-nic", 4, Router(fabric, 0).via, HEAD)
    good = messages_of(np.array([[1, 2], [3, 4]]))
    for place, status in (((0, 1), 2), ((1, 0), 1), ((0, HEAD + 1), 4), ((1, HEAD), 4)):
        every = good.copy()
        every[place] += 1
        tables, at = planned(kernels, every)
        assert tables[at.status].tolist() == [status]
