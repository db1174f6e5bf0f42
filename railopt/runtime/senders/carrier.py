"""An opened sender: carries plans out, start to end, on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from railopt.model.plan import Plan
from railopt.runtime.senders.protocol import Sender
from railopt.runtime.senders.report import Report


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

    def gather(self, value: Any) -> list[Any]:
        """Every rank's JSON value, by rank."""
        return [value]
