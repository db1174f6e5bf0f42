"""An all-to-all in chunks, the timetables that carry it out, and what none of them beats.

Time is cut into *periods*.  In a period a chunk makes one of three hops: over scale-up from its GPU
to the owner of a rail, over that rail to the other server, or over scale-up to its target.  The
first is not needed for a rail that its GPU is near.  What stays inside a server makes one hop over
scale-up.

    stages   a period is a stage: as long as it needs, a barrier at its end.  A stage with bytes on
             the wire lasts its start-up and what its busiest NIC sends or receives; it lasts at
             least what the busiest scale-up port moves.  A hop needs the one before in an earlier
             period.
    epochs   a period is an epoch of fixed length, without barriers.  A NIC spends the start-up once
             for each server that it sends to, whole epochs long.  A chunk may make all its hops in
             one epoch (cut-through).

Times are whole numbers of one unit.  Scale-up is a crossbar: only the ports of a GPU limit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints, Value, frozen, whole_number
from railopt.base.errors import CheckFailed, Infeasible, InputError
from railopt.base.units import (
    INT64_MAX,
    PS_PER_S,
    format_time,
    parse_number,
    parse_time,
    seconds,
)
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic

MOST_CALLS = 12
"""That the NICs of a server could make, where a bound tries all choices of them."""
MOST_UNITS = 1 << 50
"""That all chunks may take one after the other: solvers that count in doubles hold them exactly."""
MANY_PEERS = 10
"""Of a server with more of them, a bound does not try all sets."""
EMPTY_LINE: dict[str, Any] = {"side": "send", "node": 0, "peers": [], "nics": []}
"""The line where nothing is sent between servers."""


@dataclass(frozen=True, eq=False)
class ChunkExchange(Value):
    """What is to be sent, and what each step takes in units of `unit` seconds.

    demand      int64 [GPUs, GPUs], chunks; the diagonal does not count
    send, recv  int64 [nodes, rails]: what a chunk takes on a NIC; 0 on a dead one
    near        bool [GPUs of a server, rails]: whether a GPU needs no other to reach a NIC
    inside      what a chunk takes on a GPU's scale-up port
    startup     of a stage; or of a connection, in epochs of `epoch`
    peers       to how many servers a NIC may send in a period, and from how many receive
    epoch       length of an epoch; 0 for stages
    """

    demand: Ints = field(repr=False)
    send: Ints = field(repr=False)
    recv: Ints = field(repr=False)
    near: Bools = field(repr=False)
    inside: int
    startup: int
    peers: int
    epoch: int
    unit: Fraction

    def __post_init__(self) -> None:
        for name in ("demand", "send", "recv"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name, 2))
        if self.peers < 1:
            raise InputError(f"{self.peers} servers at a time: expected 1 or more")
        if not self.epoch:
            return
        times = {int(t) for t in (*self.send.flat, *self.recv.flat) if t}
        fits = Fraction(PS_PER_S * lcm(*times, self.inside)) * self.unit
        some = f", a multiple of {Decimal(int(fits)) / 10**6}us" if fits.denominator == 1 else ""
        for what, time, whole in (
            *(("a chunk takes {} on a NIC", t, self.epoch % t == 0) for t in sorted(times)),
            ("a chunk takes {} on scale-up", self.inside, self.epoch % self.inside == 0),
            ("a start-up takes {}", self.startup, self.startup % self.epoch == 0),
        ):
            if not whole:
                raise InputError(
                    f"{what.format(format_time(time * self.unit))}, which does not divide into "
                    f"epochs of {format_time(self.epoch * self.unit)}: an epoch carries whole "
                    f"chunks and a start-up lasts whole epochs; choose another --epoch{some}, "
                    "--chunk or --startup"
                )

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        traffic: Traffic,
        chunk: int,
        startup: Fraction | float | str,
        *,
        peers: int | None = None,
        epoch: Fraction | float | str | None = None,
        stages: bool = True,
    ) -> ChunkExchange:
        """The exchange of this traffic in chunks of `chunk` bytes, the last one of a pair counted
        as a whole one; `startup` and `epoch` in seconds or as texts such as "2us", `epoch` by
        default what a chunk takes on the slowest living NIC.
        """
        chunk = whole_number(chunk, "chunk", 1, INT64_MAX)
        startup = _seconds(startup, "start-up")
        if startup < 0:
            raise InputError(f"a start-up of {float(startup):g} s: expected 0 or more")
        rates = fabric.living_rates
        epoch = Fraction(chunk, min(rates)) if epoch is None else _seconds(epoch, "epoch")
        if epoch <= 0:
            raise InputError("an epoch of no time: --epoch must be more than 0")
        more = [startup] if stages else [startup, epoch]
        unit = _unit(chunk, [*rates, fabric.scaleup], more)
        demand = -(-traffic.bytes // chunk)
        count, slowest = int(demand.sum()), Fraction(chunk, min(*rates, fabric.scaleup))
        if (count * slowest + fabric.nodes * startup) / unit >= MOST_UNITS:
            raise InputError(_too_fine(count, chunk, [*rates, fabric.scaleup], more, unit))
        cost = {0: 0, **{rate: int(Fraction(chunk, rate) / unit) for rate in rates}}
        return cls(
            demand,
            np.vectorize(cost.__getitem__, otypes=[np.int64])(fabric.tx),
            np.vectorize(cost.__getitem__, otypes=[np.int64])(fabric.rx),
            fabric.node.near,
            int(Fraction(chunk, fabric.scaleup) / unit),
            int(startup / unit),
            (1 if stages else max(1, fabric.nodes - 1)) if peers is None else peers,
            0 if stages else int(epoch / unit),
            unit,
        )

    @property
    def nodes(self) -> int:
        return len(self.send)

    @property
    def rails(self) -> int:
        return self.send.shape[1]

    @property
    def gpus(self) -> int:
        """GPUs per server."""
        return len(self.near)

    @cached_property
    def node_of(self) -> Ints:
        """int64 [GPUs]"""
        return np.arange(len(self.demand)) // self.gpus

    @cached_property
    def pairs(self) -> Ints:
        """int64 [pairs, 2]: GPUs of different servers with something to send."""
        across = self.node_of[:, None] != self.node_of
        return np.argwhere(across & (self.demand > 0))

    @cached_property
    def inner(self) -> Ints:
        """int64 [pairs, 2]: GPUs of one server with something to send."""
        apart = ~np.eye(len(self.demand), dtype=np.bool_)
        same = self.node_of[:, None] == self.node_of
        return np.argwhere(apart & same & (self.demand > 0))

    @cached_property
    def owner(self) -> Ints:
        """int64 [rails]: the GPU through which others reach a NIC."""
        return np.argmax(self.near, axis=0)

    @property
    def starts(self) -> int:
        """Epochs that a start-up takes; 0 with stages."""
        return self.startup // self.epoch if self.epoch else 0


def _seconds(time: Fraction | float | str, what: str) -> Fraction:
    """Exact seconds of a time such as "2us" or of a number."""
    return seconds(parse_time(time)) if isinstance(time, str) else parse_number(time, what)


def _unit(chunk: int, rates: list[int], more: list[Fraction]) -> Fraction:
    """The common divisor of what a chunk takes at these rates and of more times."""
    times = [*(Fraction(chunk, rate) for rate in rates), *more]
    return Fraction(gcd(*(t.numerator for t in times)), lcm(*(t.denominator for t in times)))


def _too_fine(
    count: int, chunk: int, rates: list[int], more: list[Fraction], unit: Fraction
) -> str:
    """That rates have no common unit that a program can count in, and what has one: fewer digits of
    the rates, if that is why.
    """
    said = (
        f"{count} chunks of {chunk} bytes at {', '.join(f'{rate}B/s' for rate in rates[:8])} take "
        f"too long for a program in units of {float(unit):.3g} s, the longest that divides all "
        "times; use larger chunks"
    )
    for digits in range(8, 0, -1):
        fewer = [rate - rate % 10 ** max(0, len(str(rate)) - digits) for rate in rates]
        if fewer != rates and _unit(chunk, fewer, more) * MOST_UNITS > 2 * count * Fraction(
            chunk, min(fewer)
        ):
            named = ", ".join(
                f"{less}B/s instead of {rate}B/s ({less / max(fewer[:-1]):.9g} of the fastest)"
                for rate, less in zip(rates[:8], fewer[:8], strict=True)
                if less < rate
            )
            return f"{said}, or rates of {digits} digits: {named}"
    return said


class Timetable(NamedTuple):
    """Who moves how many chunks in which period.

    wire    int64 [periods, pairs, rails]
    give    int64 [periods, GPUs, rails]: from a GPU to the owner of a rail of its server
    take    int64 [periods, GPUs, rails]: from the owner of a rail to a GPU of its server
    local   int64 [periods, inner pairs]
    start   int64 [periods, nodes, nodes, rails]: start-ups that begin; epochs only
    """

    wire: Ints
    give: Ints
    take: Ints
    local: Ints
    start: Ints


def empty(exchange: ChunkExchange, periods: int) -> Timetable:
    """A timetable of nothing."""
    gpus, rails, n = len(exchange.demand), exchange.rails, exchange.nodes
    shapes = (
        (len(exchange.pairs), rails),
        (gpus, rails),
        (gpus, rails),
        (len(exchange.inner),),
        (n, n, rails),
    )
    return Timetable(*(np.zeros((periods, *shape), np.int64) for shape in shapes))


def lengths(exchange: ChunkExchange, table: Timetable) -> list[int]:
    """How long each period is, after everything about the timetable is checked: every chunk makes
    its hops in order, and no NIC has more peers than it may.
    """
    _check_carried(exchange, table)
    found = []
    for p in range(len(table.wire)):
        sent, got, out, into = _loads(exchange, table, p)
        moved = max(int(out.max()), int(into.max())) * exchange.inside
        wired = max(int((sent * exchange.send).max()), int((got * exchange.recv).max()))
        if not exchange.epoch:
            found.append(max(moved, wired + exchange.startup * bool(sent.any())))
            continue
        _check_started(exchange, table, p)
        if max(moved, wired) > exchange.epoch:
            raise CheckFailed(f"epoch {p} moves more than it can carry")
        found.append(exchange.epoch)
    if exchange.epoch:
        used = np.zeros(len(found), np.bool_)
        for column in table:
            used |= column.reshape(len(found), -1).any(axis=1) if column.size else False
        found = found[: int(np.flatnonzero(used).max(initial=-1)) + 1]
    return found


def relayed(exchange: ChunkExchange, wire: Ints, end: int) -> Ints:
    """int64 [periods, GPUs, rails]: the chunks on the wire (see `Timetable`) of each source (`end`
    0) or target (1) that is not near their rail.
    """
    found = np.zeros((len(wire), len(exchange.demand), exchange.rails), np.int64)
    at: Any = (slice(None), exchange.pairs[:, end])
    np.add.at(found, at, wire)
    found[:, np.tile(exchange.near, (exchange.nodes, 1))] = 0
    return found


def at_once(exchange: ChunkExchange, table: Timetable) -> Timetable:
    """The same with all hops of a chunk in the period in which it is on the wire."""
    give, take = (relayed(exchange, table.wire, end) for end in (0, 1))
    return table._replace(give=give, take=take)


def _between(exchange: ChunkExchange, each: Ints) -> Ints:
    """int64 [nodes, nodes, ...]: the sums over the pairs of two servers of int64 [pairs, ...]."""
    between = np.zeros((exchange.nodes, exchange.nodes, *each.shape[1:]), np.int64)
    source, target = exchange.node_of[exchange.pairs.T]
    np.add.at(between, (source, target), each)
    return between


def _loads(exchange: ChunkExchange, table: Timetable, p: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Chunks that NICs send and receive, [nodes, rails], and that scale-up ports of GPUs put out
    and take in, [GPUs], in period p.
    """
    between = _between(exchange, table.wire[p])
    if ((between > 0).sum(axis=0) > exchange.peers).any() or (
        (between > 0).sum(axis=1) > exchange.peers
    ).any():
        raise CheckFailed(f"period {p}: a NIC has more than {exchange.peers} peers")
    sent, got = between.sum(axis=1), between.sum(axis=0)
    if (sent[exchange.send == 0]).any() or (got[exchange.recv == 0]).any():
        raise CheckFailed(f"period {p}: a dead NIC carries chunks")
    out = table.give[p].sum(axis=1)
    into = table.take[p].sum(axis=1)
    holder = exchange.node_of[:, None] * exchange.gpus + exchange.owner
    np.add.at(into, holder, table.give[p])
    np.add.at(out, holder, table.take[p])
    np.add.at(out, exchange.inner[:, 0], table.local[p])
    np.add.at(into, exchange.inner[:, 1], table.local[p])
    return sent, got, out, into


