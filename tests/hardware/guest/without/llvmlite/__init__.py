"""Integers of generated code, as those of C; see numba beside this folder."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

_KINDS = {8: ctypes.c_uint8, 32: ctypes.c_uint32, 64: ctypes.c_uint64}


def _integer(bits: int) -> Any:
    return SimpleNamespace(as_pointer=lambda: _KINDS[bits])


ir = SimpleNamespace(IntType=_integer)
