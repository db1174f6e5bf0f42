"""The coupled problem: all senders and receivers at once, in steps of railopt's own or by one
foreign back-end (`ask.py`).

Value and bound approach each other by rising cost, and the race ends as soon as they meet:

    1  the closed-form bounds of all nodes, which the race begins with; lpt-global, repaired by a
       short search aimed at the bound
    2  the fluid bound where NICs differ, also in whole chunks; rails that share their chunks anew
       to the last byte; a short search from a new start
    3  exact local optima of the critical nodes: better bounds, and rails around which the other
       nodes are arranged
    4  what the tightest senders and receivers rule out together
    5  3 with more time and searches from new starts, until the time is up

Every bound has a witness that the checker re-checks, unless that is too much work for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.arrays import Bools, Ints, Rails, require_type, whole_number
from railopt.base.errors import InputError, NotProved
from railopt.base.extras import installed, missing
from railopt.base.kernels import compile_mode
from railopt.base.units import INT64_MAX, parse_number, quoted, time_limit
from railopt.evidence.bounds import lower_bound
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import SIDES, Plan
from railopt.policies.common import check_alive
from railopt.policies.longest_first import lpt_global
from railopt.solver.coupled import ask, nodes
from railopt.solver.coupled.race import INTERRUPTED, Outcome, Progress, Race
from railopt.solver.coupled.search import SIDE, anchor, construct, even_out, improve
from railopt.solver.local.steps import failure
from railopt.solver.program.backends import BACKENDS

FIRST_STEPS, ANCHORED_STEPS = 64, 1000
ROUND_STEPS = 100  # of the first search from a new start; each has as many more
ROUNDS = 400  # of re-splits at a time, 0.1 ms each
LEAST_STEPS = 16  # of a walk, however little time is left
LOCAL_S = 2.0  # the most that one node's exact optimum may take at first
CHUNK_SUMS = 0.1  # share of the time for the fluid bound in whole chunks
SETS, SET_STEPS = 100, 250_000  # of sides together, and steps of the checker for each


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
    limit_s = time_limit(limit_s)
    if not limit_s > 0:
        raise InputError(f"a time limit of {limit_s} s: expected more than 0")
    compile_mode()  # a wrong RAILOPT_COMPILE is an error, and no step that failed
    if backend not in ("native", *BACKENDS):
        raise InputError(
            f"unknown back-end {quoted(backend)}; known: native, {', '.join(BACKENDS)}"
        )
    check_alive(fabric, chunks)
    race = Race(fabric, chunks, limit_s, seed, close, report)
    if start is not None:
        if start.fabric != fabric or start.chunks != chunks:
            raise InputError("the plan to start from is of another fabric or other chunks")
        race.offer(start.rail, start.makespan, start.policy)
    return run_race(race, backend)


def run_race(race: Race, backend: str = "native") -> Outcome:
    """As `solve`, for a race with a clock, a plan or a bound of its own."""
    if not len(race.chunks):
        race.rail, race.value, race.plan_by = np.empty(0, np.int16), Fraction(0), "no chunks"
        return race.outcome()
    try:
        if not race.bound:
            guarded(race, _closed_form)
        if backend == "native":
            native(race)
        else:
            ask.foreign(race, backend)
    except KeyboardInterrupt:
        race.note(INTERRUPTED)
    return race.outcome()


def _closed_form(race: Race) -> None:
    """The best closed-form bound of all nodes, which every back-end begins with."""
    best = lower_bound(race.fabric, race.chunks)
    race.lift(best.value, best.lifted, best.witness["kind"])


def native(race: Race) -> None:
    """All steps, until the race is over."""
    attempt(race, _start)
    if not race.over:
        _go_on(race)


def attempt(race: Race, step: Callable[..., None], *args: Any) -> None:
    """A step, unless the race is over."""
    if not race.over:
        guarded(race, step, *args)


def guarded(race: Race, step: Callable[..., None], *args: Any) -> None:
    """A step; if it fails, for whatever reason, a note says so and what the others found stays."""
    try:
        step(race, *args)
    except Exception as error:
        race.note(failure(step.__name__, error))


def _go_on(race: Race) -> None:
    """Steps 2 to 5."""
    attempt(race, _fluid)
    attempt(race, _chunk_sums)
    attempt(race, _restart, 1)
    attempt(race, _even_out)
    attempt(race, _nodes, LOCAL_S)
    guarded(race, _joint)  # even where value and an unchecked bound have met
    if not race.over and not installed("ortools"):
        race.note(missing("ortools", "what is left of the gap (linear programs)"))
    for turn in itertools.count(1):
        if race.over:
            return
        attempt(race, _nodes, LOCAL_S * 2 ** min(turn, 20))
        attempt(race, _restart, 1 + turn)


def _start(race: Race) -> None:
    """lpt-global, and repaired towards the bound."""
    plan = lpt_global(race.fabric, race.chunks)
    race.offer(plan.rail, plan.makespan, "lpt-global")
    if not race.over:
        _search(race, FIRST_STEPS, plan.rail, "lpt-global and search")


def _fluid(race: Race) -> None:
    """The fluid bound, which is better only where NICs differ."""
    if race.fabric.is_uniform or not installed("ortools"):
        return
    from railopt.solver.fluid import fluid_bound

    race.tell("fluid bound")
    try:
        bound, witness = fluid_bound(race.fabric, race.chunks, limit_s=max(0.1, race.left_s))
    except NotProved:
        return
    race.lift(bound, witness, "fluid")


def _chunk_sums(race: Race) -> None:
    """The fluid bound in whole chunks, which is better only where NICs differ."""
    if race.fabric.is_uniform or not installed("ortools"):
        return
    from railopt.solver.coupled import chunk_sums

    race.tell("whole chunks")
    deadline = race.deadline.within(CHUNK_SUMS * race.limit_s)
    found = chunk_sums.last_refuted(race.cells, race.bound, race.value, deadline)
    if found is not None:
        race.lift(*found, "whole chunks")


def _search(race: Race, steps: int, start: Rails, by: str, locked: Bools | None = None) -> None:
    """Improve a plan, aimed at the bound, in as many of the steps as the time left allows."""
    if race.step_s and race.step_s * steps > race.left_s:
        steps = max(LEAST_STEPS, int(race.left_s / race.step_s))
    began = race.time_s
    rail, value = improve(
        race.cells,
        start,
        race.bound,
        tolerance=race.tolerance,
        steps=steps,
        seed=race.seed,
        locked=locked,
    )
    race.step_s = max((race.time_s - began) / steps, race.step_s / 2)
    race.seed += 1
    race.offer(rail, value, by)


def _even_out(race: Race) -> None:
    """The best plan with rails that share their chunks anew, to the last byte."""
    assert race.rail is not None
    cells, aim = race.cells, race.bound * (1 + race.tolerance)
    rail = even_out(cells, race.rail, aim, ROUNDS, race.seed)
    race.seed += 1
    race.offer(rail, cells.value(cells.loads(rail)), "re-split")


def _restart(race: Race, round_: int) -> None:
    """The search from a plan that takes the chunks in a jittered order, each third time from the
    best plan.
    """
    race.tell("search")
    steps = ROUND_STEPS * round_
    assert race.rail is not None
    if round_ % 3 == 0:
        _search(race, steps, race.rail, "search")
        return
    rng = np.random.default_rng([race.seed, round_])
    jitter = 0.1 * rng.random(len(race.cells.chunks))
    order = np.argsort(-race.cells.chunks.size * (1 - jitter), kind="stable")
    _search(race, steps, construct(race.cells, race.bound, order), "search from a new start")


def _nodes(race: Race, limit_s: float) -> None:
    """Exact local optima of the nodes that could raise the bound, each an anchor for the others;
    those known are left out.
    """
    for side, node in critical_sides(race):
        if race.over:
            return
        race.tell(f"node {node} {side}")
        limit = min(limit_s, race.left_s / 2)
        found, proof, checkable = nodes.optimum(
            race.cells, side, node, limit, race.deadline, race.seed, race.needed
        )
        for text in found.notes:
            race.note(f"node {node} {side}: {text}")
        if checkable:
            witness = {"kind": "node", "node": node, "side": side, "witness": dict(proof.witness)}
            race.lift(proof.bound, witness, f"local {proof.witness['kind']}")
        else:
            by = f"railopt's exact search at node {node} {side}, which the checker did not check"
            race.lift_unchecked(proof.bound, by)
        if found.value <= max(proof.bound, race.bound):
            race.done.add((side, node))
        if found.value < race.value and not race.over:
            _anchored(race, side, node, found.assignment, max(found.value, race.bound))


def _anchored(race: Race, side: str, node: int, rails: Ints, aim: Fraction) -> None:
    """A plan around a node's arrangement, which takes `aim` seconds at most, and a search that
    leaves that alone.
    """
    rail, locked = anchor(race.cells, aim, side, node, rails, race.seed)
    race.offer(rail, race.cells.value(race.cells.loads(rail)), "anchored")
    if not race.met:
        _search(race, ANCHORED_STEPS, rail, "anchored search", locked)


def _by_load(race: Race) -> Iterator[tuple[str, int]]:
    """(side, node) of the nodes with chunks, the most loaded first."""
    cells = race.cells
    for place in np.argsort(-cells.mean.ravel(), kind="stable").tolist():
        if cells.total.flat[place]:
            row, node = divmod(place, cells.fabric.nodes)
            yield SIDES[row], node


def critical_sides(race: Race) -> Iterator[tuple[str, int]]:
    """(side, node) whose local optimum may exceed the bound, the most loaded first: those that are
    not done by then in the best plan.
    """
    assert race.rail is not None
    cells, load = race.cells, race.cells.loads(race.rail)
    late = np.any(load > cells.capacity(race.bound), axis=2)
    for side, node in _by_load(race):
        if late[SIDE[side], node] and (side, node) not in race.done:
            yield side, node


def _joint(race: Race) -> None:
    """Whether several sides together leave no faster plan."""
    from railopt.solver.coupled import joint

    if race.rail is not None and race.value > race.bound * (1 + race.tolerance):
        race.tell("several sides together")
        witness = joint.refute(race.cells, race.value, SETS, SET_STEPS, race.deadline)
        if witness is not None:
            race.lift(race.value, witness, "joint")
