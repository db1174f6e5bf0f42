"""Carrying a plan out with a sender by name, and what every node said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.runtime.adapt import Adapter, Replan
from railopt.runtime.senders import SENDERS, Setting
from railopt.runtime.senders.report import Report
from railopt.runtime.senders.setting import Carrier

SHARED = 1 << 16


@dataclass(frozen=True)
class Carried:
    """Runs of one plan: `nodes[k][i]` is process k's report of run i (loopback: one process). In a
    world of more than SHARED links other processes' reports come without them. `replans` are the
    plans that an adapter made of it.
    """

    sender: str
    plan: Plan
    nodes: tuple[tuple[Report, ...], ...]
    replans: tuple[Replan, ...] = ()

    @property
    def wrong(self) -> int:
        """Chunks that arrived with wrong bytes, in all runs."""
        return sum(report.wrong or 0 for runs in self.nodes for report in runs)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; `makespan` is exact."""
        return {
            "sender": self.sender,
            "policy": self.plan.policy,
            "digest": self.plan.digest,
            "makespan": self.plan.makespan,
            "replans": [replan.as_dict() for replan in self.replans],
            "nodes": [[report.as_dict() for report in runs] for runs in self.nodes],
        }

    def columns(self, *, gbits: bool = False) -> list[str]:
        """The head of `rows`."""
        rate = "Gb/s" if gbits else "GB/s"
        return [
            *("sender", "node", "rail", "device", "state"),
            *("chunks", "bytes", "time(us)", rate, "#wrong"),
        ]

    def rows(self, *, gbits: bool = False) -> list[list[str]]:
        """One row a rail of each node, then one of the node: mean time and rate of its runs."""
        rows = []
        for node, runs in enumerate(self.nodes):
            name = "all" if self.sender == "loopback" else str(node)
            rows += [[self.sender, name, *cells] for cells in _rail_rows(runs)]
            rows.append([self.sender, name, *_node_row(runs, 8e-9 if gbits else 1e-9)])
        return rows


def _rail_rows(runs: tuple[Report, ...]) -> list[list[str]]:
    return [
        [
            str(rail.rail),
            rail.device,
            "ok" if rail.alive else _cause(runs, rail.rail),
            str(rail.chunks),
            str(rail.bytes),
            "",
            "",
            "",
        ]
        for rail in runs[-1].rails
    ]


def _node_row(runs: tuple[Report, ...], scale: float) -> list[str]:
    last, seconds = runs[-1], sum(report.seconds for report in runs) / len(runs)
    rate = last.bytes / seconds * scale if seconds else 0.0
    wrong = "-" if last.wrong is None else str(sum(report.wrong or 0 for report in runs))
    times = [f"{seconds * 1e6:.1f}", f"{rate:.3f}", wrong]
    return ["all", "", "", str(last.chunks), str(last.bytes), *times]


def _cause(runs: tuple[Report, ...], rail: int) -> str:
    causes = [fault.cause for report in runs for fault in report.faults if fault.rail == rail]
    return f"dead: {causes[0]}" if causes else "dead"


def carry(
    plan: Plan, sender: str, setting: Setting, iters: int = 1, adapter: Adapter | None = None
) -> Carried:
    """Run a plan `iters` times on all ranks; every rank gets what all of them said. An `adapter`
    learns from each run, and its mode says when the next is made with another plan.
    """
    links = few_links(plan.fabric)
    if adapter is not None:
        _check_adapter(adapter, plan, links)
    with SENDERS[sender].opened(setting) as carrier:
        reports, every, replans = [], [], []
        present = plan
        for run in range(1, iters + 1):
            reports.append(carrier.carry(present))
            if adapter is None:
                continue
            every.append(_all(carrier, reports[-1], links))
            if adapter.learn(present, every[-1]) and run < iters:
                present = adapter.plan(present)
                replans.append(Replan(run, present))
                setting.say(f"after run {run} the plan is made again: {adapter.changes()}")
        every = every or [_all(carrier, report, links) for report in reports]
    nodes = list(zip(*every, strict=True))
    mine = setting.launch.rank if len(nodes) > 1 else 0
    nodes[mine] = tuple(reports)  # with their links in any world
    return Carried(sender, plan, tuple(nodes), tuple(replans))


def _check_adapter(adapter: Adapter, plan: Plan, links: bool) -> None:
    if adapter.nominal != plan.fabric:
        raise InputError("the adapter is for another fabric than the plan: make it for plan.fabric")
    if not links:
        raise InputError(
            f"measuring rates needs what every link did: {plan.fabric.nodes} nodes with "
            f"{plan.fabric.rails} rails have more than {SHARED} links"
        )
    adapter.check(plan)


def few_links(fabric: Fabric) -> bool:
    """Whether what all links did fits into what the ranks tell each other."""
    return fabric.nodes * fabric.nodes * fabric.rails <= SHARED


def _all(carrier: Carrier, report: Report, links: bool) -> list[Report]:
    """All processes' reports of one run."""
    return [Report.from_dict(data) for data in carrier.gather(report.as_dict(links=links))]
