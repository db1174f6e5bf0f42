"""Buffers registered with every rail, those of a GPU too.

A NIC reaches a GPU's memory by a dma-buf of it, or because a peer-memory driver (nvidia-peermem)
serves plain registration. Where both are refused, bytes go through a buffer of the host.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from railopt.base.errors import BackendError
from railopt.runtime.payload import device
from railopt.runtime.payload.memory import Memory, memory_of
from railopt.runtime.verbs.objects import REMOTE_WRITE, Mr
from railopt.runtime.verbs.rails import Rail

_EMPTY = bytearray(4096)


@dataclass(frozen=True)
class Region:
    """A buffer that the NICs read or write, its registration on each rail, and the memory of a GPU
    that it stands for, if any.
    """

    memory: Memory
    rails: list[Mr]
    gpu: Memory | None = None

    def fetch(self) -> None:
        """Bring what the GPU has, where the NICs can't."""
        if self.gpu is not None:
            device.libcuda().fetch(self.memory.address, self.gpu.address, self.gpu.length)

    def store(self) -> None:
        """Bring it back."""
        if self.gpu is not None:
            device.libcuda().store(self.gpu.address, self.memory.address, self.gpu.length)


def registered(rails: Sequence[Rail], memory: Memory, access: int = REMOTE_WRITE) -> Region:
    """A buffer, registered with each rail."""
    if not memory.length:  # drivers refuse that: a node that only sends still registers a page
        memory = memory_of(_EMPTY, writable=True)
    if not memory.cuda:
        return Region(memory, _plain(rails, memory, access))
    refused = []
    for way in (_dmabuf, _plain):
        try:
            return Region(memory, way(rails, memory, access))
        except BackendError as error:
            refused.append(str(error))
    host = memory_of(np.zeros(memory.length, np.uint8), writable=True)
    warnings.warn(
        f"the NICs can't reach the GPU's memory ({'; '.join(refused)}): its bytes go through a "
        f"buffer of the host",
        RuntimeWarning,
        stacklevel=2,
    )
    return Region(host, _plain(rails, host, access), memory)


def _plain(
    rails: Sequence[Rail], memory: Memory, access: int, dmabuf: tuple[int, int] | None = None
) -> list[Mr]:
    with ExitStack() as undo:
        made = [
            undo.enter_context(Mr(rail.pd, memory.address, memory.length, memory, access, dmabuf))
            for rail in rails
        ]
        undo.pop_all()
        return made


def _dmabuf(rails: Sequence[Rail], memory: Memory, access: int) -> list[Mr]:
    fd, offset = device.libcuda().export(memory.address, memory.length)
    try:
        return _plain(rails, memory, access, (fd, offset))
    except AttributeError as error:
        raise BackendError("this libibverbs has no ibv_reg_dmabuf_mr") from error
    finally:
        os.close(fd)
