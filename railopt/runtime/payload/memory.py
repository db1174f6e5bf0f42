"""Users' buffers as addresses: anything with the buffer protocol, `__array_interface__`,
`__cuda_array_interface__` or DLPack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from railopt.base import dlpack
from railopt.base.errors import InputError


@dataclass(frozen=True)
class Memory:
    """`length` contiguous bytes at `address`; `keep` owns them; `cuda` says that the CPU can't read
    them.
    """

    address: int
    length: int
    keep: Any
    cuda: bool = False


def memory_of(buffer: Any, *, writable: bool) -> Memory:
    """The memory behind a buffer; refuses what is read-only (if it must be written) or has gaps."""
    if isinstance(buffer, Memory):
        return buffer
    for name, cuda in (("__cuda_array_interface__", True), ("__array_interface__", False)):
        if hasattr(buffer, name):
            return _from_interface(buffer, getattr(buffer, name), writable, cuda)
    if hasattr(buffer, "__dlpack__"):
        try:
            return _from_dlpack(buffer)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{type(buffer).__name__} gives no memory away: {error}") from error
    try:
        view = memoryview(buffer)
    except TypeError:
        raise InputError(
            f"{type(buffer).__name__} is no buffer: expected the buffer protocol, "
            f"__array_interface__, "
            "__cuda_array_interface__ or __dlpack__"
        ) from None
    if writable and view.readonly:
        raise InputError(
            f"a read-only {type(buffer).__name__} can't receive bytes: give a bytearray or a "
            f"writable array"
        )
    if not view.contiguous:
        raise InputError("the buffer has gaps: expected contiguous memory")
    array = np.frombuffer(view.cast("B"), np.uint8) if view.nbytes else np.zeros(0, np.uint8)
    return Memory(int(array.ctypes.data), array.nbytes, (buffer, array))


def refuse_overlap(send: Sequence[Memory], recv: Sequence[Memory]) -> None:
    """Refuse memory that receives and is sent from, or receives twice: what arrives would overwrite
    what is still to be sent, and the checksums of both sides would agree.
    """
    spans = [(m.address, m.length, 0) for m in send] + [(m.address, m.length, 1) for m in recv]
    taken = received = 0  # where the bytes end that any buffer has so far, and that one receives
    for address, length, receives in sorted(span for span in spans if span[1]):
        if address < (taken if receives else received):
            raise InputError(
                "send and recv buffers share memory, or two recv buffers do: expected buffers of "
                "their own"
            )
        taken = max(taken, address + length)
        received = max(received, address + length) if receives else received


def _from_interface(buffer: Any, interface: dict[str, Any], writable: bool, cuda: bool) -> Memory:
    address, readonly = interface["data"]
    if readonly and writable:
        raise InputError("a read-only array can't receive bytes: give a writable one")
    try:
        dtype = np.dtype(interface["typestr"])
    except TypeError as error:
        raise InputError(f"an array of type {interface['typestr']!r}: {error}") from error
    if dtype.hasobject or getattr(getattr(buffer, "dtype", None), "hasobject", False):
        raise InputError("an array of Python objects, whose bytes are addresses: expected numbers")
    itemsize = dtype.itemsize
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is not None and not dlpack.contiguous(shape, strides, itemsize):
        raise InputError(f"the array has strides {strides}: expected contiguous memory")
    return Memory(int(address or 0), math.prod(shape) * itemsize, buffer, cuda)


def _from_dlpack(buffer: Any) -> Memory:
    tensor = dlpack.read(buffer)
    if tensor.device_type not in (dlpack.CPU, dlpack.CUDA, dlpack.CUDA_HOST):
        raise InputError(
            f"DLPack device type {tensor.device_type}: expected memory of the CPU or of CUDA"
        )
    shape, strides, itemsize = tensor.shape, tensor.strides, tensor.itemsize
    if strides is not None and not dlpack.contiguous(shape, strides, itemsize):
        raise InputError(f"the tensor has strides {strides}: expected contiguous memory")
    return Memory(
        tensor.address, math.prod(shape) * itemsize, tensor.keep, tensor.device_type == dlpack.CUDA
    )
