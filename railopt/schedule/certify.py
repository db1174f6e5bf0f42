"""t_opt = L / (m B2), certified: a line that no schedule can beat, and the even split that attains
it.

The traffic is taken as divisible, as FAST does.  Every transfer spread evenly over the rails loads
the busiest server's NICs for exactly L / (m B2).  The prices of the certificate (1 for the NICs of
that server, 0 elsewhere) show that nothing is faster.  By Birkhoff's theorem the same time is
enough with one peer at a time.

The stages of a schedule have a certificate of their own (`staged`): that every byte is in one of
them and no server twice, what their lengths add up to, and the line that bounds it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.errors import InputError
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate
from railopt.schedule.kinds import KINDS
from railopt.schedule.value import Schedule


def certificate(schedule: Schedule) -> Certificate:
    """The optimal time of the schedule's traffic as a fluid problem, value and bound alike;
    `check()` proves it.
    """
    _require_equal_nics(schedule)
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
    status = Status.KNOWN if even == bound.value else Status.OPEN
    return Certificate.fluid(
        fabric, demand, Bracket(even, bound.value, status, witness, "even split"), flow
    )


def staged(schedule: Schedule) -> Certificate:
    """The stages themselves: their total in bytes, and the row or column that no stages beat."""
    if not KINDS[schedule.kind].barriers:
        raise InputError(f"a schedule of kind {schedule.kind} has no stages to certify")
    _require_equal_nics(schedule)
    if schedule.stage is not None:
        raise InputError(
            "stages whose rows share the rails: a certificate counts bytes on all of them; make "
            "them with --eps, or without --startup"
        )
    demand, bound = schedule.traffic.node_matrix, schedule.bound
    transfers = [  # [source, target, bytes], by stage
        [[i, int(peer[i]), int(sent[i])] for i in np.flatnonzero(sent).tolist()]
        for peer, sent in zip(schedule.peer, schedule.sent, strict=True)
    ]
    return Certificate(
        {"kind": "staged", "demand": demand.tolist()},
        Fraction(schedule.line_sum),
        {"kind": "line", "side": bound.side, "node": int(bound.node)},
        Fraction(schedule.total),
        {"stages": transfers},
    )


def _require_equal_nics(schedule: Schedule) -> None:
    """Both certificates count bytes, which take as long on any rail where NICs are alike."""
    if not schedule.fabric.is_uniform:
        raise InputError(
            "NICs of different rate: a schedule's certificates count bytes on rails that are alike "
            "(railopt solve --certificate has one for unequal NICs)"
        )
