"""The local problem, exactly: bounds and values by rising cost, until they meet or time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from railopt.arrays import frozen
from railopt.bounds_kernels import best_pigeonhole
from railopt.errors import InputError
from railopt.solver.local import dual, fill, subsets, values
from railopt.solver.local.cover import FOUND, REFUTED
from railopt.solver.local.exact import Windows
from railopt.solver.local.outcome import LocalOutcome, Witness

if TYPE_CHECKING:
    from railopt.solver.local.lp import ConfigurationLP

Ints = npt.NDArray[np.int64]
Clock = Callable[[], float]
SIFTED = 400_000  # loads that `sifted_search` lists at most
SINGLE = 1 << 14  # sets in each half of those that `single_jobs` lists at most
SPARSE = 7.0  # jobs a rail up to which sparse fillings are tried too


def solve_local(
    sizes: Sequence[int] | Ints,
    rails: int | None = None,
    *,
    speeds: Sequence[int] | None = None,
    limit_s: float = 10.0,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> LocalOutcome:
    """The best assignment of `sizes` (bytes, at least 1) to `rails` equal rails, or to rails of
    `speeds` (0 = dead).

    The limit is in seconds of `clock`: wall-clock time, or for example `time.process_time` on a
    busy machine. Deterministic for a seed as long as the limit does not cut it short.
    """
    start = clock()
    given = frozen(sizes, np.int64, "sizes", 1)
    if (rails is None) == (speeds is None):
        raise InputError("give either rails or speeds")
    if len(given) and (given.min() < 1 or float(given.sum(dtype=np.float64)) > 2.0**62):
        raise InputError("sizes: expected at least 1 byte each and less than 2**62 together")
    if speeds is not None:
        from railopt.solver.local.unequal import solve_unequal

        return solve_unequal(given, [int(speed) for speed in speeds], limit_s, seed, clock)
    assert rails is not None
    if rails < 1:
        raise InputError(f"{rails} rails: expected at least 1")
    order = np.argsort(-given, kind="stable")
    unit = int(np.gcd.reduce(given)) if len(given) else 1
    state = State(
        np.ascontiguousarray(given[order]) // (unit or 1),
        rails,
        unit or 1,
        start + limit_s,
        seed,
        clock,
    )
    run(state)
    assignment = np.empty(len(given), np.int64)
    assignment[order] = state.assignment
    return LocalOutcome(
        assignment,
        Fraction(state.value * unit),
        Fraction(state.bound * unit),
        state.witness,
        state.done,
        f"{state.bound_by}, {state.value_by}",
        clock() - start,
        (given, [1] * rails),
    )


class State:
    """The search so far, in units of the sizes' common divisor; sizes descend."""

    def __init__(
        self, sizes: Ints, rails: int, unit: int, deadline: float, seed: int, clock: Clock
    ) -> None:
        self.sizes, self.rails, self.unit, self.seed = sizes, rails, unit, seed
        self.deadline, self.clock = deadline, clock
        self.bound, self.bound_by = 0, "average"
        self.witness: Witness = {"kind": "average"}
        self.value, self.value_by, self.assignment = (
            int(sizes.sum()),
            "one rail",
            np.zeros(len(sizes), np.int64),
        )
        self.lp: ConfigurationLP | None = None

    @property
    def done(self) -> bool:
        return self.bound >= self.value

    def over(self) -> bool:
        """Whether bound and value meet or time is up."""
        return self.done or self.clock() >= self.deadline

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.deadline - self.clock()

    def improve(self, assignment: Ints, by: str) -> None:
        """Keep an assignment if it is better; its value is computed here, never taken from a
        search.
        """
        value = int(values.loads_of(self.sizes, assignment, self.rails).max())
        if value < self.value:
            self.value, self.value_by, self.assignment = value, by, assignment.copy()

    def refuted(self, capacity: int, witness: Witness, by: str) -> None:
        """Nothing fits within `capacity` units."""
        if capacity + 1 > self.bound:
            self.bound, self.bound_by = capacity + 1, by
            self.witness = (
                {**witness, "capacity": self.bound * self.unit - 1}
                if "jobs" not in witness
                else witness
            )


