"""The least NIC time with few bytes moved between GPUs.

`own-nic` moves nothing before a rail but is as slow as the busiest GPU of a node; `lpt` and
`equitable` even the rails out but move seven of eight bytes.  `spill` keeps every unit on the rail
that moves it least, and moves only what full NICs spill over: of all plans that take the least
time, about the one of least moved bytes.  It knows every node's traffic, as every rank does after
the exchange of counts that an all-to-all needs anyway.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints, Rails
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, needed_by
from railopt.policies import spill_rails
from railopt.policies.common import Costs, check_alive, costs, make_plan
from railopt.policies.cutting import Cut
from railopt.policies.equitable_colouring import equitable
from railopt.policies.longest_first import lpt_global
from railopt.policies.spill_rails import SpillUnits

__all__ = ["FastSpill", "spill"]

ROUNDS_HOME = 8
CLOSE = 1 << 11  # a time within one part in so many is taken for the one that was to be kept
STEPS = 16  # times that are tried where scale-up counts too
SCALE_UP = ("beside", "in-time")
LARGEST = 1 << 61  # what sums of times stay below


def spill(fabric: Fabric, chunks: Chunks, *, scale_up: str = "beside") -> Plan:
    """The least time first, then the least bytes over scale-up.

    scale_up   "beside": the time is that of the NICs; "in-time": that of NICs and scale-up ports,
               so that where scale-up is slow fewer bytes are moved than NICs alone would want
    """
    check_alive(fabric, chunks)
    check_scale_up(scale_up)
    rail = np.empty(len(chunks.size), np.int16)
    if len(rail):
        begun = units_and_costs(fabric, chunks, rail)
        start = rail
        rail = _best(fabric, chunks, *begun, start)
        if scale_up == "in-time":
            rail = _in_time(fabric, chunks, begun, (start, rail))
    return make_plan(fabric, chunks, rail, "spill")


def check_scale_up(scale_up: str) -> None:
    """Refuse a word that is none of SCALE_UP."""
    if scale_up not in SCALE_UP:
        raise InputError(f"scale_up {scale_up!r}: expected {' or '.join(SCALE_UP)}")


class FastSpill:
    """`spill` in a training loop, with buffers that are kept.  Units find their rails as in
    `spill`, but are not exchanged afterwards, so that NICs may end some tenths of a per cent above
    the least time, more where several NICs are slow or dead.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric, self._near = fabric, np.ascontiguousarray(fabric.node.near)
        self._hosts = spill_rails.hosts_of(self._near)
        self._prices = costs(fabric)
        self._dearest = _dearest(self._prices)
        self._grow(0)

    def _grow(self, length: int) -> None:
        fabric = self._fabric
        self._grade = np.empty((length, fabric.rails), np.int16)
        self._needed = np.empty((length, fabric.gpus), np.bool_)

    def assign(self, cut: Cut, largest: int, rail: Rails) -> None:
        """Fill `rail`, int16 [C], for chunks of all nodes, of at most `largest` bytes each."""
        count = len(rail)
        if count > len(self._grade):
            self._grow(2 * count)
        cut = cut._replace(size=_in_units(cut.size, count * largest, self._dearest))
        rooms = self._grade[:count], self._needed[:count]
        spill_rails.from_cut(cut, self._prices, self._near, self._hosts, rooms, rail)


def units_and_costs(fabric: Fabric, chunks: Chunks, rail: Rails) -> tuple[SpillUnits, Costs]:
    """Units with their grades, each on its best `rail`, and what a byte costs at every NIC."""
    prices = costs(fabric)
    size = _in_units(chunks.size, chunks.total, _dearest(prices))
    needed = needed_by(fabric, chunks)
    for column in (size, needed):
        column.flags.writeable = False  # as a chunk's own are: kernels are compiled for one type
    grade, near = np.empty((len(chunks), fabric.rails), np.int16), fabric.node.near
    units = spill_rails.SpillUnits(chunks.src, chunks.dst, size, grade)
    inside = spill_rails.UnitPlaces(
        needed, chunks.src_gpu % fabric.gpus, near, spill_rails.hosts_of(near)
    )
    spill_rails.begin(units, prices, inside, rail)
    return units, prices


