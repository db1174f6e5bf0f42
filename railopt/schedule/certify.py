"""t_opt = L / (m B2), certified: a line that no schedule can beat, and the even split that attains
it.

The traffic is taken as divisible, as FAST does: every transfer spread evenly over the rails loads
the busiest server's NICs for exactly L / (m B2), and the prices of the certificate (1 for the NICs
of that server, 0 elsewhere) show that nothing is faster.  By Birkhoff's theorem the same time is
enough with one peer at a time.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from railopt.bracket import Bracket, Status
from railopt.certificate import Certificate
from railopt.schedule.value import Schedule


def certificate(schedule: Schedule) -> Certificate:
    """The optimal time of the schedule's traffic as a fluid problem, value and bound alike;
    `check()` proves it.
    """
    fabric, bound = schedule.fabric, schedule.bound
    demand = schedule.traffic.node_matrix
    prices = {side: np.zeros((fabric.nodes, fabric.rails), np.int64) for side in ("send", "recv")}
    prices[bound.side][bound.node] = 1
    src, dst = np.nonzero(demand)
    rails = fabric.rails
    amount = np.repeat(demand[src, dst], rails).tolist()
    flow: dict[str, Any] = {
        "unit": rails,
        "src": np.repeat(src, rails).tolist(),
        "dst": np.repeat(dst, rails).tolist(),
        "rail": np.tile(np.arange(rails), len(src)).tolist(),
        "amount": amount,
    }
    witness = {"kind": "fluid", **{side: price.tolist() for side, price in prices.items()}}
    even = Fraction(schedule.line_sum, rails * int(fabric.tx[0, 0]))
    status = Status.PROVED if even == bound.value else Status.OPEN
    return Certificate.fluid(
        fabric, demand, Bracket(even, bound.value, status, witness, "even split"), flow
    )
