"""A clock that can stand still, as it does while numba compiles: once a machine and version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class Clock:
    """Seconds of `base` that do not pass while it is stopped; stops may be nested."""

    def __init__(self, base: Callable[[], float] = time.perf_counter) -> None:
        self.base, self.stood, self.depth, self.since = base, 0.0, 0, 0.0

    def stop(self) -> None:
        if self.depth == 0:
            self.since = self.base()
        self.depth += 1

    def go_on(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.stood += self.base() - self.since

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stopped while it lasts."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def __call__(self) -> float:
        return (self.since if self.depth else self.base()) - self.stood


def not_counted(clock: Clock) -> AbstractContextManager[None]:
    """While it lasts, the clock stands still whenever numba compiles."""
    from numba.core.event import Event, Listener, install_listener

    class Compiling(Listener):  # type: ignore[misc]  # numba carries no types
        def on_start(self, event: Event) -> None:
            clock.stop()

        def on_end(self, event: Event) -> None:
            clock.go_on()

    context: AbstractContextManager[None] = install_listener("numba:compile", Compiling())
    return context