def _best(fabric: Fabric, chunks: Chunks, units: SpillUnits, prices: Costs, rail: Rails) -> Rails:
    """Pressed below the bound; where units are too large for that, relieved by exchanges; where
    this is not close to the nodes' bound either, the best beside plans that ignore moves, gone
    home.
    """
    bound = _least_time(units, prices)
    close = bound + bound // CLOSE
    pressed = _pressed(units, prices, rail, bound)
    if pressed.time > close:
        pressed = _relieved(units, prices, pressed.rail, close)
    if pressed.time <= close:
        return pressed.rail
    others = (made(fabric, chunks).rail for made in (lpt_global, equitable))
    found = [pressed, *(_gone_home(units, prices, other) for other in others)]
    least = min(one.time for one in found)
    return min(
        (one for one in found if one.time <= least + least // CLOSE),
        key=lambda one: one.moved(units),
    ).rail


def _in_time(
    fabric: Fabric, chunks: Chunks, begun: tuple[SpillUnits, Costs], ends: tuple[Rails, Rails]
) -> Rails:
    """Of plans between two, from the rails of fewest moves to the least NIC time, the one whose
    NICs and scale-up ports are done first.
    """
    units, prices = begun
    most, least = (_longest(spill_rails.times(units, prices, rail)) for rail in ends)
    steps = [least + (most - least) * step // STEPS for step in range(1, STEPS)]
    between = (_pressed(units, prices, ends[0], kept).rail for kept in steps)
    plans = [Plan(fabric, chunks, rail) for rail in (*ends, *between)]
    return min(plans, key=lambda made: (made.time_with_scaleup, made.moved)).rail


class TimedRails(NamedTuple):
    """Rails, and how long the slowest NIC is busy, in the unit of `Costs`."""

    rail: Rails
    time: int

    def moved(self, units: SpillUnits) -> float:
        """Bytes times grades: of plans that take about the same time the least is best."""
        grades = units.grade[np.arange(len(self.rail)), self.rail]
        return float((grades * units.size.astype(np.float64)).sum())


def _pressed(units: SpillUnits, prices: Costs, start: Rails, kept: int) -> TimedRails:
    """From the rails of fewest moves, pressed below a time to be kept: few moves, about that time
    where units are small.
    """
    rail = start.copy()
    busy = spill_rails.times(units, prices, rail)
    spill_rails.press(units, prices, busy, kept, rail)
    return TimedRails(rail, _longest(busy))


def _relieved(units: SpillUnits, prices: Costs, start: Rails, kept: int) -> TimedRails:
    """With units exchanged between rails, until every NIC keeps the time or none can be helped."""
    rail = start.copy()
    busy = spill_rails.times(units, prices, rail)
    spill_rails.relieve(spill_rails.SwapState(units, prices, busy[0], busy[1], rail), kept)
    return TimedRails(rail, _longest(busy))


def _gone_home(units: SpillUnits, prices: Costs, start: Rails) -> TimedRails:
    """From a plan that ignores moves, without a longer time: units go to better rails that have
    room, or change places.
    """
    rail = start.copy()
    busy = spill_rails.times(units, prices, rail)
    kept = _longest(busy)
    state = spill_rails.SwapState(units, prices, busy[0], busy[1], rail)
    for _ in range(ROUNDS_HOME):
        gone = spill_rails.go_home(units, prices, busy, kept, rail)
        if not gone + spill_rails.trade_home(state, kept):
            break
    return TimedRails(rail, _longest(busy))


def _longest(busy: tuple[Array, Array]) -> int:
    return int(max(busy[0].max(), busy[1].max()))


def _least_time(units: SpillUnits, prices: Costs) -> int:
    """About what no plan is faster than."""
    sent, received = np.zeros((2, len(prices.tx)), np.int64)
    np.add.at(sent, units.src, units.size)
    np.add.at(received, units.dst, units.size)
    return int(spill_rails.least_time(sent, received, prices))


def _dearest(prices: Costs) -> int:
    return int(max(prices.tx.max(), prices.rx.max()))


def _in_units(size: Ints, total: int, dearest: int) -> Ints:
    """Sizes in bytes, or in as many bytes at a time, rounded up, as it takes that no sum of times
    wraps.
    """
    shift = max(0, (dearest * total // LARGEST).bit_length())
    return size if not shift else (size >> shift) + 1
