"""Counts that another library lends: where they lie on the GPU, without a copy."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from railopt.base import dlpack
from railopt.base.errors import InputError

__all__ = ["address_of", "current_stream"]

_TYPES = {(0, 64, 1): "<i8", (0, 32, 1): "<i4", (1, 64, 1): "<u8", (2, 32, 1): "<f4"}


class Lent(NamedTuple):
    """An array elsewhere.  strides: bytes, or None where it has C order."""

    address: int
    typestr: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


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
    if lent.typestr != "<i8" or lent.shape not in shapes:
        raise InputError(
            f"counts are {lent.typestr} {lent.shape}, expected int64 (<i8) "
            f"{' or '.join(map(str, shapes))}"
        )
    if lent.strides is not None and not dlpack.contiguous(lent.shape, lent.strides, 8):
        raise InputError(f"counts have strides {lent.strides}: make them contiguous")
    return lent.address


def _by_interface(counts: Any) -> Lent | None:
    found = getattr(counts, "__cuda_array_interface__", None)
    if found is None:
        return None
    strides = found.get("strides")
    strides = None if strides is None else tuple(strides)
    return Lent(int(found["data"][0]), str(found["typestr"]), tuple(found["shape"]), strides)


def _by_dlpack(counts: Any, stream: int) -> Lent | None:
    """None where the array is not on a GPU, or has no DLPack."""
    where = getattr(counts, "__dlpack_device__", None)
    if where is None or where()[0] != dlpack.CUDA:
        return None
    # 1 is how DLPack writes the default stream; the lender lets it wait for what it does itself
    tensor = dlpack.read(counts, stream=stream or 1)
    item = (tensor.code, tensor.bits, tensor.lanes)
    typestr = _TYPES.get(item, f"DLPack items {item} (code, bits, lanes)")
    return Lent(tensor.address, typestr, tensor.shape, tensor.strides)


def current_stream(counts: Any) -> int:
    """The address of the stream on which the counts' library works now."""
    library = type(counts).__module__.partition(".")[0]
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(counts.device).cuda_stream)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0
