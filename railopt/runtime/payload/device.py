"""Memory of NVIDIA GPUs through libcuda, the driver's library: file descriptors by which a NIC
reaches it (dma-buf), and copies where no NIC does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from railopt.base.errors import BackendError

_CONTEXT, _DMA_BUF = 1, 1  # CU_POINTER_ATTRIBUTE_CONTEXT, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
_P, _U64, _SIZE, _I = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuPointerGetAttribute": (_P, _I, _U64),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (_P,),
    "cuMemGetAddressRange_v2": (_P, _P, _U64),
    "cuMemGetHandleForAddressRange": (_P, _U64, _SIZE, _I, _U64),
    "cuMemcpyDtoH_v2": (_P, _U64, _SIZE),
    "cuMemcpyHtoD_v2": (_U64, _P, _SIZE),
}


class Cuda:
    """The functions of libcuda that are called here, each in the context of the memory's GPU."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        try:
            self._dll = ctypes.CDLL(path)
        except OSError as error:
            raise BackendError(f"{path}, NVIDIA's driver, can't be loaded ({error})") from error
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._dll, name, None)
        if function is None:
            raise BackendError(f"{name}: this libcuda has no such function")
        function.argtypes = _SIGNATURES[name]
        if error := function(*arguments):
            raise BackendError(f"{name}: CUDA error {error}")

    @contextmanager
    def _context_of(self, address: int) -> Iterator[None]:
        context = _P()
        self._call("cuPointerGetAttribute", ctypes.byref(context), _CONTEXT, address)
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(context))

    def export(self, address: int, length: int) -> tuple[int, int]:
        """A file descriptor of the pages that hold so many bytes, to be closed by the caller, and
        where in them the bytes begin.
        """
        page, fd = os.sysconf("SC_PAGE_SIZE"), ctypes.c_int(-1)
        first, last = address // page * page, -(-(address + length) // page) * page
        base, size = _U64(), _SIZE()
        with self._context_of(address):
            self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
            if first < base.value or last > base.value + size.value:
                raise BackendError("the buffer shares its first or last page with another one")
            place = ctypes.byref(fd), first, last - first, _DMA_BUF, 0
            self._call("cuMemGetHandleForAddressRange", *place)
        return fd.value, address - first

    def fetch(self, host: int, device: int, length: int) -> None:
        """Copy to the host, after all that the GPU's default stream was given."""
        with self._context_of(device):
            self._call("cuMemcpyDtoH_v2", host, device, length)

    def store(self, device: int, host: int, length: int) -> None:
        """Copy to the GPU."""
        with self._context_of(device):
            self._call("cuMemcpyHtoD_v2", device, host, length)


@cache
def libcuda() -> Cuda:
    """The driver's library, loaded on the first call."""
    return Cuda()
