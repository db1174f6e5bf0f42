"""What the dispatches of a workload put on the ports of a candidate, and how long that takes.

Candidates have plans in common: policies see which NICs live and which GPUs are near them, hashed
paths the number of links; rates count only where bytes become seconds.  So rails of chunks and
bytes of ports are kept for the next candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints, Rails
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import POLICIES
from railopt.policies import plan as make_plan
from railopt.sim.assumptions import Assumptions
from railopt.sim.balancers import Ends
from railopt.sim.direct import flows_between
from railopt.sim.flows import Flows
from railopt.sim.from_plan import flows_of_plan
from railopt.sim.run import run_flows, simulate

DIRECT = "own NICs, ECMP"
ROOM = 1 << 28  # bytes that are kept
NICS_ALONE = Assumptions(scale_up="ignored")


class CarriedDispatch(NamedTuple):
    """One dispatch on a fabric: seconds of its busiest port, which kind of port that is, bytes of
    the busiest link, and how to simulate it.
    """

    time: Fraction
    limit: str
    link: int
    simulated: Callable[[], Fraction]


class PortBytes(NamedTuple):
    """Bytes of every NIC that sends, that receives, and of every link above (int64), and of the
    busiest scale-up port.
    """

    loads: Ints
    inside: int


@dataclass(frozen=True)
class Dispatches:
    """Dispatches on fabrics of candidates, whose living NICs have one rate; `seed` is that of
    hashed paths.
    """

    chunks: list[Chunks]
    seed: int
    _rails: dict[Hashable, Rails] = field(default_factory=dict, repr=False)
    _bytes: dict[Hashable, PortBytes] = field(default_factory=dict, repr=False)
    _room: list[int] = field(default_factory=lambda: [ROOM], repr=False)

    def carried(self, fabric: Fabric, place: int, way: str) -> CarriedDispatch:
        """The dispatch at a place under a policy, or direct from own NIC to own NIC."""
        loads, moved = self._port_bytes(fabric, place, way)
        nics = 2 * fabric.tx.size
        above = np.full(len(loads) - nics, fabric.tier.rate)
        rates = np.concatenate([fabric.tx.ravel(), fabric.rx.ravel(), above])
        outside, first = max(
            (Fraction(int(loads[alike].max()), rate), -int(alike[loads[alike].argmax()]))
            for rate in np.unique(rates[loads > 0]).tolist()
            for alike in [np.flatnonzero(rates == rate)]
        )
        inside = Fraction(moved, fabric.scaleup)
        limit = "NICs" if -first < nics else "uplinks"
        return CarriedDispatch(
            max(outside, inside),
            "scale-up" if inside > outside else limit,
            int(loads.max()),
            lambda: self._simulated(fabric, place, way, inside),
        )

    def nic_bytes(self, fabric: Fabric, place: int, way: str) -> Ints:
        """int64 [2, nodes, rails]: bytes that each NIC sends, and that it receives."""
        loads = self._port_bytes(fabric, place, way).loads[: 2 * fabric.tx.size]
        return loads.reshape(2, *fabric.tx.shape)

    def _simulated(self, fabric: Fabric, place: int, way: str, inside: Fraction) -> Fraction:
        if _on_rails(fabric, way):
            return simulate(self._plan(fabric, place, way)).completion
        return max(run_flows(self._flows(fabric, place, way), None, fabric).completion, inside)

    def _port_bytes(self, fabric: Fabric, place: int, way: str) -> PortBytes:
        tier = None if _on_rails(fabric, way) else replace(fabric.tier, rate=1)
        key = _key(fabric, place, way), tier and (tier, self.seed)
        if key in self._bytes:
            return self._bytes[key]
        plan = None if way == DIRECT else self._plan(fabric, place, way)
        if plan is not None and tier is None:
            loads = np.concatenate([plan.send.ravel(), plan.recv.ravel()])
        else:
            loads = self._flows(fabric, place, way).loads
        moved = 0 if plan is None else int(max(plan.moves.out.max(), plan.moves.into.max()))
        found = PortBytes(loads, moved)
        if self._has_room(way, loads.nbytes):
            self._bytes[key] = found
        return found

    def _plan(self, fabric: Fabric, place: int, way: str) -> Plan:
        chunks, key = self.chunks[place], _key(fabric, place, way)
        if key in self._rails:
            return Plan(fabric, chunks, self._rails[key], way)
        made = make_plan(fabric, chunks, way)
        if self._has_room(way, made.rail.nbytes):
            self._rails[key] = made.rail
        return made

    def _has_room(self, way: str, size: int) -> bool:
        """Whether so many bytes are kept; policies of others may look at anything of a fabric."""
        kept = (way in POLICIES or way == DIRECT) and size <= self._room[0]
        self._room[0] -= size * kept
        return kept

    def _flows(self, fabric: Fabric, place: int, way: str) -> Flows:
        """The flows from NIC to NIC, over the links above."""
        if way != DIRECT:
            return flows_of_plan(self._plan(fabric, place, way), NICS_ALONE, seed=self.seed)[0]
        ends = direct_ends(fabric, self.chunks[place])
        return flows_between(fabric, ends, "ecmp", NICS_ALONE, seed=self.seed)


def _on_rails(fabric: Fabric, way: str) -> bool:
    """Whether nothing crosses a link above the rails' switches."""
    return way != DIRECT and fabric.leaves is None


def _key(fabric: Fabric, place: int, way: str) -> Hashable:
    """What a plan depends on."""
    return (
        way,
        place,
        fabric.node.near.tobytes(),
        *((rates > 0).tobytes() for rates in (fabric.tx, fabric.rx)),
    )


def direct_ends(fabric: Fabric, chunks: Chunks) -> Ends:
    """One flow per pair of GPUs, from NIC to NIC of their own, or the next that lives there."""
    alive = np.ones_like(fabric.tx)
    sending = make_plan(replace(fabric, rx=alive), chunks, "own-nic").rail.astype(np.int64)
    receiving = make_plan(replace(fabric, tx=alive), chunks, "pxn").rail.astype(np.int64)
    _, head, flow = np.unique(chunks.flow, return_index=True, return_inverse=True)
    bytes_ = np.zeros(len(head), np.int64)
    np.add.at(bytes_, flow, chunks.size)
    going, coming = (
        node[head].astype(np.int64) * fabric.rails + rail[head]
        for node, rail in ((chunks.src, sending), (chunks.dst, receiving))
    )
    return Ends(going, coming, bytes_)
