"""What an operator has: perftest's reports of 4 x 4 NICs, and counters of their ports before and
after 20 runs of a plan.
"""

from __future__ import annotations

from pathlib import Path

from railopt import Fabric, plan, workloads
from tests.readings import save_ports

RUNS = 20


def save_reports(folder: Path) -> None:
    """perftest's reports: one NIC at half its rate, one that did not answer."""
    for host in range(1, 5):
        for device in range(4):
            rate = 196.0 if (host, device) == (2, 1) else 392.0
            messages = rate * 1e9 / 8 / 65536 / 1e6
            report = f"{{results: {{MsgSize: 65536, BW_average: {rate}, MsgRate: {messages:.6f}}}}}"
            text = "no route" if (host, device) == (4, 3) else report
            (folder / f"gpu{host:02}-mlx5_{device}.json").write_text(text)


def save_counters(folder: Path) -> None:
    """plan.npz and its ports, before and after: in each run the third node received 25,000,000
    bytes on rail 1 that are not the plan's.
    """
    fabric = Fabric.uniform(4, 4)
    made = plan(fabric, workloads.moe(fabric, skew=0.2, seed=1), "lpt-global")
    made.save(folder / "plan.npz")
    received = RUNS * made.recv
    received[2, 1] += RUNS * 25_000_000
    for when, sent, got in (("before", 0, 0 * received), ("after", RUNS, received)):
        ports = save_ports(folder / when, sent * made.send, got, fabric.tx)
        for node in range(4):
            (ports / f"gpu{8 + node}.txt").rename(ports / f"gpu0{node + 1}.txt")
