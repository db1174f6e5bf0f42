"""The NICs of a fabric that are slower than the others, the worst first.

>>> from railopt import Fabric
>>> [str(nic) for nic in outliers(Fabric.uniform(4, 4).degraded({(3, 2): "0.5"}))]
['node 3 rail 2: 200 Gb/s, 50 % below the median']
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.units import exact
from railopt.model.fabric import SIDES, Fabric

NOTICED = Fraction(1, 20)
"""A NIC that is less than this share below the median is like the others."""


class Outlier(NamedTuple):
    """A NIC that is slow or dead.

    name    host and device, or the numbers of node and rail
    side    "send" or "recv"; "" where both are alike
    rate    bytes per second; 0 is dead
    below   1 - rate / median of all living NICs
    """

    node: int
    rail: int
    name: str
    side: str
    rate: int
    below: Fraction

    def __str__(self) -> str:
        where = f"{self.name} ({self.side})" if self.side else self.name
        if not self.rate:
            return f"{where}: dead"
        below = f"{float(self.below):.0%}".replace("%", " %")
        return f"{where}: {self.rate * 8 / 10**9:.4g} Gb/s, {below} below the median"

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: the share as "p/q"."""
        return exact(self._asdict())


def median_rate(fabric: Fabric) -> int:
    """The middle of the rates of all living NICs, both ways, bytes per second; 0: none lives."""
    alive = np.sort(np.concatenate([rates[rates > 0] for rates in (fabric.tx, fabric.rx)]))
    return int(alive[len(alive) // 2]) if len(alive) else 0


def outliers(fabric: Fabric) -> list[Outlier]:
    """Dead NICs, and those at least NOTICED below the median, the slowest first."""
    median = median_rate(fabric)
    least = median * (1 - NOTICED)
    slow = (fabric.tx <= int(least)) | (fabric.rx <= int(least))
    found = []
    for node, rail in np.argwhere(slow).tolist():
        rates = {side: int(fabric.rates(side)[node, rail]) for side in SIDES}
        if len(set(rates.values())) == 1:
            rates = {"": rates["send"]}
        for side, rate in rates.items():
            if rate <= least:
                below = Fraction(median - rate, median or 1)
                name = fabric.nic_name(node, rail)
                found.append(Outlier(node, rail, name, side, rate, below))
    return sorted(found, key=lambda nic: nic.rate)


def outlier_lines(found: list[Outlier], most: int | None = None) -> list[str]:
    """A line for each NIC, and how many more there are beyond the first `most`."""
    shown = [str(nic) for nic in found[:most]]
    more = len(found) - len(shown)
    return [*shown, f"and {more} more, all faster than these"] if more else shown
