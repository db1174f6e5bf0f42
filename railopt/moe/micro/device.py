"""The greedy solver on a GPU (extra `cuda`): from counts on the device to copies and split on the
device, one kernel, no host sync.  The same plans, part by part, as `Greedy` on the host.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, whole_number
from railopt.base.errors import InputError
from railopt.cuda.driver import Arguments, DeviceArray, Gpu
from railopt.cuda.lent import address_of, current_stream
from railopt.moe.micro.greedy import HALVINGS, HAS, MAY, SlotTables
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import MAX_SLACK

__all__ = ["DeviceGreedy", "DeviceParts"]

_THREADS = 256
_MAX_PARTS = 1 << 15
_MAX_BATCHES = 1 << 16
_NOT, _MAY = 0xFFFF, 0xFFFE  # of an expert and a GPU, where there is no part (kernels/micro.cu)
_WRONG = {  # what `status` says of a micro-batch
    1: "a negative number of tokens",
    2: f"{1 << 31} tokens or more; the host's Greedy counts further",
}


class DeviceParts(NamedTuple):
    """Plans of B micro-batches, on the device: the solver's own buffers, valid until its next call.
    The first `used[b]` parts of row b are a plan, as `greedy.TokenParts`.

    expert, rank   int32 [B, parts + slots]
    tokens         int64 [B, parts + slots]
    load           int64 [B, GPUs]
    used           int32 [B]
    """

    expert: Any
    rank: Any
    tokens: Any
    load: Any
    used: Any


class DeviceGreedy:
    """Plans `batches` micro-batches of one layer at once;
    `slack` as in `Greedy`.

        >>> greedy = DeviceGreedy(SpareSlots.of(placement, layer=0, spare=2))
        >>> parts = greedy.plan(counts)   # int64 [experts] on the GPU, tokens
    """

    def __init__(self, slots: SpareSlots, slack: int = 0, batches: int = 1) -> None:
        self.slots, self.slack = slots, whole_number(slack, "slack", 0, MAX_SLACK)
        self.batches = whole_number(batches, "batches", 1, _MAX_BATCHES)
        layer = slots.layer
        most = len(layer.expert) + int(layer.spare.sum())
        if most > _MAX_PARTS:
            raise InputError(
                f"{most} parts and spare slots: a DeviceGreedy takes at most {_MAX_PARTS}; plan on "
                f"the host with Greedy"
            )
        self._gpu = Gpu()
        self._prepare(layer, most)

    def _prepare(self, layer: SlotTables, most: int) -> None:
        """Everything that allocates, compiles or waits, so that `plan` does none of it."""
        gpu, slots, batches = self._gpu, self.slots, self.batches
        macros = {
            "EXPERTS": slots.experts,
            "RANKS": slots.ranks,
            "NODE": layer.gpus,
            "PARTS": len(layer.expert),
            "SLOTS": most - len(layer.expert),
            "SLACK": self.slack,
            "HALVINGS": HALVINGS,
            "THREADS": _THREADS,
        }
        self._kernel, shared = gpu.kernel("micro", macros)
        if shared > gpu.shared_limit():
            raise InputError(
                f"{slots.experts} experts on {slots.ranks} GPUs need {shared} bytes of shared "
                f"memory, a block has {gpu.shared_limit()}: plan on the host with Greedy"
            )
        tables = (layer.expert, layer.rank, layer.holders, layer.node, layer.spare, _at(layer))
        self._tables = [gpu.array(table) for table in tables]
        kinds = ((most, np.int32), (most, np.int32), (most, np.int64), (slots.ranks, np.int64))
        columns = [DeviceArray(gpu, (batches, length), kind) for length, kind in kinds]
        ends = [DeviceArray(gpu, (batches,), np.int32) for _ in range(2)]
        self._parts, self._status = DeviceParts._make([*columns, ends[0]]), ends[1]
        self._given = _pointers([0, *(table.pointer for table in self._tables)])
        made = _pointers([array.pointer for array in (*columns, *ends)])
        self._arguments = Arguments(self._given, made)
        zeros = gpu.array(np.zeros((batches, slots.experts), np.int64))
        self.plan(zeros, 0)  # the first launch of a kernel loads it
        gpu.synchronize()

    @property
    def parts(self) -> DeviceParts:
        """What `plan` fills."""
        return self._parts

    def plan(self, counts: Any, stream: int | None = None) -> DeviceParts:
        """Copies and split for the tokens `counts`, int64 [experts] or [batches, experts] on the
        device; whose they can be and `stream` as in `railopt.cuda.GpuPlanner.plan`.
        """
        on = current_stream(counts) if stream is None else stream
        shapes: tuple[tuple[int, ...], ...] = ((self.batches, self.slots.experts),)
        if self.batches == 1:
            shapes = ((self.slots.experts,), *shapes)
        self._given[0] = address_of(counts, shapes, on)
        self._kernel.launch(self.batches, _THREADS, self._arguments.address, on)
        return self._parts

    def check(self) -> None:
        """Wait for the device, and raise an InputError that says what was wrong with the last
        counts; where a micro-batch's were wrong, its `used` is 0.
        """
        status = self._status.copy_to_host()
        for batch in np.flatnonzero(status).tolist():
            raise InputError(f"counts of micro-batch {batch}: {_WRONG[int(status[batch])]}")


def _pointers(values: list[int]) -> Any:
    return (ctypes.c_void_p * len(values))(*values)


def _at(layer: SlotTables) -> Array:
    """uint16 [experts * GPUs], in words of 16 bytes: the part of an expert on a GPU, or what stands
    for none.
    """
    at = np.where(layer.place == MAY, _MAY, _NOT).astype(np.uint16)
    at[layer.expert, layer.rank] = np.arange(len(layer.expert))
    assert ((at < _MAY) == (layer.place == HAS)).all()
    return np.pad(at.ravel(), (0, -at.size % 8))
