"""Which NIC was hot, and why: a plan against what was counted while it was carried out.

The hottest NIC is the one that needs most seconds for its bytes.  Its seconds are taken apart,
exactly and in this order:

    even       all bytes of the plan over all NICs of the fabric, each at the middle rate
    imbalance  of nodes: from there to the least time of any plan on such a fabric.  Where the node
               that sends most decides it, the cause is the traffic, where the node that receives
               most, the placement: what it hosts draws the bytes
    slow       what the NIC needs more because it is slower than the middle rate, or what any plan
               needs more at the rates that the fabric has, whichever is more
    plan       from there to what the plan needs at this NIC; `spread` where there is no plan: its
               node's bytes lie unevenly on its NICs
    headers    of packets, where ports were counted: the same share at every NIC
    diverted   bytes that were planned for other rails of the node, which carried less: a fault
               moves them, and nothing but the rail of a chunk
    others     bytes that are not this plan's

Least times are closed-form lower bounds, the rest is what was counted; a term may be negative.

Without a plan every byte is taken to belong to the NIC that carried it, as where each GPU sends by
its own NIC.  Nothing is diverted and nothing is others', and the least time is that of the node
with most bytes, spread evenly over its NICs.

Bytes alone can't show that a NIC is slow: it carries the same bytes, later.  Its rate has to be
known, or its waiting and errors are a hint.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.answers.outliers import NOTICED, median_rate
from railopt.base.arrays import Floats, Ints
from railopt.base.errors import InputError
from railopt.base.units import exact, format_bytes
from railopt.evidence.bounds import lower_bound
from railopt.model.fabric import SIDES, Fabric
from railopt.model.plan import Plan
from railopt.runtime.adapt import shares
from railopt.runtime.counters import Counted

MOST_HEADERS = Fraction(23, 20)
"""Of what ports count, at most: more is others' traffic."""
"""Causes of a smaller share of the hottest NIC's time are not named."""
LEAST_CARRIED = Fraction(9, 10)
LONG_WAIT, NAMED = 4, 5  # times the median of all ports; NICs that a hint names
BLIND = (
    "byte counters alone can't see a slow NIC, which carries the same bytes later: give measured "
    "rates (--fabric), or read wait and error counters too"
)
UNSEEN = (
    "waits and errors show no slow NIC, and byte counters can't see one, which carries the same "
    "bytes later: measured rates can (--fabric)"
)
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
    "spread": "the spread of its node's bytes, which lie unevenly on the NICs",
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
    bound    seconds: no plan is faster at the rates of the fabric
    headers  bytes counted for each byte of the plan, of packet headers
    hints    in words: NICs with errors or long waits, and what these counters can't show
    """

    fabric: Fabric
    nics: list[NicShare]
    terms: dict[str, Fraction]
    bound: Fraction
    headers: Fraction
    hints: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """The largest cause of those in CAUSES, or "" where none has a share of NOTICED."""
        name = max(CAUSES, key=lambda cause: self.terms.get(cause, Fraction(0)))
        return name if self.terms.get(name, 0) >= NOTICED * self.nics[0].time > 0 else ""

    @property
    def verdict(self) -> str:
        """One sentence."""
        hot = self.nics[0]
        where = self.name(hot)
        if not self.cause:
            return f"{where} is the hottest, as every NIC would be: the bytes are evenly spread"
        why, share = CAUSES[self.cause], self.terms[self.cause] / hot.time
        extra = {"others": hot.others, "diverted": hot.diverted}.get(self.cause)
        more = "" if extra is None else f", {format_bytes(round(extra))} per run"
        return f"{where} is the hottest, mostly by {why}{more} ({float(share):.0%} of its time)"

    def name(self, nic: NicShare) -> str:
        """As `Fabric.side_name`."""
        return self.fabric.side_name(nic.node, nic.side, nic.rail)

    def planned(self, side: str) -> Ints:
        """int64 [nodes, rails]: bytes that were planned."""
        found = np.zeros((self.fabric.nodes, self.fabric.rails), np.int64)
        for nic in self.nics:
            if nic.side == side:
                found[nic.node, nic.rail] = nic.planned
        return found

    def times(self, side: str) -> Floats:
        """float64 [nodes, rails]: seconds that each NIC needs for what was counted; nan where it is
        dead.
        """
        found = np.full((self.fabric.nodes, self.fabric.rails), np.nan)
        for nic in self.nics:
            if nic.side == side and nic.rate:
                found[nic.node, nic.rail] = float(nic.time)
        return found

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times as "p/q"."""
        names = ("cause", "verdict", "bound", "hints", "headers", "terms")
        nics = [{**nic._asdict(), "name": self.name(nic), "time": nic.time} for nic in self.nics]
        return exact({**{name: getattr(self, name) for name in names}, "nics": nics})


