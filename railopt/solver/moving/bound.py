"""The least bytes that divisible traffic moves inside nodes within a time, and prices that prove it
for whole chunks too.

    minimise    sum of cost[c, n] x[c, n]                        bytes moved
    subject to  sum over n of x[c, n] = size[c]                  every class of units
                sum over c from node k of x[c, n] <= T tx[k, n]
                sum over c to node f of x[c, n] <= T rx[f, n]       x >= 0

Prices a[k, n], b[f, n] >= 0 of a byte give, by weak duality, to every plan of time at most T

    moved  >=  sum over classes of size min over live n of (cost[n] + a[k, n] + b[f, n])
               - T (sum of a tx + sum of b rx)

whatever they are, so rounded prices prove as well as exact ones.  There are many classes, and most
of them lie on one rail in an optimum.  So a small program has the *loose* classes alone, the
largest at first, all others being fixed where they are cheapest; as long as its prices show
classes that had better lie elsewhere, these become loose too.  When there are none its optimum is
that of all, exact as soon as the simplex method has gone over it in fractions.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints
from railopt.base.errors import NotProved
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.solver.moving.classes import Classes, classes_of
from railopt.solver.rational import Number
from railopt.solver.simplex import LinearProgram, guess, optimum

LOOSE = 2000  # classes that are made loose at a time
OVERLOAD = 64  # cost of a byte beyond what a NIC carries: more than prices ever were
UNIT = 5040  # prices of floats are rounded to whole numbers of its parts
EXACT = 20_000  # loose classes: beyond this the simplex method in fractions takes minutes
MOST = 1 << 22  # classes: beyond this the search takes gigabytes before its first prices
LARGE = 1 << 40  # of a price: beyond this sums of prices might not fit


class BytePrices(NamedTuple):
    """Prices of a byte at each NIC, counted in 1 / unit.

    send, recv   int64 [nodes, rails], none negative
    """

    send: Ints
    recv: Ints
    unit: int


@dataclass(frozen=True)
class MovedBound:
    """The least bytes moved inside nodes by plans of time at most `time`, seconds.

    bound    no plan moves less, by `prices`
    value    what the best division of the traffic moves, exact; None where that was not found
    prices   that prove the bound
    earned   bytes per second by which the same prices prove less of plans that take longer
    """

    time: Fraction
    bound: Fraction
    value: Fraction | None
    prices: BytePrices = field(repr=False)
    earned: Fraction = field(repr=False)

    @property
    def exact(self) -> bool:
        """Whether value and bound meet: then this is the optimum of divisible traffic."""
        return self.value == self.bound

    @property
    def bytes(self) -> int:
        """Whole bytes that every plan of whole chunks moves at least."""
        return ceil(self.bound)

    def at(self, time: Fraction) -> Fraction:
        """What these prices prove of plans of another time: bytes moved, at least."""
        return self.bound - (time - self.time) * self.earned

    @property
    def witness(self) -> dict[str, Any]:
        """The prices as the checker re-checks them."""
        return {
            "kind": "moved",
            "unit": self.prices.unit,
            "send": self.prices.send.tolist(),
            "recv": self.prices.recv.tolist(),
        }


def moved_within(
    fabric: Fabric, classes: Classes, time: Fraction, *, limit_s: float | None = None
) -> MovedBound:
    """The least bytes moved by plans of at most `time` seconds, in which divisible traffic can be
    carried.  Where `limit_s` seconds are not enough the bound may be too low, and `value` is None.
    Of more than `MOST` classes it is what every plan moves.
    """
    began = clock.monotonic()
    if len(classes.size) > MOST:
        floor, free = Fraction(classes.floor), np.zeros(fabric.tx.shape, np.int64)
        return MovedBound(time, floor, None, BytePrices(free, free, 1), Fraction(0))
    search = _MovedSearch(fabric, classes, time)
    while True:
        left_s = None if limit_s is None else limit_s - (clock.monotonic() - began)
        if (left_s is not None and left_s <= 0) or not search.step(left_s):
            return search.answer()


class MovedBounds:
    """Bounds of several plans, each sought once where it serves others too.

    Prices that earn nothing prove as much of plans that take longer, and a division of the traffic
    keeps a longer time too.  Both are of classes, however these are cut into chunks.  So it is best
    to ask for the fastest plan first.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Fabric, Classes, MovedBound]] = []
        self._classes: dict[tuple[str, str], Classes] = {}

    def of(self, plan: Plan, *, limit_s: float | None) -> MovedBound | None:
        """The least bytes that plans as fast as this one move, found in `limit_s` seconds; None
        where its chunks do not name their GPUs.
        """
        fabric, chunks = plan.fabric, plan.chunks
        if chunks.gpus != fabric.gpus:
            return None
        key = fabric.digest, chunks.digest
        if key not in self._classes:
            self._classes[key] = classes_of(fabric, chunks)
        return self.within(fabric, self._classes[key], plan.makespan, limit_s=limit_s)

    def within(
        self, fabric: Fabric, classes: Classes, time: Fraction, *, limit_s: float | None
    ) -> MovedBound:
        """As `moved_within`.  What was not found exactly in its time is sought again for other
        chunks.
        """
        for place, others, known in self._known:
            if known.time != time and (known.time > time or known.earned):
                continue
            same = known.exact and place.digest == fabric.digest
            if others is classes or (same and others.same(classes)):
                return replace(known, time=time)
        found = moved_within(fabric, classes, time, limit_s=limit_s)
        self._known.append((fabric, classes, found))
        return found


