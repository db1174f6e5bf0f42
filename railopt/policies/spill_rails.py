"""The kernels of `spill`: units settle where their moves and the NICs' prices are least.

Every NIC has a price for a byte: nothing up to the foot of a window below the time to be kept, then
rising in proportion to the NIC's own time, to that of one move where the window ends.  A unit takes
the rail of least moves + prices, at its sender and its receiver; each time one changes its rail

    moved bytes + sum over NICs of the price's integral over the load

falls.  Windows get narrower from level to level: wide ones find the way round a full NIC in one
round, narrow ones leave times within a few parts in 10,000 of the one to be kept, at prices close
to the dual ones of "least moved bytes in that time".  Whole numbers throughout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from railopt.arrays import Array
from railopt.policies.common import Costs

__all__ = ["Units", "begin", "go_home", "settle", "times"]

ONE = 1 << 14  # the price of one grade
MOVE = 1 << 6  # grades of moving a byte once: where moves are equal, fewer are staged
STEEP = 1 << 40  # where prices end


class Units(NamedTuple):
    """What must be sent.

    src, dst   int32 [C], nodes
    size       int64 [C], bytes
    grade      int16 [C, rails]: how bad a rail is for the unit, -1 where it is dead at one of its
               ends (see `begin`)
    """

    src: Array
    dst: Array
    size: Array
    grade: Array


@njit(cache=True)
def begin(units: Units, costs: Costs, near: Array, gpu: Array, rail: Array) -> None:
    """Make grades of moves, and put each unit on its best rail.

    units.grade   holds how often a byte of the unit is moved inside nodes, by the rail
    gpu           [C], the source within its node: a row of `near` [gpus, rails]
    """
    grade = units.grade
    rails = grade.shape[1]
    for c in range(rail.size):
        k, f = units.src[c], units.dst[c]
        fewest = int(grade[c].min())
        best, least = -1, 1 << 30
        for n in range(rails):
            if costs.tx[k, n] == 0 or costs.rx[f, n] == 0:
                grade[c, n] = -1
                continue
            grade[c, n] = (int(grade[c, n]) - fewest) * MOVE + (0 if near[gpu[c], n] else 1)
            if grade[c, n] < least:
                best, least = n, grade[c, n]
        rail[c] = best


@njit(cache=True)
def times(units: Units, costs: Costs, rail: Array) -> tuple[Array, Array]:
    """int64 [nodes * rails] of the senders' and of the receivers' NICs: how long each is busy."""
    rails = costs.tx.shape[1]
    sent, received = np.zeros(costs.tx.size, np.int64), np.zeros(costs.rx.size, np.int64)
    for c in range(rail.size):
        k, f, n = units.src[c], units.dst[c], rail[c]
        sent[k * rails + n] += units.size[c] * costs.tx[k, n]
        received[f * rails + n] += units.size[c] * costs.rx[f, n]
    return sent, received


@njit(cache=True, inline="always")
def _price(over: int, shift: int) -> int:
    """The price of a byte at a time `over` the window's foot; it rises by 1 every 2**shift."""
    if over <= 0:
        return 0
    return over >> shift if shift >= 0 else min(over, STEEP) << -shift


@njit(cache=True, inline="always")
def _change(
    units: Units, costs: Costs, busy: tuple[Array, Array], c: int, n: int, rail: Array
) -> None:
    """Put unit `c` on rail `n`."""
    k, f, now, size, rails = units.src[c], units.dst[c], rail[c], units.size[c], costs.tx.shape[1]
    busy[0][k * rails + now] -= size * costs.tx[k, now]
    busy[1][f * rails + now] -= size * costs.rx[f, now]
    busy[0][k * rails + n] += size * costs.tx[k, n]
    busy[1][f * rails + n] += size * costs.rx[f, n]
    rail[c] = n


@njit(cache=True)
def settle(
    units: Units, costs: Costs, busy: tuple[Array, Array], foot: int, width: int, rail: Array
) -> int:
    """One round in which every unit takes its best rail; how many changed theirs.

    busy    what `times` gives, kept up to date
    foot    where the windows of width 2**width begin, in the same unit
    """
    src, dst, size, grade = units
    sent, received = busy
    tx, rx = costs.tx.ravel(), costs.rx.ravel()
    rails, changed, shift = np.uint64(grade.shape[1]), 0, width - 20
    n: Any
    for c in range(size.size):
        # unsigned indices: numba does not ask whether they count from the end
        k, f, now = np.uint64(src[c]) * rails, np.uint64(dst[c]) * rails, np.uint64(rail[c])
        half = size[c] >> 1
        least = int(grade[c, now]) * ONE
        least += _price(sent[k + now] - half * tx[k + now] - foot, shift)
        least += _price(received[f + now] - half * rx[f + now] - foot, shift)
        best = now
        for n in range(rails):
            cost = int(grade[c, n]) * ONE
            if cost < 0 or cost >= least or n == now:
                continue
            cost += _price(sent[k + n] + half * tx[k + n] - foot, shift)
            cost += _price(received[f + n] + half * rx[f + n] - foot, shift)
            if cost < least:
                least, best = cost, n
        if best != now:
            _change(units, costs, busy, c, best, rail)
            changed += 1
    return changed


@njit(cache=True)
def go_home(units: Units, costs: Costs, busy: tuple[Array, Array], kept: int, rail: Array) -> int:
    """One round in which every unit takes the best rail on which no NIC is busy for longer than
    `kept`; how many changed theirs.
    """
    src, dst, size, grade = units
    tx, rx = costs.tx, costs.rx
    rails, changed = grade.shape[1], 0
    sent, received = busy[0].reshape(tx.shape), busy[1].reshape(rx.shape)
    for c in range(size.size):
        k, f, best = src[c], dst[c], rail[c]
        for n in range(rails):
            if (
                0 <= grade[c, n] < grade[c, best]
                and sent[k, n] + size[c] * tx[k, n] <= kept
                and received[f, n] + size[c] * rx[f, n] <= kept
            ):
                best = n
        if best != rail[c]:
            _change(units, costs, busy, c, best, rail)
            changed += 1
    return changed