def _check_carried(exchange: ChunkExchange, table: Timetable) -> None:
    """Every chunk on its way, each hop after the one before."""
    if any(column.size and column.min() < 0 for column in table):
        raise CheckFailed("a timetable moves less than nothing")
    asked = exchange.demand[tuple(exchange.pairs.T)]
    stays = exchange.demand[tuple(exchange.inner.T)]
    if (table.wire.sum(axis=(0, 2)) != asked).any() or (table.local.sum(axis=0) != stays).any():
        raise CheckFailed("a timetable does not carry the demand")
    for hop, end in ((table.give, 0), (table.take, 1)):
        wired = relayed(exchange, table.wire, end)
        first, then = (hop, wired) if end == 0 else (wired, hop)
        ready = first.cumsum(axis=0)
        if not exchange.epoch:
            ready = np.concatenate([np.zeros_like(ready[:1]), ready[:-1]])
        if (then.cumsum(axis=0) > ready).any() or (hop.sum(axis=0) != wired.sum(axis=0)).any():
            raise CheckFailed("a timetable sends chunks on before they are there")


def _check_started(exchange: ChunkExchange, table: Timetable, p: int) -> None:
    """Chunks go where a start-up is over, and nowhere from a NIC that is in one."""
    busy = exchange.starts
    if not busy:
        return
    between = _between(exchange, table.wire[p])
    running = table.start[max(0, p - busy + 1) : p + 1].sum(axis=(0, 2))
    begun = table.start[: max(0, p - busy + 1)].sum(axis=0)
    if (
        (running > 1).any()
        or ((running > 0) & (between.sum(axis=1) > 0)).any()
        or ((between > 0) & (begun == 0)).any()
    ):
        raise CheckFailed(f"epoch {p}: a NIC sends before its start-up is over, or has two at once")


