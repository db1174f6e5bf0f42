"""The least NIC time with few bytes moved between GPUs.

`own-nic` moves nothing before a rail but is as slow as the busiest GPU of a node; `lpt` and
`equitable` even the rails out but move seven of eight bytes.  `spill` keeps every unit on the rail
that moves it least, and moves only what full NICs spill over: of all plans that take the least
time, about the one of least moved bytes.  It knows every node's traffic, as every rank does after
the exchange of counts that an all-to-all needs anyway.

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

from railopt.base.arrays import Array, Ints, Rails
from railopt.base.errors import InputError
from railopt.base.kernels import PASSES_S, added_up, kernel, part
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, needed_by
from railopt.policies.colouring import equitable
from railopt.policies.common import Costs, check_alive, costs
from railopt.policies.cutting import Cut
from railopt.policies.longest_first import lpt_global

__all__ = ["FastSpill", "spill"]

ROUNDS_HOME = 8
CLOSE = 1 << 11  # a time within one part in so many is taken for the one that was to be kept
STEPS = 16  # times that are tried where scale-up counts too
SCALE_UP = ("beside", "in-time")
LARGEST = 1 << 61  # what sums of times stay below
WINDOWS = (1, 2, 4, 7, 11)  # one round each, of width time / 2**window
ONE = 1 << 14  # the price of one grade
MOVE = 1 << 6  # grades of moving a byte once: where moves are equal, fewer are staged
STEEP = 1 << 40  # where prices end
LOOKS = 1 << 15  # at pairs of units for one exchange
LOOKS_HOME = 1 << 22  # at pairs of units in a round in which units change places
EXCHANGES = 64  # that a NIC may make


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
    return Plan.of(fabric, chunks, rail, "spill")


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
        self._hosts = hosts_of(self._near)
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
        from_cut(cut, self._prices, self._near, self._hosts, rooms, rail)


def units_and_costs(fabric: Fabric, chunks: Chunks, rail: Rails) -> tuple[SpillUnits, Costs]:
    """Units with their grades, each on its best `rail`, and what a byte costs at every NIC."""
    prices = costs(fabric)
    size = _in_units(chunks.size, chunks.total, _dearest(prices))
    needed = needed_by(fabric, chunks)
    for column in (size, needed):
        column.flags.writeable = False  # as a chunk's own are: kernels are compiled for one type
    grade, near = np.empty((len(rail), fabric.rails), np.int16), fabric.node.near
    units = SpillUnits(chunks.src, chunks.dst, size, grade)
    inside = UnitPlaces(needed, chunks.src_gpu % fabric.gpus, near, hosts_of(near))
    begin(units, prices, inside, rail)
    return units, prices


def _best(fabric: Fabric, chunks: Chunks, units: SpillUnits, prices: Costs, rail: Rails) -> Rails:
    """A plan pressed by prices below the bound.  If units are too large for that, exchanges relieve
    the fullest NICs.  If it is still not close, the best of it and plans that ignore moves, with
    units moved home.
    """
    bound = _least_time(units, prices)
    close = bound + bound // CLOSE
    pressed = _pressed(units, prices, rail, bound)
    if pressed.time > close:
        relieve(pressed, close)
    if pressed.time <= close:
        return pressed.rail
    others = (made(fabric, chunks).rail for made in (lpt_global, equitable))
    found = [pressed, *(_gone_home(units, prices, other) for other in others)]
    least = min(one.time for one in found)
    return min(
        (one for one in found if one.time <= least + least // CLOSE),
        key=lambda one: one.moved,
    ).rail


def _in_time(
    fabric: Fabric, chunks: Chunks, begun: tuple[SpillUnits, Costs], ends: tuple[Rails, Rails]
) -> Rails:
    """Of plans between two, from the rails of fewest moves to the least NIC time, the one whose
    NICs and scale-up ports are done first.
    """
    units, prices = begun
    most, least = (_placed(units, prices, rail).time for rail in ends)
    steps = [least + (most - least) * step // STEPS for step in range(1, STEPS)]
    between = (_pressed(units, prices, ends[0], kept).rail for kept in steps)
    plans = [Plan(fabric, chunks, rail) for rail in (*ends, *between)]
    return min(plans, key=lambda made: (made.time_with_scaleup, made.moved)).rail


def _placed(units: SpillUnits, prices: Costs, start: Rails) -> PlacedUnits:
    """The units on a plan's rails, to be changed."""
    rail = start.copy()
    sent, received = times(units, prices, rail)
    return PlacedUnits(units, prices, sent, received, rail)


def _pressed(units: SpillUnits, prices: Costs, start: Rails, kept: int) -> PlacedUnits:
    """From the rails of fewest moves, pressed below a time to be kept: few moves, about that time
    where units are small.
    """
    placed = _placed(units, prices, start)
    press(placed, kept)
    return placed