def price_bound(fabric: Fabric, classes: Classes, time: Fraction, prices: BytePrices) -> Fraction:
    """What these prices prove: bytes moved by every plan of at most `time` seconds."""
    each = _cheapest(classes, prices).min(axis=1, initial=np.iinfo(np.int64).max)
    paid = sum(map(int.__mul__, each.tolist(), classes.size.tolist()))
    return classes.floor + Fraction(paid) / prices.unit - time * earned_by(fabric, prices)


def earned_by(fabric: Fabric, prices: BytePrices) -> Fraction:
    """What all NICs are paid a second, if none is ever idle."""
    paid = sum(
        price * rate
        for side, rates in ((prices.send, fabric.tx), (prices.recv, fabric.rx))
        for price, rate in zip(side.ravel().tolist(), rates.ravel().tolist(), strict=True)
    )
    return Fraction(paid, prices.unit)


def _cheapest(classes: Classes, prices: BytePrices) -> Ints:
    """int64 [C, rails]: what a byte costs on each live rail, in 1 / unit; dead ones cost most."""
    cost = prices.unit * classes.cost + prices.send[classes.src] + prices.recv[classes.dst]
    return np.where(classes.live, cost, np.iinfo(np.int64).max)


class _MovedSearch:
    """Classes made loose step by step.

    loose    bool [C];  home  int64 [C]: the rail of each class that is not
    best     the bound so far, and its prices
    """

    def __init__(self, fabric: Fabric, classes: Classes, time: Fraction) -> None:
        self.fabric, self.classes, self.time = fabric, classes, time
        free = np.zeros(fabric.tx.shape, np.int64)
        self.best = BytePrices(free, free, 1)
        self.bound = price_bound(fabric, classes, time, self.best)
        self.value: Fraction | None = None
        self.home = _spread(_cheapest(classes, self.best))
        self.loose = np.zeros(len(classes.size), np.bool_)
        self._loosen(classes.size)

    def answer(self) -> MovedBound:
        earned = earned_by(self.fabric, self.best)
        return MovedBound(self.time, self.bound, self.value, self.best, earned)

    def step(self, left_s: float | None) -> bool:
        """Solve for the loose classes and loosen more; False when done."""
        if not len(self.loose):
            self.value = self.bound
            return False
        master = _Master(self.fabric, self.classes, self.time, self.loose, self.home)
        seen = guess(master.program, *master.units, limit_s=left_s)
        prices = master.rounded(seen.price)
        self._note(prices)
        if not seen.optimal:
            return False
        if self._loosen(self._gains(prices)):
            return True
        if np.count_nonzero(self.loose) > EXACT:
            return False
        return self._exactly(master, seen.basic, left_s)

    def _exactly(self, master: _Master, basic: Sequence[int], left_s: float | None) -> bool:
        """Go on in fractions; whether some class had better be loose after all."""
        try:
            vertex = optimum(master.program, basic, limit_s=left_s)
        except NotProved:
            return False
        prices = master.exact(vertex.price)
        if prices is None:
            return False
        self._note(prices)
        if self._loosen(self._gains(prices)):
            return True
        if master.kept_by(vertex.x):
            self.value = master.moved(vertex.x)
        return False

    def _note(self, prices: BytePrices) -> None:
        bound = price_bound(self.fabric, self.classes, self.time, prices)
        if bound > self.bound:
            self.bound, self.best = bound, prices

    def _gains(self, prices: BytePrices) -> Floats:
        """float64 [C]: what moving a class from its home to its cheapest rail is worth."""
        cost = _cheapest(self.classes, prices)
        here = np.take_along_axis(cost, self.home[:, None], axis=1)[:, 0]
        gain = (here - cost.min(axis=1)) / prices.unit * self.classes.size
        return np.where(self.loose, 0.0, gain)

    def _loosen(self, worth: Floats | Ints) -> bool:
        """Make the classes loose that are worth most; whether there were any."""
        worthy = np.flatnonzero(worth > 0)
        chosen = worthy[np.argsort(-worth[worthy], kind="stable")[:LOOSE]]
        self.loose[chosen] = True
        return bool(len(chosen))


