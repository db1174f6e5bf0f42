"""Timing plans on a sender, in the columns of nccl-tests.

size(B) is what nccl-tests calls the size of an all-to-all: a rank's whole buffer, of which 1/n
stays at home. So the node with the most to send or receive moves size * (n - 1) / n over its NICs.
algbw = size / time, and busbw = algbw * (n - 1) / n is what those NICs did together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.errors import InputError
from railopt.evidence.bounds import lower_bound
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.policies import plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.senders import SENDERS, SenderConfig
from railopt.runtime.senders.protocol import Carrier

COLUMNS = (
    "sender",
    "policy",
    "size(B)",
    "count",
    "type",
    "redop",
    "root",
    "time(us)",
    "algbw(GB/s)",
    "busbw(GB/s)",
    "#wrong",
    "bound%",
)


@dataclass(frozen=True)
class Measurement:
    """Mean seconds of `iters` runs of one plan; `bound` is the least any plan of these chunks takes
    on the fabric.
    """

    sender: str
    policy: str
    size: int
    nodes: int
    seconds: float
    bound: Fraction
    wrong: int | None

    def row(self) -> list[str]:
        """The cells of `COLUMNS`."""
        found = self.as_dict()
        return [
            self.sender,
            self.policy,
            str(self.size),
            str(self.size),
            "uint8",
            "none",
            "-1",
            f"{self.seconds * 1e6:.2f}",
            f"{found['algbw']:.3f}",
            f"{found['busbw']:.3f}",
            "N/A" if self.wrong is None else str(self.wrong),
            f"{found['bound_percent']:.2f}",
        ]

    def as_dict(self) -> dict[str, Any]:
        """The cells as numbers."""
        algbw = self.size / self.seconds / 1e9
        return {
            "sender": self.sender,
            "policy": self.policy,
            "size": self.size,
            "seconds": self.seconds,
            "algbw": algbw,
            "busbw": algbw * (self.nodes - 1) / self.nodes,
            "wrong": self.wrong,
            "bound": self.bound,
            "bound_percent": float(self.bound) / self.seconds * 100,
        }


def sizes(begin: int, end: int, factor: int) -> tuple[int, ...]:
    """begin, begin * factor, ... up to end, as nccl-tests' -b -e -f."""
    if not 1 <= begin <= end or factor < 2:
        raise InputError(
            f"-b {begin} -e {end} -f {factor}: expected 1 <= begin <= end and a factor of at "
            f"least 2"
        )
    found = []
    while begin <= end:
        found.append(begin)
        begin *= factor
    return tuple(found)


def scaled(traffic: Traffic, size: int, fabric: Fabric) -> Traffic:
    """The same pattern, scaled so that its busiest node moves size * (n - 1) / n bytes over its
    NICs.
    """
    between = traffic.node_matrix
    busiest = int(max(between.sum(axis=0).max(), between.sum(axis=1).max()))
    if busiest == 0:
        raise InputError("the workload moves nothing between nodes: there is nothing to time")
    wanted = size * (fabric.nodes - 1) // fabric.nodes
    matrix = [[value * wanted // busiest for value in row] for row in traffic.bytes.tolist()]
    made = Traffic.from_matrix(np.array(matrix, np.int64), fabric)
    if not np.any(made.node_matrix):
        raise InputError(f"size {size}: less than a byte a pair of GPUs; begin with more (-b)")
    return made


@dataclass(frozen=True)
class Benchmark:
    """A pattern of traffic scaled to each of `sizes` (bytes), planned by each policy, `warmup` runs
    that don't count and `iters` that do.
    """

    fabric: Fabric
    pattern: Traffic
    sizes: tuple[int, ...]
    policies: tuple[str, ...] = ("lpt",)
    chunk: str = "64KiB"
    warmup: int = 3
    iters: int = 20

    def __post_init__(self) -> None:
        if self.iters < 1 or self.warmup < 0:
            raise InputError(f"-n {self.iters} -w {self.warmup}: expected at least 1 and 0")
        chunks = self._chunks(self.sizes[0])
        for policy in self.policies:  # an unknown one is refused before any rank waits for others
            plan(self.fabric, chunks, policy)

    def _chunks(self, size: int) -> Chunks:
        return scaled(self.pattern, size, self.fabric).chunks(self.chunk)

    @property
    def room(self) -> Layout:
        """Where the chunks of the largest size lie: all others fit into its buffers."""
        return Layout.packed(self._chunks(self.sizes[-1]))

    def measure(self, sender: str, carrier: Carrier) -> Iterator[Measurement]:
        """Time every case; a run takes as long as its slowest rank."""
        for size in self.sizes:
            chunks = self._chunks(size)
            bound = lower_bound(self.fabric, chunks).value
            for policy in self.policies:
                seconds, wrong = self._time(plan(self.fabric, chunks, policy), carrier)
                yield Measurement(sender, policy, size, self.fabric.nodes, seconds, bound, wrong)

    def _time(self, made: Plan, carrier: Carrier) -> tuple[float, int | None]:
        """Mean seconds, each run as long as its slowest rank, and wrong chunks of the runs that
        count.
        """
        seconds = 0.0
        wrong: list[int] = []
        for i in range(self.warmup + self.iters):
            reports = carrier.reports(carrier.carry(made), links=False)
            if i >= self.warmup:
                seconds += max(report.seconds for report in reports)
                wrong += [report.wrong for report in reports if report.wrong is not None]
        return seconds / self.iters, sum(wrong) if wrong else None


def measure(benchmark: Benchmark, sender: str, config: SenderConfig) -> Iterator[Measurement]:
    """Open a sender by name and time every case of a benchmark, one after the other."""
    with SENDERS[sender].opened(config) as carrier:
        yield from benchmark.measure(sender, carrier)
