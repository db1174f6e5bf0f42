"""The last step of `spill`, for units that are large beside the room that is left: NICs that are
busy for too long give a unit away, or exchange one for a smaller one of another rail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.arrays import Array
from railopt.compiled import kernel_part, njit
from railopt.policies.common import Costs
from railopt.policies.spill_rails import Units

__all__ = ["State", "relieve"]

LOOKS = 1 << 15  # at pairs of units for one exchange
EXCHANGES = 64  # that a NIC may make
NONE: Any = np.int64(-1)  # no literal: numba compiles what is called with one once for each value


class State(NamedTuple):
    """Units on rails: `rail` int16 [C]; sent, received int64 [nodes * rails]: how long each NIC is
    busy.
    """

    units: Units
    costs: Costs
    sent: Array
    received: Array
    rail: Array


@kernel_part()
def _by_node(node: Array, nodes: int) -> tuple[Array, Array]:
    """(units, first): the units of node k are units[first[k] : first[k + 1]]."""
    first = np.zeros(nodes + 1, np.int64)
    for c in range(node.size):
        first[node[c] + 1] += 1
    for k in range(nodes):
        first[k + 1] += first[k]
    units, filled = np.empty(node.size, np.int64), first[:-1].copy()
    for c in range(node.size):
        units[filled[node[c]]] = c
        filled[node[c]] += 1
    return units, first


@kernel_part()
def _put(state: State, c: int, n: int, size: int) -> None:
    """Put unit `c` on rail `n`; `size` is its size, or less than 0 to take it off."""
    k, f, costs, rails = (
        state.units.src[c],
        state.units.dst[c],
        state.costs,
        state.costs.tx.shape[1],
    )
    state.sent[k * rails + n] += size * costs.tx[k, n]
    state.received[f * rails + n] += size * costs.rx[f, n]


@kernel_part()
def _fits(state: State, c: int, n: int, sent: int, received: int) -> bool:
    """Whether unit `c` would keep these times at the two NICs of rail `n`."""
    costs, size = state.costs, state.units.size[c]
    k, f, rails = state.units.src[c], state.units.dst[c], costs.tx.shape[1]
    if state.units.grade[c, n] < 0:
        return False
    return (
        state.sent[k * rails + n] + size * costs.tx[k, n] <= sent
        and state.received[f * rails + n] + size * costs.rx[f, n] <= received
    )


@kernel_part()
def _exchange(state: State, some: Array, full: int, kept: int, sends: bool) -> bool:
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
    other = -1 - second if second < 0 else int(rail[second])
    _put(state, first, full, -size[first])
    if second >= 0:
        _put(state, second, other, -size[second])
        _put(state, second, full, size[second])
        rail[second] = full
    _put(state, first, other, size[first])
    rail[first] = other
    return True


@njit(cache=True)
def relieve(state: State, kept: int) -> None:
    """Exchange units as long as that helps NICs that are busy for longer than `kept`."""
    nodes, rails = state.costs.tx.shape
    for sends in (True, False):
        units, first = _by_node(state.units.src if sends else state.units.dst, nodes)
        busy = state.sent if sends else state.received
        for nic in range(nodes * rails):
            k = nic // rails
            for _ in range(EXCHANGES):
                some = units[first[k] : first[k + 1]]
                if busy[nic] <= kept or not _exchange(state, some, nic % rails, kept, sends):
                    break
