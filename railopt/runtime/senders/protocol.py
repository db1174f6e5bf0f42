"""The sender protocol: something that carries out a plan. Three implement it: Loopback, Record,
Verbs.

run = sender.run(plan)           starts; a sender runs one plan at a time
run.poll() -> bool               makes progress, never waits; True when done; raises what went wrong
run.wait(timeout_s) -> Report    until done; raises what went wrong
"""

from __future__ import annotations

from typing import Protocol

from railopt.model.plan import Plan
from railopt.runtime.senders.report import Report


class Run(Protocol):
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

    def run(self, plan: Plan) -> Run:
        """Start carrying out a plan."""
        ...
