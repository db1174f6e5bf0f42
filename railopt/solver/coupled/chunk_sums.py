"""The fluid bound in whole chunks.

Before a time a NIC carries a sum of some of its node's chunks, of those whose far end is live on
its rail, and often no such sum fills its room.  Where the bytes, though cut at will, do not fit
into what NICs hold in this way, no plan is done before that time.  The prices of the fluid problem
show it: with what NICs hold for their rates, the bytes take longer than 1.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

import numpy as np

from railopt.base.errors import InputError, NotProved
from railopt.checker import Rates, Rejected, held, prove_whole_chunks
from railopt.evidence.bounds import Witness
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import SIDES
from railopt.solver.coupled.search import Cells
from railopt.solver.fluid import fluid_bound
from railopt.solver.local.deadline import Deadline, TimedMeter

STEPS = 2_000_000  # of the checker, for the sums of one time
MANY = 12  # steps of the checker that a chunk takes at least


def last_refuted(
    cells: Cells, low: Fraction, high: Fraction, deadline: Deadline
) -> tuple[Fraction, Witness] | None:
    """The largest time in (low, high] that these prices prove to be a bound, with its witness; None
    if there is none.
    """
    if MANY * len(cells.chunks) > STEPS:
        return None
    found: dict[Fraction, Witness] = {}

    def stands(time: Fraction) -> bool:
        witness = refute(cells, time, deadline)
        if witness is not None:
            found[time] = witness
        return witness is None

    tick = Fraction(cells.unit, cells.fastest)
    first, last = int(low // tick), int(high // tick)
    if stands(_ends(cells, low, low + tick)[0]):
        return None
    ticks = range(first + 1, last + 1)
    reached = first + bisect_left(ticks, True, key=lambda n: stands(n * tick))
    later = _ends(cells, max(low, reached * tick), min(high, (reached + 1) * tick))
    bisect_left(later, True, key=stands)
    return max(found.items(), key=lambda item: item[0])


def _ends(cells: Cells, low: Fraction, high: Fraction) -> list[Fraction]:
    """The times after `low`, up to `high`, at which some NIC has carried whole units."""
    rates, unit = [rate for rate in np.unique(cells.rate).tolist() if rate], cells.unit
    return sorted(
        {
            Fraction(n * unit, rate)
            for rate in rates
            for n in range(int(low * rate // unit) + 1, int(high * rate // unit) + 1)
        }
    )


def refute(cells: Cells, time: Fraction, deadline: Deadline) -> Witness | None:
    """A witness that no plan is done before `time` seconds, if the bytes do not fit into what NICs
    hold until then, and that is found, and checked by the checker, by the deadline.
    """
    fabric, chunks = cells.fabric, cells.chunks
    rates = fabric.tx.tolist(), fabric.rx.tolist()
    columns = [column.tolist() for column in (chunks.src, chunks.dst, chunks.size)]
    try:
        rooms = held(*rates, columns, time, TimedMeter(STEPS, deadline))
        prices = _prices(cells, rooms, deadline)
        if prices is not None:
            witness = {"kind": "whole", **dict(zip(SIDES, prices, strict=True))}
            prove_whole_chunks(*rates, columns, time, witness, TimedMeter(STEPS, deadline))
            return witness
    except (Rejected, NotProved):
        pass
    return None


def _prices(cells: Cells, rooms: tuple[Rates, Rates], deadline: Deadline) -> list[Rates] | None:
    """Prices of a byte at every NIC at which all bytes cost more than NICs are paid for `rooms`;
    None where the bytes fit.  Without room a NIC is paid nothing, and dearer than any other.
    """
    nodes, rails, unit = cells.fabric.nodes, cells.fabric.rails, cells.unit
    tx, rx = (np.array(side) // unit for side in rooms)
    src, dst, size = cells.chunks.src, cells.chunks.dst, cells.chunks.size // unit
    try:
        counted = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes)
        inner = Fabric(nodes, rails, 1, tx, rx)
        bound, witness = fluid_bound(inner, counted, limit_s=deadline.left_s)
        if bound <= 1:
            return None
        prices = [witness[side] for side in SIDES]
    except InputError:  # some bytes find no room on any rail
        prices = [[[0] * rails] * nodes] * 2
    dear = 1 + sum(max(map(max, side)) for side in prices)
    return [
        [
            [price if room else dear for price, room in zip(*row, strict=True)]
            for row in zip(*side, strict=True)
        ]
        for side in zip(prices, rooms, strict=True)
    ]
