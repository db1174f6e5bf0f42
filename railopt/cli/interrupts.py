"""A Ctrl-C that strikes inside foreign code.

While numba compiles, llvmlite calls Python back from C.  A KeyboardInterrupt raised there can't
reach its caller: Python prints a traceback and goes on, as if nothing had been pressed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import TracebackType
from typing import Any

AGAIN_S = 0.1  # after which a lost Ctrl-C is tried again


class KeepInterrupts:
    """While it lasts, a lost Ctrl-C prints nothing and is sent again, until it arrives; one that a
    handler of its own has noted, as a solver's race does, is not.

    lost   whether one was on its way at the end
    """

    def __init__(self) -> None:
        self.lost = False
        self._before: Any = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> KeepInterrupts:
        self._before, sys.unraisablehook = sys.unraisablehook, self._hook
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.unraisablehook = self._before
        if self._timer is not None:
            self.lost = not self._timer.finished.is_set()
            self._timer.cancel()

    def _hook(self, unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._before(unraisable)
        elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
            self._timer.daemon = True
            self._timer.start()
