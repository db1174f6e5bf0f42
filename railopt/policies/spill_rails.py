"""The kernels of `spill`: units go where their moves and the NICs' prices are least.

Every NIC has a price for a byte: nothing up to the foot of a window below the time to be kept, then
rising in proportion to the NIC's own time, to that of one move where the window ends.  A unit takes
the rail of least moves + prices, at its sender and its receiver; each time one changes its rail

    moved bytes + sum over NICs of the price's integral over the load

falls.  Windows get narrower from level to level.  Wide ones find the way round a full NIC in one
round.  Narrow ones leave times within a few parts in 10,000 of the one to be kept, at prices close
to the dual ones of "least moved bytes in that time".  Whole numbers throughout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.policies.common import Costs
from railopt.policies.cutting import Cut

__all__ = [
    "Hosts",
    "SpillUnits",
    "SwapState",
    "UnitPlaces",
    "begin",
    "from_cut",
    "go_home",
    "hosts_of",
    "least_time",
    "press",
    "relieve",
    "times",
    "trade_home",
]

WINDOWS = (1, 2, 4, 7, 11)  # one round each, of width time / 2**window
ONE = 1 << 14  # the price of one grade
MOVE = 1 << 6  # grades of moving a byte once: where moves are equal, fewer are staged
STEEP = 1 << 40  # where prices end


class SpillUnits(NamedTuple):
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


class Hosts(NamedTuple):
    """The GPUs that are near rail n: `gpus[first[n] : first[n + 1]]`, uint64 both."""

    gpus: Array
    first: Array


def hosts_of(near: Array) -> Hosts:
    """The GPUs near each rail, from bool [gpus, rails]."""
    first = np.concatenate([[0], np.cumsum(near.sum(axis=0))])
    return Hosts(np.nonzero(near.T)[1].astype(np.uint64), first.astype(np.uint64))


class UnitPlaces(NamedTuple):
    """Where units come from and go to inside nodes.

    needed   bool [C, gpus]: the GPUs of its node that need a unit
    gpu      [C]: its source within its node
    near     bool [gpus, rails], and the same by rail in `hosts`
    """

    needed: Array
    gpu: Array
    near: Array
    hosts: Hosts


def _begin_by_numpy(units: SpillUnits, costs: Costs, inside: UnitPlaces, rail: Array) -> None:
    """`begin` for Python."""
    away = ~inside.near[inside.gpu]
    moves = away.astype(np.int16) - inside.needed @ inside.near
    worse = (moves - moves.min(axis=1, keepdims=True)) * MOVE + away
    dead = (costs.tx[units.src] == 0) | (costs.rx[units.dst] == 0)
    units.grade[:] = np.where(dead, -1, worse)
    rail[:] = np.where(dead, np.int64(STEEP), worse).argmin(axis=1)


@kernel(numpy=_begin_by_numpy)
def begin(units: SpillUnits, costs: Costs, inside: UnitPlaces, rail: Array) -> None:
    """Fill in the grades, and put each unit on its best rail.

    A rail's grade is how many times more often than on the best rail a byte is moved, times `MOVE`,
    and 1 where it is staged.
    """
    alive = _alive(costs)
    for c in range(rail.size):
        rail[c] = _begin(units, costs, inside, alive, c)


@part
def _alive(costs: Costs) -> bool:
    """Whether every NIC is."""
    alive = True
    for node in range(costs.tx.shape[0]):
        for n in range(costs.tx.shape[1]):
            alive &= costs.tx[node, n] > 0 and costs.rx[node, n] > 0
    return alive


@part
def _reaches(inside: UnitPlaces, c: int, n: int) -> bool:
    """Whether a GPU that needs unit `c` is near rail `n`."""
    found, hosts = False, inside.hosts
    for i in range(hosts.first[n], hosts.first[n + 1]):
        found |= inside.needed[c, hosts.gpus[i]]
    return found


@part
def _begin(units: SpillUnits, costs: Costs, inside: UnitPlaces, alive: bool, c: int) -> int:
    """Fill in the grades of unit `c`; its best rail."""
    grade, near = units.grade[c], inside.near[inside.gpu[c]]
    fewest = 1
    for n in range(grade.size):
        more = int(not near[n]) - int(_reaches(inside, c, n))
        grade[n] = more
        fewest = min(fewest, more)
    best, least = -1, 1 << 30
    for n in range(grade.size):
        worse = (int(grade[n]) - fewest) * MOVE + int(not near[n])
        if not alive and (costs.tx[units.src[c], n] == 0 or costs.rx[units.dst[c], n] == 0):
            worse = -1
        elif worse < least:
            best, least = n, worse
        grade[n] = worse
    return best


def _times_by_numpy(units: SpillUnits, costs: Costs, rail: Array) -> tuple[Array, Array]:
    """`times` for Python."""
    busy = []
    for node, cost in ((units.src, costs.tx), (units.dst, costs.rx)):
        nic = node * cost.shape[1] + rail
        busy.append(np.zeros(cost.size, np.int64))
        np.add.at(busy[-1], nic, units.size * cost.ravel()[nic])
    return busy[0], busy[1]


@kernel(numpy=_times_by_numpy)
def times(units: SpillUnits, costs: Costs, rail: Array) -> tuple[Array, Array]:
    """int64 [nodes * rails] of the senders' and of the receivers' NICs: how long each is busy."""
    rails = costs.tx.shape[1]
    sent, received = np.zeros(costs.tx.size, np.int64), np.zeros(costs.rx.size, np.int64)
    for c in range(rail.size):
        k, f, n = units.src[c], units.dst[c], rail[c]
        sent[k * rails + n] += units.size[c] * costs.tx[k, n]
        received[f * rails + n] += units.size[c] * costs.rx[f, n]
    return sent, received


@part
def _price(over: int, up: int, down: int) -> int:
    """The price of a byte at a time `over` the window's foot: over * 2**up / 2**down."""
    return min(over >> down, STEEP) << up