class Witnessed(NamedTuple):
    """A lower bound in units of the exchange, and the lines that show it (JSON values): who moves
    so many `chunks` over which `nics`, at least `needs` seconds, and who needs so many stages.
    """

    value: int
    witness: dict[str, Any]


def bound(exchange: ChunkExchange) -> Witnessed:
    """The best bound of lines: what a server sends or receives over its NICs, with the start-ups
    that its peers cost, or what a GPU moves over its own NICs and its scale-up port.  With stages
    one server can show how long they are and another how many.
    """
    wire, moved = busiest_line(exchange)
    witness: dict[str, Any] = {"kind": "lines", **moved}
    if not exchange.epoch:
        count, held = fewest_stages(exchange)
        wire += exchange.startup * count
        witness["stages"] = {"count": count, **held}
    ported = max(_ported(exchange), key=lambda line: line.value)
    return ported if ported.value > wire else Witnessed(wire, witness)


class _Line(NamedTuple):
    """What a server sends, or receives: its living NICs with what a chunk takes on each and the
    peers that each reaches (bits), and the chunks by peer.
    """

    side: str
    node: int
    nics: list[int]
    times: list[int]
    reach: list[int]
    peers: list[int]
    chunks: list[int]

    def sets(self) -> list[int]:
        """The sets of peers (bits) that can need more time than all of them, all of them first."""
        whole = (1 << len(self.chunks)) - 1
        if all(its == whole for its in self.reach):
            return [whole]
        if len(self.chunks) > MANY_PEERS:
            return [whole, *(1 << peer for peer in range(len(self.chunks)))]
        return list(range(whole, 0, -1))

    def of(self, some: int) -> tuple[int, list[int]]:
        """The chunks of a set of peers, and the times of the NICs that reach any of it."""
        times = [t for t, its in zip(self.times, self.reach, strict=True) if its & some]
        return sum(count for peer, count in enumerate(self.chunks) if some >> peer & 1), times

    def named(self, some: int) -> dict[str, Any]:
        """The line and a set of its peers, as JSON values."""
        nics = [nic for nic, its in zip(self.nics, self.reach, strict=True) if its & some]
        peers = [server for peer, server in enumerate(self.peers) if some >> peer & 1]
        return {"side": self.side, "node": self.node, "peers": peers, "nics": nics}


