"""The last step of `spill`, for units that are large beside the room that is left: NICs that are
busy for too long give a unit away, or exchange one for a smaller one of another rail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.common import Costs
from railopt.policies.spill_rails import SpillUnits

__all__ = ["SwapState", "relieve", "trade_home"]

LOOKS = 1 << 15  # at pairs of units for one exchange
LOOKS_HOME = 1 << 22  # at pairs of units in a round in which units change places
EXCHANGES = 64  # that a NIC may make
NONE: Any = np.int64(-1)  # no literal: numba compiles what is called with one once for each value


class SwapState(NamedTuple):
    """Units on rails: `rail` int16 [C]; sent, received int64 [nodes * rails]: how long each NIC is
    busy.
    """

    units: SpillUnits
    costs: Costs
    sent: Array
    received: Array
    rail: Array


def _by_node(node: Array, nodes: int) -> list[Ints]:
    """The units of each node."""
    order = np.argsort(node, kind="stable")
    return np.split(order, np.cumsum(np.bincount(node, minlength=nodes))[:-1])


@part
def _put(state: SwapState, c: int, n: int, size: int) -> None:
    """Put unit `c` on rail `n`; `size` is its size, or less than 0 to take it off."""
    k, f, costs, rails = (
        state.units.src[c],
        state.units.dst[c],
        state.costs,
        state.costs.tx.shape[1],
    )
    state.sent[k * rails + n] += size * costs.tx[k, n]
    state.received[f * rails + n] += size * costs.rx[f, n]


@part
def _fits(state: SwapState, c: int, n: int, sent: int, received: int) -> bool:
    """Whether unit `c` would keep these times at the two NICs of rail `n`."""
    costs, size = state.costs, state.units.size[c]
    k, f, rails = state.units.src[c], state.units.dst[c], costs.tx.shape[1]
    if state.units.grade[c, n] < 0:
        return False
    return (
        state.sent[k * rails + n] + size * costs.tx[k, n] <= sent
        and state.received[f * rails + n] + size * costs.rx[f, n] <= received
    )


@part
def _change_places(state: SwapState, c: int, d: int) -> None:
    """Put each of two units on the other's rail."""
    rail, size = state.rail, state.units.size
    n, m = int(rail[c]), int(rail[d])
    _put(state, c, n, -size[c])
    _put(state, d, m, -size[d])
    _put(state, c, m, size[c])
    _put(state, d, n, size[d])
    rail[c], rail[d] = m, n


@kernel(element_s=PASSES_S / 10)  # since `LOOKS` ends it
def _exchange(state: SwapState, some: Array, full: int, kept: int, sends: bool) -> bool:
    """Make rail `full` of the node that sends (or receives) the units `some` less busy: one of them
    goes to a rail with room, or changes places with a smaller one there, at the fewest further
    moves that `LOOKS` looks find.  No other NIC is busy for longer than `kept` after that.
    """
    grade, size, rail = state.units.grade, state.units.size, state.rail
    looks, least, first, second = 0, 1 << 30, NONE, NONE
    for c in some:
        if rail[c] != full or looks > LOOKS or least <= 0:
            continue
        _put(state, c, full, -size[c])
        for n in range(grade.shape[1]):
            more = int(grade[c, n]) - int(grade[c, full])
            if n != full and more < least and _fits(state, c, n, kept, kept):
                least, first, second = more, c, np.int64(-1 - n)
        for d in some:
            looks += 1
            if looks > LOOKS:
                break
            m = int(rail[d])
            more = int(grade[c, m]) - int(grade[c, full])
            more += int(grade[d, full]) - int(grade[d, m])
            if m == full or size[d] >= size[c] or more >= least:
                continue
            _put(state, d, m, -size[d])
            late = 1 << 62  # the full rail itself is less busy than it was, if not yet enough
            ends = (late, kept) if sends else (kept, late)
            if _fits(state, c, m, kept, kept) and _fits(state, d, full, ends[0], ends[1]):
                least, first, second = more, c, d
            _put(state, d, m, size[d])
        _put(state, c, full, size[c])
    if first < 0:
        return False
    if second >= 0:
        _change_places(state, first, second)
        return True
    _put(state, first, full, -size[first])
    _put(state, first, -1 - second, size[first])
    rail[first] = -1 - second
    return True


def relieve(state: SwapState, kept: int) -> None:
    """Exchange units as long as that helps NICs that are busy for longer than `kept`."""
    nodes, rails = state.costs.tx.shape
    for sends in (True, False):
        units = _by_node(state.units.src if sends else state.units.dst, nodes)
        busy = state.sent if sends else state.received
        for nic in np.flatnonzero(busy > kept).tolist():  # no other NIC gets longer than that
            k, n = divmod(nic, rails)
            for _ in range(EXCHANGES):
                if busy[nic] <= kept or not _exchange(state, units[k], n, kept, sends):
                    break


@part
def _saved(state: SwapState, c: int, d: int) -> int:
    """Bytes times grades that would be saved if two units changed places; less than 0 where one of
    them can't take the other's rail.
    """
    grade, size, n, m = state.units.grade, state.units.size, state.rail[c], state.rail[d]
    if grade[c, m] < 0 or grade[d, n] < 0:
        return -1
    saved = (int(grade[c, n]) - int(grade[c, m])) * size[c]
    return saved + (int(grade[d, m]) - int(grade[d, n])) * size[d]


@part
def _trade(state: SwapState, some: Array, i: int, kept: int) -> bool:
    """Have unit `some[i]` change places with that of `some`, which are of the same sender, with
    which most is saved, such that no NIC is busy for longer than `kept` after that.
    """
    size, rail, c = state.units.size, state.rail, some[i]
    n, stride = int(rail[c]), 1 + some.size * rail.size // LOOKS_HOME
    most, other = np.int64(0), NONE
    _put(state, c, n, -size[c])
    for j in range(i % stride, some.size, stride):
        d = some[j]
        m = int(rail[d])
        saved = _saved(state, c, d) if m != n else np.int64(0)
        if saved <= most:
            continue
        _put(state, d, m, -size[d])
        if _fits(state, c, m, kept, kept) and _fits(state, d, n, kept, kept):
            most, other = saved, d
        _put(state, d, m, size[d])
    _put(state, c, n, size[c])
    if other < 0:
        return False
    _change_places(state, c, other)
    return True


@kernel
def _trade_all(state: SwapState, some: Array, kept: int) -> int:
    """`_trade` for each of the units `some` that could be moved less; how many changed places."""
    changed = 0
    for i in range(some.size):
        if state.units.grade[some[i], state.rail[some[i]]] > 0:
            changed += _trade(state, some, i, kept)
    return changed


def trade_home(state: SwapState, kept: int) -> int:
    """One round in which units change places with others of their sender, so that fewer bytes are
    moved and no NIC is busy for longer than `kept`; how many did.
    """
    units = _by_node(state.units.src, len(state.costs.tx))
    return sum(_trade_all(state, some, kept) for some in units)