def run(state: State) -> None:
    """Every step in turn while bound and value differ and time is left."""
    if not len(state.sizes):
        return
    first_bound_and_value(state)
    for step in STEPS:
        if state.over():
            return
        step(state)


def first_bound_and_value(state: State) -> None:
    sizes, rails = state.sizes, state.rails
    bound, jobs, some = best_pigeonhole(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))), rails
    )
    state.refuted(
        int(bound) - 1, {"kind": "pigeonhole", "jobs": int(jobs), "rails": int(some)}, "pigeonhole"
    )
    state.improve(values.lpt(sizes, rails), "lpt")


def constructions(state: State) -> None:
    """MULTIFIT, differencing, and re-splits of the better one."""
    found = values.multifit(state.sizes, state.rails, state.bound, state.value - 1)
    if len(found):
        state.improve(found, "multifit")
    if len(state.sizes) <= 1200 and not state.done:
        state.improve(values.differencing(state.sizes, state.rails), "differencing")
    if not state.done:
        resplits(state, state.assignment)
    if not state.done and len(state.sizes) > 3 * state.rails:
        resplits(state, values.counted(state.sizes, state.rails))


def resplits(state: State, start: Ints) -> None:
    """Re-split rails of an assignment while that helps."""
    width, assignment = pool_width(state.sizes), start.copy()
    loads = values.loads_of(state.sizes, assignment, state.rails)
    subsets.seeded(state.seed)
    fill.resplit(state.sizes, assignment, loads, state.bound, 100 * state.rails, width)
    state.improve(assignment, "re-split")


def pool_width(sizes: Ints) -> int:
    """How many jobs make a pool dense enough in subset sums to hit any target."""
    return int(min(30, max(12, np.ceil(np.log2(sizes.mean())) + 9)))


def known_weights(state: State) -> None:
    """L2 and Fekete-Schepers."""
    if len(state.sizes) > 400:
        return
    capacity = int(dual.known_bound(state.sizes, state.rails, state.bound, state.value - 1)) - 1
    weights = np.zeros(len(state.sizes), np.int64)
    if capacity >= state.bound and dual.known_weights(state.sizes, state.rails, capacity, weights):
        state.refuted(capacity, dual_witness(state, state.sizes, weights), "L2")


def single_jobs(state: State) -> None:
    """A job that leaves little room on its rail has few loads: capacities at which none of them is
    full enough are refuted.
    """
    sizes, rails, total = state.sizes, state.rails, int(state.sizes.sum())
    for job in range(min(rails, len(sizes))):
        own, low, high = int(sizes[job]), state.bound, state.value
        others = np.delete(sizes, job)
        windows = Windows(others[others <= high - own], rails, high - own, SINGLE)
        if not windows.usable:
            return  # nor will those of smaller jobs be
        while low < high:
            middle = (low + high) // 2
            if windows.between(total - (rails - 1) * middle - own, middle - own, 0):
                high = middle
            else:
                low = middle + 1
        if low > state.bound:
            state.refuted(
                low - 1,
                {"kind": "cover", "weights": [[own * state.unit, 0]]},
                f"loads of job {job + 1}",
            )


def dual_witness(state: State, sizes: Ints, weights: Ints) -> Witness:
    pairs = {
        int(size) * state.unit: int(weight)
        for size, weight in zip(sizes, weights, strict=True)
        if weight
    }
    return {
        "kind": "dual",
        "weights": [[size, weight] for size, weight in sorted(pairs.items(), reverse=True)],
    }


def subset_sums(state: State) -> None:
    """The fullest rail's load is a sum of some jobs: the first such sum from the bound on is a
    bound too.
    """
    if state.value * len(state.sizes) > 1 << 28 or len(state.sizes) > 40:
        return
    sums, mask = 1, (1 << state.value) - 1
    for size in state.sizes.tolist():
        sums |= (sums << size) & mask
    above = sums >> state.bound
    reached = state.bound + (above & -above).bit_length() - 1 if above else state.value
    if reached > state.bound:
        base = {**state.witness}
        state.refuted(
            reached - 1,
            {"kind": "subset", "from": state.bound * state.unit, "base": base},
            "subset sums",
        )


