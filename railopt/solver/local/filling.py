"""Steps that look for an assignment: rails re-split, and rails filled up to the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.local import fill, subsets, values
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.remainders import MOST, filled, most_frequent, suits
from railopt.solver.local.state import State

SPARSE = 7.0  # jobs a rail up to which sparse fillings are tried too
SPARSE_WORK = 20_000_000  # rails * jobs^2 up to which these are quick
BUDGET_S = 0.03  # what looking for a perfect assignment may take at first
WALKS = 16  # at a time, half as many for each four jobs beyond SHORT that are searched after each
# such jobs: with less than FEW the other rails are hard to fill, beyond LONG no walk is worth it
FEW, SHORT, LONG = 15, 20, 26
BESIDE_CAPS = 2.5  # other jobs that a rail takes beside caps, about
FILLS = 150  # tries, 5 to 10 us each, to fill rails of caps at one of a few times from the bound on
ABOVE = 0, 1, 2, 3, 4, 6, 8, 12, 16  # these times, in units on the fastest rail


def resplits(state: State, start: Ints) -> None:
    """Re-split rails of an assignment while that helps."""
    width, assignment = pool_width(state.sizes), start.copy()
    loads = values.loads_of(state.sizes, assignment, state.rails)
    subsets.seeded(state.seed)
    round_s = 4e-9 * len(state.sizes) + 4e-8 * (1 << (width + 1) // 2)
    rounds = max(1, state.deadline.afford(100 * state.rails, 1 / round_s))
    speeds = np.array([state.slowness[0] / ticks for ticks in state.slowness])
    sharing = fill.Sharing(state.sizes, state.capacities(state.bound), speeds, rounds, width)
    fill.resplit(sharing, assignment, loads)
    state.improve(assignment, "re-split")


def mostly_caps(state: State) -> None:
    """Rails filled to the last unit, where most jobs are of one size, at times from the bound
    on.
    """
    if not suits(state.sizes, state.rails):
        return
    for above in ABOVE:
        time = state.bound + above * state.ticks[0]
        if time >= state.value or state.over():
            return
        found = filled(state.sizes, state.capacities(time), FILLS, state.seed)
        if found is not None:
            state.improve(found, "filled")
            return


def pool_width(sizes: Ints) -> int:
    """How many jobs make a pool dense enough in subset sums to hit any target."""
    return int(min(30, max(12, np.ceil(np.log2(sizes.mean())) + 9)))


def perfect(state: State, budget_s: float = BUDGET_S) -> None:
    """Look for an assignment that attains the bound; at first not for long where the LP may raise
    that, which on rails of several speeds takes longer.
    """
    if not state.fits:
        return
    part = 3 if state.lp is not None and state.alike else 1
    _attain(state, state.bound, state.deadline.within(budget_s / part))


def closer(state: State, budget_s: float) -> None:
    """Better assignments: half as far from the bound, while such are found, and where none is, half
    as much better, and in turn a quarter as far from the bound, where rails have fewer loads that
    waste so little; an eighth of the time for each.
    """
    if not state.fits:
        return
    stop = state.deadline.within(budget_s)
    better, near = (state.value - state.bound) // 2, (state.value - state.bound) // 8
    while better > 0 and not (state.over() or stop.over):
        aim = state.value - better
        _attain(state, aim, stop.within(budget_s / 8))
        found = state.value <= aim
        if not (found or near == 0 or state.over() or stop.over):
            _attain(state, state.bound + near, stop.within(budget_s / 8))
            near //= 4
        better = min(2 * better, state.value - state.bound) // (2 if found else 4)


def _attain(state: State, time: int, stop: Deadline) -> None:
    """Attempts to attain a time until one does, or no time is left for another."""
    for attempt in fittings(state, time):
        before_s = state.deadline.left_s
        if before_s < state.attempt_s or attempt() or state.over() or stop.over:
            return
        state.attempt_s = max(state.attempt_s, before_s - state.deadline.left_s)


def fittings(state: State, time: int) -> Iterator[Callable[[], bool]]:
    """Endless attempts to attain a time, by rising number of rails left to the exact search.
    Where that is short, sparse ones walk on from one filling, in each turn twice as long as in the
    one before: the longer a walk, the more and smaller jobs it leaves to the search.  Cut traffic
    is first filled beside its caps.
    """
    attempts = _Attempts(state, time)
    average = len(attempts.sizes) / attempts.rails
    fewest = 12 if average < 8 else 0
    keeps = [keep for keep in range(1, attempts.rails + 1) if fewest <= keep * average <= 52]
    keeps = keeps or [min(attempts.rails, 2 if average < 6 else 1)]
    cap, kept = beside_caps(attempts.sizes, attempts.rails)
    few = average <= SPARSE and attempts.rails * len(attempts.sizes) ** 2 <= SPARSE_WORK
    for turn in count():
        for keep in kept:
            yield from repeat(partial(attempts.fully, keep, cap), 4)
        for keep in keeps:
            jobs = keep * average
            if few and jobs <= LONG:
                walks = WALKS >> max(0, int(jobs) - SHORT) // 4
                times = 4 << turn if jobs >= FEW else 4
                yield from repeat(partial(attempts.sparsely, keep, walks), times)
            elif few and turn > 1:
                times = 8 if jobs <= 38 else 2 * (jobs <= 44)
                yield from repeat(partial(attempts.sparsely, keep, 0), times)
            if not few or (jobs <= 28 and not turn):
                times = 8 if jobs <= 28 and not few else 2
                yield from repeat(partial(attempts.fully, keep), times)


def beside_caps(sizes: Ints, rails: int) -> tuple[int, list[int]]:
    """(the cap, 0 where sizes are not mostly one; the numbers of rails to keep then, such that some
    8 to 24 other jobs are left to the exact search).
    """
    cap, caps = most_frequent(sizes)
    others = len(sizes) - caps
    if caps < rails or others > MOST:
        return 0, []
    return cap, [k for k in range(2, rails) if 8 <= others - BESIDE_CAPS * (rails - k) <= 24]


class _Attempts:
    """Attempts to attain a time; each says whether it has.

    begun   the filling of each number of kept rails that walks go on from, while they can
    """

    def __init__(self, state: State, time: int) -> None:
        self._state, self._time = state, time
        self._part, self.rails, self._settled = tight_part(state, time)
        self.sizes = np.ascontiguousarray(state.sizes[self._part])
        self._capacities = state.capacities(time)[: self.rails]
        self._width, self._rng = pool_width(self.sizes), np.random.default_rng(state.seed)
        self.begun: dict[int, _Filled] = {}
        subsets.seeded(state.seed)

    def fully(self, keep: int, cap: int = 0) -> bool:
        filled = self._fill(keep, False, cap)
        return filled is not None and self._search(filled, 0)

    def sparsely(self, keep: int, walks: int) -> bool:
        filled = (self.begun.get(keep) if walks else None) or self._fill(keep, True)
        if filled is None:
            return False
        before = filled.found.copy()
        if self._search(filled, walks):
            return True
        self.begun[keep] = filled
        if (filled.found == before).all():  # no rail could exchange anything
            del self.begun[keep]
        return False

    def _fill(self, keep: int, sparse: bool, cap: int = 0) -> _Filled | None:
        order = np.arange(self.rails) if self._state.alike else self._rng.permutation(self.rails)
        capacities = self._capacities[order]
        filling = fill.Filling(self.sizes, capacities, keep, self._width, sparse, cap)
        found = np.empty(len(self.sizes), np.int64)
        return _Filled(filling, order, found) if fill.fill_up(filling, found) else None

    def _search(self, filled: _Filled, walks: int) -> bool:
        if not fill.fit(filled.filling, walks, filled.found):
            return False
        assignment = self._settled.copy()
        assignment[self._part] = filled.order[filled.found]
        self._state.improve(assignment, "filling")
        return self._state.value <= self._time


class _Filled(NamedTuple):
    """All but some rails filled, in an order; found: the place in it of each job's rail, or -1."""

    filling: fill.Filling
    order: Ints
    found: Ints


def tight_part(state: State, time: int) -> tuple[Ints, int, Ints]:
    """(jobs, rails for them, assignment of the others), such that only these jobs have little
    slack.

    Where k of the rails must carry certain jobs up to the bound (a pigeonhole witness), the other
    jobs go on the other rails if they fit there.
    """
    sizes, everything = state.sizes, np.arange(len(state.sizes), dtype=np.int64)
    some = state.witness.get("rails", state.rails)
    if some < state.rails:
        jobs, rails = state.witness["jobs"], state.rails
        carried = some * (jobs // rails) + min(some, jobs % rails)
        core = everything[jobs - carried : jobs]
        others = np.concatenate((everything[: jobs - carried], everything[jobs:]))
        apart, capacities = np.zeros(len(others), np.int64), state.capacities(time)[some:]
        if values.first_fit(np.ascontiguousarray(sizes[others]), capacities, apart):
            settled = np.zeros(len(sizes), np.int64)
            settled[others] = apart + some
            return core, some, settled
    return everything, state.rails, np.zeros(len(sizes), np.int64)
