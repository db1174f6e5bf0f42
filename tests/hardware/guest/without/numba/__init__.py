"""On the guest's path in front of numba, which the emulation takes a minute to import and to load
kernels with: here they run as the plain Python that they are, intrinsics by way of extending.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

np.seterr(over="ignore")  # compiled integers wrap around silently
version_info = SimpleNamespace(short=(1, 0))  # none whose compiler `railopt.base.kernels` changes


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself."""
    return (lambda given: given) if function is None else function


class Type:
    """A type whose call makes a signature; of that only the result counts: `made` turns what was
    computed into a value of the type.
    """

    def __init__(self, made: Callable[[Any], Any]) -> None:
        self.made = made

    def __call__(self, *arguments: Any) -> Type:
        return self


_NAMES = "int8", "uint8", "int32", "uint32", "int64", "uint64", "float64"
types = SimpleNamespace(
    none=Type(lambda value: None), **{name: Type(getattr(np, name)) for name in _NAMES}
)