def small_search(state: State) -> None:
    """Exact at once where few loads are possible."""
    if len(state.sizes) <= 64:
        windows = Windows(state.sizes, state.rails, state.value - 1, 1 << 12)
        if windows.usable and windows.count(state.value - 1, 3000) <= 3000:
            exact(state, windows, 3000, 4_000_000, bisect=False)


def perfect(state: State, budget: float = 0.03) -> None:
    """Look for an assignment that attains the bound; at first not for long where the LP may raise
    that.
    """
    stop = min(state.deadline, state.clock() + (budget if state.lp is None else budget / 3))
    for attempt in fittings(state):
        if attempt() or state.over() or state.clock() >= stop:
            return


def fittings(state: State) -> Iterator[Callable[[], bool]]:
    """Endless attempts to attain the bound, by rising number of rails left to the exact search."""
    part, rails, settled = tight_part(state)
    sizes, average = np.ascontiguousarray(state.sizes[part]), len(part) / rails
    width = pool_width(sizes)
    fewest = 12 if average < 8 else 0
    keeps = [keep for keep in range(1, rails + 1) if fewest <= keep * average <= 52] or [
        min(rails, 2 if average < 6 else 1)
    ]
    subsets.seeded(state.seed)

    def attempt(keep: int, sparse: bool, rounds: int) -> bool:
        found = np.zeros(len(part), np.int64)
        if not fill.fit(sizes, rails, state.bound, keep, width, sparse, rounds, found):
            return False
        assignment = settled.copy()
        assignment[part] = found
        state.improve(assignment, "filling")
        return state.done

    while True:
        for keep in keeps:
            jobs = keep * average
            if average <= SPARSE:
                yield from [partial(attempt, keep, True, 2)] * (
                    4 if jobs <= 38 else int(jobs <= 44)
                )
            if average > SPARSE or jobs <= 28:
                yield from [partial(attempt, keep, False, 2)] * (
                    4 if jobs <= 28 and average > SPARSE else 1
                )


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
        apart = values.multifit(
            np.ascontiguousarray(sizes[others]), rails - some, state.bound, state.bound
        )
        if len(apart):
            settled = np.zeros(len(sizes), np.int64)
            settled[others] = apart + some
            return core, some, settled
    return everything, state.rails, np.zeros(len(sizes), np.int64)


def prices_at_the_value(state: State) -> None:
    """Often the value is optimal and the configuration LP shows it at once.

    Only where loads of few jobs, or few types, keep its pricing easy.
    """
    types, counts = np.unique(state.sizes, return_counts=True)
    average = len(state.sizes) / state.rails
    if len(types) > 120 or average > 12 or (average > 3.5 and len(types) > 0.7 * len(state.sizes)):
        return
    from railopt.solver.local import lp

    state.lp = lp.ConfigurationLP(
        types, counts, state.rails, lp.start(types, state.sizes, state.assignment, state.rails)
    )
    weights = state.lp.refute(
        state.value - 1, min(state.deadline, state.clock() + 0.1), state.clock
    )
    if weights is not None:
        state.refuted(state.value - 1, dual_witness(state, types, weights), "configuration LP")


def configuration_lp(state: State) -> None:
    """The configuration LP's bound, and dives for an assignment that attains it."""
    if state.lp is None:
        return
    deadline = min(state.deadline, state.clock() + max(1.0, 0.3 * state.left))
    low, high, probe = state.bound, state.value - 1, state.bound
    while low <= high and state.clock() < deadline:
        weights = state.lp.refute(probe, deadline, state.clock)
        if weights is None:
            high = probe - 1
        else:
            low = probe + 1
            state.refuted(probe, dual_witness(state, state.lp.sizes, weights), "configuration LP")
        probe = (low + high) // 2
    dives(state, 8)