def _lines(exchange: ChunkExchange) -> Iterator[_Line]:
    """The lines of all servers that send or receive."""
    between = _between(exchange, exchange.demand[tuple(exchange.pairs.T)])
    for side, times, others, rows in (
        ("send", exchange.send, exchange.recv, between),
        ("recv", exchange.recv, exchange.send, between.T),
    ):
        for node in np.flatnonzero(rows.any(axis=1)).tolist():
            peers, nics = np.flatnonzero(rows[node]), np.flatnonzero(times[node])
            alive = others[peers] > 0
            for peer in peers[~alive[:, nics].any(axis=1)].tolist():
                raise Infeasible(f"no rail is alive at both server {node} and server {peer}")
            reach = [sum(1 << k for k in np.flatnonzero(alive[:, nic]).tolist()) for nic in nics]
            ends, held = (nics.tolist(), times[node, nics].tolist()), rows[node, peers].tolist()
            yield _Line(side, node, *ends, reach, peers.tolist(), held)


def busiest_line(exchange: ChunkExchange) -> Witnessed:
    """What the NICs of a server need at least, in stages without the start-ups."""
    lines = [_wired(exchange, line) for line in _lines(exchange)]
    nothing = Witnessed(0, {**EMPTY_LINE, **_needs(exchange, 0, 0)})
    return max(lines, key=lambda line: line.value, default=nothing)