def blame(
    plan: Plan, counted: Counted, runs: int | None = None, measured: Fabric | None = None
) -> Blame:
    """The plan, carried out `runs` times (as metrics count them, or once) while `counted` was;
    `measured` has the rates of its NICs where they are known better than from the plan.
    """
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
    fabric = plan.fabric
    if measured is not None:
        if measured.tx.shape != fabric.tx.shape:
            raise InputError(
                f"the fabric has {measured.nodes} nodes x {measured.rails} rails, the plan "
                f"{fabric.nodes} x {fabric.rails}: expected the rates of the plan's NICs"
            )
        fabric = replace(fabric, tx=measured.tx, rx=measured.rx)
    bound, least = (lower_bound(place, plan.chunks) for place in (fabric, healthy(fabric)))
    needed = Least(least.value, least.side, bound.value, plan.chunks.total)
    planned = {side: plan.loads(side) for side in SIDES}
    return _blamed(fabric, counted, runs, planned, headers, needed)


def blame_counted(counted: Counted, measured: Fabric | None = None) -> Blame:
    """What ports counted, where each GPU is taken to send by its own NIC; `measured` has the rates
    of NICs, without it those that ports say.
    """
    sides = dict(zip(SIDES, (counted.sent, counted.received), strict=True))
    total = max(int(side.sum()) for side in sides.values())
    if not total:
        raise InputError("no NIC sent or received anything between the two readings")
    fabric = measured or _as_ports_say(counted)
    if fabric.tx.shape != counted.sent.shape:
        nodes, rails = counted.sent.shape
        raise InputError(
            f"the fabric has {fabric.nodes} nodes x {fabric.rails} rails, {nodes} hosts with "
            f"{rails} devices were counted: name them (--hosts, --ib-dev)"
        )
    needed = Least(*_least(healthy(fabric), sides), _least(fabric, sides)[0], total)
    found = _blamed(fabric, counted, 1, sides, Fraction(1), needed)
    terms = {"spread" if name == "plan" else name: term for name, term in found.terms.items()}
    return found._replace(terms=terms)


def _blamed(
    fabric: Fabric,
    counted: Counted,
    runs: int,
    planned: dict[str, Ints],
    headers: Fraction,
    needed: Least,
) -> Blame:
    """What was counted in so many runs beside bytes planned per side, [nodes, rails]."""
    if counted.hosts:
        fabric = replace(fabric, hosts=counted.hosts, devices=counted.devices)
    rates = rates_seen(fabric, counted, runs)
    nics = [
        nic
        for side, counts in zip(SIDES, (counted.sent, counted.received), strict=True)
        for node, row in enumerate(counts.tolist())
        for nic in _nics(
            side, node, planned[side], [Fraction(n, runs) for n in row], headers, rates[side]
        )
    ]
    nics.sort(key=lambda nic: nic.time, reverse=True)
    terms = _terms(fabric, nics[0], headers, needed)
    return Blame(fabric, nics, terms, needed.bound, headers, _hints(fabric, counted, rates))