@part
def _change(
    units: SpillUnits, costs: Costs, busy: tuple[Array, Array], c: int, n: int, rail: Array
) -> None:
    """Put unit `c` on rail `n`."""
    k, f, now, size, rails = units.src[c], units.dst[c], rail[c], units.size[c], costs.tx.shape[1]
    busy[0][k * rails + now] -= size * costs.tx[k, now]
    busy[1][f * rails + now] -= size * costs.rx[f, now]
    busy[0][k * rails + n] += size * costs.tx[k, n]
    busy[1][f * rails + n] += size * costs.rx[f, n]
    rail[c] = n


@kernel
def least_time(sent: Array, received: Array, costs: Costs) -> int:
    """About what no plan is faster than: a node's bytes over its rails, as fast as they are
    together, each no faster than the other nodes' NICs on it.

    sent, received   int64 [nodes], in the unit of the sizes
    """
    found, nodes, rails = 0, costs.tx.shape[0], costs.tx.shape[1]
    for totals, cost, there in ((sent, costs.tx, costs.rx), (received, costs.rx, costs.tx)):
        peers = np.zeros(rails)
        for node in range(nodes):
            for n in range(rails):
                peers[n] += 1 / there[node, n] if there[node, n] else 0.0
        for node in range(nodes):
            speed = 0.0
            for n in range(rails):
                own = 1 / there[node, n] if there[node, n] else 0.0
                speed += min(1 / cost[node, n], peers[n] - own) if cost[node, n] else 0.0
            found = max(found, int(totals[node] / speed) if speed else 0)
    return found


@kernel(element_s=7e-6)
def press(
    units: SpillUnits, costs: Costs, busy: tuple[Array, Array], kept: int, rail: Array
) -> None:
    """Units find rails below a time to be kept, in ever narrower windows."""
    for window in WINDOWS:
        width, rest = 0, kept >> window
        while rest:
            width, rest = width + 1, rest >> 1
        _move_units(units, costs, busy, kept - (1 << width), width, rail)


@part
def _move_units(
    units: SpillUnits, costs: Costs, busy: tuple[Array, Array], foot: int, width: int, rail: Array
) -> int:
    """One round in which every unit takes its best rail; how many changed theirs.

    busy    what `times` gives, kept up to date
    foot    where the windows of width 2**width begin, in the same unit
    """
    src, dst, size, grade = units
    sent, received = busy
    tx, rx = costs.tx.ravel(), costs.rx.ravel()
    rails, changed = np.uint64(grade.shape[1]), 0
    up, down = max(20 - width, 0), max(width - 20, 0)
    n: Any
    for c in range(size.size):
        # unsigned indices: numba does not ask whether they count from the end
        k, f, now = np.uint64(src[c]) * rails, np.uint64(dst[c]) * rails, np.uint64(rail[c])
        half = size[c] >> 1
        over = max(sent[k + now] - half * tx[k + now] - foot, 0)
        over_there = max(received[f + now] - half * rx[f + now] - foot, 0)
        if over == 0 and over_there == 0 and grade[c, now] == 0:
            continue
        least = int(grade[c, now]) * ONE + _price(over, up, down) + _price(over_there, up, down)
        best = now
        for n in range(rails):
            cost = int(grade[c, n]) * ONE
            if cost < 0 or cost >= least:
                continue
            over = max(sent[k + n] + half * tx[k + n] - foot, 0)
            over_there = max(received[f + n] + half * rx[f + n] - foot, 0)
            cost += _price(over, up, down) + _price(over_there, up, down)
            if cost < least and n != now:
                least, best = cost, n
        if best != now:
            _change(units, costs, busy, c, best, rail)
            changed += 1
    return changed


@kernel
def go_home(
    units: SpillUnits, costs: Costs, busy: tuple[Array, Array], kept: int, rail: Array
) -> int:
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


@kernel
def from_cut(
    cut: Cut, costs: Costs, near: Array, hosts: Hosts, rooms: tuple[Array, Array], rail: Array
) -> None:
    """Fill `rail` for chunks of all nodes, each for one GPU, as units find rails below the least
    time.  Those of one flow follow each other and begin alike.

    rooms   int16 [C, rails] and bool [C, gpus], for grades and for the GPUs that need a chunk
    """
    grade, needed = rooms
    nodes, gpus, alive = costs.tx.shape[0], near.shape[0], _alive(costs)
    source, sent, received = (
        np.empty_like(cut.src_gpu),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
    )
    units = SpillUnits(cut.sender, cut.dst, cut.size, grade)
    inside = UnitPlaces(needed, source, near, hosts)
    for c in range(rail.size):
        sent[cut.sender[c]] += cut.size[c]
        received[cut.dst[c]] += cut.size[c]
        if c and cut.src_gpu[c] == cut.src_gpu[c - 1] and cut.dst_gpu[c] == cut.dst_gpu[c - 1]:
            for n in range(grade.shape[1]):
                grade[c, n] = grade[c - 1, n]
            rail[c] = rail[c - 1]
            continue
        source[c] = cut.src_gpu[c] - cut.sender[c] * gpus
        for g in range(gpus):
            needed[c, g] = False
        needed[c, cut.dst_gpu[c] - cut.dst[c] * gpus] = True
        rail[c] = _begin(units, costs, inside, alive, c)
    press(units, costs, times(units, costs, rail), least_time(sent, received, costs), rail)


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
    """Make rail `full` of the node that sends (or receives) the units `some` less busy.  One of
    them goes to a rail with room, or changes places with a smaller one there, at the fewest further
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
