"""Scenarios of rails that fail, come back, or are slow; run in the guest."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.evidence.bounds import lower_bound
from railopt.runtime.adapt import Adapter
from railopt.runtime.payload.layout import Layout
from railopt.runtime.senders.report import Report
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.engine import Link
from railopt.runtime.verbs.objects import Patience
from railopt.runtime.verbs.rails import Damping, Options
from tests.hardware.world import Pace, expected, payload, rails, session, sh, with_nodes

IMPATIENT = Options(patience=Patience(18, 1), batch=2, depth=4)
CUTS = {
    "own link down": "ip link set n{node}r{rail} down",
    "peer link down": "ip link set n{peer}r{rail} down",
    "all packets lost": "tc qdisc add dev n{node}r{rail} root netem loss 100%",
}
CUT_NODE = {"own link down": 0, "peer link down": 1, "all packets lost": 0}
KILLS: dict[str, Callable[[Link], None]] = {
    "peer queue pair gone": lambda link: link.qp.close(),
    "peer queue pair in error": lambda link: link.qp.retire(),
}


@dataclass
class Carried:
    """One node's runs of a plan, every byte of each compared."""

    sender: Verbs
    plan: Plan
    send: Any
    recv: Any

    def __post_init__(self) -> None:
        layout, rank = Layout.packed(self.plan.chunks), self.sender.group.rank
        self.send[:] = payload(rank, len(self.send))
        self.wanted = expected(self.plan, layout, rank)

    def run(self, meanwhile: Callable[[Any], None] | None = None) -> tuple[bool, Report]:
        """Whether every byte arrived, and the report."""
        self.recv[:] = 0
        self.sender.group.allgather("start")
        run = self.sender.run(self.plan)
        if meanwhile is not None:
            meanwhile(run)
        report = run.wait()
        return bool(np.array_equal(self.recv[: len(self.wanted)], self.wanted)), report

    def until_whole(self, limit_s: float) -> tuple[bool, list[tuple[float, Report]]]:
        """Run after run until all nodes have all links: whether all bytes of all runs arrived, and
        (seconds until its end, report) of each.
        """
        began, runs, right = time.monotonic(), [], True
        while time.monotonic() - began < limit_s:
            good, report = self.run()
            right &= good
            runs.append((time.monotonic() - began, report))
            if all(self.sender.group.allgather(all(link.alive for link in report.links))):
                return right, runs
            time.sleep(0.05)
        absent = [vars(one) for one in self.sender.failback.absent.values()]
        raise RuntimeError(f"a rail is not back after {limit_s:.0f} s: {absent}")


def in_the_middle(run: Any, link: Link) -> None:
    """Poll a run until part of what it posted on a link was acknowledged."""
    while not run.poll() and not any(job.acked for job in link.unfinished):
        time.sleep(0.001)


def even_plan(nodes: int, rail_count: int, size: str = "256KiB") -> tuple[Plan, int]:
    """Equal traffic, and the bytes that a node's memory needs."""
    fabric = Fabric.uniform(nodes, rail_count)
    plan = make_plan(fabric, workloads.uniform(fabric, size=size).chunks("32KiB"), "lpt")
    layout = Layout.packed(plan.chunks)
    return plan, int(max(layout.send_bytes.max(), layout.recv_bytes.max()))


