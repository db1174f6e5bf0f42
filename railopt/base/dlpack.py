"""DLPack: where another library's tensor lies, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

__all__ = ["CPU", "CUDA", "CUDA_HOST", "Tensor", "contiguous", "read"]

CPU, CUDA, CUDA_HOST = 1, 2, 3  # device types


class Tensor(NamedTuple):
    """strides   bytes, or None where the tensor has C order
    code, bits, lanes   what an item is: code 0 is a signed integer, 1 unsigned, 2 a float
    keep      what must live as long as the address is used
    """

    address: int
    device_type: int
    code: int
    bits: int
    lanes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    keep: Any

    @property
    def itemsize(self) -> int:
        return self.bits * self.lanes // 8


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


def read(buffer: Any, **options: Any) -> Tensor:
    """What `buffer.__dlpack__(**options)` hands out; its owner keeps the memory."""
    capsule = buffer.__dlpack__(**options)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        itemsize = tensor.bits * tensor.lanes // 8
        strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim))
    return Tensor(
        (tensor.data or 0) + tensor.byte_offset,
        tensor.device_type,
        tensor.code,
        tensor.bits,
        tensor.lanes,
        shape,
        strides,
        (buffer, capsule),
    )


def contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the strides are those of C order."""
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True
