"""The simulator: direct traffic, a plan of 1M chunks, and how the cost grows.

CPU seconds of one thread.  The packet-level peer (UEC htsim) took 4 to 5 s for 8x8 and 70 s for
32x8 on a two-core machine; those figures are quoted, not measured here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from tests.bench import Row, in_turns, judged, ratio

HTSIM_8X8_S, HTSIM_32X8_S = 4.0, 70.0

_MEMORY = """
import re
import railopt
from railopt import Fabric, workloads
fabric = Fabric.uniform(128, 8)
traffic = workloads.zipf(fabric, mean="160KiB", skew=0.6, seed=1)
plan = railopt.plan(fabric, traffic.chunks("256KiB"), "lpt")
railopt.simulate(plan)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 2**20)
"""
"""Its own peak: ru_maxrss would be the parent's, which a process keeps across exec."""


def rows() -> Iterator[Row]:
    """Seconds of each case, and the growth from 64 to 128 nodes."""
    import railopt
    from railopt import Fabric, Plan, workloads

    def planned(nodes: int, rails: int, mean: str) -> Plan:
        fabric = Fabric.uniform(nodes, rails)
        return railopt.plan(
            fabric, workloads.zipf(fabric, mean=mean, skew=0.6, seed=1).chunks("256KiB"), "lpt"
        )

    for nodes, goal_ms, peer in ((8, 50, HTSIM_8X8_S), (32, 1500, HTSIM_32X8_S)):
        fabric = Fabric.uniform(nodes, 8)
        traffic = workloads.zipf(fabric, skew=0.6, seed=3)
        flows = len(traffic.flows()[0])
        for balancer in ("ecmp", "spray"):
            yield from judged(
                f"simulate {nodes}x8 direct {balancer}, {flows:,} flows",
                [partial(railopt.simulate, traffic, fabric=fabric, balancer=balancer)],
                "ms",
                goal_ms * 1e-3,
                f"packet level, quoted: {peer:g} s",
            )
    large = planned(128, 8, "160KiB")
    name = f"simulate 128x8 plan, {len(large.chunks):,} chunks"
    yield from judged(name, [partial(railopt.simulate, large)], "s", 2)
    memory = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
    )
    yield Row(
        "simulate 128x8 plan, peak memory of the process", float(memory.stdout), "GiB", at_most=1
    )
    small = planned(64, 8, "160KiB")
    quarter, took = in_turns([partial(railopt.simulate, p) for p in (small, large)]).T
    flows, fewer = len(railopt.simulate(large).flows), len(railopt.simulate(small).flows)
    growth = ratio(took, quarter) / (flows / fewer * _log(flows) / _log(fewer))
    yield Row(
        f"growth from {fewer:,} to {flows:,} flows, over flows x log(flows)",
        growth,
        "x",
        at_most=1.1,
    )


def _log(value: int) -> float:
    from math import log

    return log(value)
