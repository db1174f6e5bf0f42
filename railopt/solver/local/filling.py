"""Steps that look for an assignment: rails re-split, and rails filled up to the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from railopt.arrays import Ints
from railopt.solver.local import fill, subsets, values
from railopt.solver.local.remainders import filled, suits
from railopt.solver.local.state import State

SPARSE = 7.0  # jobs a rail up to which sparse fillings are tried too
SPARSE_WORK = 20_000_000  # rails * jobs^2 up to which these are quick
BUDGET_S = 0.03  # what looking for a perfect assignment may take at first
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
    stop = state.deadline.within(budget_s / part)
    for attempt in fittings(state):
        before_s = state.deadline.left_s
        if before_s < state.attempt_s or attempt() or state.over() or stop.over:
            return
        state.attempt_s = max(state.attempt_s, before_s - state.deadline.left_s)


def fittings(state: State) -> Iterator[Callable[[], bool]]:
    """Endless attempts to attain the bound, by rising number of rails left to the exact search."""
    part, rails, settled = tight_part(state)
    sizes, average = np.ascontiguousarray(state.sizes[part]), len(part) / rails
    width = pool_width(sizes)
    fewest = 12 if average < 8 else 0
    keeps = [keep for keep in range(1, rails + 1) if fewest <= keep * average <= 52]
    keeps = keeps or [min(rails, 2 if average < 6 else 1)]
    subsets.seeded(state.seed)
    rng, capacities = np.random.default_rng(state.seed), state.capacities(state.bound)[:rails]

    def attempt(keep: int, sparse: bool) -> bool:
        order = np.arange(rails) if state.alike else rng.permutation(rails)
        found = np.zeros(len(part), np.int64)
        filling = fill.Filling(sizes, capacities[order], keep, width, sparse)
        if not fill.fit(filling, 1, found):
            return False
        assignment = settled.copy()
        assignment[part] = order[found]
        state.improve(assignment, "filling")
        return state.done

    few = average <= SPARSE and rails * len(sizes) ** 2 <= SPARSE_WORK
    while True:
        for keep in keeps:
            jobs = keep * average
            if few:
                yield from [partial(attempt, keep, True)] * (8 if jobs <= 38 else 2 * (jobs <= 44))
            if not few or jobs <= 28:
                yield from [partial(attempt, keep, False)] * (8 if jobs <= 28 and not few else 2)


def tight_part(state: State) -> tuple[Ints, int, Ints]:
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
        apart, capacities = np.zeros(len(others), np.int64), state.capacities(state.bound)[some:]
        if values.first_fit(np.ascontiguousarray(sizes[others]), capacities, apart):
            settled = np.zeros(len(sizes), np.int64)
            settled[others] = apart + some
            return core, some, settled
    return everything, state.rails, np.zeros(len(sizes), np.int64)
