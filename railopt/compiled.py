"""numba as railopt uses it: kernels, which Python calls, and their parts, which kernels call.

Importing this loads no numba; the first kernel that is defined does.

numba compiles a function anew for every literal and every type that it is called with, an int32 or
a read-only array for one; `np.int64(...)` where a part is called spares that.  `a[:] = b` of two
arrays takes three seconds to compile, for what it would say if their shapes differed: a loop.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["kernel_part", "njit", "tell"]

_told: Callable[[], None] | None = None


def njit(**options: Any) -> Any:
    """numba's decorator, for a kernel; without the wrapper for C, through which nobody calls it."""
    return _numba().njit(no_cfunc_wrapper=True, **options)


def kernel_part(**options: Any) -> Any:
    """The same for a function that kernels alone call: without the wrapper for Python either, whose
    compilation takes as long as that of a small function itself, or longer where named tuples of
    arrays have to be unpacked.  Python that calls a part all the same crashes; a test sees to it
    that none of ours does.
    """
    return njit(no_cpython_wrapper=True, **options)


def tell(told: Callable[[], None] | None) -> None:
    """Have `told` called whenever numba begins to compile what is not in its cache."""
    global _told
    _told = told


@cache
def _numba() -> Any:
    """numba, listened to."""
    import numba
    from numba.core import event

    class Compiling(event.Listener):  # type: ignore[misc]  # numba carries no types
        """Says that a compilation begins, and rests the garbage collector until it ends: it would
        look at all of the compiler's objects again and again and find nothing.
        """

        nested, collects = 0, False

        def on_start(self, event: Any) -> None:
            if self.nested == 0:
                self.collects = gc.isenabled()
                gc.disable()
                if _told is not None:
                    _told()
            self.nested += 1

        def on_end(self, event: Any) -> None:
            self.nested -= 1
            if self.nested == 0 and self.collects:
                gc.enable()

    event.register("numba:compile", Compiling())
    return numba
