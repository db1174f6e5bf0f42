"""What is made once and used by all who ask for the same: process groups and their carriers."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from railopt.base.errors import BackendError

SHARED: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def lost(text: str) -> BackendError:
    """The error of an exchange that failed.  Nothing is shared any more: connections that timed out
    stay broken, so who comes next makes groups of its own.
    """
    SHARED.clear()
    return BackendError(text)
