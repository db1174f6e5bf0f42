"""A Ctrl-C that strikes inside foreign code arrives all the same.

A KeyboardInterrupt gets lost where C calls Python back, as llvmlite does while numba compiles
(Python prints a traceback and goes on), and where a library catches whatever comes, as some do
while they are imported.  What is short and must not be torn lets it wait.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

AGAIN_S = 1.0  # after which a Ctrl-C that had no effect is sent again
SOON_S = 0.05  # within which a signal that came is known


class KeepInterrupts:
    """A context, to be left at Ctrl-C: as long as it is not, the signal is sent again, and nothing
    is printed of exceptions that were lost, nor of what the end of half-made objects raises.  What
    foreign code raises after it lost one is Ctrl-C's doing and leaves as a KeyboardInterrupt.  In
    other threads than the main one it does nothing.

    struck   whether Ctrl-C came, whatever became of it
    """

    def __init__(self, again_s: float | None = AGAIN_S) -> None:
        """`again_s=None`: a body that may end at its leisure; nothing is sent again, and what it
        raises stays what it is.
        """
        self.struck = self._hearing = False
        self._again_s = again_s
        self._left = threading.Event()

    def __enter__(self) -> KeepInterrupts:
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        self._printer, sys.excepthook = sys.excepthook, self._printed
        if threading.current_thread() is threading.main_thread():
            self._ends = os.pipe()
            os.set_blocking(self._ends[1], False)
            self._fd = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._fd)
            os.close(self._ends[1])
            self._thread.join()
            os.close(self._ends[0])
        sys.unraisablehook, sys.excepthook = self._hook, self._printer
        if self.struck and self._again_s is not None and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _watch(self) -> None:
        """Wait for the signal, of which the interpreter writes the number into the pipe."""
        while True:
            self._readable(None)
            self._hearing = True  # from here on the pipe alone does not tell
            numbers = os.read(self._ends[0], 64)
            if not numbers:
                return
            if signal.SIGINT in numbers:
                self.struck = True
                while not self._left.wait(self._again_s):
                    os.kill(os.getpid(), signal.SIGINT)
                return
            self._hearing = False

    def _unraisable(self, lost: Any) -> None:
        if not (issubclass(lost.exc_type, KeyboardInterrupt) or self.struck or self._arriving()):
            self._hook(lost)

    def _printed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """What C would print and go on, as some libraries do while they import another."""
        if not issubclass(kind, KeyboardInterrupt):
            self._printer(kind, error, trace)

    def _arriving(self) -> bool:
        """Whether a signal came of which `_watch` has not heard all yet; another thread may still
        be writing its number.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        readable = not self._hearing and self._readable(SOON_S)
        return readable or self._hearing or self.struck

    def _readable(self, within_s: float | None) -> bool:
        """Wait until there is something in the pipe, or its other end is closed."""
        ready = select.poll()  # select takes no descriptor above 1023
        ready.register(self._ends[0], select.POLLIN)
        return bool(ready.poll(None if within_s is None else 1000 * within_s))


def heard(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a long kernel without the interpreter's lock (`nogil`) returns, from a thread of its
    own: Ctrl-C strikes here at once, and never while numba makes Python objects of the result,
    where it would crash.  The thread is then left to end by itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((function(*arguments), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    result, error = ended[0]
    if error is not None:
        raise error
    return result


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """While it lasts Ctrl-C is only noted; it strikes at the end.  In other threads than the main
    one it never strikes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if noted:
            signal.raise_signal(signal.SIGINT)
