"""Users' buffers as addresses: anything with the buffer protocol, `__array_interface__`,
`__cuda_array_interface__` or DLPack.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from railopt.errors import InputError


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
        return _from_dlpack(buffer)
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


def _from_interface(buffer: Any, interface: dict[str, Any], writable: bool, cuda: bool) -> Memory:
    address, readonly = interface["data"]
    if readonly and writable:
        raise InputError("a read-only array can't receive bytes: give a writable one")
    itemsize = int(interface["typestr"][2:])
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is not None and not _contiguous(shape, strides, itemsize):
        raise InputError(f"the array has strides {strides}: expected contiguous memory")
    return Memory(int(address or 0), math.prod(shape) * itemsize, buffer, cuda)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the strides are those of C order."""
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h (ABI 0.x and, behind its version field, 1.x)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DL_CPU, _DL_CUDA, _DL_CUDA_HOST = 1, 2, 3


def _from_dlpack(buffer: Any) -> Memory:
    capsule = buffer.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.device_type not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST):
        raise InputError(
            f"DLPack device type {tensor.device_type}: expected memory of the CPU or of CUDA"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    itemsize = tensor.bits * tensor.lanes // 8
    strides = (
        tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim)) if tensor.strides else None
    )
    if strides is not None and not _contiguous(shape, strides, itemsize):
        raise InputError(f"the tensor has strides {strides}: expected contiguous memory")
    return Memory(
        (tensor.data or 0) + tensor.byte_offset,
        math.prod(shape) * itemsize,
        (buffer, capsule),
        tensor.device_type == _DL_CUDA,
    )
