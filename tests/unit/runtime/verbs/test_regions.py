"""Memory of a GPU in the verbs sender, with a GPU's memory played by the host's."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
import pytest

from railopt import Fabric
from railopt.base.errors import BackendError
from railopt.runtime import RowSender
from railopt.runtime.payload import device
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.senders.verbs import Verbs
from tests.contract.sender_world import World

SIZE = 1 << 16
FABRIC = Fabric.uniform(2, 2)
ROWS = np.random.default_rng(4).integers(0, 3000, (2, 2, 4))


class Tensor:
    """What a CUDA tensor of PyTorch looks like from here."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.__cuda_array_interface__ = {
            "data": (data.ctypes.data, False),
            "shape": data.shape,
            "typestr": "|u1",
            "version": 3,
        }


class Gpus:
    """libcuda over memory of the host: exports file descriptors that the null driver knows."""

    def __init__(self, world: World, exports: bool) -> None:
        self.world, self.exports, self.copied = world, exports, 0
        self.open: set[int] = set()

    def export(self, address: int, length: int) -> tuple[int, int]:
        if not self.exports:
            raise BackendError("cuMemGetHandleForAddressRange: CUDA error 801")
        fd = os.open(os.devnull, os.O_RDONLY)
        first = address // mmap.PAGESIZE * mmap.PAGESIZE
        self.world.lib.dmabufs[fd] = first
        self.open.add(fd)
        return fd, address - first

    def fetch(self, host: int, gpu: int, length: int) -> None:
        self.copied += length
        ctypes.memmove(host, gpu, length)

    def store(self, gpu: int, host: int, length: int) -> None:
        self.copied += length
        ctypes.memmove(gpu, host, length)


@pytest.mark.parametrize("way", ["dma-buf", "peer memory", "host"])
def test_bytes_of_a_gpu_arrive_whichever_way_its_driver_offers(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(2, 2)
    gpus = Gpus(world, way == "dma-buf")
    monkeypatch.setattr(device, "libcuda", lambda: gpus)
    memory = np.random.default_rng(0).integers(0, 256, (2, 2, SIZE), np.uint8)
    if way != "peer memory":
        world.lib.gpu = (memory.ctypes.data, memory.ctypes.data + memory.nbytes)
    before = memory.copy()

    def work(group: Group) -> int:
        send, recv = (Tensor(memory[group.rank, side]) for side in (0, 1))
        devices = [f"null{group.rank}_{n}" for n in range(2)]
        with Verbs(group, devices, send, recv, options=world.options, lib=world.lib) as sender:
            RowSender(sender, FABRIC).run(ROWS[group.rank]).wait()
            return sender.recv[0].address

    if way == "host":
        with pytest.warns(
            RuntimeWarning, match=r"can't reach the GPU's memory \(cuMem.*ibv_reg_mr"
        ):
            found = world.run_groups(work)
    else:
        found = world.run_groups(work)
    assert found == [int(memory[k, 1].ctypes.data) for k in range(2)]
    for node in range(2):
        between = ROWS[1 - node][:, 2 * node : 2 * node + 2]
        parts = [
            before[1 - node, 0][start : start + between[here, there]]
            for there in range(2)
            for here in range(2)
            for start in [between.reshape(-1)[: 2 * here + there].sum()]
        ]
        wanted = np.concatenate([*parts, before[node, 1][between.sum() :]])  # the rest stays
        assert np.array_equal(memory[node, 1], wanted)
    assert gpus.copied == (2 * 4 * SIZE - 2 * SIZE if way == "host" else 0)
    for fd in gpus.open:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_machine_without_nvidias_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match=r"libnothing.so.1, NVIDIA's driver, can't be loaded"):
        device.Cuda("libnothing.so.1")


def test_pages_and_contexts_that_libcuda_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole pages are exported, in the context of the memory's GPU, which is left again."""
    page, calls = mmap.PAGESIZE, []

    def called(self: device.Cuda, name: str, *arguments: Any) -> None:
        calls.append((name, *arguments[-3:]))
        if name == "cuMemGetAddressRange_v2":
            arguments[0]._obj.value, arguments[1]._obj.value = 4 * page, 4 * page
        if name == "cuMemGetHandleForAddressRange":
            arguments[0]._obj.value = 77

    monkeypatch.setattr(device.Cuda, "_call", called)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: None)
    cuda = device.Cuda()
    assert cuda.export(5 * page + 512, page) == (77, 512)
    assert [name for name, *_ in calls[-5:]] == [
        "cuPointerGetAttribute",
        "cuCtxPushCurrent_v2",
        "cuMemGetAddressRange_v2",
        "cuMemGetHandleForAddressRange",
        "cuCtxPopCurrent_v2",
    ]
    assert calls[-2][1:] == (2 * page, 1, 0)
    with pytest.raises(BackendError, match="shares its first or last page"):
        cuda.export(7 * page + 512, page)
    assert calls[-1][0] == "cuCtxPopCurrent_v2"