def sifted_search(state: State) -> None:
    """Exact search below the value, over the loads that the LP's prices leave."""
    if state.lp is None or len(state.sizes) > 64:
        return
    windows = Windows(state.sizes, state.rails, state.value - 1, 1 << 17)
    while windows.usable and not state.over() and windows.count(state.value - 1, SIFTED) <= SIFTED:
        capacity, weights = (
            state.value - 1,
            state.lp.weights(state.value - 1, state.deadline, state.clock),
        )
        if weights is None:
            return
        by_size = dict(zip(state.lp.sizes.tolist(), weights.tolist(), strict=True))
        decision = windows.decide(
            capacity, SIFTED, min(300_000_000, int(3e9 * state.left)), by_size
        )
        if decision.status == FOUND and decision.assignment is not None:
            state.improve(decision.assignment, "sifted cover")
        elif decision.status == REFUTED:
            pairs = [
                [size * state.unit, by_size[size]] for size in decision.rarest.tolist()
            ]  # the order of the kernel's search
            state.refuted(capacity, {"kind": "cover", "weights": pairs}, "sifted cover")
        else:
            return


def dives(state: State, attempts: int) -> None:
    """Dive at the bound, then ever higher while it fails."""
    if state.lp is None:
        return
    from railopt.solver.local.lp import assignment_of

    rng, keep = (
        np.random.default_rng(state.seed),
        max(2, min(state.rails, int(28 * state.rails / len(state.sizes)))),
    )
    step = 0
    while not state.over() and state.bound + step < state.value:
        for _ in range(attempts):
            loads = state.lp.dive(state.bound + step, keep, rng, state.deadline, state.clock)
            if loads is not None:
                state.improve(assignment_of(state.sizes, state.lp.sizes, loads), "LP dive")
                break
            if state.over():
                return
        step = 2 * step + 1


def exact(state: State, windows: Windows, limit: int, steps: int, bisect: bool = True) -> None:
    """Decide capacities between bound and value: as far up as `limit` loads allow, then, where that
    takes too long, by bisection.
    """
    ceiling = state.value - 1
    while not state.over():
        capacity = windows.largest(state.bound, min(ceiling, state.value - 1), limit)
        if capacity < state.bound:
            return
        decision = windows.decide(capacity, limit, min(steps, int(3e9 * state.left)))
        if decision.status == FOUND and decision.assignment is not None:
            before = state.value
            state.improve(
                decision.assignment, "exact cover"
            )  # small steps down would take long: then halve the gap
            ceiling = (
                state.value - 1
                if 8 * (before - state.value) > before - state.bound
                else (state.bound + state.value) // 2
            )
        elif decision.status == REFUTED:
            state.refuted(capacity, {"kind": "cover"}, "exact cover")
            ceiling = state.value - 1
        elif bisect and capacity > state.bound:
            ceiling = (state.bound + capacity) // 2
        else:
            return


def full_search(state: State) -> None:
    """Exact search, perfect filling and dives in turn, with ever larger limits, while time is
    left.
    """
    windows, limit, steps, budget = None, 1000, 20_000_000, 0.1
    while not state.over():
        state.seed += 1
        perfect(state, budget)
        if not state.over():
            dives(state, 8)
        if not state.over():
            resplits(state, state.assignment)
        if len(state.sizes) <= 128 and not state.over():
            windows = windows or Windows(state.sizes, state.rails, state.value - 1)
            if windows.usable:
                exact(state, windows, limit, steps)
        limit, steps, budget = min(4 * limit, 200_000), 4 * steps, 2 * budget


def medium_search(state: State) -> None:
    """Exact where the sets of each half of the jobs are quickly listed."""
    if len(state.sizes) <= 48:
        windows = Windows(state.sizes, state.rails, state.value - 1, 1 << 20)
        for doubling in range(9) if windows.usable else ():
            if not state.over():
                exact(state, windows, 1000 << doubling, 2_000_000_000)


STEPS: tuple[Callable[[State], None], ...] = (
    constructions,
    known_weights,
    single_jobs,
    small_search,
    subset_sums,
    prices_at_the_value,
    perfect,
    configuration_lp,
    sifted_search,
    medium_search,
    full_search,
)
