"""What a command is doing, on a terminal, once it has said nothing for a second.

One line on stderr: the command, the stage that it last named with `stage`, and how long it has run.
Whatever the command prints takes the line's place.  That kernels are being compiled is said at
once, on a line that stays, in a log as well; else silent where stderr is no terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

from railopt.base import kernels as compiled

QUIET_S, EVERY_S, SELDOM_S = 1.0, 0.5, 0.1
ERASE = "\r\x1b[K"
COMPILING = "compiling kernels, once for this machine; railopt warm-up compiles all of them"
OWN = ("completion", "sweep")  # print at once, or have a line of their own

_stage: str | Callable[[], str] = ""
_drawn: _Line | None = None


def stage(text: str | Callable[[], str]) -> None:
    """Name what is being done now; a function is called only where the line is drawn."""
    global _stage
    _stage = text
    if _drawn is not None:
        _drawn.renew()


@contextmanager
def heartbeat(command: str) -> Iterator[None]:
    """Show the line while the body runs."""
    stage("")
    plain = command in OWN or not sys.stderr.isatty()
    with compiled.told(_say_compiling), nullcontext() if plain else _line(command):
        yield


def _say_compiling() -> None:
    sys.stderr.write(f"{ERASE if sys.stderr.isatty() else ''}{COMPILING}\n")
    sys.stderr.flush()


@contextmanager
def _line(command: str) -> Iterator[None]:
    """The line, which what is printed erases."""
    global _drawn
    line = _drawn = _Line(command, sys.stderr)
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Erasing(stream, line) for stream in streams)
    try:
        with line:
            yield
    finally:
        sys.stdout, sys.stderr = streams
        _drawn = None


class _Line(threading.Thread):
    """Draws and erases the line."""

    def __init__(self, command: str, stream: TextIO) -> None:
        super().__init__(daemon=True)
        self._command, self._stream = command, stream
        self._begun = self._heard = time.monotonic()
        self._shown = 0.0  # when it was drawn; 0 where it is not
        self._lock, self._over = threading.Lock(), threading.Event()

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            with self._lock:
                self._draw()

    def renew(self) -> None:
        """Draw the new stage now, at most ten times a second: a kernel that comes next may keep the
        thread from it.
        """
        if self._shown and time.monotonic() - self._shown >= SELDOM_S:
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._heard >= QUIET_S and not self._over.is_set():
            text = _stage if isinstance(_stage, str) else _stage()
            doing = f": {text}" if text else ""
            self._stream.write(f"{ERASE}{self._command}{doing}, {now - self._begun:.0f} s")
            self._stream.flush()
            self._shown = now

    def erase(self) -> None:
        """Make room for what the command prints."""
        with self._lock:
            self._heard = time.monotonic()
            if self._shown:
                self._stream.write(ERASE)
                self._stream.flush()
                self._shown = 0.0

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.erase()


class _Erasing:
    """A stream before whose text the line is erased."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._inner, self._line = stream, line

    def write(self, text: str) -> int:
        """As the stream's."""
        self._line.erase()
        return self._inner.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