def cut(fault: str) -> list[dict[str, Any]]:
    """Cut rail 0 between nodes 0 and 1 in the middle of a run, run once more with what is left,
    mend it, and run until it is used again.
    """
    plan, size = even_plan(2, 3)

    def work(node: int) -> dict[str, Any]:
        group, sender, send, recv = session(node, 2, 3, size, IMPATIENT)
        with group, sender:
            carried, link = Carried(sender, plan, send, recv), sender.wiring.by_place[1 - node, 0]

            def hurt(run: Any) -> None:
                in_the_middle(run, link)
                if node == 0 and fault in CUTS:
                    sh(CUTS[fault].format(node=0, peer=1, rail=0))
                if node == 1 and fault in KILLS:
                    KILLS[fault](link)

            right, report = carried.run(hurt)
            again = carried.run()[0] if fault in CUTS else True
            group.allgather("mend")
            if node == 0 and fault in CUTS:
                rails("mend", CUT_NODE[fault], 0)
            group.allgather("mended")
            whole, runs = carried.until_whole(Pace.seconds(20))
        return {
            "right": right and again and whole,
            "faults": [str(f) for f in report.faults],
            "moved": sum(f.moved for f in report.faults),
            "alive": [r.alive for r in report.rails],
            "back_s": runs[-1][0],
            "run_s": runs[-1][1].seconds,
            "back": [str(r) for _, found in runs for r in found.readmissions],
            "bytes": runs[-1][1].rails[0].bytes,
        }

    results = with_nodes(2, work)
    if fault in CUTS and any("error" in result for result in results):
        rails("mend", CUT_NODE[fault], 0)
    return results


RATE = 250_000  # bytes a second of a shaped NIC: less than the emulation can do
SHAPE = "tc qdisc replace dev n0r{rail} root netem rate {rate}bit limit 4000"
WIRE = 1.03  # bytes on the wire a byte of payload, with headers of 4 KiB packets
RUNS = 6


