"""The one helper of generated code that intrinsics use; and nothing is ever compiled."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any


def _move(builder: Any, target: Any, source: Any, length: Any, align: int) -> None:
    ctypes.memmove(target[0], source[0], int(length))


cgutils = SimpleNamespace(voidptr_t=None, raw_memmove=_move)
event = SimpleNamespace(Listener=object, register=lambda kind, listener: None)
