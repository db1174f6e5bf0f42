"""The steps of the coupled solve.

Value and bound approach each other by rising cost, and the race ends as soon as they meet:

    1  the average bound of the most loaded node; lpt-global; where that node's chunks are mostly
       caps, its rails filled exactly and the others arranged around it, and, if that fails at
       first, a better bound by weights in parts of a cap; else lpt-global repaired by a short
       search aimed at the bound
    2  pigeonhole bounds of every node; the fluid bound where NICs differ, also in whole chunks;
       rails that share their chunks anew to the last byte; short searches from several starts, or
       around rails of the most loaded node that few far ends can fill
    3  exact local optima of the critical nodes: better bounds, and rails around which the other
       nodes are arranged
    4  what the tightest senders and receivers rule out together
    5  the integer program, with these bounds, the best plan as a hint and no symmetry, by CP-SAT; 4
       with more work for its optimum
    6  3 with more time, searches around new arrangements of the tightest nodes and from new starts,
       until the time is up

Searches aim at the bound, or, where NICs differ, at the first time from it on in which whole units
fit (`scarce.py`), which is no bound as long as no witness shows it.

Every bound of 1 to 4 has a witness that the kernel re-checks; what only CP-SAT says is "claimed".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.arrays import Bools, Ints, Rails
from railopt.base.errors import NotProved
from railopt.base.extras import installed
from railopt.checker import WORK
from railopt.evidence import bounds
from railopt.evidence.bounds import Witness
from railopt.model.plan import SIDES
from railopt.policies.lpt import lpt_global
from railopt.solver.coupled import nodes
from railopt.solver.coupled.ask import ILP_VARIABLES, integer_program
from railopt.solver.coupled.fallback import first_bound
from railopt.solver.coupled.race import Race
from railopt.solver.coupled.scarce import settled
from railopt.solver.coupled.search import SIDE, Cells, anchor, construct, even_out, improve
from railopt.solver.local.steps import failure

FIRST_STEPS, SHORT_STEPS, LATER_STEPS = 64, 100, 1000
SHORT_ROUNDS = 8  # new starts before exact methods: many short walks find more than a long one
ROUNDS = 400  # of re-splits at a time, 0.1 ms each
LEAST_STEPS = 16  # of a walk, however little time is left
LOCAL_S = 2.0  # the most that one node's exact optimum may take at first
ANCHORS = 4  # nodes around which the others are arranged
ANCHOR_S = 0.25  # what one of them may take
CLOSE = 0.999  # to the largest load: such nodes are filled together
AROUND = 8  # such searches for one from a new start, which finds less
HALFWAY = Fraction(1, 2)  # from the bound to the value: some searches aim at it, to be closer next
WHOLE = 0.1  # share of the time for the fluid bound in whole chunks
ILP_AFTER = 0.25  # share of the time before the integer program starts
# what several sides rule out: after this share of the time, with so many steps of the kernel for
# each of so many sets of them
JOINT, JOINT_LAST = ((0.01, 250_000, 100), (0.1, 5_000_000, 4)), (WORK, 100)
FEW_CHUNKS = 16  # of so few, all that the kernel may spend at last


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
    """Steps 2 to 6."""
    attempt(race, _bounds)
    attempt(race, _fluid)
    attempt(race, _whole)
    rounds = itertools.count(1)
    for _ in range(SHORT_ROUNDS):
        attempt(race, _restart, next(rounds))
        attempt(race, _even_out)
    attempt(race, _nodes, LOCAL_S)
    for share, steps, sets in (*JOINT, (ILP_AFTER, 0, 0)):
        while not race.over and race.time_s < share * race.limit_s:
            _later(race, next(rounds))
        guarded(race, _joint, steps, sets)  # even where value and an unchecked bound have met
    if len(race.chunks) <= FEW_CHUNKS:
        guarded(race, _joint, *JOINT_LAST)
    attempt(race, integer_program)
    if race.claimed_by:
        guarded(race, _joint, *JOINT_LAST)
    for turn in itertools.count(1):
        if race.over:
            return
        attempt(race, _nodes, LOCAL_S * 2**turn)
        for _ in range(SHORT_ROUNDS):
            _later(race, next(rounds))


def _later(race: Race, round_: int) -> None:
    """Searches around tight nodes, and one from a new start."""
    race.tell("search")
    for _ in range(AROUND):
        attempt(race, _around)
    attempt(race, _restart, round_)


def _start(race: Race) -> None:
    """The average bound of the most loaded node, and lpt-global repaired towards it."""
    cells = race.cells
    plan = lpt_global(cells.fabric, cells.chunks)
    race.offer(plan.rail, cells.value(cells.loads(plan.rail)), "lpt-global")
    side, tight = _most_loaded(cells)
    node = tight[0]
    bound = _average(cells, side, node)
    race.lift(bound, _lifted(side, node, {"kind": "average"}), "average")
    if not cells.fabric.is_uniform:
        race.lift(*first_bound(cells.fabric, cells.chunks), "average")
    if not race.met and not _fill(race, side, tight):
        _cap_weights(race, side, node)
        if not race.over:
            _fill(race, side, tight, nodes.SOME_TRIES)
    if not race.met:
        _search(race, FIRST_STEPS, plan.rail, "lpt-global and search")


def _most_loaded(cells: Cells) -> tuple[str, list[int]]:
    """The side of the node with the largest load a rate that its far ends can use, and that node,
    then others of that side that come close to it.
    """
    mean = cells.mean
    row, node = divmod(int(np.argmax(mean)), cells.fabric.nodes)
    order = np.argsort(-mean[row], kind="stable")[:ANCHORS].tolist()
    close = [k for k in order if k != node and mean[row, k] > CLOSE * mean[row, node]]
    return SIDES[row], [node, *close]


def _cap_weights(race: Race, side: str, node: int) -> None:
    """The bound by chunks weighed in parts of a cap, of a node that has mostly caps."""
    found = nodes.by_cap_weights(race.cells, side, node, race.bound)
    if found is not None:
        race.lift(found[0], _lifted(side, node, found[1]), "cap weights")


def _fill(
    race: Race,
    side: str,
    tight: list[int],
    tries: int = nodes.FILL_TRIES,
    above: Fraction = Fraction(0),
) -> bool:
    """Some nodes' sides that are mostly caps, filled as evenly as is asked for, or up to `above` of
    the way from there to the best plan, the other chunks arranged around them; whether the first of
    them could be filled.
    """
    cells, aim = race.cells, race.aim * (1 + race.tolerance)
    aim += above * (race.value - aim)
    arranged: dict[int, Ints] = {}
    for node in tight:
        local = nodes.fill(cells, side, node, aim, race.seed, tries)
        if local is None:
            break
        arranged[node] = local
        if aim <= race.aim:
            race.arranged[side, node] = local
    if arranged:
        rail, locked = anchor(cells, aim, side, arranged, race.seed)
        race.offer(rail, cells.value(cells.loads(rail)), "filled")
        if not race.met:
            rail, value = improve(
                cells, rail, aim, steps=SHORT_STEPS, seed=race.seed, locked=locked
            )
            race.offer(rail, value, "filled and search")
    race.seed += 1
    return bool(arranged)


def _settle(race: Race, side: str, node: int) -> bool:
    """The scarce rails of a node filled, the other chunks arranged around them; whether there are
    such, and they could be filled.
    """
    cells, aim = race.cells, race.aim
    local = settled(cells, side, node, aim, race.seed)
    if local is None or local.max() < 0:
        return False
    rail, locked = anchor(cells, aim, side, {node: local}, race.seed)
    rail, value = improve(cells, rail, aim, steps=SHORT_STEPS, seed=race.seed, locked=locked)
    race.offer(rail, value, "settled and search")
    if not race.met:
        rail = even_out(cells, rail, aim, ROUNDS, race.seed, locked)
        race.offer(rail, cells.value(cells.loads(rail)), "settled and re-split")
    race.seed += 1
    return True


def _average(cells: Cells, side: str, node: int) -> Fraction:
    """The average bound of one node, sizes' common divisor included; on equal rails in one
    division.
    """
    sizes, speeds = (
        cells.chunks.size[cells.end[SIDE[side]] == node],
        cells.rates(side, node).tolist(),
    )
    live = [speed for speed in speeds if speed]
    if min(live) < max(live):
        return bounds.average(sizes, speeds)[0]
    unit, total = int(np.gcd.reduce(sizes)), int(cells.total[SIDE[side], node])
    return Fraction(-(-total // (unit * len(live))) * unit, live[0])


def _bounds(race: Race) -> None:
    """Pigeonhole and counting bounds of all nodes."""
    best = bounds.lower_bound(race.fabric, race.chunks)
    race.lift(best.value, best.lifted, best.witness["kind"])


def _fluid(race: Race) -> None:
    """The fluid bound, which is better only where NICs differ."""
    if race.fabric.is_uniform or not installed("ortools"):
        return
    from railopt.solver.fluid import solve_fluid

    race.tell("fluid bound")
    try:
        fluid = solve_fluid(race.fabric, race.chunks.node_matrix, limit_s=max(0.1, race.left_s))
    except NotProved:
        return
    race.lift(fluid.certificate.bound, dict(fluid.certificate.witness), "fluid")


def _whole(race: Race) -> None:
    """The fluid bound in whole chunks, which is better only where NICs differ."""
    if race.fabric.is_uniform or not installed("ortools"):
        return
    from railopt.solver.coupled import whole

    race.tell("whole chunks")
    deadline = race.deadline.within(WHOLE * race.limit_s)
    found = whole.last_refuted(race.cells, race.bound, race.value, deadline)
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
        race.aim,
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
    cells, aim = race.cells, race.aim * (1 + race.tolerance)
    rail = even_out(cells, race.rail, aim, ROUNDS, race.seed)
    race.seed += 1
    race.offer(rail, cells.value(cells.loads(rail)), "re-split")


def _restart(race: Race, round_: int) -> None:
    """The search from a plan that takes the chunks in a jittered order, each third time from the
    best plan, or, each second time and where that can be, around the most loaded node filled anew.
    """
    steps = SHORT_STEPS if round_ <= SHORT_ROUNDS else LATER_STEPS * (1 + round_ // SHORT_ROUNDS)
    assert race.rail is not None
    above = HALFWAY if round_ % 4 == 3 else Fraction(0)
    side, tight = _most_loaded(race.cells)
    if round_ % 2 == 1 and (
        _fill(race, side, tight, nodes.MORE_TRIES, above) or _settle(race, side, tight[0])
    ):
        return
    if round_ % 3 == 0:
        _search(race, steps, race.rail, "search")
        return
    rng = np.random.default_rng([race.seed, round_])
    jitter = 0.1 * rng.random(len(race.cells.chunks))
    order = np.argsort(-race.cells.chunks.size * (1 - jitter), kind="stable")
    _search(race, steps, construct(race.cells, race.aim, order), "search from a new start")


def _nodes(race: Race, limit_s: float) -> None:
    """Exact local optima of the nodes that could raise the bound, each an anchor for the others;
    those known are left out.
    """
    for side, node in _critical(race):
        if race.over:
            return
        race.tell(f"node {node} {side}")
        limit = min(limit_s, race.left_s / 2)
        found = nodes.optimum(race.cells, side, node, limit, race.deadline, race.seed)
        bracket = found.bracket
        for text in found.notes:
            race.note(f"node {node} {side}: {text}")
        if bracket.value == bracket.bound:
            race.settled.add((side, node))
        if found.checkable:
            race.lift(bracket.bound, _lifted(side, node, bracket.witness), bracket.by)
        else:
            by = f"railopt's exact search at node {node} {side}, which the kernel did not check"
            race.lift_unchecked(bracket.bound, by)
        if bracket.value is not None and bracket.value <= race.aim:
            race.arranged[side, node] = found.rail
        if bracket.value is not None and bracket.value < race.value and not race.over:
            _anchored(race, side, {node: found.rail}, max(bracket.value, race.aim))


def _anchored(race: Race, side: str, arranged: dict[int, Ints], aim: Fraction) -> None:
    """A plan around some nodes' arrangements, which take `aim` seconds at most, and a search that
    leaves these alone.
    """
    rail, locked = anchor(race.cells, aim, side, arranged, race.seed)
    race.offer(rail, race.cells.value(race.cells.loads(rail)), "anchored")
    if not race.met:
        _search(race, LATER_STEPS, rail, "anchored search", locked)


def _around(race: Race) -> None:
    """A search around some of the most loaded nodes of one side, which share no chunks, each
    arranged in a new way, anew or on other rails than before: within the aim, or, as often, within
    the last time before the best plan's, where the aim may be out of reach.
    """
    cells, rng = race.cells, np.random.default_rng(race.seed)
    race.seed += 1
    before = race.value - Fraction(cells.unit, cells.fastest)
    aim = max(race.aim, before) if rng.integers(2) else race.aim
    most = list(itertools.islice(_by_load(race), ANCHORS))
    side = most[int(rng.integers(len(most)))][0]
    chosen = [node for s, node in most if s == side]
    arranged = {}
    for node in chosen[: 1 + int(rng.integers(len(chosen)))]:
        deadline = race.deadline.within(min(ANCHOR_S, race.left_s / 2))
        seed = int(rng.integers(1 << 30))
        known = race.arranged.get((side, node)) if aim == race.aim else None
        tries = nodes.MORE_TRIES if known is None else nodes.SOME_TRIES
        found = nodes.arrange(cells, side, node, aim, deadline, seed, tries)
        known = known if found is None else found
        if known is not None:
            if aim == race.aim:
                race.arranged[side, node] = known
            arranged[node] = nodes.exchanged(cells, side, node, aim, known, seed)
    if arranged and not race.over:
        _anchored(race, side, arranged, aim)


def _by_load(race: Race) -> Iterator[tuple[str, int]]:
    """(side, node) of the nodes with chunks, the most loaded first."""
    cells = race.cells
    for place in np.argsort(-cells.mean.ravel(), kind="stable").tolist():
        if cells.total.flat[place]:
            row, node = divmod(place, cells.fabric.nodes)
            yield SIDES[row], node


def _critical(race: Race) -> Iterator[tuple[str, int]]:
    """(side, node) whose local optimum may exceed the bound, the most loaded first: those that are
    not done by then in the best plan, nor in any arrangement that is known.
    """
    assert race.rail is not None
    cells, load = race.cells, race.cells.loads(race.rail)
    late = np.any(load > cells.capacity(race.bound), axis=2)
    done = {*race.settled, *(race.arranged if race.aim == race.bound else ())}
    for side, node in _by_load(race):
        if late[SIDE[side], node] and (side, node) not in done:
            yield side, node


def _joint(race: Race, steps: int, sets: int) -> None:
    """Whether several sides together leave no faster plan."""
    from railopt.solver.coupled import joint

    small = len(race.chunks) * race.fabric.rails <= ILP_VARIABLES
    if small and race.rail is not None and race.value > race.bound * (1 + race.tolerance):
        race.tell("several sides together")
        witness = joint.refute(race.cells, race.value, sets, steps, race.deadline)
        if witness is not None:
            race.lift(race.value, witness, "joint")


def _lifted(side: str, node: int, witness: Mapping[str, Any]) -> Witness:
    """A witness about one node's side as one about the coupled problem."""
    return {"kind": "node", "node": node, "side": side, "witness": dict(witness)}
