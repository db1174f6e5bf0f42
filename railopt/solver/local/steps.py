"""The steps, by rising cost: each lifts the bound or improves the value.

Every time below the optimum T* is refuted by some witness, and every assignment's last rail is done
at T* or later; the search ends where the two meet, or when its time is up.  A step that fails for
whatever reason leaves a note, and the others go on.

Rails are equal, and then a time is a capacity of all of them, or of several classes: within a time
each class has a capacity of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import printable
from railopt.evidence.bounds import local_bound
from railopt.solver.local import apart, dual, values
from railopt.solver.local.exact import (
    HALF,
    Windows,
    affordable_half,
    cover_witness,
    decide_times,
)
from railopt.solver.local.filling import closer, mostly_caps, perfect, resplits
from railopt.solver.local.prices import (
    MOST_A_RAIL,
    configuration_lp,
    dives,
    dual_witness,
    easy_prices_at_the_value,
    prices_at_the_value,
    quickly_sifted,
    resumed_lp,
    sifted_search,
)
from railopt.solver.local.state import State

Step = Callable[[State], None]
SINGLE = 1 << 14  # sets in each half of those that `single_jobs` lists at most
DIFFERENCES = 1 << 22  # jobs x rails that differencing keeps lists of
KNOWN_JOBS = 400  # jobs up to which L2 and Fekete-Schepers are asked
MEDIUM = 256_000  # loads at the bound up to which `medium_search` is tried
SUM_BITS = 1 << 28  # work of listing all subset sums as one integer
FAR = 200  # an assignment is far from the bound beyond 1/FAR of it
CLOSER_S = 0.1  # for a better one then


def search(state: State, steps: Sequence[Step]) -> None:
    """Every step in turn while bound and value differ and time is left."""
    if not len(state.sizes):
        return
    first_bound_and_value(state)
    for step in steps:
        if state.over():
            return
        try:
            step(state)
        except Exception as error:  # whatever a step breaks on, what the others found stays
            state.notes.append(failure(step.__name__, error))


def failure(step: str, error: Exception) -> str:
    """One sentence on a step that failed."""
    said = printable(str(error).strip(), 200) or "it said nothing"
    return f"the step {step.strip('_').replace('_', ' ')} failed ({type(error).__name__}: {said})"


def first_bound_and_value(state: State) -> None:
    """The bound by sums and counts, and LPT."""
    common = lcm(*state.ticks)
    bound, witness = local_bound(state.sizes, [common // ticks for ticks in state.slowness])
    state.refuted(int(bound * common) - 1, witness, str(witness["kind"]))
    if state.alike:
        state.improve(values.lpt(state.sizes, state.rails), "lpt")
    else:
        speeds = np.array([state.slowness[0] / ticks for ticks in state.slowness])
        state.improve(values.lpt_by_speed(state.sizes, speeds), "lpt")


def constructions(state: State) -> None:
    """MULTIFIT, differencing, and re-splits of the better one."""
    multifit(state)
    few = len(state.sizes) <= 1200 and len(state.sizes) * state.rails <= DIFFERENCES
    if few and state.alike and not state.done:
        state.improve(values.differencing(state.sizes, state.rails), "differencing")
    if not state.over():
        resplits(state, state.assignment)
    if not state.over() and state.alike and len(state.sizes) > 3 * state.rails:
        resplits(state, values.counted(state.sizes, state.rails))


def multifit(state: State) -> None:
    """First fit at times bisected between bound and value."""
    low, high, found = state.bound, state.value - 1, np.zeros(len(state.sizes), np.int64)
    while low <= high and not state.deadline.over:
        middle = (low + high) // 2
        if values.first_fit(state.sizes, state.capacities(middle), found):
            state.improve(found, "multifit")
            high = min(middle, state.value) - 1
        else:
            low = middle + 1


def far_from_the_bound(state: State) -> None:
    """A better assignment before the proofs begin, where the best one is far from the bound: each
    of them has to exclude all that lies between.
    """
    if FAR * (state.value - state.bound) > state.bound:
        closer(state, CLOSER_S)


def known_weights(state: State) -> None:
    """L2 and Fekete-Schepers."""
    if len(state.sizes) > KNOWN_JOBS or not state.alike or not state.fits:
        return
    capacity = int(dual.known_bound(state.sizes, state.rails, state.bound, state.value - 1)) - 1
    weights = np.zeros(len(state.sizes), np.int64)
    if capacity >= state.bound and dual.known_weights(state.sizes, state.rails, capacity, weights):
        state.refuted(capacity, dual_witness(state, state.sizes, weights), "L2")


def single_jobs(state: State) -> None:
    """A job that leaves little room on its rail has few loads: times within which none of them is
    full enough are refuted.
    """
    sizes, most = state.sizes, state.capacities(state.value)
    for job in range(min(state.rails, len(sizes)) if state.fits else 0):
        own, low, high = int(sizes[job]), state.bound, state.value
        others = np.delete(sizes, job)
        rooms = np.maximum(0, most - own)
        windows = Windows(others[others <= rooms.max()], rooms, SINGLE)
        if not windows.usable or state.over():
            return  # nor will those of smaller jobs be
        while low < high:
            middle = (low + high) // 2
            if has_load(state, windows, own, middle):
                high = middle
            else:
                low = middle + 1
        if low > state.bound:
            witness = cover_witness([[own * state.unit, 0]])
            state.refuted(low - 1, witness, f"loads of job {job + 1}")


def has_load(state: State, windows: Windows, own: int, time: int) -> bool:
    """Whether a rail's load within `time` may have a job of size `own`, the others from
    `windows`.
    """
    slack = state.slack(time)
    return any(
        capacity >= own and windows.between(capacity - slack - own, capacity - own, 0) > 0
        for capacity in state.class_capacities(time).tolist()
    )


def subset_sums(state: State) -> None:
    """The fullest rail's load is a sum of some jobs: the first such sum from the bound on is a
    bound too.
    """
    if not state.alike or state.value * len(state.sizes) > SUM_BITS or len(state.sizes) > 40:
        return
    sums, mask = 1, (1 << state.value) - 1
    for size in state.sizes.tolist():
        sums |= (sums << size) & mask
    above = sums >> state.bound
    reached = state.bound + (above & -above).bit_length() - 1 if above else state.value
    if reached > state.bound:
        base = {**state.witness}
        witness = {"kind": "subset", "from": state.bound * state.unit, "base": base}
        state.refuted(reached - 1, witness, "subset sums")


def large_jobs_apart(state: State) -> None:
    """Where jobs are too large to share a rail, all steps for the others alone; what these jobs
    waste is a bound that others may not lift by themselves.
    """
    alone = apart.too_large(state)
    if alone:
        single_jobs(state)
    if alone and not state.over():
        others = apart.others_of(state, alone)
        search(others, STEPS)
        apart.take(state, others, alone)


def small_search(state: State) -> None:
    """Exact at once where few loads are possible."""
    if len(state.sizes) <= 64:
        capacities = state.capacities(state.value - 1)
        windows = Windows(state.sizes, capacities, 1 << 12)
        if windows.usable and windows.count(capacities, 3000) <= 3000:
            decide_times(state, windows, 3000, 4_000_000, bisect=False)


def medium_search(state: State) -> None:
    """Exact where the sets of each half of the jobs are quickly listed, and few enough of them are
    loads at the bound.
    """
    if len(state.sizes) > 48:
        return
    half = affordable_half(1 << 20, state.deadline)
    windows = Windows(state.sizes, state.capacities(state.value - 1), half)
    if not windows.usable or windows.count(state.capacities(state.bound), MEDIUM) > MEDIUM:
        return
    for doubling in range(9):
        if not state.over():
            decide_times(state, windows, 1000 << doubling, 2_000_000_000)


def late_prices(state: State) -> None:
    """The LP where it was not asked before: the exact search was thought quicker, and had too many
    loads.
    """
    if state.lp is None and len(state.sizes) <= min(48, MOST_A_RAIL * state.rails):
        for step in (prices_at_the_value, quickly_sifted, configuration_lp, sifted_search):
            if not state.over():
                step(state)


def full_search(state: State) -> None:
    """The LP where it was not done, perfect filling, dives and exact search in turn, with ever
    larger limits, while time is left.
    """
    windows, limit, steps, budget_s = None, 1000, 20_000_000, 0.1
    while not state.over():
        state.seed += 1
        resumed_lp(state)
        if not state.over():
            perfect(state, budget_s)
        if not state.over():
            closer(state, budget_s)
        if not state.over():
            dives(state, 8)
        if not state.over():
            resplits(state, state.assignment)
        if len(state.sizes) <= 128 and not state.over():
            if windows is None:
                half = affordable_half(HALF, state.deadline)
                windows = Windows(state.sizes, state.capacities(state.value - 1), half)
            if windows.usable:
                decide_times(state, windows, limit, steps)
        limit, steps, budget_s = min(4 * limit, 200_000), 4 * steps, 2 * budget_s


STEPS: tuple[Step, ...] = (
    constructions,
    mostly_caps,
    large_jobs_apart,
    known_weights,
    single_jobs,
    small_search,
    subset_sums,
    easy_prices_at_the_value,
    perfect,
    far_from_the_bound,
    quickly_sifted,
    configuration_lp,
    sifted_search,
    medium_search,
    late_prices,
    full_search,
)
# those whose bounds are weights, which are short to check; they do not go on until the time is up
BY_WEIGHTS: tuple[Step, ...] = (mostly_caps, prices_at_the_value, configuration_lp)


def sorted_units(sizes: Ints) -> tuple[Ints, Ints, int]:
    """(order by falling size, sizes so ordered in units, the unit: their common divisor)."""
    order = np.argsort(-sizes, kind="stable")
    unit = int(np.gcd.reduce(sizes)) if len(sizes) else 1
    return order, np.ascontiguousarray(sizes[order]) // unit, unit