def slow_rail() -> list[dict[str, Any]]:
    """All NICs of node 0 shaped to one rate, rail 0 then to a third: runs with --adapt rates."""
    rate = int(RATE / Pace.factor)
    fabric = Fabric.uniform(2, 3, rate)
    third = replace(fabric, tx=np.array([[rate // 3, rate, rate], [rate] * 3], np.int64))
    count = 2 * rate * 7 // 3 // 8192  # two seconds at two rates and a third
    chunks = Chunks.from_arrays(
        src=np.zeros(count, int), dst=np.ones(count, int), size=np.full(count, 8192), nodes=2
    )
    plan, bound = make_plan(fabric, chunks, "lpt"), float(lower_bound(third, chunks).value)

    def work(node: int) -> dict[str, Any]:
        options = Options(patience=Patience(20, 3), batch=2, depth=8, stall_s=60)
        group, sender, send, recv = session(node, 2, 3, count * 8192, options)
        adapter, present, right = Adapter(fabric), plan, True
        runs: list[float] = []
        plans: list[float] = []
        rates: list[list[int]] = []
        with group, sender:
            for run in range(RUNS + 1):
                if node == 0 and run < 2:
                    for rail in range(3):
                        bits = rate * 8 * WIRE / (3 if run and rail == 0 else 1)
                        sh(SHAPE.format(rail=rail, rate=int(bits)))
                carried = Carried(sender, present, send, recv)
                good, report = carried.run()
                right &= good and not report.faults
                reports = [Report.from_dict(r) for r in group.allgather(report.as_dict())]
                runs.append(max(r.seconds for r in reports))
                plans.append(float((present.send[0] / third.tx[0]).max()))
                rates.append([int(link.rate or 0) for link in reports[0].links])
                if run and adapter.learn(present, reports):
                    present = adapter.plan(present)
        found = {"right": right, "runs_s": runs, "plans_s": plans, "bound_s": bound}
        return {**found, "rates": rates, "changes": adapter.changes()}

    try:
        return with_nodes(2, work)
    finally:
        for rail in range(3):
            rails("mend", 0, rail)


def soak() -> list[dict[str, Any]]:
    """Random faults of all kinds on all rails, seeded with SOAK_SEED, until SOAK_FAULTS links have
    died; run after run, every byte compared, and what a process holds in the end.
    """
    faults = int(os.environ.get("SOAK_FAULTS", "200"))
    seed = int(os.environ.get("SOAK_SEED", "0"))
    plan, size = even_plan(2, 4, "32KiB")
    options = replace(IMPATIENT, damping=Damping(0.1, 0.8, window_s=0.0))

    def work(node: int) -> dict[str, Any]:
        group, sender, send, recv = session(node, 2, 4, size, options)
        dice, wrong, strikes, seen, back, backs = random.Random(seed), 0, 0, 0, 0, [0.0]
        with group, sender:
            carried = Carried(sender, plan, send, recv)
            carried.until_whole(Pace.seconds(20))
            before, half = holdings(sender), {}
            while (least := min(group.allgather(seen))) < faults:
                if 2 * least >= faults and not half:
                    half = holdings(sender)
                hurts, strikes = Hurt.drawn(dice), strikes + 1
                struck = [carried.run(lambda run, hurts=hurts: strike(hurts, run, sender))]
                if hurts[0].stays:
                    struck.append(carried.run())
                group.allgather("struck")
                if node == 0:
                    for hurt in hurts:
                        hurt.mend()
                group.allgather("mended")
                whole, runs = carried.until_whole(Pace.seconds(30))
                wrong += not (whole and all(good for good, _ in struck))
                reports = [found for _, found in (*struck, *runs)]
                seen += sum(len(found.faults) for found in reports)
                back += sum(len(found.readmissions) for found in reports)
                backs.append(runs[-1][0])
                if node == 0:
                    kinds = [(hurt.kind, hurt.rail) for hurt in hurts]
                    print(strikes, kinds, "died", seen, "wrong", wrong, backs[-1], flush=True)
            after = holdings(sender)
        names = [thread.name for thread in threading.enumerate()]
        return {
            "wrong": wrong,
            "strikes": strikes,
            "faults": seen,
            "readmissions": back,
            "longest_back_s": max(backs),
            "median_back_s": sorted(backs)[len(backs) // 2],
            "before": before,
            "half": half or after,
            "after": after,
            "threads": [name for name in names if name == "railopt-probe"],
        }

    return with_nodes(2, work, budget_s=60 + 20 * faults)


@dataclass(frozen=True)
class Hurt:
    """A fault on one rail: its kind, on which node and when in a run it strikes, and whether it
    stays for another run.
    """

    kind: str
    rail: int
    node: int
    early: bool
    stays: bool

    @classmethod
    def drawn(cls, dice: random.Random) -> list[Hurt]:
        """On one or two of four rails at once."""
        stays = dice.random() < 0.5
        return [
            cls(
                dice.choice((*CUTS, *KILLS)),
                rail,
                dice.randrange(2),
                dice.random() < 0.5,
                stays,
            )
            for rail in dice.sample(range(4), dice.choice([1, 2, 2]))
        ]

    def strike(self, run: Any, sender: Verbs) -> None:
        """At the begin of a run, or in its middle."""
        rank = sender.group.rank
        link = sender.wiring.by_place[1 - rank, self.rail]
        if rank != self.node:
            return
        if not self.early:
            in_the_middle(run, link)
        if self.kind in CUTS:
            sh(CUTS[self.kind].format(node=rank, peer=1 - rank, rail=self.rail))
        else:
            KILLS[self.kind](link)

    def mend(self) -> None:
        """The NIC that was cut."""
        if self.kind in CUTS:
            rails("mend", self.node ^ CUT_NODE[self.kind], self.rail)


def strike(hurts: list[Hurt], run: Any, sender: Verbs) -> None:
    """One after the other."""
    for hurt in hurts:
        hurt.strike(run, sender)


def holdings(sender: Verbs) -> dict[str, int]:
    """What this process holds: links, objects, memory in KiB, open files, threads."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    memory = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    files = 0
    with suppress(OSError):
        files = len(os.listdir("/proc/self/fd"))
    return {
        "links": len(sender.wiring.links),
        "objects": len(gc.get_objects()),
        "memory_kib": int(memory),
        "files": files,
        "threads": threading.active_count(),
    }
