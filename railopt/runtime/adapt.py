"""The fabric that the next plan is made for, from what the runs before it achieved.

A link with b bytes whose two NICs divide their rates equally between their links needs

    need = max over both NICs of (sum over the NIC's links j of min(b_j, b)) / rate

seconds. A NIC that is slow has no link that does well, a NIC with a slow peer has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from railopt.base.arrays import Array
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import plan as make_plan
from railopt.policies import policy_of
from railopt.runtime.senders.report import LinkReport, Report

MODES = {
    "off": "the plan stays as it is",
    "failures": "a NIC that is dead leaves the fabric until it is back",
    "rates": "that, and a NIC that is slower than planned counts with the rate that it has",
}
STEPS = 32  # of a NIC's rate in the first plan
THRESHOLD = 0.1  # share of a rate: runs that differ by less are taken for noise
WEIGHT = 0.8  # of the better of a NIC's last two runs, in the average
PATIENCE = 8, 64  # runs before a NIC that does what it should is offered more, and at most
SHORTEST_S = 1e-4  # a link that took less shows its latency, not its rate


class Adapter:
    """Learns what the NICs of a fabric do.

    nominal    the fabric of the first plan; no NIC counts with more than its rate there
    fabric     what the next plan should be made for
    measured   float64 [2, nodes, rails], sending and receiving: shares of the nominal rates, as an
               average in which the last runs count 0.8 and all before them 0.2

    What disturbs a link makes it slower, never faster: of a NIC's last two runs the better counts,
    so a single bad run lowers nothing. `fabric` has whole 32nds of the nominal rates. A NIC's rate
    in it changes from its second run on, when the average is more than a tenth away from it, and a
    NIC without a living link is dead. A slow NIC that does what it should for 8 runs is offered a
    step or a ninth more, and at once again if it takes that.  If not, the next offer waits twice as
    long, up to 64 runs. All is a function of the reports, so ranks that learn from the same reports
    have the same fabric.
    """

    def __init__(self, nominal: Fabric, mode: str = "rates") -> None:
        if mode not in MODES:
            raise InputError(f"adapt {mode!r}: expected {', '.join(MODES)}")
        self.nominal, self.fabric, self.mode = nominal, nominal, mode
        self.measured = np.ones((2, nominal.nodes, nominal.rails))
        self._last = np.zeros(self.measured.shape)  # what the last run showed; 0: none has yet
        self._steps = np.full(self.measured.shape, STEPS)
        self._dead = np.zeros((nominal.nodes, nominal.rails), np.bool_)
        self._patience = np.full(self.measured.shape, PATIENCE[0])
        self._held = np.zeros(self.measured.shape, np.int64)  # runs that went as they should
        self._offered = np.zeros(self.measured.shape, np.bool_)

    def learn(self, plan: Plan, reports: Sequence[Report]) -> bool:
        """Take in all nodes' reports of a run of `plan`: whether `fabric` changed."""
        links = [link for report in reports for link in report.links]
        shown = shares(plan.fabric, links)
        seen = shown > 0
        assumed = np.stack([plan.fabric.tx, plan.fabric.rx]) / np.maximum(
            1, np.stack([self.nominal.tx, self.nominal.rx])
        )
        fresh = np.minimum(1.0, shown * assumed)
        twice = seen & (self._last > 0)
        better = np.maximum(fresh, self._last)
        average = self.measured + WEIGHT * (better - self.measured)
        self.measured = np.where(twice, average, np.where(seen, fresh, self.measured))
        self._last[seen] = fresh[seen]
        self._dead = dead_nics(plan.fabric, links)
        before = self.fabric
        if self.mode == "rates":
            self._offer(self._follow(twice), shown >= 1)
        if self.mode != "off":
            self.fabric = self._made(self._steps)
        return self.fabric != before

    def _follow(self, twice: Array) -> Array:
        """Rates that the average has left follow it where two runs were seen: bool [2, nodes,
        rails], which did.
        """
        current = self._steps / STEPS
        off = twice & (np.abs(self.measured - current) > THRESHOLD * current)
        fell = off & (self.measured < current)
        again = np.minimum(2 * self._patience, PATIENCE[1])
        self._patience[fell] = np.where(self._offered, again, PATIENCE[0])[fell]
        self._offered[fell] = False
        self._steps[off] = _steps(self.measured)[off]
        return off

    def _offer(self, changed: Array, right: Array) -> None:
        """A little more to slow NICs that do what they should."""
        right = right & ~changed & (self._steps < STEPS)
        self._patience[right & self._offered] = 1
        self._held = np.where(right, self._held + 1, 0)
        offer = right & (self._held >= self._patience)
        more = np.minimum(STEPS, np.maximum(self._steps + 1, self._steps * 10 // 9))
        self._steps[offer] = more[offer]
        self.measured[offer] = self._steps[offer] / STEPS
        self._offered |= offer

    def seen(self) -> Fabric:
        """What was measured, in whole 32nds of the nominal rates; dead NICs as such."""
        return self._made(_steps(self.measured))

    def plan(self, before: Plan) -> Plan:
        """The same chunks with the same policy, planned for `fabric`."""
        self.check(before)
        return make_plan(self.fabric, before.chunks, policy_of(before))

    def check(self, plan: Plan) -> None:
        """Refuse what can't be planned again."""
        if plan.stage is not None and self.mode != "off":
            raise InputError(
                "a plan with stages can't be made again for other rates: leave --adapt out, or "
                "send a plan without stages"
            )

    def changes(self) -> str:
        """In words, the NICs of `fabric` that are not as in the first plan."""
        found = []
        for node, rail in np.argwhere((self._steps < STEPS).any(axis=0) | self._dead).tolist():
            sends, receives = (Fraction(int(side[node, rail]), STEPS) for side in self._steps)
            what = f"sends {sends}, receives {receives}"
            found.append(f"{node}:{rail} {'dead' if self._dead[node, rail] else what}")
        return "; ".join(found) or "all NICs as first planned"

    def _made(self, steps: Array) -> Fabric:
        tx, rx = (
            np.where(self._dead, 0, np.where(rates > 0, np.maximum(1, _part(rates, step)), 0))
            for rates, step in zip((self.nominal.tx, self.nominal.rx), steps, strict=True)
        )
        full = (steps == STEPS).all() and not self._dead.any()
        return self.nominal if full else replace(self.nominal, tx=tx, rx=rx)


def _part(rates: Array, step: Array) -> Array:
    """`step` 32nds of each rate; its product with a rate need not fit."""
    return rates // STEPS * step + rates % STEPS * step // STEPS


def _steps(parts: Array) -> Array:
    return np.clip(np.rint(parts * STEPS).astype(np.int64), 1, STEPS)


def shares(fabric: Fabric, links: Iterable[LinkReport]) -> Array:
    """float64 [2, nodes, rails], sending and receiving: what part of its rate each NIC showed, of
    those links that carry at least half as much as its largest; 0 where nothing can be said.

    A NIC whose links are all late shows its own need / time; any other at least its rate.
    """
    ends: dict[tuple[int, int, int], list[LinkReport]] = {}
    for link in links:
        if link.bytes and link.seconds >= SHORTEST_S:
            ends.setdefault((0, link.node, link.rail), []).append(link)
            ends.setdefault((1, link.peer, link.rail), []).append(link)
    own = {end: _needs(fabric, end, mine) for end, mine in ends.items()}
    found = np.zeros((2, fabric.nodes, fabric.rails))
    for end, mine in ends.items():
        most = max(link.bytes for link in mine)
        large = [link for link in mine if 2 * link.bytes >= most]
        both = [
            max(own[0, k.node, k.rail][k], own[1, k.peer, k.rail][k]) / k.seconds for k in large
        ]
        alone = max(own[end][link] / link.seconds for link in large)
        found[end] = alone if max(both) < 1 - THRESHOLD else max(1.0, alone)
    return found


def _needs(
    fabric: Fabric, end: tuple[int, int, int], links: list[LinkReport]
) -> dict[LinkReport, float]:
    """Seconds that each link of a NIC needs if the NIC divides its rate equally."""
    side, node, rail = end
    rate = int((fabric.tx, fabric.rx)[side][node, rail])
    return {
        link: sum(min(other.bytes, link.bytes) for other in links) / rate if rate else 0.0
        for link in links
    }


def dead_nics(fabric: Fabric, links: Iterable[LinkReport]) -> Array:
    """bool [nodes, rails]: NICs all of whose links are dead."""
    dead = np.zeros((fabric.nodes, fabric.rails), np.int64)
    for link in links:
        dead[link.node, link.rail] += not link.alive
    return dead >= max(1, fabric.nodes - 1)
