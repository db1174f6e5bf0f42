"""Counts that another library lends: where they lie on the GPU, without a copy."""

from __future__ import annotations

import sys
from typing import Any

from railopt.base import dlpack
from railopt.base.errors import InputError

_TYPES = {(0, 64, 1): "<i8", (0, 32, 1): "<i4", (1, 64, 1): "<u8", (2, 32, 1): "<f4"}


# an array elsewhere: address, type, shape, and strides in bytes or None where it has C order
_Lent = tuple[int, str, tuple[int, ...], tuple[int, ...] | None]


def address_of(counts: Any, shapes: tuple[tuple[int, ...], ...], stream: int) -> int:
    """The address of int64 counts of one of these shapes, in C order; an InputError for all else.

    They come with `__cuda_array_interface__`, or else with DLPack.
    """
    lent = _by_interface(counts) or _by_dlpack(counts, stream)
    if lent is None:
        raise InputError(
            f"counts are a {type(counts).__name__}, which is not on a GPU: expected an int64 array "
            f"with __cuda_array_interface__ or __dlpack__ (torch, CuPy, numba, JAX)"
        )
    address, typestr, shape, strides = lent
    if typestr != "<i8" or shape not in shapes:
        raise InputError(
            f"counts are {typestr} {shape}, expected int64 (<i8) {' or '.join(map(str, shapes))}"
        )
    if strides is not None and not dlpack.contiguous(shape, strides, 8):
        raise InputError(f"counts have strides {strides}: make them contiguous")
    return address


def _by_interface(counts: Any) -> _Lent | None:
    found = getattr(counts, "__cuda_array_interface__", None)
    if found is None:
        return None
    strides = found.get("strides")
    strides = None if strides is None else tuple(strides)
    return int(found["data"][0]), str(found["typestr"]), tuple(found["shape"]), strides


def _by_dlpack(counts: Any, stream: int) -> _Lent | None:
    """None where the array is not on a GPU, or has no DLPack."""
    where = getattr(counts, "__dlpack_device__", None)
    if where is None or where()[0] != dlpack.CUDA:
        return None
    # 1 is how DLPack writes the default stream; the lender lets it wait for what it does itself
    tensor = dlpack.read(counts, stream=stream or 1)
    item = (tensor.code, tensor.bits, tensor.lanes)
    typestr = _TYPES.get(item, f"DLPack items {item} (code, bits, lanes)")
    return tensor.address, typestr, tensor.shape, tensor.strides


def current_stream(counts: Any) -> int:
    """The address of the stream on which the counts' library works now."""
    library = type(counts).__module__.partition(".")[0]
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(counts.device).cuda_stream)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0
