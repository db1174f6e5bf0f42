"""What no copies can beat: sets of experts that find no room (theorem T15).

A *case* is what is held, what may be copied, and the slots that are left.  Of a set F of experts a
GPU takes at most what it holds, the largest others that its slots may take, and at most T in all.
If F has more tokens, the fullest GPU has more than T.  The best F is read off the prices of a
linear program, and its bound added up in whole numbers: the program's word is never taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s, Ints
from railopt.base.errors import BackendError
from railopt.moe.micro.slots import SpareSlots

TIME_IS_UP = 1  # scipy's status of a program that was stopped
MAX_PROGRAM = 1 << 15  # variables of a linear program; beyond it, closed forms alone


class Case(NamedTuple):
    """holds, may: bool [GPU, expert]; spare: int32 [GPU]."""

    holds: Bools
    may: Bools
    spare: Int32s

    @classmethod
    def of(cls, slots: SpareSlots) -> Case:
        """What a micro-batch finds."""
        return cls(slots.holds, slots.may, slots.spare)

    def with_copy(self, gpu: int, expert: int) -> Case:
        """The copy is there: it is held, and a slot is gone."""
        holds, may, spare = self.holds.copy(), self.may.copy(), self.spare.copy()
        holds[gpu, expert], may[gpu, expert] = True, False
        spare[gpu] -= 1
        if not spare[gpu]:
            may[gpu] = False
        return Case(holds, may, spare)

    def without_copy(self, gpu: int, expert: int) -> Case:
        """The copy is barred."""
        may = self.may.copy()
        may[gpu, expert] = False
        return self._replace(may=may)


class RoomBound(NamedTuple):
    """The fullest GPU has at least `tokens`, because these experts find no room for less."""

    tokens: int
    experts: list[int]

    @property
    def witness(self) -> dict[str, Any]:
        """As the checker checks it."""
        return {"kind": "room", "experts": self.experts}


def bound_of(case: Case, counts: Ints, chosen: Bools) -> int:
    """The least largest load that a set of experts, bool [experts], leaves possible."""
    wanted = int(counts[chosen].sum())
    if not wanted:
        return 0
    takes = np.where(case.holds & chosen, counts, 0).sum(axis=1)
    copied = -np.sort(-np.where(case.may & chosen, counts, 0), axis=1)
    within = np.arange(copied.shape[1]) < case.spare[:, None]
    takes += np.where(within, copied, 0).sum(axis=1)
    return _level(np.sort(takes), wanted)


def _level(takes: Ints, wanted: int) -> int:
    """The least T of which sum_r min(T, takes_r) is at least `wanted`; takes ascend."""
    for place, take in enumerate(takes.tolist()):
        left = len(takes) - place
        if take * left >= wanted:
            return -(-wanted // left)
        wanted -= take
    raise AssertionError("GPUs together take all tokens: every expert is held")


def closed_bound(case: Case, counts: Ints, deadline: float = math.inf) -> RoomBound:
    """The best bound without a program: of all experts, and of those that can't leave some GPUs,
    as many of these as are looked at before the `deadline` of time.monotonic.
    """
    sets = chain([np.ones(len(counts), np.bool_)], _of_gpus(case, counts))
    return best_of(case, counts, sets, deadline)


def is_small(case: Case) -> bool:
    """Whether a linear program of the case is worth its time."""
    return int((case.holds | case.may).sum()) <= MAX_PROGRAM


def best_of(
    case: Case, counts: Ints, sets: Iterable[Bools], deadline: float = math.inf
) -> RoomBound:
    """The best bound of these sets of experts: of the first, and of others until the `deadline` of
    time.monotonic.
    """
    best: RoomBound | None = None
    for chosen in sets:
        if best is not None and time.monotonic() > deadline:
            break
        tokens = bound_of(case, counts, chosen)
        if best is None or tokens > best.tokens:
            best = RoomBound(tokens, np.flatnonzero(chosen).tolist())
    assert best is not None, "there is a first set"
    return best


def _of_gpus(case: Case, counts: Ints) -> Iterator[Bools]:
    """The experts that can't leave a set of GPUs: the fullest one, the two fullest, and so on, and
    those that are confined alike.
    """
    able = case.holds | case.may
    order = np.argsort(-np.where(case.holds, counts, 0).sum(axis=1), kind="stable")
    place = np.argsort(order, kind="stable")
    last = np.where(able, place[:, None], -1).max(axis=0)  # the least full GPU of each expert
    for most in np.unique(last)[:-1].tolist():
        yield last <= most
    for column in np.unique(able, axis=1).T[: len(order)]:
        yield np.all(~able[~column], axis=0)


def relaxed(
    case: Case, counts: Ints, limit_s: float = math.inf
) -> tuple[Floats, list[Bools]] | None:
    """A linear program's split, float64 [GPU, expert] shares of the experts' tokens where slots may
    be shared, and sets of experts by its prices: those that cost at least so much.  None where it
    takes longer than `limit_s`.
    """
    found = _solved(case, counts, limit_s)
    if found is None:
        return None
    shares, prices = found
    levels = np.unique(np.round(prices, 9))
    everyone = np.ones(len(counts), np.bool_)
    return shares, [everyone, *(prices >= level - 1e-7 for level in levels[:256])]


def _solved(case: Case, counts: Ints, limit_s: float) -> tuple[Floats, Floats] | None:
    """The least T with shares y of every expert's tokens on GPUs that hold or may take it, sum_e
    c_e y <= T, and shares in slots of at most as many as there are; shares and experts' prices.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    (ranks, experts), scale = case.holds.shape, float(counts.sum()) / len(case.spare)
    rank, expert = np.nonzero((case.holds | case.may) & (counts > 0))
    copied = np.flatnonzero(~case.holds[rank, expert])
    number = len(rank)
    column = np.arange(number)
    rows = np.r_[rank, np.arange(ranks), ranks + rank[copied]]
    columns = np.r_[column, np.full(ranks, number), copied]
    values = np.r_[counts[expert] / scale, np.full(ranks, -1.0), np.ones(len(copied))]
    result: Any = linprog(
        np.r_[np.zeros(number), 1.0],
        A_ub=coo_matrix((values, (rows, columns)), shape=(2 * ranks, number + 1)),
        b_ub=np.r_[np.zeros(ranks), case.spare],
        A_eq=coo_matrix((np.ones(number), (expert, column)), shape=(experts, number + 1)),
        b_eq=(counts > 0).astype(np.float64),
        method="highs",
        options={"time_limit": limit_s},
    )
    if result.status == TIME_IS_UP:
        return None
    if result.x is None:
        raise BackendError(f"HiGHS did not bound the load: {result.message}")
    shares = np.zeros(case.holds.shape)
    shares[rank, expert] = result.x[:number]
    prices = np.zeros(experts)
    prices[counts > 0] = (result.eqlin.marginals / np.maximum(counts, 1))[counts > 0]
    return shares, prices
