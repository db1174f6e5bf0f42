"""Which NIC was hot, and why: a plan against what was counted while it was carried out.

The hottest NIC is the one that needs most seconds for its bytes.  Its seconds are taken apart,
exactly and in this order:

    even       all bytes of the plan over all NICs of the fabric, each at the middle rate
    imbalance  of nodes: from there to the least time of any plan on such a fabric.  Where the node
               that sends most decides it, the cause is the traffic, where the node that receives
               most, the placement: what it hosts draws the bytes
    slow       from there to the least time of any plan at the rates that the plan's fabric has, and
               what the NIC needs more because it is slower than that now
    plan       from that least time to what the plan needs at this NIC
    headers    of packets, where ports were counted: the same share at every NIC
    diverted   bytes that were planned for other rails of the node, which carried less: a fault
               moves them, and nothing but the rail of a chunk
    others     bytes that are not this plan's

Least times are closed-form lower bounds, the rest is what was counted; a term may be negative.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.answers.outliers import median_rate
from railopt.base.arrays import Floats, Ints
from railopt.base.errors import InputError
from railopt.base.units import format_bytes
from railopt.evidence.bounds import Bound, lower_bound
from railopt.model.fabric import SIDES, Fabric
from railopt.model.plan import Plan
from railopt.runtime.adapt import shares
from railopt.runtime.counters import Counted

MOST_HEADERS = Fraction(23, 20)
"""Of what ports count, at most: more is others' traffic."""
NOTICED = Fraction(1, 20)
"""Causes of a smaller share of the hottest NIC's time are not named."""
LEAST_CARRIED = Fraction(9, 10)
PARTS = {
    "even": "all bytes, evenly over all NICs",
    "headers": "headers of packets",
}
CAUSES = {
    "others": "traffic that is not this plan's",
    "diverted": "bytes planned for other rails of its node (after a fault, or devices are not in "
    "rail order)",
    "slow": "a slow NIC",
    "plan": "the plan",
    "placement": "the placement: what one node hosts draws more bytes than other nodes do",
    "traffic": "the traffic: one node has more to send than other nodes",
}


class NicShare(NamedTuple):
    """A NIC's side in one run.

    counted   bytes, as the mean of the runs
    planned   bytes
    diverted  bytes that were planned for other rails, or, below 0, went to them
    others    bytes of `counted` that are none of these, nor headers of the plan's packets
    rate      bytes per second that it has, as far as is known
    """

    node: int
    rail: int
    side: str
    counted: Fraction
    planned: int
    diverted: Fraction
    others: Fraction
    rate: int

    @property
    def time(self) -> Fraction:
        """Seconds for what was counted."""
        return self.counted / self.rate if self.rate else Fraction(0)