def _spread(cost: Ints) -> Ints:
    """int64 [C]: a cheapest rail of each class, in turn where there are several."""
    tied = cost == cost.min(axis=1, keepdims=True)
    turn = np.arange(len(cost)) % np.maximum(tied.sum(axis=1), 1)
    chosen: Ints = np.argmax(np.cumsum(tied, axis=1) > turn[:, None], axis=1)
    return chosen


class _Master:
    """The program of the loose classes.  Variables: the bytes of each (class, live rail), then what
    each live NIC carries beyond its time.  Rows: the bytes of each loose class, then each live NIC.
    Bytes are counted in parts of the time's denominator, so that all numbers are whole.
    """

    def __init__(
        self, fabric: Fabric, classes: Classes, time: Fraction, loose: Bools, home: Ints
    ) -> None:
        self.fabric, self.classes, self.parts = fabric, classes, time.denominator
        self.kept = np.flatnonzero(loose)
        rates = np.zeros((2, *fabric.tx.shape), np.int64)  # of nodes that send, that receive
        for side, ends in enumerate((classes.src, classes.dst)):
            rates[side, ends] = (fabric.tx, fabric.rx)[side][ends]
        self.nics = np.argwhere(rates > 0)
        self.row = np.full(rates.shape, -1)
        self.row[tuple(self.nics.T)] = len(self.kept) + np.arange(len(self.nics))
        fixed = np.flatnonzero(~loose)
        self.fixed_cost = int((classes.cost[fixed, home[fixed]] * classes.size[fixed]).sum())
        carried = np.zeros(rates.shape, np.int64)
        for side, ends in enumerate((classes.src, classes.dst)):
            np.add.at(carried[side], (ends[fixed], home[fixed]), classes.size[fixed])
        self.column = np.argwhere(classes.live[self.kept])
        room = [
            time.numerator * rate - self.parts * load
            for rate, load in zip(
                rates[rates > 0].tolist(), carried[rates > 0].tolist(), strict=True
            )
        ]
        sizes = classes.size[self.kept].tolist()
        self.program = LinearProgram(
            self._columns(),
            [*classes.cost[self.kept][tuple(self.column.T)].tolist(), *([OVERLOAD] * len(room))],
            [self.parts * size for size in sizes] + room,
            [True] * len(sizes) + [False] * len(room),
        )

    def _columns(self) -> list[dict[int, int]]:
        which, rail = self.column.T
        loose = self.kept[which]
        ends = zip(
            which.tolist(),
            self.row[0, self.classes.src[loose], rail].tolist(),
            self.row[1, self.classes.dst[loose], rail].tolist(),
            strict=True,
        )
        beyond = range(len(self.kept), len(self.kept) + len(self.nics))
        return [{c: 1, s: 1, r: 1} for c, s, r in ends] + [{row: -1} for row in beyond]

    @property
    def units(self) -> tuple[Floats, Floats]:
        """What variables and rows are counted in for a solver in floats."""
        unit = float(self.parts) * max(1.0, float(self.classes.size[self.kept].mean()))
        columns, rows = len(self.program.columns), len(self.program.right)
        return np.full(columns, unit), np.full(rows, unit)

    def rounded(self, price: Floats) -> BytePrices:
        """Float prices of rows as prices of NICs."""
        whole = np.rint(np.clip(-price[len(self.kept) :], 0, OVERLOAD) * UNIT).astype(np.int64)
        return self._prices(whole, UNIT)

    def exact(self, price: Sequence[Number]) -> BytePrices | None:
        """Exact prices of rows as prices of NICs; None if they are too long to calculate with."""
        mine = [-Fraction(p) for p in price[len(self.kept) :]]
        unit = lcm(*(p.denominator for p in mine))
        whole = [int(p * unit) for p in mine]
        if max([unit, *whole]) > LARGE or min(whole, default=0) < 0:
            return None
        return self._prices(np.array(whole, np.int64), unit)

    def _prices(self, whole: Ints, unit: int) -> BytePrices:
        common = gcd(unit, *np.unique(whole).tolist())
        both = np.zeros(self.row.shape, np.int64)
        both[tuple(self.nics.T)] = whole // common
        return BytePrices(both[0], both[1], unit // common)

    def kept_by(self, x: Sequence[Number]) -> bool:
        """Whether these bytes are a division of the traffic that keeps the time."""
        left: list[Number] = list(self.program.right)
        for column, amount in zip(self.program.columns, x, strict=True):
            for row in column if amount else ():
                left[row] -= amount
        whole = not any(left[: len(self.kept)])
        return whole and min(left) >= 0 and min(x) >= 0 and not any(x[len(self.column) :])

    def moved(self, x: Sequence[Number]) -> Fraction:
        """Bytes moved in all."""
        loose = sum(c * v for c, v in zip(self.program.cost, x, strict=True) if c and v)
        return self.classes.floor + self.fixed_cost + Fraction(loose) / self.parts
