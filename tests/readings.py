"""Readings of counters as a cluster would give them: ports as `grep` prints sysfs, and metrics of a
simulated run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from railopt import Fabric, Plan, simulate
from railopt.base.arrays import Ints
from railopt.runtime import LinkReport, Metrics, Report

PORTS = "/sys/class/infiniband/mlx5_{rail}/ports/1/"


def save_ports(
    folder: Path,
    sent: Ints,
    received: Ints,
    rate: Ints | None = None,
    *,
    base: int = 4_000_000_000,
) -> Path:
    """A file a node, gpu8.txt and on, with what its ports have counted since they were up."""
    folder.mkdir()
    for node, row in enumerate(sent):
        lines = []
        for rail, out in enumerate(row.tolist()):
            where = PORTS.format(rail=rail)
            for name, count in (("xmit", out), ("rcv", int(received[node, rail]))):
                lines.append(f"{where}counters/port_{name}_data:{(base + count) // 4}")
            lines.append(f"{where}counters/port_xmit_wait:77")
            if rate is not None:
                gbps = int(rate[node, rail]) * 8 // 10**9
                lines.append(f"{where}rate:{gbps} Gb/sec (4X NDR)")
        (folder / f"gpu{8 + node}.txt").write_text("\n".join(lines) + "\n")
    return folder


def measured_links(plan: Plan, fabric: Fabric) -> tuple[LinkReport, ...]:
    """What links do if the plan is carried out at the rates of another fabric."""
    run = simulate(Plan(fabric, plan.chunks, plan.rail, plan.policy))
    nics = fabric.nodes * fabric.rails
    ends = run.flows.path.reshape(-1, 2)
    return tuple(
        LinkReport(
            int(out) // fabric.rails,
            (int(into) - nics) // fabric.rails,
            int(out) % fabric.rails,
            int(run.flows.size[flow]),
            1,
            int(run.begun_ps[flow]) / 1e12,
            int(run.finish_ps[flow]) / 1e12,
        )
        for flow, (out, into) in enumerate(ends)
    )


def save_metrics(folder: Path, plan: Plan, fabric: Fabric, runs: int) -> tuple[Path, Path]:
    """Metrics before and after some runs, in one file each."""
    before, after = folder / "before.prom", folder / "after.prom"
    links = measured_links(plan, fabric)
    metrics = Metrics()
    before.write_text(metrics.text())
    seconds = max(link.last_s for link in links)
    for _ in range(runs):
        metrics.seen(plan, Report("verbs", plan.policy, 0, 0, seconds, (), links=links))
    after.write_text(metrics.text())
    return before, after


def on_wire(load: Ints, runs: int, headers: float = 1.02) -> Ints:
    """What ports count for so many runs."""
    counted: Ints = np.rint(load * (runs * headers)).astype(np.int64)
    return counted
