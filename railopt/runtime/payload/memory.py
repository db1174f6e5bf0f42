"""Users' buffers as addresses: anything with the buffer protocol, `__array_interface__`,
`__cuda_array_interface__` or DLPack.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from railopt.base import dlpack
from railopt.base.arrays import Array, Ints
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

    def bytes(self) -> Array:
        """uint8 [length], writable; it does not own them."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.length).from_address(self.address))


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
        array = np.frombuffer(buffer, np.uint8)
    except TypeError:
        raise InputError(
            f"{type(buffer).__name__} is no buffer: expected the buffer protocol, "
            f"__array_interface__, __cuda_array_interface__ or __dlpack__"
        ) from None
    except BufferError as error:
        raise InputError(f"{error}: expected contiguous memory") from error
    return _from_interface(array, array.__array_interface__, writable, cuda=False)


def require_room(whose: str, there: Sequence[int], needed: Ints, what: str = "the plan") -> None:
    """Refuse buffers of `there` bytes if they are not as many, or not as large, as are `needed`."""
    if len(there) != len(needed):
        raise InputError(f"{len(there)} {whose} buffers, {what} needs {len(needed)}")
    for number, (have, need) in enumerate(zip(there, needed.tolist(), strict=True)):
        if have < need:
            raise InputError(f"{whose} buffer {number} has {have} bytes, {what} needs {need}")


def refuse_overlap(send: Sequence[Memory], recv: Sequence[Memory]) -> None:
    """Refuse memory that receives and is sent from, or receives twice: what arrives would overwrite
    what is still to be sent.
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
        raise InputError("read-only memory can't receive bytes: give a bytearray, a writable array")
    try:
        dtype = np.dtype(interface["typestr"])
    except TypeError as error:
        raise InputError(f"an array of type {interface['typestr']!r}: {error}") from error
    if dtype.hasobject or getattr(getattr(buffer, "dtype", None), "hasobject", False):
        raise InputError("an array of Python objects, whose bytes are addresses: expected numbers")
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    length = _dense_bytes(shape, strides, dtype.itemsize)
    return Memory(int(address or 0), length, buffer, cuda)


def _from_dlpack(buffer: Any) -> Memory:
    tensor = dlpack.read(buffer)
    if tensor.device_type not in (dlpack.CPU, dlpack.CUDA, dlpack.CUDA_HOST):
        raise InputError(
            f"DLPack device type {tensor.device_type}: expected memory of the CPU or of CUDA"
        )
    length = _dense_bytes(tensor.shape, tensor.strides, tensor.itemsize)
    return Memory(tensor.address, length, tensor.keep, tensor.device_type == dlpack.CUDA)


def _dense_bytes(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> int:
    """Bytes of an array without gaps; anything else is refused."""
    if strides is not None and not dlpack.contiguous(shape, strides, itemsize):
        raise InputError(f"an array with strides {strides}: expected contiguous memory")
    return math.prod(shape) * itemsize
