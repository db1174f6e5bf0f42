"""Carrying a plan out with a sender by name, and what every node said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.runtime.adapt import Adapter
from railopt.runtime.senders import SENDERS, SenderConfig
from railopt.runtime.senders.report import LinkFault, RailReport, Report

SHARED = 1 << 16


@dataclass(frozen=True)
class Carried:
    """Runs of one plan: `nodes[k][i]` is process k's report of run i (loopback: one process). In a
    world of more than SHARED links other processes' reports come without them. `replans` are the
    plans that an adapter made of it, by the run (0 is the first) before which it made them. Where
    not every run was kept, there is one report of all.
    """

    sender: str
    plan: Plan
    nodes: tuple[tuple[Report, ...], ...]
    replans: Mapping[int, Plan] = field(default_factory=dict)

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
            "replans": [
                {"run": run, "digest": plan.digest, "makespan": plan.makespan}
                for run, plan in self.replans.items()
            ],
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
        """One row per rail of each node, then one of the node: mean time and rate of its runs."""
        rows = []
        for node, runs in enumerate(self.nodes):
            name = "all" if self.sender == "loopback" else _node(self.plan, node)
            rows += [[self.sender, name, *cells] for cells in _rail_rows(self.plan, runs)]
            rows.append([self.sender, name, *_node_row(runs, 8e-9 if gbits else 1e-9)])
        return rows


def _node(plan: Plan, node: int) -> str:
    """A node's host where the plan knows it, else its number."""
    return plan.fabric.hosts[node] if plan.fabric.hosts else str(node)


def _rail_rows(plan: Plan, runs: tuple[Report, ...]) -> list[list[str]]:
    return [
        [
            str(rail.rail),
            rail.device,
            _state(plan, runs, rail),
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


def _state(plan: Plan, runs: tuple[Report, ...], rail: RailReport) -> str:
    """Whether a rail lives, or to whom it is dead, and why it was last."""
    dead = [k.peer for k in runs[-1].links if k.rail == rail.rail and not k.alive]
    if rail.alive and not dead:
        return "ok"
    causes = [
        fault.cause
        for report in runs
        for fault in report.faults
        if fault.rail == rail.rail and (not rail.alive or fault.peer in dead)
    ]
    whom = f" to {', '.join(_node(plan, peer) for peer in dead)}" if rail.alive else ""
    return f"dead{whom}: {causes[-1]}" if causes else f"dead{whom}"


def carry(
    plan: Plan,
    sender: str,
    config: SenderConfig,
    iters: int = 1,
    adapter: Adapter | None = None,
    *,
    every: bool = True,
) -> Carried:
    """Run a plan `iters` times on all ranks; every rank gets what all of them said. An `adapter`
    learns from each run, and its mode says when the next is made with another plan. Without `every`
    run what `Carried.rows` needs is kept alone, and memory does not grow with `iters`.
    """
    links = few_links(plan.fabric)
    if adapter is not None:
        _check_adapter(adapter, plan, links)
    with SENDERS[sender].opened(config) as carrier:
        kept: list[list[Report]] = []
        replans, present = dict[int, Plan](), plan
        for run in range(1, iters + 1):
            mine = carrier.carry(present)
            reports = carrier.reports(mine, links=links)
            reports[config.launch.rank if len(reports) > 1 else 0] = mine  # with all links
            if every or not kept:
                kept.append(reports)
            else:
                kept[0] = _folded(kept[0], reports, run)
            if adapter is not None and adapter.learn(present, reports) and run < iters:
                present = adapter.plan(present)
                replans[run] = present
                config.say(f"after run {run} the plan is made again: {adapter.changes()}")
    return Carried(sender, plan, tuple(zip(*kept, strict=True)), replans)


def _folded(before: list[Report], now: list[Report], run: int) -> list[Report]:
    """One report of each process for all runs: the last one, with the mean time, all wrong chunks
    and the last fault of each link.
    """
    return [
        replace(
            last,
            seconds=past.seconds + (last.seconds - past.seconds) / run,
            wrong=None if last.wrong is None else last.wrong + (past.wrong or 0),
            faults=_last((*past.faults, *last.faults)),
        )
        for past, last in zip(before, now, strict=True)
    ]


def _last(faults: tuple[LinkFault, ...]) -> tuple[LinkFault, ...]:
    """The last of each link, in their order."""
    places = [(fault.peer, fault.rail) for fault in faults]
    return tuple(f for i, f in enumerate(faults) if places[i] not in places[i + 1 :])


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
