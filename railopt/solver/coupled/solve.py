"""The coupled problem: all senders and receivers at once.

Value and bound approach each other by rising cost, and the race ends as soon as they meet:

    1  the average bound of the most loaded node; lpt-global; that node's rails filled exactly where
       its chunks are mostly caps, and the others arranged around it; else lpt-global repaired by a
       short search aimed at the bound
    2  pigeonhole bounds of every node; the fluid bound where NICs differ; short searches from
       several starts
    3  exact local optima of the critical nodes: better bounds, and rails around which the other
       nodes are arranged
    4  what the tightest senders and receivers rule out together
    5  the integer program, with these bounds, the best plan as a hint and no symmetry, by CP-SAT; 4
       with more work for its optimum
    6  3 with more time, searches around new arrangements of the tightest nodes and from new starts,
       until the time is up

Every bound of 1 to 4 has a witness that the kernel re-checks; what only CP-SAT says is "claimed".
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from railopt import bounds
from railopt.arrays import Ints
from railopt.bounds import Witness
from railopt.chunks import Chunks
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import SIDES, Plan
from railopt.policies.common import check_alive
from railopt.policies.lpt import lpt_global
from railopt.solver.coupled import nodes
from railopt.solver.coupled.race import Clock, Progress, Race
from railopt.solver.coupled.search import Cells, Rails, anchor, construct, improve
from railopt.solver.outcome import Outcome
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run
from railopt.solver.program.program import build

FIRST_STEPS, SHORT_STEPS, LATER_STEPS = 64, 100, 1000
SHORT_ROUNDS = 8  # new starts before exact methods: many short walks find more than a long one
LOCAL_S = 2.0  # the most that one node's exact optimum may take at first
ANCHORS, ANCHOR_S = (
    4,
    0.25,
)  # nodes around which the others are arranged, and what one of them may take
CLOSE = 0.999  # to the largest load: such nodes are filled together
AROUND = 8  # such searches for one from a new start, which finds less
ILP_VARIABLES = 60_000  # beyond this CP-SAT has not helped within minutes
ILP_AFTER = 0.25  # share of the time before the integer program starts
ILP_LEAST_S = 2.0  # with less left it would not even start up
STEPS_A_SECOND = 12_000_000  # of the kernel
# what several sides rule out: after this share of the time, with so many steps of the kernel for
# each of so many sets of them
JOINT, JOINT_LAST = ((0.01, 250_000, 100), (0.1, 5_000_000, 4)), (10_000_000, 100)


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
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """The best plan within `limit_s` seconds, the best bound, and whether that is proved.

    backend    "native", or one foreign solver with the plain integer program: "cpsat", "pulp",
               "highs", "scipy"
    tolerance  stop when (value - bound) / bound is at most this; 0 stops at the optimum only
    start      a plan of these chunks that is known already
    clock      what the limit is measured with: wall-clock time, or for example `time.process_time`
               on a busy machine
    report     called with a Progress whenever value or bound improve

    The time in which numba compiles kernels, on a first run, does not count.  An interrupt (Ctrl-C)
    ends the race; the best so far is returned, with "interrupted" among the notes.
    """
    if backend != "native" and backend not in BACKENDS:
        raise InputError(f"unknown back-end {backend!r}; known: native, {', '.join(BACKENDS)}")
    if limit_s <= 0:
        raise InputError(f"a time limit of {limit_s} s: expected more than 0")
    try:
        check_alive(fabric, chunks)
    except InputError as error:
        if chunks.nodes != fabric.nodes:
            raise
        return Outcome(
            None,
            None,
            Fraction(0),
            "infeasible",
            {"kind": "claimed", "by": "railopt"},
            str(error),
            0.0,
        )
    race = Race(Cells(fabric, chunks), limit_s, seed, Fraction(tolerance), report, Clock(clock))
    if not len(chunks):
        race.rail, race.value, race.plan_by = np.empty(0, np.int16), Fraction(0), "no chunks"
        return race.outcome()
    if start is not None:
        if start.fabric != fabric or start.chunks != chunks:
            raise InputError("the plan to start from is of another fabric or other chunks")
        race.offer(start.rail, start.makespan, start.policy)
    with race.running():
        _native(race) if backend == "native" else _foreign(race, backend)
    return race.outcome()


def _native(race: Race) -> None:
    _start(race)
    if not race.over:
        _go_on(race)


def _go_on(race: Race) -> None:
    """Steps 2 to 6."""
    _bounds(race)
    rounds = itertools.count(1)
    for _ in range(SHORT_ROUNDS):
        if not race.over:
            _restart(race, next(rounds))
    if not race.over:
        _nodes(race, LOCAL_S)
    for share, steps, sets in (*JOINT, (ILP_AFTER, 0, 0)):
        while not race.over and race.time < share * race.limit_s:
            _later(race, next(rounds))
        _joint(race, steps, sets)
    if not race.over:
        _integer_program(race)
    if race.claimed_by:
        _joint(race, *JOINT_LAST)
    for turn in itertools.count(1):
        if race.over:
            return
        _nodes(race, LOCAL_S * 2**turn)
        for _ in range(SHORT_ROUNDS):
            _later(race, next(rounds))


def _later(race: Race, round_: int) -> None:
    """Searches around tight nodes, and one from a new start."""
    for _ in range(AROUND):
        if not race.over:
            _around(race)
    if not race.over:
        _restart(race, round_)


def _start(race: Race) -> None:
    """The average bound of the most loaded node, and lpt-global repaired towards it."""
    cells = race.cells
    plan = lpt_global(cells.fabric, cells.chunks)
    load = cells.loads(plan.rail)
    race.offer(plan.rail, cells.value(load), "lpt-global")
    side, tight = _most_loaded(cells, load)
    node = tight[0]
    race.lift(
        _average(cells, side, node, int(load[side, node].sum())),
        _lifted(side, node, {"kind": "average"}),
        "average",
    )
    if not race.met:
        _fill(race, side, tight)
    if not race.met:
        _search(race, FIRST_STEPS, plan.rail, "lpt-global and search")


def _most_loaded(cells: Cells, load: Ints) -> tuple[int, list[int]]:
    """The side of the node with the largest load a rate, and that node, then others of that side
    that come close to it.
    """
    mean = load.sum(axis=2) / np.maximum(cells.rate.sum(axis=2), 1)
    side, node = divmod(int(np.argmax(mean)), cells.fabric.nodes)
    order = np.argsort(-mean[side], kind="stable")[:ANCHORS].tolist()
    return side, [
        node,
        *(k for k in order if k != node and mean[side, k] > CLOSE * mean[side, node]),
    ]


def _fill(race: Race, side: int, tight: list[int]) -> bool:
    """Some nodes' sides that are mostly caps, filled as evenly as is asked for, the other chunks
    arranged around them; whether the first of them could be filled."""
    cells, aim = race.cells, race.bound * (1 + race.tolerance)
    arranged: dict[int, Ints] = {}
    for node in tight:
        local = nodes.fill(cells, side, node, aim, race.seed)
        if local is None:
            break
        arranged[node] = local
    if arranged:
        rail, locked = anchor(cells, aim, side, arranged)
        race.offer(rail, cells.value(cells.loads(rail)), "filled")
        if not race.met:
            rail, value = improve(
                cells, rail, aim, steps=SHORT_STEPS, seed=race.seed, locked=locked
            )
            race.offer(rail, value, "filled and search")
    race.seed += 1
    return bool(arranged)


def _average(cells: Cells, side: int, node: int, total: int) -> Fraction:
    """The average bound of one node, sizes' common divisor included; on equal rails in one
    division.
    """
    sizes, speeds = cells.chunks.size[cells.end[side] == node], cells.rate[side, node].tolist()
    live = [speed for speed in speeds if speed]
    if min(live) < max(live):
        return bounds.average(sizes, speeds)[0]
    unit = int(np.gcd.reduce(sizes))
    return Fraction(-(-total // (unit * len(live))) * unit, live[0])


def _bounds(race: Race) -> None:
    """Pigeonhole and counting bounds of all nodes; where NICs differ, the fluid bound."""
    cells = race.cells
    best = bounds.lower_bound(cells.fabric, cells.chunks)
    race.lift(best.value, best.lifted, best.witness["kind"])
    if not cells.fabric.is_uniform and not race.met:
        from railopt.solver.fluid import solve_fluid

        fluid = solve_fluid(cells.fabric, cells.chunks.node_matrix)
        race.lift(fluid.certificate.bound, dict(fluid.certificate.witness), "fluid")


def _search(
    race: Race,
    steps: int,
    start: Rails | None,
    by: str,
    locked: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Improve a plan, aimed at the bound, or half-way where that is far."""
    assert start is not None
    rail, value = improve(
        race.cells,
        start,
        race.bound,
        tolerance=race.tolerance,
        steps=steps,
        seed=race.seed,
        locked=locked,
    )
    race.seed += 1
    race.offer(rail, value, by)