def _as_ports_say(counted: Counted) -> Fabric:
    nodes, rails = counted.sent.shape
    if not counted.rate.all():
        raise InputError(
            "some ports do not say their rate: read /sys/class/infiniband/*/ports/1/rate too, or "
            "give the rates (--fabric)"
        )
    return Fabric(nodes, rails, rails, counted.rate, counted.rate)


def _least(fabric: Fabric, sides: dict[str, Ints]) -> tuple[Fraction, str]:
    """Seconds of the node with most bytes for its rate, evenly over its NICs, and the side."""
    times = [
        (Fraction(int(load), int(rate)), side)
        for side in SIDES
        for load, rate in zip(sides[side].sum(1), fabric.rates(side).sum(1), strict=True)
        if rate
    ]
    return max(times)


def _hints(fabric: Fabric, counted: Counted, rates: dict[str, Ints]) -> tuple[str, ...]:
    """NICs with errors, most first, NICs that waited far longer than the others, or why a slow NIC
    would not be seen.
    """
    said = []
    if counted.errors is not None and counted.errors.any():
        worst = np.argsort(-counted.errors, axis=None, kind="stable")[:NAMED]
        named = [
            f"{fabric.nic_name(*map(int, divmod(nic, fabric.rails)))} ({counted.errors.flat[nic]})"
            for nic in worst.tolist()
            if counted.errors.flat[nic]
        ]
        more = int((counted.errors > 0).sum()) - len(named)
        said.append(f"errors: {', '.join(named)}{f' and {more} more NICs' if more else ''}")
    if counted.waits is not None:
        middle = int(np.sort(counted.waits, axis=None)[counted.waits.size // 2])
        long = np.argwhere(counted.waits > LONG_WAIT * max(middle, 1))
        named = [fabric.nic_name(node, rail) for node, rail in long[:NAMED].tolist()]
        if named:
            rest = f" and {len(long) - NAMED} more NICs" if len(long) > NAMED else ""
            said.append(
                f"waits more than {LONG_WAIT} times the median, so what it sends to is slow or "
                f"crowded: {', '.join(named)}{rest}"
            )
    known = counted.links or any(len(np.unique(rate)) > 1 for rate in rates.values())
    if not counted.payload and not known and not said:
        said.append(BLIND if counted.waits is None and counted.errors is None else UNSEEN)
    return tuple(said)


class Least(NamedTuple):
    """What any plan needs: seconds at one rate everywhere and the side that decides, seconds at the
    rates of the fabric, and all bytes.
    """

    at_one_rate: Fraction
    side: str
    bound: Fraction
    total: int


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
    """int64 [nodes, rails] per side: the fabric's rates, or less where a port reports a lower one
    or its links were slower.  A NIC that is dead in the fabric has its port's rate, or, if it
    counted bytes nevertheless, the median of all rates.
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
    side: str, node: int, loads: Ints, counted: list[Fraction], headers: Fraction, rates: Ints
) -> list[NicShare]:
    """A side of a node, rail by rail; what one rail has too much and another too little was
    diverted.
    """
    planned = loads[node].tolist()
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


def _terms(fabric: Fabric, hot: NicShare, headers: Fraction, least: Least) -> dict[str, Fraction]:
    """Seconds of the hottest NIC by cause; their sum is its time."""
    middle = median_rate(fabric)
    even = Fraction(least.total, middle * fabric.tx.size)
    rate = hot.rate or int(fabric.rates(hot.side)[hot.node, hot.rail])
    now = Fraction(hot.planned, rate) if rate else Fraction(0)
    slower = now - max(Fraction(hot.planned, middle), least.at_one_rate)
    slow = max(least.bound - least.at_one_rate, slower)
    imbalance = "traffic" if least.side == "send" else "placement"
    return {
        "even": even,
        imbalance: least.at_one_rate - even,
        "slow": slow,
        "plan": now - least.at_one_rate - slow,
        "headers": hot.planned * (headers - 1) / hot.rate if hot.rate else Fraction(0),
        "diverted": hot.diverted / hot.rate if hot.rate else Fraction(0),
        "others": hot.others / hot.rate if hot.rate else Fraction(0),
    }
