"""Uneven gating: which expert travels to which data centre, one by one, on links that may differ.

T[d, e] bytes of tokens at data centre d are for expert e, whose home is home[e].  Copying e to d
(P[e] bytes) keeps those tokens at home.  With x the copies,

    gather   = max over data centres of  bytes of copies out (of experts at home there) and in,
                                         over the link's rate
    exchange = max over data centres of  bytes of tokens out (to experts not copied) and in,
                                         over the link's rate
    time     = max(pre, gather) + 2 exchange

Lower bounds are Lagrangian: any prices (of copies out and in, of tokens out and in) price every
copy by itself, and the sum of what each choice costs at best is below every solution.  Prices come
from a float LP, are rounded to integers, and the bound is then exact.  Branch and bound splits the
gather time first, until one possible value of it is left, then single copies; or copies alone where
few can be made.  Each leaf of the tree keeps its prices, so `check_tree` re-proves the optimum in
integers without a solver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints, check_total, frozen
from railopt.evidence.bracket import Bracket, Status

_PRICE_UNIT = 10**10
_FEW = 12  # copies that could be made: at most 4,096 choices, often fewer than gather times


@dataclass(frozen=True, eq=False)
class Gating:
    """tokens int64 [centres, experts] bytes, home int64 [experts], expert int64 [experts] bytes
    sent of a copy, rate int64 [centres] bytes per second each way, pre Fraction of seconds."""

    tokens: Ints
    home: Ints
    expert: Ints
    rate: Ints
    pre: Fraction

    def __post_init__(self) -> None:
        for name, ndim in (("tokens", 2), ("home", 1), ("expert", 1), ("rate", 1)):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name, ndim))
        expert, centre = self.pairs()
        check_total(self.tokens[centre, expert])
        check_total(self.expert[expert])

    def pairs(self) -> tuple[Ints, Ints]:
        """(expert, centre) of every copy that could be made: the expert is elsewhere and has tokens
        there.
        """
        away = (np.arange(len(self.rate))[:, None] != self.home) & (self.tokens > 0)
        centre, expert = np.nonzero(away)
        return expert.astype(np.int64), centre.astype(np.int64)


def evaluate(gating: Gating, copies: Bools) -> Fraction:
    """The exact time of a choice, bool [pairs]."""
    return time_with(gating, held_by(gating, copies))


def held_by(gating: Gating, copies: Bools) -> Bools:
    """bool [centres, experts]: the copies of a choice, bool [pairs]."""
    expert, centre = gating.pairs()
    held = np.zeros(gating.tokens.shape, np.bool_)
    held[centre[copies], expert[copies]] = True
    return held


def time_with(gating: Gating, held: Bools) -> Fraction:
    """The exact time with copies bool [centres, experts], which may be another step's: they are
    sent whether tokens ask for them or not.
    """
    gather, exchange = _link_times(gating, held)
    return max(gating.pre, *gather) + 2 * max(exchange)


def _link_times(gating: Gating, held: Bools) -> tuple[list[Fraction], list[Fraction]]:
    """Seconds of copies and of tokens on every link, each [2 x centres]: out, then in."""
    centres = len(gating.rate)
    away = np.arange(centres)[:, None] != gating.home
    copied = np.where(held & away, gating.expert, 0)
    sent = np.where(~held & away, gating.tokens, 0)
    lent: Ints = np.zeros(centres, np.int64)
    asked: Ints = np.zeros(centres, np.int64)
    np.add.at(lent, gating.home, copied.sum(axis=0))
    np.add.at(asked, gating.home, sent.sum(axis=0))
    loads = np.concatenate([lent, copied.sum(axis=1), sent.sum(axis=1), asked])
    rates = gating.rate.tolist() * 4
    times = [Fraction(load, rate) for load, rate in zip(loads.tolist(), rates, strict=True)]
    return times[: 2 * centres], times[2 * centres :]


class Part(NamedTuple):
    """A part of the search: the gather (with `pre`) takes from `low` to `high` seconds, some copies
    are fixed to 0 or 1.
    """

    low: Fraction
    high: Fraction | None
    fixed: dict[int, int]


class Leaf(NamedTuple):
    """A part and the prices that bound it: integers [4 x centres], copies out and in, then tokens
    out and in.

    Copies' prices are over `unit`; tokens' prices over half their sum, so that they sum to 2.
    """

    part: Part
    prices: tuple[int, ...]
    unit: int


def leaf_bound(gating: Gating, leaf: Leaf) -> Fraction:
    """What no choice in a leaf's part is faster than: the Lagrangian bound, raised to the next time
    that is possible.
    """
    centres, part = len(gating.rate), leaf.part
    prices = np.array(leaf.prices, object)
    out, into, sent, received = (prices[i * centres : (i + 1) * centres] for i in range(4))
    over, total = 1 - Fraction(sum(out) + sum(into), max(1, leaf.unit)), sum(sent) + sum(received)
    if (
        len(prices) != 4 * centres
        or min(leaf.prices) < 0
        or leaf.unit < 1
        or total < 1
        or (over < 0 and part.high is None)
    ):
        return part.low
    rates = gating.rate.tolist()
    scale = lcm(*rates)
    weight = np.array([scale // rate for rate in rates], object)
    expert, centre = gating.pairs()
    home = gating.home[expert]
    stay = (
        gating.tokens[centre, expert].astype(object)
        * ((sent * weight)[centre] + (received * weight)[home])
        * (2 * leaf.unit)
    )
    copy = (
        gating.expert[expert].astype(object)
        * ((out * weight)[home] + (into * weight)[centre])
        * total
    )
    cost = np.minimum(stay, copy)
    for pair, side in part.fixed.items():
        cost[pair] = (stay, copy)[side][pair]
    if part.high == part.low:
        # a link then has room for whole multiples of the experts' divisor only
        gather = part.low - sum(
            Fraction((out[d] + into[d]) * _room(gating, part.low, d), leaf.unit * rates[d])
            for d in range(centres)
        )
    else:
        gather = over * (part.low if over >= 0 or part.high is None else part.high)
    return _raised(gating, part, gather + Fraction(int(cost.sum()), scale * leaf.unit * total))


def _raised(gating: Gating, part: Part, bound: Fraction) -> Fraction:
    """With one possible gather time left, an exchange is a multiple of the tokens' divisor on some
    link.
    """
    if part.high != part.low:
        return max(bound, part.low)
    return part.low + 2 * _next(
        max(Fraction(0), bound - part.low) / 2, _divisor(gating.tokens), gating.rate.tolist()
    )


def _next(time: Fraction, divisor: int, rates: list[int], *, strictly: bool = False) -> Fraction:
    """The least time of a whole multiple of `divisor` bytes on one of the links, not below (or
    above) `time`.
    """
    return min(
        Fraction(
            (int(time * rate // divisor) + 1 if strictly else -int(-time * rate // divisor))
            * divisor,
            rate,
        )
        for rate in rates
    )


def _last(time: Fraction, divisor: int, rates: list[int], *, strictly: bool = False) -> Fraction:
    """The largest such time that is not above (or below) `time`."""
    return max(
        Fraction(
            (-int(-time * rate // divisor) - 1 if strictly else int(time * rate // divisor))
            * divisor,
            rate,
        )
        for rate in rates
    )


def _room(gating: Gating, gather: Fraction, centre: int) -> int:
    """Bytes of copies that a link can carry in this time, in whole multiples of the experts'
    divisor.
    """
    unit = _divisor(gating.expert)
    return int(gather * int(gating.rate[centre]) // unit) * unit


def _divisor(sizes: Ints) -> int:
    return int(np.gcd.reduce(sizes, axis=None)) or 1


@dataclass(frozen=True, eq=False)
class GatingChoice:
    """The best copies found, what is known of the optimum, and the tree that proves it.

    copies    bool [pairs]
    bracket   exact seconds; known by the leaves, which `check_tree` re-checks
    leaves    the parts of the search and the prices that bound each
    """

    copies: Bools
    bracket: Bracket
    leaves: tuple[Leaf, ...]


def choose(
    gating: Gating, *, limit_s: float = 10.0, clock: Callable[[], float] = time.monotonic
) -> GatingChoice:
    """The optimum with its proof, or the best choice and the best bound after `limit_s` seconds
    of the clock.
    """
    deadline = clock() + limit_s
    search = GatingSearch(gating)
    best, value = search.start()
    # of each part: what it can't beat, shown by a leaf with the prices of the part before
    open_ = [(gating.pre, Leaf(Part(gating.pre, None, {}), (0,) * (4 * len(gating.rate)), 1))]
    leaves: list[Leaf] = []
    unproved: list[Fraction] = []  # bounds of parts that can't be split any more
    first = True
    while open_ and (first or clock() < deadline):
        lower, before = open_.pop(min(range(len(open_)), key=lambda i: open_[i][0]))
        part = before.part
        shares, gather, leaf = search.relax(part)
        bound = leaf_bound(gating, leaf)
        if bound < lower:
            bound, leaf = leaf_bound(gating, before), before
        rounded = shares > 0.5
        if (found := evaluate(gating, rounded)) < value:
            best, value = rounded, found
        if first and bound < value:
            suggested, found = search.milp(min(limit_s / 3, deadline - clock()))
            if found <= value:
                best, value = suggested, found
        first = False
        parts = [] if bound >= value else search.split(part, shares, gather)
        if parts:
            open_ += [(bound, leaf._replace(part=one)) for one in parts]
        else:
            leaves.append(leaf)
            unproved.append(bound)
    leaves += [leaf for _, leaf in open_]
    bound = min([value, *unproved, *(lower for lower, _ in open_)])
    status = Status.KNOWN if value == bound else Status.OPEN
    known = Bracket(value, bound, status, by="branch and bound on prices")
    return GatingChoice(best, known, tuple(leaves))


def check_tree(gating: Gating, choice: GatingChoice) -> bool:
    """Prove a known optimum again without a solver: its value, that its leaves cover every choice,
    and each leaf's bound.
    """
    value = choice.bracket.value
    if (
        value is None
        or not choice.bracket.optimum_known
        or evaluate(gating, choice.copies) != value
    ):
        return False
    ranges = sorted(
        {(leaf.part.low, leaf.part.high) for leaf in choice.leaves}, key=lambda pair: pair[0]
    )
    rates, divisor = gating.rate.tolist(), _divisor(gating.expert)
    joined = all(
        a[1] is not None and b[0] <= _next(a[1], divisor, rates, strictly=True)
        for a, b in pairwise(ranges)
    )
    whole = bool(ranges) and ranges[0][0] <= gating.pre and ranges[-1][1] is None
    return (
        joined
        and whole
        and all(
            _covers([leaf.part.fixed for leaf in choice.leaves if leaf.part[:2] == one])
            for one in ranges
        )
        and all(leaf_bound(gating, leaf) >= value for leaf in choice.leaves)
    )


def _covers(parts: list[dict[int, int]]) -> bool:
    """Whether fixings are the leaves of a binary tree: some pair is fixed in all of them, and both
    sides are covered.
    """
    if any(not part for part in parts):
        return True
    shared = set.intersection(*(set(part) for part in parts)) if parts else set()
    return any(
        all(
            _covers(
                [
                    {k: v for k, v in part.items() if k != pair}
                    for part in parts
                    if part[pair] == side
                ]
            )
            for side in (0, 1)
        )
        for pair in sorted(shared)[:1]
    )


class GatingSearch:
    """The float side: LP relaxations, roundings, a MILP solver's suggestion.  Nothing here is
    believed.
    """

    def __init__(self, gating: Gating) -> None:
        from scipy.sparse import csr_matrix

        self.gating = gating
        self.expert, self.centre = gating.pairs()
        self.home = gating.home[self.expert]
        self.token = gating.tokens[self.centre, self.expert]
        centres, pairs = len(gating.rate), len(self.expert)
        rate = gating.rate.astype(np.float64)
        column = np.arange(pairs)
        copy, stay = gating.expert[self.expert].astype(np.float64), self.token.astype(np.float64)
        entries = [
            (copy / rate[self.home], self.home),
            (copy / rate[self.centre], centres + self.centre),
            (-stay / rate[self.centre], 2 * centres + self.centre),
            (-stay / rate[self.home], 3 * centres + self.home),
        ]
        links = np.arange(2 * centres)
        data = np.concatenate([*(entry[0] for entry in entries), np.full(4 * centres, -1.0)])
        rows = np.concatenate([*(entry[1] for entry in entries), links, 2 * centres + links])
        columns = np.concatenate(
            [np.tile(column, 4), np.full(2 * centres, pairs), np.full(2 * centres, pairs + 1)]
        )
        self.matrix = csr_matrix((data, (rows, columns)), shape=(4 * centres, pairs + 2))
        self.limit = np.zeros(4 * centres)
        np.add.at(self.limit, 2 * centres + self.centre, -stay / rate[self.centre])
        np.add.at(self.limit, 3 * centres + self.home, -stay / rate[self.home])
        self.cost = np.concatenate([np.zeros(pairs), [1.0, 2.0]])

    def start(self) -> tuple[Bools, Fraction]:
        """The better of no copies and all copies."""
        sides = [np.zeros(len(self.expert), np.bool_), np.ones(len(self.expert), np.bool_)]
        return min(
            ((side, evaluate(self.gating, side)) for side in sides), key=lambda entry: entry[1]
        )

    def relax(self, part: Part) -> tuple[Floats, float, Leaf]:
        """LP shares of every pair, the LP's gather time, and the part with the LP's dual prices as
        integers.
        """
        from scipy.optimize import linprog

        pairs = len(self.expert)
        bounds: list[tuple[float, float | None]] = [(0.0, 1.0)] * pairs
        bounds += [(float(part.low), None if part.high is None else float(part.high)), (0.0, None)]
        for pair, side in part.fixed.items():
            bounds[pair] = (float(side), float(side))
        limit = self.limit.copy()
        if part.high == part.low:
            rooms = [
                float(Fraction(_room(self.gating, part.low, d), rate) - part.low)
                for d, rate in enumerate(self.gating.rate.tolist())
            ]
            limit[: 2 * len(rooms)] = rooms * 2
        solved = linprog(self.cost, A_ub=self.matrix, b_ub=limit, bounds=bounds, method="highs")
        if solved.status != 0:
            return (
                np.array([float(part.fixed.get(i, 0)) for i in range(pairs)]),
                float(part.low),
                Leaf(part, self.prices_of_copies(part), _PRICE_UNIT),
            )
        whole = [max(0, round(float(price) * _PRICE_UNIT)) for price in -solved.ineqlin.marginals]
        half = len(whole) // 2
        whole[half] = whole[half] or int(not any(whole[half:]))
        unit = _PRICE_UNIT if part.high is not None else max(_PRICE_UNIT, sum(whole[:half]))
        return solved.x[:pairs], float(solved.x[pairs]), Leaf(part, tuple(whole), unit)

    def prices_of_copies(self, part: Part) -> tuple[int, ...]:
        """Prices to use where a part is infeasible or the solver failed: of copies alone, of the
        links that have no room for those that are fixed, or of all.
        """
        centres = len(self.gating.rate)
        load = np.zeros(2 * centres, object)
        for pair in (pair for pair, side in part.fixed.items() if side):
            size = int(self.gating.expert[self.expert[pair]])
            load[self.home[pair]] += size
            load[centres + self.centre[pair]] += size
        over = [load[d] > _room(self.gating, part.low, d % centres) for d in range(2 * centres)]
        priced = over if part.high == part.low and any(over) else [True] * (2 * centres)
        return (*(_PRICE_UNIT * 1000 * one for one in priced), *[1] * (2 * centres))

    def split(self, part: Part, shares: Floats, gather: float) -> list[Part]:
        """Two parts: a shorter and a longer gather while more than one gather time is possible,
        else, or where few copies can be made, a copy fixed to 0 and 1.
        """
        if part.high != part.low and len(self.expert) > _FEW:
            possible = _divisor(self.gating.expert), self.gating.rate.tolist()
            middle = max(part.low, Fraction(gather))
            middle = middle if part.high is None else min(middle, part.high)
            middle = max(part.low, _last(middle, *possible))
            after = _next(middle, *possible, strictly=True)
            if part.high is None or after <= part.high:
                return [part._replace(high=middle), part._replace(low=after)]
            if middle == part.low:
                return [part._replace(high=middle)]
            before = max(part.low, _last(middle, *possible, strictly=True))
            return [part._replace(high=before), part._replace(low=middle, high=middle)]
        free = [i for i in np.argsort(np.abs(shares - 0.5)).tolist() if i not in part.fixed]
        return (
            [part._replace(fixed={**part.fixed, free[0]: side}) for side in (0, 1)] if free else []
        )

    def milp(self, limit_s: float) -> tuple[Bools, Fraction]:
        """What HiGHS suggests, re-evaluated here."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        pairs = len(self.expert)
        lower = np.concatenate([np.zeros(pairs), [float(self.gating.pre), 0.0]])
        upper = np.concatenate([np.ones(pairs), [np.inf, np.inf]])
        solved: Any = milp(
            self.cost,
            constraints=LinearConstraint(self.matrix, -np.inf, self.limit),
            bounds=Bounds(lower, upper),
            integrality=np.concatenate([np.ones(pairs), [0, 0]]),
            options={"time_limit": max(0.1, limit_s), "mip_rel_gap": 0},
        )
        copies = np.zeros(pairs, np.bool_) if solved.x is None else solved.x[:pairs] > 0.5
        return copies, evaluate(self.gating, copies)