def _restart(race: Race, round_: int) -> None:
    """The search from a plan that takes the chunks in a jittered order, each third time from the
    best plan, or, each second time and where that can be, around the most loaded node filled anew.
    """
    steps = SHORT_STEPS if round_ <= SHORT_ROUNDS else LATER_STEPS * (1 + round_ // SHORT_ROUNDS)
    assert race.rail is not None
    if round_ % 2 == 1 and _fill(race, *_most_loaded(race.cells, race.cells.loads(race.rail))):
        return
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
    for side, node in _critical(race):
        if race.over:
            return
        found = nodes.optimum(
            race.cells, side, node, min(limit_s, race.left_s / 2), race.seed, race.clock
        )
        if found.value == found.bound:
            race.settled.add((side, node))
        if found.checkable:
            race.lift(
                found.bound, _lifted(side, node, found.witness), f"local {found.witness['kind']}"
            )
        elif found.bound > max(race.bound, race.unchecked[0]):
            race.unchecked = (
                found.bound,
                f"railopt's exact search at node {node} {SIDES[side]}, too long for the kernel to "
                f"check",
            )
        if found.value <= max(race.bound, race.unchecked[0]) and not race.over:
            rail, locked = anchor(race.cells, race.bound, side, {node: found.rail})
            race.offer(rail, race.cells.value(race.cells.loads(rail)), "anchored")
            if not race.met:
                _search(race, LATER_STEPS, rail, "anchored search", locked)


def _around(race: Race) -> None:
    """A search around some of the most loaded nodes of one side, which share no chunks, each
    arranged within the bound in a new way.
    """
    cells, rng = race.cells, np.random.default_rng(race.seed)
    race.seed += 1
    most = list(itertools.islice(_by_load(race), ANCHORS))
    side = most[int(rng.integers(len(most)))][0]
    chosen = [node for s, node in most if s == side]
    arranged = {}
    for node in chosen[: 1 + int(rng.integers(len(chosen)))]:
        local = nodes.arrange(
            cells,
            side,
            node,
            race.bound,
            min(ANCHOR_S, race.left_s / 2),
            int(rng.integers(1 << 30)),
            race.clock,
        )
        if local is not None:
            arranged[node] = local
    if arranged and not race.over:
        rail, locked = anchor(cells, race.bound, side, arranged)
        race.offer(rail, cells.value(cells.loads(rail)), "anchored")
        if not race.met:
            _search(race, LATER_STEPS, rail, "anchored search", locked)


def _by_load(race: Race) -> Iterator[tuple[int, int]]:
    """(side, node) of the nodes with chunks, the most loaded first."""
    cells = race.cells
    total = np.stack([cells.chunks.node_matrix.sum(axis=1), cells.chunks.node_matrix.sum(axis=0)])
    for place in np.argsort(
        -(total / np.maximum(cells.rate.sum(axis=2), 1)).ravel(), kind="stable"
    ).tolist():
        if total.flat[place]:
            side, node = divmod(place, cells.fabric.nodes)
            yield side, node


def _critical(race: Race) -> Iterator[tuple[int, int]]:
    """(side, node) whose local optimum may exceed the bound, the most loaded first: on equal rails
    at most the mean plus the largest chunk."""
    cells = race.cells
    for side, node in _by_load(race):
        sizes = cells.chunks.size[cells.node_chunks(side, node)]
        live = [rate for rate in cells.rate[side, node].tolist() if rate]
        most = Fraction(int(sizes.sum()), sum(live)) + Fraction(int(sizes[0]), min(live))
        if most > race.bound and (side, node) not in race.settled:
            yield side, node


def _joint(race: Race, steps: int, sets: int) -> None:
    """Whether several sides together leave no faster plan; an optimum that was only claimed is then
    proved.
    """
    from railopt.solver.coupled import joint

    small = len(race.cells.chunks) * race.cells.fabric.rails <= ILP_VARIABLES
    if (
        small
        and race.rail is not None
        and not race.interrupted
        and race.value > race.bound * (1 + race.tolerance)
    ):
        witness = joint.refute(
            race.cells, race.value, sets, lambda: min(steps, int(race.left_s * STEPS_A_SECOND))
        )
        if witness is not None:
            race.lift(race.value, witness, "joint")


def _integer_program(race: Race) -> None:
    """CP-SAT with the bound, the best plan as a hint, equal chunks merged and the rails' symmetry
    broken; for half of what is left.
    """
    cells = race.cells
    if (
        len(cells.chunks) * cells.fabric.rails <= ILP_VARIABLES
        and race.rail is not None
        and race.left_s >= ILP_LEAST_S
    ):
        _ask(race, "cpsat", race.left_s / 2, strengthened=True, threads=os.cpu_count() or 1)


def _foreign(race: Race, name: str) -> None:
    """One foreign solver with the plain program, and the bounds that cost nothing."""
    best = bounds.lower_bound(race.cells.fabric, race.cells.chunks)
    race.lift(best.value, best.lifted, best.witness["kind"])
    _ask(race, name, race.left_s, strengthened=False, threads=1)
    if race.rail is None:
        if not race.notes:
            race.notes.append(f"{BACKENDS[name].title} found no plan within {race.limit_s:g} s")
        failure = race.notes[-1]
        plan = lpt_global(race.cells.fabric, race.cells.chunks)
        race.offer(plan.rail, plan.makespan, f"lpt-global, since {failure}")


def _ask(race: Race, name: str, limit_s: float, *, strengthened: bool, threads: int) -> None:
    """Put the problem to a back-end; what it returns is re-evaluated, and what it did wrong is
    noted by its name.
    """
    cells, backend = race.cells, BACKENDS[name]
    problem = (
        build(cells.fabric, cells.chunks, bound=race.bound, hint=race.rail)
        if strengthened
        else build(cells.fabric, cells.chunks)
    )
    race.tell(backend.title)
    done = run(backend, problem.program, limit_s, threads)
    if done.failure:
        race.notes.append(done.failure)
    for answer in done.answers:
        found = None
        if answer.counts is not None:
            counts = _counts(answer.counts, problem.program.count, problem.program.allowed)
            if counts is None:
                race.notes.append(f"{backend.title} returned an infeasible plan; it is not used")
                continue
            rail = problem.rails(counts)
            found = cells.value(cells.loads(rail))
            race.offer(rail, found, backend.title)
        if answer.optimal and found is not None and race.rail is not None:
            if found > race.value:
                race.notes.append(
                    f"{backend.title} calls a plan of {found} s optimal, but one of {race.value} "
                    f"s is known"
                )
            elif problem.program.exact:
                race.claimed_by = backend.title
    if done.interrupted:
        raise KeyboardInterrupt


def _counts(found: list[list[int]], count: Ints, allowed: npt.NDArray[np.bool_]) -> Ints | None:
    """The counts as an array if they are a plan, else None."""
    try:
        counts = np.array(found, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        return None
    # symmetry forbids nothing for good: only dead rails and wrong numbers make a plan infeasible
    if (
        counts.shape != allowed.shape
        or counts.min() < 0
        or np.any(counts.sum(axis=1) != count)
        or np.any(counts[~allowed] > 0)
    ):
        return None
    return counts


def _lifted(side: int, node: int, witness: Witness) -> Witness:
    return {"kind": "node", "node": node, "side": SIDES[side], "witness": witness}