def _gone_home(units: SpillUnits, prices: Costs, start: Rails) -> PlacedUnits:
    """From a plan that ignores moves, without a longer time: units go to better rails that have
    room, or change places.
    """
    placed = _placed(units, prices, start)
    kept = placed.time
    for _ in range(ROUNDS_HOME):
        gone = go_home(placed, kept)
        if not gone + trade_home(placed, kept):
            break
    return placed


def _least_time(units: SpillUnits, prices: Costs) -> int:
    """About what no plan is faster than."""
    sent = added_up(units.src, units.size, len(prices.tx))
    received = added_up(units.dst, units.size, len(prices.tx))
    return int(least_time(sent, received, prices))


def _dearest(prices: Costs) -> int:
    return int(max(prices.tx.max(), prices.rx.max()))


def _in_units(size: Ints, total: int, dearest: int) -> Ints:
    """Sizes in bytes, or in as many bytes at a time, rounded up, as it takes that no sum of times
    wraps.
    """
    shift = max(0, (dearest * total // LARGEST).bit_length())
    return size if not shift else (size >> shift) + 1


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


class PlacedUnits(NamedTuple):
    """Units on rails.

    sent, received   int64 [nodes * rails]: how long each NIC is busy, in the unit of `Costs`
    rail             int16 [C]
    """

    units: SpillUnits
    costs: Costs
    sent: Array
    received: Array
    rail: Rails

    @property
    def time(self) -> int:
        """How long the slowest NIC is busy."""
        return int(max(self.sent.max(), self.received.max()))

    @property
    def moved(self) -> float:
        """Bytes times grades: of plans that take about the same time the least is best."""
        grades = self.units.grade[np.arange(len(self.rail)), self.rail]
        return float((grades * self.units.size.astype(np.float64)).sum())


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
    rails = costs.tx.shape[1]
    out, into = units.src * rails + rail, units.dst * rails + rail
    sent = added_up(out, units.size * costs.tx.ravel()[out], costs.tx.size)
    return sent, added_up(into, units.size * costs.rx.ravel()[into], costs.rx.size)


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
def _put(placed: PlacedUnits, c: int, n: int, size: int) -> None:
    """Put unit `c` on rail `n`; `size` is its size, or less than 0 to take it off."""
    units, costs = placed.units, placed.costs
    k, f, rails = units.src[c], units.dst[c], costs.tx.shape[1]
    placed.sent[k * rails + n] += size * costs.tx[k, n]
    placed.received[f * rails + n] += size * costs.rx[f, n]


@part
def _change(placed: PlacedUnits, c: int, n: int) -> None:
    """Put unit `c` on rail `n` instead of its own."""
    _put(placed, c, int(placed.rail[c]), -placed.units.size[c])
    _put(placed, c, n, placed.units.size[c])
    placed.rail[c] = n


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
def press(placed: PlacedUnits, kept: int) -> None:
    """Units find rails below a time to be kept, in ever narrower windows."""
    for window in WINDOWS:
        width, rest = 0, kept >> window
        while rest:
            width, rest = width + 1, rest >> 1
        _move_units(placed, kept - (1 << width), width)


@part
def _move_units(placed: PlacedUnits, foot: int, width: int) -> None:
    """One round in which every unit takes its best rail.

    foot    where the windows of width 2**width begin, in the unit of the times
    """
    (src, dst, size, grade), costs, sent, received, rail = placed
    tx, rx = costs.tx.ravel(), costs.rx.ravel()
    rails = np.uint64(grade.shape[1])
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
            _change(placed, c, best)


@kernel
def go_home(placed: PlacedUnits, kept: int) -> int:
    """One round in which every unit takes the best rail on which no NIC is busy for longer than
    `kept`; how many changed theirs.
    """
    grade, rail, changed = placed.units.grade, placed.rail, 0
    for c in range(rail.size):
        best = rail[c]
        for n in range(grade.shape[1]):
            if 0 <= grade[c, n] < grade[c, best] and _fits(placed, c, n, kept, kept):
                best = n
        if best != rail[c]:
            _change(placed, c, best)
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
    busy = times(units, costs, rail)
    placed = PlacedUnits(units, costs, busy[0], busy[1], rail)
    press(placed, least_time(sent, received, costs))


def _by_node(node: Array, nodes: int) -> list[Ints]:
    """The units of each node."""
    order = np.argsort(node, kind="stable")
    return np.split(order, np.cumsum(np.bincount(node, minlength=nodes))[:-1])


@part
def _fits(placed: PlacedUnits, c: int, n: int, sent: int, received: int) -> bool:
    """Whether unit `c` would keep these times at the two NICs of rail `n`."""
    costs, size = placed.costs, placed.units.size[c]
    k, f, rails = placed.units.src[c], placed.units.dst[c], costs.tx.shape[1]
    if placed.units.grade[c, n] < 0:
        return False
    return (
        placed.sent[k * rails + n] + size * costs.tx[k, n] <= sent
        and placed.received[f * rails + n] + size * costs.rx[f, n] <= received
    )


@part
def _change_places(placed: PlacedUnits, c: int, d: int) -> None:
    """Put each of two units on the other's rail."""
    n, m = int(placed.rail[c]), int(placed.rail[d])
    _change(placed, c, m)
    _change(placed, d, n)


@kernel(element_s=PASSES_S / 10)  # since `LOOKS` ends it
def _exchange(placed: PlacedUnits, some: Array, full: int, kept: int, sends: bool) -> bool:
    """Make rail `full` of the node that sends (or receives) the units `some` less busy.  One of
    them goes to a rail with room, or changes places with a smaller one there, at the fewest further
    moves that `LOOKS` looks find.  No other NIC is busy for longer than `kept` after that.
    """
    grade, size, rail = placed.units.grade, placed.units.size, placed.rail
    looks, least, first, second = 0, 1 << 30, -1, -1
    for c in some:
        if rail[c] != full or looks > LOOKS or least <= 0:
            continue
        _put(placed, c, full, -size[c])
        for n in range(grade.shape[1]):
            more = int(grade[c, n]) - int(grade[c, full])
            if n != full and more < least and _fits(placed, c, n, kept, kept):
                least, first, second = more, c, -1 - n
        for d in some:
            looks += 1
            if looks > LOOKS:
                break
            m = int(rail[d])
            more = int(grade[c, m]) - int(grade[c, full])
            more += int(grade[d, full]) - int(grade[d, m])
            if m == full or size[d] >= size[c] or more >= least:
                continue
            _put(placed, d, m, -size[d])
            late = 1 << 62  # the full rail itself is less busy than it was, if not yet enough
            ends = (late, kept) if sends else (kept, late)
            if _fits(placed, c, m, kept, kept) and _fits(placed, d, full, ends[0], ends[1]):
                least, first, second = more, c, d
            _put(placed, d, m, size[d])
        _put(placed, c, full, size[c])
    if first < 0:
        return False
    if second >= 0:
        _change_places(placed, first, second)
        return True
    _change(placed, first, -1 - second)
    return True


def relieve(placed: PlacedUnits, kept: int) -> None:
    """Exchange units as long as that helps NICs that are busy for longer than `kept`."""
    nodes, rails = placed.costs.tx.shape
    for sends in (True, False):
        units = _by_node(placed.units.src if sends else placed.units.dst, nodes)
        busy = placed.sent if sends else placed.received
        for nic in np.flatnonzero(busy > kept).tolist():  # no other NIC gets longer than that
            k, n = divmod(nic, rails)
            for _ in range(EXCHANGES):
                if busy[nic] <= kept or not _exchange(placed, units[k], n, kept, sends):
                    break


@part
def _saved(placed: PlacedUnits, c: int, d: int) -> int:
    """Bytes times grades that would be saved if two units changed places; less than 0 where one of
    them can't take the other's rail.
    """
    grade, size, n, m = placed.units.grade, placed.units.size, placed.rail[c], placed.rail[d]
    if grade[c, m] < 0 or grade[d, n] < 0:
        return -1
    saved = (int(grade[c, n]) - int(grade[c, m])) * size[c]
    return saved + (int(grade[d, m]) - int(grade[d, n])) * size[d]


@part
def _trade(placed: PlacedUnits, some: Array, i: int, kept: int) -> bool:
    """Have unit `some[i]` change places with that of `some`, which are of the same sender, with
    which most is saved, such that no NIC is busy for longer than `kept` after that.
    """
    size, rail, c = placed.units.size, placed.rail, some[i]
    n, stride = int(rail[c]), 1 + some.size * rail.size // LOOKS_HOME
    most, other = np.int64(0), -1
    _put(placed, c, n, -size[c])
    for j in range(i % stride, some.size, stride):
        d = some[j]
        m = int(rail[d])
        saved = _saved(placed, c, d) if m != n else np.int64(0)
        if saved <= most:
            continue
        _put(placed, d, m, -size[d])
        if _fits(placed, c, m, kept, kept) and _fits(placed, d, n, kept, kept):
            most, other = saved, d
        _put(placed, d, m, size[d])
    _put(placed, c, n, size[c])
    if other < 0:
        return False
    _change_places(placed, c, other)
    return True


@kernel
def _trade_all(placed: PlacedUnits, some: Array, kept: int) -> int:
    """`_trade` for each of the units `some` that could be moved less; how many changed places."""
    changed = 0
    for i in range(some.size):
        if placed.units.grade[some[i], placed.rail[some[i]]] > 0:
            changed += _trade(placed, some, i, kept)
    return changed


def trade_home(placed: PlacedUnits, kept: int) -> int:
    """One round in which units change places with others of their sender, so that fewer bytes are
    moved and no NIC is busy for longer than `kept`; how many did.
    """
    units = _by_node(placed.units.src, len(placed.costs.tx))
    return sum(_trade_all(placed, some, kept) for some in units)
