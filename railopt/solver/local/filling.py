"""Steps that look for an assignment: rails re-split, and rails filled up to the bound."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.kernels import seeded
from railopt.solver.local import fill, values
from railopt.solver.local.state import LocalState

BUDGET_S = 0.03  # what looking for a perfect assignment may take at first
FEWEST, SHORT, LONG = 12, 28, 52  # jobs left to the exact search at the end of a filling


def resplits(state: LocalState, start: Ints) -> None:
    """Re-split rails of an assignment while that helps."""
    width, assignment = pool_width(state.sizes), start.copy()
    loads = values.loads_of(state.sizes, assignment, state.rails)
    round_s = 4e-9 * len(state.sizes) + 4e-8 * (1 << (width + 1) // 2)
    rounds = max(1, state.deadline.afford(100 * state.rails, 1 / round_s))
    capacities, draws = state.capacities(state.bound), seeded(state.seed)
    fill.resplit(state.sizes, capacities, state.speeds, rounds, width, assignment, loads, draws)
    state.improve(assignment, "re-split")


def pool_width(sizes: Ints) -> int:
    """How many jobs make a pool dense enough in subset sums to hit any target."""
    return int(min(30, max(12, np.ceil(np.log2(sizes.mean())) + 9)))


def perfect(state: LocalState, budget_s: float = BUDGET_S) -> None:
    """Attempts to attain the bound, by rising number of rails left to the exact search, until one
    does or no time is left; at first not for long where the LP may raise the bound, which on rails
    of several speeds takes longer.
    """
    part = 3 if state.lp is not None and state.equal_rails else 1
    sizes, rails, stop = state.sizes, state.rails, state.deadline.within(budget_s / part)
    capacities, found = state.capacities(state.bound), np.empty(len(sizes), np.int64)
    width, rng = pool_width(sizes), np.random.default_rng(state.seed)
    draws = seeded(state.seed)
    for keep in cycle(_kept_rails(len(sizes) / rails, rails)):
        order = np.arange(rails) if state.equal_rails else rng.permutation(rails)
        if fill.fill(sizes, capacities[order], keep, width, draws, found):
            state.improve(order[found], "filling")
        if state.over() or stop.over:
            return


def _kept_rails(average: float, rails: int) -> list[int]:
    """How many rails each attempt of a turn leaves to the exact search, `average` jobs per rail;
    few are tried more often.
    """
    fewest = FEWEST if average < 8 else 0
    keeps = [keep for keep in range(1, rails + 1) if fewest <= keep * average <= LONG]
    keeps = keeps or [min(rails, 2 if average < 6 else 1)]
    return [keep for keep in keeps for _ in range(8 if keep * average <= SHORT else 2)]
