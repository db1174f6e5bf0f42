"""What a long command is doing: on a terminal, a line on stderr every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 4.0

_stage = ""


def stage(text: str) -> None:
    """Name what is being done now."""
    global _stage
    _stage = text


@contextmanager
def heartbeat(command: str) -> Iterator[None]:
    """While the body runs: the command, its stage and for how long it has run.

    Nothing is printed where stderr is no terminal, nor for `sweep`, which counts its instances.
    """
    stage("")
    over = threading.Event()
    if sys.stderr.isatty() and command != "sweep":
        threading.Thread(target=_print_stages, args=(command, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _print_stages(command: str, over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(EVERY_S):
        doing = f": {_stage}" if _stage else ""
        print(f"{command}{doing}, {time.monotonic() - began:.0f} s", file=sys.stderr)