class Blame(NamedTuple):
    """What was found.

    nics     both sides of every NIC, the hottest first
    terms    seconds of the hottest, by cause, in the order of the module's docstring
    bound    of any plan, at the rates of the plan's fabric
    headers  bytes counted for each byte of the plan, of packet headers
    """

    plan: Plan
    nics: list[NicShare]
    terms: dict[str, Fraction]
    bound: Bound
    headers: Fraction

    @property
    def cause(self) -> str:
        """The largest cause of those in CAUSES, or "" where none has a share of NOTICED."""
        name = max(CAUSES, key=lambda cause: self.terms.get(cause, Fraction(0)))
        return name if self.terms.get(name, 0) >= NOTICED * self.nics[0].time > 0 else ""

    @property
    def verdict(self) -> str:
        """One sentence."""
        hot = self.nics[0]
        where = f"node {hot.node} {hot.side} rail {hot.rail}"
        if not self.cause:
            return f"{where} is the hottest, as every NIC would be: the bytes are evenly spread"
        why, share = CAUSES[self.cause], self.terms[self.cause] / hot.time
        extra = {"others": hot.others, "diverted": hot.diverted}.get(self.cause)
        more = "" if extra is None else f", {format_bytes(round(extra))} a run"
        return f"{where} is the hottest, mostly by {why}{more} ({float(share):.0%} of its time)"

    def times(self, side: str) -> Floats:
        """float64 [nodes, rails]: seconds that each NIC needs for what was counted; nan where it is
        dead.
        """
        found = np.full((self.plan.fabric.nodes, self.plan.fabric.rails), np.nan)
        for nic in self.nics:
            if nic.side == side and nic.rate:
                found[nic.node, nic.rail] = float(nic.time)
        return found

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times as "p/q"."""
        return {
            "cause": self.cause,
            "verdict": self.verdict,
            "bound": str(self.bound.value),
            "headers": str(self.headers),
            "terms": {name: str(value) for name, value in self.terms.items()},
            "nics": [
                {
                    **nic._asdict(),
                    "counted": str(nic.counted),
                    "diverted": str(nic.diverted),
                    "others": str(nic.others),
                    "time": str(nic.time),
                }
                for nic in self.nics
            ],
        }


def blame(plan: Plan, counted: Counted, runs: int | None = None) -> Blame:
    """The plan, carried out `runs` times (as metrics count them, or once) while `counted` was."""
    if counted.runs and runs is not None:
        raise InputError(f"{runs} runs, but the metrics counted {counted.runs}: leave them out")
    runs = counted.runs or runs or 1
    if runs < 1:
        raise InputError(f"{runs} runs: expected at least 1")
    sides = dict(zip(SIDES, (counted.sent, counted.received), strict=True))
    out, back = (int(side.sum()) for side in sides.values())
    expected = plan.chunks.total * runs
    if not expected or out + back < LEAST_CARRIED * 2 * expected:
        fewer = "" if counted.payload else ", or fewer runs (--runs)"
        raise InputError(
            f"the NICs sent {format_bytes(out)} and received {format_bytes(back)}, {runs} runs of "
            f"the plan have {format_bytes(expected)}: other readings, or another plan{fewer}"
        )
    headers = Fraction(1) if counted.payload else _headers(plan, sides, runs)
    rates = rates_seen(plan.fabric, counted, runs)
    nics = [
        nic
        for side in SIDES
        for node, row in enumerate(sides[side].tolist())
        for nic in _nics(plan, side, node, [Fraction(n, runs) for n in row], headers, rates[side])
    ]
    nics.sort(key=lambda nic: nic.time, reverse=True)
    bound = lower_bound(plan.fabric, plan.chunks)
    return Blame(plan, nics, _terms(plan, nics[0], headers, bound), bound, headers)


def _headers(plan: Plan, sides: dict[str, Ints], runs: int) -> Fraction:
    """Bytes that ports count for each of the plan's: the middle of all NICs, from 1 to
    MOST_HEADERS.
    """
    ratios = sorted(
        Fraction(int(count), int(load) * runs)
        for side in SIDES
        for count, load in zip(sides[side].flat, plan.loads(side).flat, strict=True)
        if load
    )
    return min(max(ratios[len(ratios) // 2], Fraction(1)), MOST_HEADERS)


def rates_seen(fabric: Fabric, counted: Counted, runs: int) -> dict[str, Ints]:
    """int64 [nodes, rails] a side: the fabric's rates, or less where a port says that it is slower
    or where its links were; where the fabric says that it is dead a port's own or, if it counted
    bytes all the same, the middle of all rates.
    """
    rates = [fabric.tx, fabric.rx]
    if counted.links:
        mean = [
            replace(link, bytes=link.bytes // runs, last_s=link.last_s / runs)
            for link in counted.links
        ]
        parts = shares(fabric, mean)
        parts = np.where((parts > 0) & (parts < 1), parts, 1.0)
        rates = [  # of a NIC that lives, however slow, at least 1
            np.maximum((rate * part).astype(np.int64), rate > 0)
            for rate, part in zip(rates, parts, strict=True)
        ]
    known, middle = counted.rate > 0, healthy(fabric).tx
    found = {}
    for side, rate, count in zip(SIDES, rates, (counted.sent, counted.received), strict=True):
        rate = np.where((rate == 0) & (count > 0) & ~known, middle, rate)
        found[side] = np.where(known & ((rate == 0) | (counted.rate < rate)), counted.rate, rate)
    return found


def _nics(
    plan: Plan, side: str, node: int, counted: list[Fraction], headers: Fraction, rates: Ints
) -> list[NicShare]:
    """A side of a node, rail by rail; what one rail has too much and another too little was
    diverted.
    """
    planned = plan.loads(side)[node].tolist()
    excess = [count - load * headers for count, load in zip(counted, planned, strict=True)]
    more = sum((e for e in excess if e > 0), Fraction(0))
    less = -sum((e for e in excess if e < 0), Fraction(0))
    both = min(more, less)
    diverted = [e * both / (more if e > 0 else less) if e else e for e in excess]
    return [
        NicShare(node, rail, side, count, load, gone, e - gone, int(rates[node, rail]))
        for rail, (count, load, gone, e) in enumerate(
            zip(counted, planned, diverted, excess, strict=True)
        )
    ]


def healthy(fabric: Fabric) -> Fabric:
    """The fabric with every NIC at the middle of all rates."""
    same = np.full(fabric.tx.shape, median_rate(fabric))
    return replace(fabric, tx=same, rx=same)


def _terms(plan: Plan, hot: NicShare, headers: Fraction, bound: Bound) -> dict[str, Fraction]:
    """Seconds of the hottest NIC by cause; their sum is its time."""
    well = healthy(plan.fabric)
    even = Fraction(plan.chunks.total, int(well.tx.sum()))
    least = lower_bound(well, plan.chunks)
    assumed = int(plan.fabric.rates(hot.side)[hot.node, hot.rail])
    as_planned = Fraction(hot.planned, assumed) if assumed else Fraction(0)
    now = Fraction(hot.planned, hot.rate) if hot.rate else as_planned
    imbalance = "traffic" if least.side == "send" else "placement"
    return {
        "even": even,
        imbalance: least.value - even,
        "slow": bound.value - least.value + now - as_planned,
        "plan": as_planned - bound.value,
        "headers": hot.planned * (headers - 1) / hot.rate if hot.rate else Fraction(0),
        "diverted": hot.diverted / hot.rate if hot.rate else Fraction(0),
        "others": hot.others / hot.rate if hot.rate else Fraction(0),
    }
