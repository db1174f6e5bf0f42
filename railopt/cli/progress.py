"""What a long command is doing, as lines on stderr.

On a terminal a line every few seconds; elsewhere one after 20 s, and again whenever that time has
doubled, so that a log shows that the command is alive.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from railopt.base.units import format_time, percent
from railopt.evidence.bracket import gap_between

if TYPE_CHECKING:
    from railopt.solver.coupled.race import Progress

EVERY_S = 4.0
LONG_S = 20.0

_stage: str | Callable[[], str] = ""


def stage(text: str | Callable[[], str]) -> None:
    """Name what is being done now; a function is called only where a line is printed."""
    global _stage
    _stage = text


@contextmanager
def heartbeat(command: str) -> Iterator[None]:
    """While the body runs: the command, its stage and for how long it has run."""
    stage("")
    over = threading.Event()
    threading.Thread(target=_print_stages, args=(command, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _print_stages(command: str, over: threading.Event) -> None:
    began, often = time.monotonic(), sys.stderr.isatty()
    wait_s = EVERY_S if often else LONG_S
    while not over.wait(wait_s):
        taken = time.monotonic() - began
        text = _stage if isinstance(_stage, str) else _stage()
        print(f"{command}{f': {text}' if text else ''}, {taken:.0f} s", file=sys.stderr)
        wait_s = EVERY_S if often else taken


def show(label: str, progress: Progress) -> None:
    """What is known of the solve called `label`."""
    stage(partial(_said, label, progress))


def _said(label: str, progress: Progress) -> str:
    """Value, bound and gap only once there are any."""
    value, bound, known = progress.value, progress.bound, f"{label}  "
    if value is not None:
        known += f"value {format_time(value)}  "
    if bound:
        known += f"bound {format_time(bound)}  "
    if bound and value is not None:
        known += f"gap {percent(gap_between(value, bound))} %  "
    return known + progress.stage
