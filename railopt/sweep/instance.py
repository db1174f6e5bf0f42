"""One instance -> one row: exact rationals as strings, and where, when and with what it was
computed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import railopt
from railopt.answers.gap import gap
from railopt.policies import plan
from railopt.policies.outside import look_in
from railopt.sweep.spec import Instance

MAX_NICS = 128  # loads of every NIC go into a row up to this many
QUANTILES = 41


def run(instance: Instance) -> dict[str, Any]:
    """Compute one row; raises what the instance raises."""
    begun = time.time()
    fabric = instance.fabric()
    chunks = instance.read_traffic(fabric).chunks(instance.chunk)
    look_in(instance.folder)
    made = plan(fabric, chunks, instance.policy)
    report = gap(made, limit_s=instance.limit_s)
    worst = made.bottleneck
    row: dict[str, Any] = {
        "key": instance.key,
        "instance": instance.described(),
        "status": "ok",
        "chunks": len(chunks),
        "bytes": chunks.total,
        "value": str(report.value),
        "bound": str(report.bound),
        "gap": str(report.gap),
        "optimum": str(report.optimum),
        "optimal": report.optimal,
        "send": str(made.side_time("send")),
        "recv": str(made.side_time("recv")),
        "worst_side": worst.side,
        "solve_s": report.time_s,
    }
    if fabric.nodes * fabric.rails <= MAX_NICS:
        row["loads"] = {"send": made.send.tolist(), "recv": made.recv.tolist()}
    if instance.simulate:
        timeline = railopt.simulate(made)
        done = np.sort(timeline.chunk_ps)
        picks: list[int] = (
            np.linspace(0, len(done) - 1, QUANTILES).astype(int).tolist() if len(done) else []
        )
        row["simulated"] = {
            "completion": str(timeline.completion),
            "algbw": timeline.algbw,
            "busbw": timeline.busbw,
            "delivered_ps": [int(done[i]) for i in picks],
        }
    return {**row, **provenance(), "started": begun, "seconds": time.time() - begun}


def failure(instance: Instance, error: str) -> dict[str, Any]:
    """The row of an instance that could not be computed; it is tried again by the next run."""
    return {
        "key": instance.key,
        "instance": instance.described(),
        "status": "failed",
        "error": error,
        **provenance(),
        "started": time.time(),
        "seconds": 0.0,
    }


@cache
def provenance() -> dict[str, Any]:
    """Commit, versions and machine."""
    return {
        "commit": _commit(),
        "versions": {
            "railopt": railopt.__version__,
            "python": platform.python_version(),
            **_versions(),
        },
        "machine": {"arch": platform.machine(), "cores": os.cpu_count(), "node": platform.node()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in ("numpy", "numba", "ortools", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def _commit() -> str:
    """The checkout's commit, with a + if it was changed since; "unknown" outside a checkout."""
    root = Path(__file__).parents[2]
    try:
        ran = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return ran.stdout.strip() or "unknown"