def fewest_stages(exchange: ChunkExchange) -> Witnessed:
    """(stages, who): so many peers of a server, and the NICs that reach them, need so many."""
    counted = (
        (-(-some.bit_count() // (len(line.of(some)[1]) * exchange.peers)), line, some)
        for line in _lines(exchange)
        for some in line.sets()
    )
    most = max(counted, key=lambda each: each[0], default=None)
    return Witnessed(0, EMPTY_LINE) if most is None else Witnessed(most[0], most[1].named(most[2]))


def _wired(exchange: ChunkExchange, line: _Line) -> Witnessed:
    """The least time in which the NICs of a line move its chunks, and those of any set of peers; in
    epochs with start-ups: nothing is sent before one, and a NIC has one for each peer.
    """
    found = [(_least(line.of(some)[1], line.of(some)[0]), some) for some in line.sets()]
    value, some = max(found, key=lambda each: each[0])
    shown = {**line.named(some), **_needs(exchange, line.of(some)[0], value)}
    if not exchange.epoch:
        return Witnessed(value, shown)
    starts = exchange.starts
    epochs = starts - (-value // exchange.epoch)
    if starts and line.side == "send":
        while not _callable(exchange, line, epochs):
            epochs += 1
    return Witnessed(epochs * exchange.epoch, shown)


def _needs(exchange: ChunkExchange, chunks: int, time: int) -> dict[str, Any]:
    """How many chunks are moved, and for how long at least, in seconds."""
    return {"chunks": chunks, "needs": str(time * exchange.unit)}


def _callable(exchange: ChunkExchange, line: _Line, epochs: int) -> bool:
    """Whether NICs could send the chunks in so many epochs: some choice of the peers that each
    calls leaves room for all sets of peers (Hall's condition).  Where there are too many choices,
    whether the start-ups and the chunks together have room.
    """
    each = [exchange.epoch // t for t in line.times]
    if sum(its.bit_count() for its in line.reach) > MOST_CALLS:
        lost = min(each) * exchange.starts * len(line.chunks)
        return sum(line.chunks) + lost <= epochs * sum(each)
    every = range(1, 1 << len(line.chunks))
    choices = [[some for some in (0, *every) if some | its == its] for its in line.reach]
    sums = [line.of(some)[0] for some in every]
    for called in product(*choices):
        room = [
            (rate * max(0, epochs - exchange.starts * some.bit_count()), some)
            for rate, some in zip(each, called, strict=True)
        ]
        if all(
            asked <= sum(chunks for chunks, its in room if its & some)
            for some, asked in zip(every, sums, strict=True)
        ):
            return True
    return False


def _least(times: list[int], chunks: int) -> int:
    """The least time in which ports that take `times` per chunk move so many, whole ones."""
    low, high = 0, min(times) * chunks
    while low < high:
        middle = (low + high) // 2
        if sum(middle // t for t in times) >= chunks:
            high = middle
        else:
            low = middle + 1
    return low


def _ported(exchange: ChunkExchange) -> list[Witnessed]:
    """Every chunk of a GPU leaves it over a NIC that it is near or over its scale-up port, and
    comes in the same way.
    """
    found = []
    counted = exchange.demand.copy()
    np.fill_diagonal(counted, 0)
    for side, times, chunks in (
        ("send", exchange.send, counted.sum(axis=1)),
        ("recv", exchange.recv, counted.sum(axis=0)),
    ):
        for gpu, count in enumerate(chunks.tolist()):
            node, place = divmod(gpu, exchange.gpus)
            nics = np.flatnonzero(exchange.near[place] & (times[node] > 0)).tolist()
            least = _least([*times[node, nics].tolist(), exchange.inside], count)
            epoch = exchange.epoch or 1
            port = {"kind": "port", "side": side, "gpu": gpu, "nics": nics}
            port |= _needs(exchange, count, least)
            found.append(Witnessed(-(-least // epoch) * epoch, port))
    return found
