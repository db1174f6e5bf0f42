"""The local problem, exactly: sizes and speeds in, what is known of them out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, lcm

import numpy as np

from railopt.base.arrays import Ints, check_total, frozen, whole_number
from railopt.base.errors import InputError
from railopt.base.kernels import wall_s
from railopt.base.units import INT64_MAX, quoted
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import MAX_RAILS
from railopt.solver.local import steps
from railopt.solver.local.deadline import Deadline, Now
from railopt.solver.local.outcome import LocalOutcome
from railopt.solver.local.state import LocalState

MAX_SPEED = 1 << 62  # bytes per second


def solve_local(
    sizes: Sequence[int] | Ints,
    rails: int | None = None,
    *,
    speeds: Sequence[int] | None = None,
    limit_s: float = 10.0,
    seed: int = 0,
    clock: Now = wall_s,
    chosen: Sequence[steps.Step] = steps.STEPS,
    needed: Fraction | None = None,
) -> LocalOutcome:
    """The best assignment of `sizes` (bytes, at least 1) to `rails` equal rails, or to rails of
    `speeds` (bytes per second, 0 = dead).

    The limit is in seconds of `clock`: for example `time.process_time` on a busy machine; by
    default wall-clock time in which nothing is compiled.  Deterministic for a seed as long as the
    limit does not cut it short.  `chosen` are the steps that it takes (`steps`).  A bound of
    `needed` seconds ends it, however far the value is.
    """
    seed = whole_number(seed, "seed", 0, INT64_MAX)
    deadline, began = Deadline.after(limit_s, clock), clock()
    given = frozen(sizes, np.int64, "sizes", 1)
    rates = _rates(given, rails, speeds)
    live = sorted((rail for rail, rate in enumerate(rates) if rate), key=lambda rail: -rates[rail])
    if len(given) and not live:
        raise InputError("sizes, but every rail is dead: nothing can carry them")
    order, units, unit = steps.sorted_units(given)
    common = lcm(*(rates[rail] for rail in live))
    slowness = [common // rates[rail] for rail in live] or [1]
    tick = Fraction(unit, common)
    ticks = None if needed is None else ceil(needed / tick)
    state = LocalState(units, slowness, unit, deadline, seed, ticks)
    steps.search(state, chosen)
    assignment = np.empty(len(given), np.int64)
    assignment[order] = np.array(live, np.int64)[state.assignment] if len(given) else 0
    status = Status.CLAIMED if state.done else Status.OPEN
    by = f"{state.bound_by}, {state.value_by}"
    return LocalOutcome(
        assignment,
        Bracket(state.value * tick, state.bound * tick, status, state.witness, by),
        clock() - began,
        (given, rates),
        tuple(state.notes),
    )


def _rates(given: Ints, rails: int | None, speeds: Sequence[int] | None) -> list[int]:
    """The speed of each rail, once sizes, rails and speeds are known to be what they should."""
    if (rails is None) == (speeds is None):
        raise InputError("give either rails or speeds")
    if len(given) and given.min() < 1:
        raise InputError(f"a size of {given.min()} bytes: expected at least 1")
    check_total(given)
    if rails is not None:
        return [1] * whole_number(rails, "rails", 1, MAX_RAILS)
    try:
        listed = [] if speeds is None else list(speeds)
    except TypeError as error:
        raise InputError(f"speeds = {quoted(speeds)}: expected one for each rail") from error
    rates = [whole_number(speed, "a speed (0 is a dead rail)", 0, MAX_SPEED) for speed in listed]
    if len(rates) > MAX_RAILS:
        raise InputError(f"{len(rates)} speeds: expected at most {MAX_RAILS}")
    return rates
