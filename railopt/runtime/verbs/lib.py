"""libibverbs.so.1: the exported functions that railopt calls, each bound when it is first used.

`ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq` are inline functions of the header, not symbols
of the library: they are function pointers in `ibv_context.ops` (see objects.py).
"""

from __future__ import annotations

import ctypes
import errno as errno_names
import os
from functools import cache
from typing import Any, Protocol

from railopt.base.errors import BackendError
from railopt.runtime.verbs.structs import LAYOUTS

INSTALL = (
    "install it and the NIC's driver, on Debian/Ubuntu: apt-get install libibverbs1 "
    "ibverbs-providers (NVIDIA NICs: or DOCA-OFED)"
)
_HINTS = {
    ("ibv_reg_mr", errno_names.ENOMEM): "raise the locked-memory limit: ulimit -l unlimited",
    ("ibv_reg_mr", errno_names.EFAULT): "the addresses are not mapped memory of this process",
    ("ibv_open_device", errno_names.EPERM): "the user may not open /dev/infiniband/uverbs*",
}

_P, _I, _U8, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8, ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ibv_get_device_list": (ctypes.POINTER(_P), (ctypes.POINTER(_I),)),
    "ibv_free_device_list": (None, (ctypes.POINTER(_P),)),
    "ibv_get_device_name": (ctypes.c_char_p, (_P,)),
    "ibv_open_device": (_P, (_P,)),
    "ibv_close_device": (_I, (_P,)),
    "ibv_query_port": (_I, (_P, _U8, _P)),
    "ibv_query_gid": (_I, (_P, _U8, _I, _P)),
    "ibv_alloc_pd": (_P, (_P,)),
    "ibv_dealloc_pd": (_I, (_P,)),
    "ibv_reg_mr": (_P, (_P, _P, ctypes.c_size_t, _I)),
    "ibv_reg_dmabuf_mr": (_P, (_P, _U64, ctypes.c_size_t, _U64, _I, _I)),
    "ibv_dereg_mr": (_I, (_P,)),
    "ibv_create_cq": (_P, (_P, _I, _P, _P, _I)),
    "ibv_destroy_cq": (_I, (_P,)),
    "ibv_create_qp": (_P, (_P, _P)),
    "ibv_modify_qp": (_I, (_P, _P, _I)),
    "ibv_query_qp": (_I, (_P, _P, _I, _P)),
    "ibv_destroy_qp": (_I, (_P,)),
    "ibv_get_async_event": (_I, (_P, _P)),
    "ibv_ack_async_event": (None, (_P,)),
    "ibv_event_type_str": (ctypes.c_char_p, (_I,)),
}


class VerbsError(BackendError):
    """A verb failed: `verb` is its C name, `errno` what it left."""

    def __init__(self, verb: str, errno: int) -> None:
        hint = f"; {_HINTS[verb, errno]}" if (verb, errno) in _HINTS else ""
        super().__init__(f"{verb}: {os.strerror(errno)} (errno {errno}){hint}")
        self.verb, self.errno = verb, errno


class Library(Protocol):
    """What objects.py calls: the functions of `_SIGNATURES` under their C names. libibverbs has
    them, and so does the driver without hardware of the tests.
    """

    def __getattr__(self, name: str) -> Any: ...


class SharedLibrary:
    """libibverbs itself; each function gets its types when it is first used, and errno is kept for
    `made` and `call`.
    """

    def __init__(self, path: str = "libibverbs.so.1") -> None:
        try:
            self._dll = ctypes.CDLL(path, use_errno=True)
        except OSError as error:
            raise BackendError(f"{path} can't be loaded ({error}); {INSTALL}") from error

    def __getattr__(self, name: str) -> Any:
        if name not in _SIGNATURES:
            raise AttributeError(name)
        function = getattr(self._dll, name)
        function.restype, function.argtypes = _SIGNATURES[name]
        setattr(self, name, function)
        return function


@cache
def libibverbs() -> Library:
    """The system's libibverbs, loaded on the first call; BackendError says what to install."""
    return SharedLibrary()


def made(lib: Library, verb: str, *arguments: Any) -> int:
    """The pointer that a verb returns; if that is NULL, errno has the reason."""
    pointer: int | None = getattr(lib, verb)(*arguments)
    if not pointer:
        raise VerbsError(verb, ctypes.get_errno())
    return pointer


def call(lib: Library, verb: str, *arguments: Any) -> None:
    """Call a verb that returns 0, or else the errno (or -1 with errno set)."""
    if value := getattr(lib, verb)(*arguments):
        raise VerbsError(verb, ctypes.get_errno() if value < 0 else value)


def read_u32(address: int, struct: str, field: str) -> int:
    """One 32-bit field of a C struct at an address."""
    return ctypes.c_uint32.from_address(address + LAYOUTS[struct][1][field][1]).value
