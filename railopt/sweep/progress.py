"""Progress: a bar with rate, time left and failures on a terminal; one plain line per minute
elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from railopt.base.extras import installed

LINE_EVERY_S = 60.0


class Counter:
    """Counts finished instances and failures, and says so."""

    def __init__(self, total: int, bar: Any = None, task: Any = None) -> None:
        self.total, self.done, self.failed = total, 0, 0
        self._bar, self._task = bar, task
        self._begun = self._said = time.monotonic()

    def add(self, ok: bool) -> None:
        """One more instance is finished."""
        self.done += 1
        self.failed += not ok
        if self._bar is not None:
            took = max(time.monotonic() - self._begun, 1e-9)
            self._bar.update(
                self._task, advance=1, failed=self.failed, rate=f"{self.done / took:.1f}/s"
            )
        elif time.monotonic() - self._said >= LINE_EVERY_S:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Where things stand, in words."""
        took = max(time.monotonic() - self._begun, 1e-9)
        rate = self.done / took
        left = (self.total - self.done) / rate if rate else float("inf")
        return (
            f"{self.done}/{self.total} instances, {rate:.1f}/s, {self.failed} failed, about "
            f"{left:.0f} s left"
        )


@contextmanager
def counting(total: int) -> Iterator[Counter]:
    """A counter for `total` instances, as a bar if stderr is a terminal and rich is installed."""
    if not sys.stderr.isatty() or not installed("rich"):
        counter = Counter(total)
        try:
            yield counter
        except Exception:
            if counter.done:  # how far it came
                print(counter.line(), file=sys.stderr, flush=True)
            raise
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}, {task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield Counter(total, bar, bar.add_task("", total=total, failed=0, rate="-"))
