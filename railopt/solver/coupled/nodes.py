"""What one node sends or receives, alone: its optimum, which bounds the whole, and arrangements
around which the whole is arranged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.checker import WORK
from railopt.evidence.bounds import Witness
from railopt.evidence.bracket import Bracket, Status
from railopt.solver.coupled.cap_weights import cap_weights
from railopt.solver.coupled.scarce import settled
from railopt.solver.coupled.search import SIDE, Cells
from railopt.solver.local.deadline import Deadline, TimedMeter
from railopt.solver.local.outcome import LocalOutcome
from railopt.solver.local.remainders import filled, suits
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import BY_WEIGHTS, STEPS, Step

# tries, 5 to 10 us each: before a better bound is looked for, after that, and once more in a while
FILL_TRIES, SOME_TRIES, MORE_TRIES = 25, 350, 5000
SETTLED = 8  # ways to fill scarce rails, among which the tries are divided


class NodeOptimum(NamedTuple):
    """One node alone.

    bracket    in seconds
    checkable  whether the kernel accepts the bound's witness, which an open bracket does not say
    rail       int64, the rail of each of its chunks, largest first, that attains the value
    notes      steps of the search that failed
    """

    bracket: Bracket
    checkable: bool
    rail: Ints
    notes: tuple[str, ...] = ()


class Alone(NamedTuple):
    """One node's side as a local problem: sizes int64 [n], largest first; speeds int64 [rails], in
    bytes per second; live int64, the rails that live.
    """

    sizes: Ints
    speeds: Ints
    live: Ints

    @classmethod
    def of(cls, cells: Cells, side: str, node: int) -> Alone:
        speeds = cells.rates(side, node)
        sizes = cells.chunks.size[cells.node_chunks(side, node)]
        return cls(sizes, speeds, np.flatnonzero(speeds))

    @property
    def speed(self) -> int | None:
        """That of every live rail; None where they differ."""
        speeds = set(self.speeds[self.live].tolist())
        return speeds.pop() if len(speeds) == 1 else None

    @property
    def few_sizes(self) -> bool:
        """Many chunks, but of few sizes."""
        return suits(self.sizes, len(self.live))

    def rails(self, found: LocalOutcome) -> Ints:
        """The fabric's rails that a local search chose."""
        return found.assignment if self.speed is None else self.live[found.assignment]


def optimum(
    cells: Cells, side: str, node: int, limit_s: float, deadline: Deadline, seed: int
) -> NodeOptimum:
    """The best bound and arrangement of one node's sends or receives that a search of `limit_s`
    seconds finds; the kernel checks the bound by the deadline.
    """
    alone, within = Alone.of(cells, side, node), deadline.within(limit_s)
    found = _searched(alone, within, seed, BY_WEIGHTS if alone.few_sizes else STEPS)
    bound, witness = found.bound, found.witness
    checkable = found.accepted(TimedMeter(WORK, deadline))
    if not checkable and not alone.few_sizes:
        # weights that refute as much as the search did are short to check
        weighed = _searched(alone, deadline.within(limit_s), seed, BY_WEIGHTS)
        if weighed.bound >= bound and weighed.accepted(TimedMeter(WORK, deadline)):
            bound, witness, checkable = weighed.bound, weighed.witness, True
    scale = Fraction(1, alone.speed or 1)
    bracket = _bracket(found.value * scale, bound * scale, witness, checkable)
    return NodeOptimum(bracket, checkable, alone.rails(found), found.notes)


def _searched(
    alone: Alone, deadline: Deadline, seed: int, chosen: Sequence[Step] = STEPS
) -> LocalOutcome:
    """`solve_local`: in bytes where the rails have one speed, else in seconds."""
    shape: dict[str, Any] = (
        {"rails": len(alone.live)} if alone.speed else {"speeds": alone.speeds.tolist()}
    )
    return solve_local(
        alone.sizes,
        **shape,
        limit_s=deadline.left_s,
        seed=seed,
        clock=deadline.clock,
        chosen=chosen,
    )


def _bracket(
    value: Fraction, bound: Fraction, witness: Mapping[str, Any], checkable: bool
) -> Bracket:
    """In seconds; an optimum is proved only if the kernel accepts the witness."""
    status = Status.OPEN
    if value == bound:
        status = Status.PROVED if checkable else Status.CLAIMED
    return Bracket(value, bound, status, witness, f"local {witness['kind']}")


def by_cap_weights(
    cells: Cells, side: str, node: int, bound: Fraction
) -> tuple[Fraction, Witness] | None:
    """A bound of a node's equal rails, in seconds, by chunks weighed in parts of a cap, where that
    is more than `bound`.
    """
    alone = Alone.of(cells, side, node)
    if alone.speed is None:
        return None
    found = cap_weights(alone.sizes, len(alone.live), ceil(bound * alone.speed))
    return None if found is None else (Fraction(found[0], alone.speed), found[1])


def fill(
    cells: Cells, side: str, node: int, time: Fraction, seed: int, tries: int = FILL_TRIES
) -> Ints | None:
    """Rails of a node's chunks, largest first, that are done in `time` seconds, where they are
    mostly caps; else None.
    """
    rounds = SETTLED if cells.scarce(side, node, time).any() else 1
    for turn in range(rounds):
        rail, some = settled(cells, side, node, time, seed + turn), -(-tries // rounds)
        if rail is not None and _fill_others(cells, (side, node), time, some, seed + turn, rail):
            return rail
    return None


def _fill_others(
    cells: Cells, place: tuple[str, int], time: Fraction, tries: int, seed: int, rail: Ints
) -> bool:
    """Put those of a node's chunks whose `rail` is open on the rails that are not scarce; whether
    they are done in `time` seconds.
    """
    (side, node), row = place, SIDE[place[0]]
    others, rows = np.flatnonzero(rail < 0), cells.node_chunks(side, node)
    if not len(others):
        return True
    live = np.flatnonzero((cells.rates(side, node) > 0) & ~cells.scarce(side, node, time))
    dead = cells.rate[1 - row][cells.end[1 - row, rows[others]]][:, live] == 0
    capacities = cells.capacity(time)[row, node, live]
    local = filled(cells.chunks.size[rows[others]], capacities, tries, seed, dead)
    if local is None:
        return False
    rail[others] = live[local]
    return True


def arrange(
    cells: Cells,
    side: str,
    node: int,
    time: Fraction,
    deadline: Deadline,
    seed: int,
    tries: int = MORE_TRIES,
) -> Ints | None:
    """Rails of a node's chunks, largest first, that are done in `time` seconds: others for another
    seed; None where none were found.
    """
    alone = Alone.of(cells, side, node)
    if alone.few_sizes:
        return fill(cells, side, node, time, seed, tries)
    found = _searched(alone, deadline, seed)
    return alone.rails(found) if found.value <= time * (alone.speed or 1) else None


def exchanged(cells: Cells, side: str, node: int, time: Fraction, rail: Ints, seed: int) -> Ints:
    """The same arrangement of a node's chunks, done in `time` seconds, on rails of one speed that
    changed places; those on scarce rails stay.
    """
    speeds, rng = cells.rates(side, node), np.random.default_rng(seed)
    labels, plenty = np.arange(len(speeds)), ~cells.scarce(side, node, time)
    for speed in np.unique(speeds):
        alike = np.flatnonzero((speeds == speed) & plenty)
        labels[alike] = rng.permutation(alike)
    return labels[rail]
