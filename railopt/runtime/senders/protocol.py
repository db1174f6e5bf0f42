"""The sender protocol: something that carries out a plan. Three implement it: Loopback, Record,
Verbs.

handle = sender.run(plan)        starts; a sender runs one plan at a time
handle.poll() -> bool            makes progress, never waits; True when done; raises what went wrong
handle.wait(timeout_s) -> Report  until done; raises what went wrong
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from railopt.model.plan import Plan
from railopt.runtime.senders.report import Report


class Handle(Protocol):
    """A run under way."""

    def poll(self) -> bool:
        """Make progress without waiting; whether the run is done; raises what ended it."""
        ...

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done; raises what ended it, or `TimeoutError` after `timeout_s` seconds
        (the run goes on).
        """
        ...


class Sender(Protocol):
    """Carries out plans."""

    name: str

    def run(self, plan: Plan) -> Handle:
        """Start carrying out a plan."""
        ...


@dataclass(frozen=True)
class Finished:
    """The handle of a run that was done when it was started."""

    report: Report

    def poll(self) -> bool:
        return True

    def wait(self, timeout_s: float | None = None) -> Report:
        return self.report
