"""The coupled problem: all senders and receivers at once.

The steps are those of `steps.py`, or one foreign back-end (`ask.py`); both are imported only once
an interrupt can no longer lose what is known.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from railopt.base.arrays import require_type, whole_number
from railopt.base.errors import InputError
from railopt.base.kernels import compile_mode
from railopt.base.units import INT64_MAX, parse_number, quoted
from railopt.evidence.bounds import lower_bound
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.common import check_alive
from railopt.solver.coupled.race import Progress, Race
from railopt.solver.local.deadline import time_limit
from railopt.solver.outcome import Outcome
from railopt.solver.program.backends import BACKENDS


def solve(
    fabric: Fabric,
    chunks: Chunks,
    limit_s: float = 10.0,
    backend: str = "native",
    *,
    seed: int = 0,
    tolerance: Fraction | float = 0,
    start: Plan | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Outcome:
    """The best plan within `limit_s` seconds, the best bound, and how they are known.

    backend    "native", or one foreign solver with the plain integer program: "cpsat", "pulp",
               "highs", "scipy"
    tolerance  stop when (value - bound) / bound is at most this; 0 stops at the optimum only
    start      a plan of these chunks that is known already
    report     called with a Progress whenever value or bound improve, or a longer step begins

    The time in which kernels are compiled or loaded does not count.  An interrupt (Ctrl-C) ends the
    race; the best so far is returned, with "interrupted" among the notes.  So are steps that
    failed: what the others know stays.  Infeasible is raised where some chunk has no living rail.

        >>> from railopt import Fabric, solve, units, workloads
        >>> fabric = Fabric.uniform(nodes=4, rails=2)
        >>> found = solve(fabric, workloads.moe(fabric, skew=0.8, seed=1).chunks("4MiB"))
        >>> units.format_time(found.value), found.optimal
        ('2.031ms', True)
    """
    require_type(chunks, Chunks, "chunks", "chunks, e.g. traffic.chunks('1MiB')")
    require_type(fabric, Fabric, "fabric", "a Fabric")
    require_type(start, Plan | None, "start", "a Plan")
    if report is not None and not callable(report):
        raise InputError(f"report = {quoted(report)}: expected a function of a Progress")
    seed = whole_number(seed, "seed", 0, INT64_MAX)
    close = parse_number(tolerance, "tolerance")
    if close < 0:
        raise InputError(f"a tolerance of {quoted(tolerance)}: expected at least 0")
    race = Race(fabric, chunks, time_limit(limit_s), seed, close, report)
    return run_race(race, backend, start)


def run_race(race: Race, backend: str = "native", start: Plan | None = None) -> Outcome:
    """As `solve`, for a race with a clock or a bound of its own."""
    fabric, chunks = race.fabric, race.chunks
    compile_mode()  # a wrong RAILOPT_COMPILE is an error, and no step that failed
    if backend not in ("native", *BACKENDS):
        raise InputError(
            f"unknown back-end {quoted(backend)}; known: native, {', '.join(BACKENDS)}"
        )
    if not race.limit_s > 0:
        raise InputError(f"a time limit of {race.limit_s} s: expected more than 0")
    check_alive(fabric, chunks)
    if not len(chunks):
        race.rail, race.value, race.plan_by = np.empty(0, np.int16), Fraction(0), "no chunks"
        return race.outcome()
    if start is not None:
        if start.fabric != fabric or start.chunks != chunks:
            raise InputError("the plan to start from is of another fabric or other chunks")
        race.offer(start.rail, start.makespan, start.policy)
    with race.running():
        from railopt.solver.coupled import ask, steps

        race.began = race.clock()  # imports, of numba for one, are not part of the limit
        if not race.bound:
            steps.guarded(race, _closed_form)
        if backend == "native":
            steps.native(race)
        else:
            ask.foreign(race, backend)
    return race.outcome()


def _closed_form(race: Race) -> None:
    """The best closed-form bound of all nodes, which every back-end begins with."""
    race.lift_closed(lower_bound(race.fabric, race.chunks))
