"""Steps that ask the configuration LP: its prices as witnesses, its columns as assignments."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.extras import installed
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import LocalState

MOST_TYPES, MOST_A_RAIL = 400, 12  # types, and jobs per rail, up to which pricing is easy
FEW_TYPES = 80  # types up to which it is easy with more jobs per rail, too
FIRST_S = 0.1  # what the LP may take at first


def dual_witness(state: LocalState, sizes: Ints, weights: Ints) -> Witness:
    """Weights int64 [k] of sizes int64 [k], in units, as [bytes, weight] by falling size."""
    pairs = {
        int(size) * state.unit: int(weight)
        for size, weight in zip(sizes, weights, strict=True)
        if weight
    }
    listed = [[size, weight] for size, weight in sorted(pairs.items(), reverse=True)]
    return {"kind": "dual", "weights": listed}


def easy_first_prices(state: LocalState) -> None:
    """`first_prices`, where loads of few jobs, or few types, keep the LP's pricing easy."""
    types, average = len(np.unique(state.sizes)), len(state.sizes) / state.rails
    varied = average > (3.5 if state.equal_rails else 7.0) and types > 0.7 * len(state.sizes)
    short = types <= MOST_TYPES and average <= MOST_A_RAIL and not varied
    few = types <= FEW_TYPES and 2 * types < len(state.sizes)
    if short or few:
        first_prices(state)


def first_prices(state: LocalState) -> None:
    """Often the LP shows at once that the value is optimal, or the bound that is needed."""
    if not installed("ortools"):
        return
    from railopt.solver.local import lp  # with OR-Tools, which most problems never need

    types, counts = np.unique(state.sizes, return_counts=True)
    start = lp.start(types, state.sizes, state.assignment, state.rails)
    state.lp = lp.ConfigurationLP(types, counts, state.class_rails, start)
    time = state.needed - 1
    below = state.class_capacities(time)
    weights = state.lp.refute(below, state.deadline.within(FIRST_S))
    if weights is not None:
        state.refuted(time, dual_witness(state, types, weights), "configuration LP")


def configuration_lp(state: LocalState) -> None:
    """The configuration LP's bound, and dives for an assignment that attains it."""
    if state.lp is not None:
        lp_bound(state, state.deadline.within(max(1.0, 0.3 * state.deadline.left_s)))
        dives(state)


def lp_bound(state: LocalState, deadline: Deadline) -> None:
    """The latest time that the LP refutes, by bisection between the bound and what is needed."""
    assert state.lp is not None
    high, probe = state.needed - 1, state.bound
    while state.bound <= high and not deadline.over:
        weights = state.lp.refute(state.class_capacities(probe), deadline)
        if weights is None:
            high = probe - 1
        else:
            witness = dual_witness(state, state.lp.sizes, weights)
            state.refuted(probe, witness, "configuration LP")
        probe = (state.bound + high) // 2


def dives(state: LocalState) -> None:
    """Dive at the bound, then ever higher while it fails."""
    step = 0
    while state.lp is not None and not state.over() and state.bound + step < state.value:
        dive(state, state.bound + step)
        step = 2 * step + state.ticks[0]


def dive(state: LocalState, time: int) -> None:
    """An attempt to find an assignment that is done within `time`, by the LP's columns."""
    from railopt.solver.local.lp import assignment_of

    assert state.lp is not None
    rng = np.random.default_rng(state.seed)
    keep = max(2, min(state.rails, int(28 * state.rails / len(state.sizes))))
    loads = state.lp.dive(state.class_capacities(time), keep, rng, state.deadline)
    if loads is not None:
        state.improve(assignment_of(state.sizes, state.lp.sizes, loads), "LP dive")
