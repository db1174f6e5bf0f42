"""What one node sends or receives, alone: its optimum, which bounds every plan, and an arrangement
around which the other chunks are arranged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.checker import WORK
from railopt.evidence.bracket import Bracket, Status
from railopt.solver.coupled.search import Cells
from railopt.solver.local.deadline import Deadline, TimedMeter
from railopt.solver.local.outcome import LocalOutcome
from railopt.solver.local.prices import few_sizes
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import BY_WEIGHTS, STEPS, Step


class NodeOptimum(NamedTuple):
    """One node alone.

    bracket    in seconds
    checkable  whether the checker accepts the bound's witness, which an open bracket does not say
    rail       int64, the rail of each of its chunks, largest first, that attains the value
    notes      steps of the search that failed
    """

    bracket: Bracket
    checkable: bool
    rail: Ints
    notes: tuple[str, ...] = ()


class NodeProblem(NamedTuple):
    """One node's side as a local problem: sizes int64 [n], largest first; speeds int64 [rails], in
    bytes per second; live int64, the rails that live.
    """

    sizes: Ints
    speeds: Ints
    live: Ints

    @classmethod
    def of(cls, cells: Cells, side: str, node: int) -> NodeProblem:
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
        return few_sizes(self.sizes, len(self.live))

    def rails(self, found: LocalOutcome) -> Ints:
        """The fabric's rails that a local search chose."""
        return found.assignment if self.speed is None else self.live[found.assignment]


def optimum(
    cells: Cells, side: str, node: int, limit_s: float, deadline: Deadline, seed: int
) -> NodeOptimum:
    """The best bound and arrangement of one node's sends or receives that a search of `limit_s`
    seconds finds; the checker checks the bound by the deadline.
    """
    alone, within = NodeProblem.of(cells, side, node), deadline.within(limit_s)
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
    alone: NodeProblem, deadline: Deadline, seed: int, chosen: Sequence[Step] = STEPS
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
    """The bracket in seconds; an optimum is known only if the checker accepts the witness."""
    status = Status.OPEN
    if value == bound:
        status = Status.KNOWN if checkable else Status.CLAIMED
    return Bracket(value, bound, status, witness, f"local {witness['kind']}")
