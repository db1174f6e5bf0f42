"""Timing plans on a sender, in the columns of nccl-tests.

size(B) is what nccl-tests calls the size of an all-to-all: a rank's whole buffer, of which 1/n
stays at home. So the node with the most to send or receive moves size * (n - 1) / n over its NICs,
algbw = size / time, and busbw = algbw * (n - 1) / n is what those NICs did together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.traffic import Traffic

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
        algbw = self.size / self.seconds / 1e9
        return [
            self.sender,
            self.policy,
            str(self.size),
            str(self.size),
            "uint8",
            "none",
            "-1",
            f"{self.seconds * 1e6:.2f}",
            f"{algbw:.3f}",
            f"{algbw * (self.nodes - 1) / self.nodes:.3f}",
            "N/A" if self.wrong is None else str(self.wrong),
            f"{float(self.bound) / self.seconds * 100:.2f}",
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


def sizes(begin: int, end: int, factor: int) -> Iterator[int]:
    """begin, begin * factor, ... up to end, as nccl-tests' -b -e -f."""
    if not 1 <= begin <= end or factor < 2:
        raise InputError(
            f"-b {begin} -e {end} -f {factor}: expected 1 <= begin <= end and a factor of at "
            f"least 2"
        )
    while begin <= end:
        yield begin
        begin *= factor


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
    if not np.any(Traffic.from_matrix(np.array(matrix, np.int64), fabric).node_matrix):
        raise InputError(f"size {size}: less than a byte a pair of GPUs; begin with more (-b)")
    return Traffic.from_matrix(np.array(matrix, np.int64), fabric)


def timed(
    once: Callable[[int], tuple[float, int | None]], warmup: int, iters: int
) -> tuple[float, int | None]:
    """Mean seconds and wrong chunks of `iters` calls after `warmup` that don't count."""
    for i in range(warmup):
        once(i)
    results = [once(warmup + i) for i in range(iters)]
    wrong = [w for _, w in results if w is not None]
    return sum(t for t, _ in results) / iters, sum(wrong) if wrong else None
