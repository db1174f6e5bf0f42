"""A clock that stands still while numba compiles, which it does once a machine and version."""

from __future__ import annotations

from contextlib import AbstractContextManager

from numba.core.event import Event, Listener, install_listener

from railopt.solver.coupled.race import Clock


class _Compiling(Listener):  # type: ignore[misc]  # numba carries no types
    """Stops a clock while a kernel is being compiled."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_start(self, event: Event) -> None:
        self.clock.stop()

    def on_end(self, event: Event) -> None:
        self.clock.go_on()


def not_counted(clock: Clock) -> AbstractContextManager[None]:
    """While it lasts, the clock stands still whenever numba compiles."""
    context: AbstractContextManager[None] = install_listener("numba:compile", _Compiling(clock))
    return context
