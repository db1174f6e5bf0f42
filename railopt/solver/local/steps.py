"""The steps, by rising cost: each raises the bound or improves the value.

Every time below the optimum T* is refuted by some witness, and the last rail of every assignment is
done at T* or later; the search ends where the two meet, or when its time is up.  A step that raises
an exception leaves a note, and the other steps go on.

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
from railopt.solver.local import values
from railopt.solver.local.exact import Windows, affordable_half, decide_times
from railopt.solver.local.filling import perfect, resplits
from railopt.solver.local.prices import (
    configuration_lp,
    easy_first_prices,
    first_prices,
)
from railopt.solver.local.state import LARGEST, LocalState

Step = Callable[[LocalState], None]
DIFFERENCES = 1 << 22  # jobs x rails that differencing keeps lists of
MOST_EXACT = 128  # jobs of which all loads are listed
EXACT_LOADS = tuple(1000 << doubling for doubling in range(9))


def search(state: LocalState, steps: Sequence[Step]) -> None:
    """Every step in turn while bound and value differ and time is left."""
    if not len(state.sizes):
        return
    first_bound_and_value(state)
    if state.rails * state.total >= LARGEST:
        state.notes.append(
            f"{state.total} units on {state.rails} rails are more than the exact search takes "
            f"(2**59 / rails): LPT and the bound by sums alone"
        )
        return
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


def first_bound_and_value(state: LocalState) -> None:
    """The bound by sums and counts, and LPT."""
    common = lcm(*state.ticks)
    bound, witness = local_bound(state.sizes, [common // ticks for ticks in state.slowness])
    state.refuted(int(bound * common) - 1, witness, str(witness["kind"]))
    state.improve(values.lpt(state.sizes, state.speeds), "lpt")


def constructions(state: LocalState) -> None:
    """Differencing, and re-splits of the better one."""
    few = len(state.sizes) <= 1200 and len(state.sizes) * state.rails <= DIFFERENCES
    if few and state.equal_rails and not state.done:
        state.improve(values.differencing(state.sizes, state.rails), "differencing")
    if not state.over():
        resplits(state, state.assignment)


def full_search(state: LocalState) -> None:
    """Exact search, perfect filling, the LP and re-splits in turn, with ever larger limits, while
    time is left.
    """
    windows, steps, budget_s = None, 200_000_000, 0.1
    if len(state.sizes) <= MOST_EXACT:
        half = affordable_half(state.deadline)
        windows = Windows(state.sizes, state.capacities(state.value - 1), half)
    while not state.over():
        state.seed += 1
        if windows is not None and windows.usable:
            exact_search(state, windows, steps)
        if not state.over():
            perfect(state, budget_s)
        if not state.over():
            configuration_lp(state)
        if not state.over():
            resplits(state, state.assignment)
        steps, budget_s = 4 * steps, 2 * budget_s


def exact_search(state: LocalState, windows: Windows, steps: int) -> None:
    """Decide times among few loads per rail, then among more."""
    for limit in EXACT_LOADS:
        if not state.over():
            decide_times(state, windows, limit, steps)


STEPS: tuple[Step, ...] = (
    constructions,
    easy_first_prices,
    perfect,
    configuration_lp,
    full_search,
)
# those whose bounds are weights, which are short to check; they do not go on until the time is up
BY_WEIGHTS: tuple[Step, ...] = (first_prices, configuration_lp)


def sorted_units(sizes: Ints) -> tuple[Ints, Ints, int]:
    """(order by falling size, sizes so ordered in units, the unit: their common divisor)."""
    order = np.argsort(-sizes, kind="stable")
    unit = int(np.gcd.reduce(sizes)) if len(sizes) else 1
    return order, np.ascontiguousarray(sizes[order]) // unit, unit
