"""One line of progress on a terminal's stderr; silent elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from railopt.bracket import gap_between
from railopt.solver.coupled.race import Progress
from railopt.tables import percent
from railopt.units import format_time


class Ticker:
    """Shows where a solve stands, at most ten times a second; a context manager that clears its
    line.
    """

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, label: str, progress: Progress) -> None:
        """What is known of the solve called `label`."""
        if not self.on or time.monotonic() - self._last < 0.1:
            return
        self._last = time.monotonic()
        sys.stderr.write(f"\r\x1b[K{label} {_said(progress)}")
        sys.stderr.flush()

    def __enter__(self) -> Ticker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _said(progress: Progress) -> str:
    """Bound and gap only once there is a bound."""
    time_s, value, bound, stage = progress
    known = f"{time_s:.1f} s  value {format_time(value)}"
    if bound:
        known += f"  bound {format_time(bound)}  gap {percent(gap_between(value, bound))} %"
    return f"{known}  {stage}"
