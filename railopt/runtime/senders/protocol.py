"""The sender protocol: something that carries out a plan. Three implement it: Loopback, Record,
Verbs.

run = sender.run(plan)           starts; a sender runs one plan at a time
run.poll() -> bool               makes progress, never waits; True when done; raises what went wrong
run.wait(timeout_s) -> Report    until done; raises what went wrong

An opened sender is a `Carrier`: it carries plans out, start to end, on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

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


class Carrier:
    """Carries plans out with a sender that has no other ranks and verifies by itself; `seen` is
    called with each run's plan and report.
    """

    def __init__(self, sender: Sender, seen: Callable[[Plan, Report], None] | None = None) -> None:
        self._sender, self._seen = sender, seen

    def carry(self, plan: Plan) -> Report:
        """Fill, start on all ranks, run, verify: the report of this rank."""
        report = self._carried(plan)
        if self._seen is not None:
            self._seen(plan, report)
        return report

    def _carried(self, plan: Plan) -> Report:
        return self._sender.run(plan).wait()

    def reports(self, mine: Report, *, links: bool = True) -> list[Report]:
        """Every rank's report of a run, by rank; `links`: with what each link did."""
        return [Report.from_dict(data) for data in self._gather(mine.as_dict(links=links))]

    def _gather(self, value: Any) -> list[Any]:
        """Every rank's JSON value, by rank."""
        return [value]
