"""What one node sends or receives, alone: its optimum, which bounds the whole, and arrangements
around which the whole is arranged.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.arrays import Ints
from railopt.bounds import Witness
from railopt.solver.coupled.search import Cells
from railopt.solver.local.remainders import filled

Clock = Callable[[], float]
FILL_TRIES = 400  # 1 to 2 us each


class NodeOptimum(NamedTuple):
    """One node alone: times in seconds, the rail of each of its chunks, largest first."""

    bound: Fraction
    witness: Witness
    checkable: bool
    value: Fraction
    rail: Ints


def optimum(
    cells: Cells, side: int, node: int, limit_s: float, seed: int, clock: Clock
) -> NodeOptimum:
    """The best bound and arrangement of one node's sends or receives within `limit_s` seconds of
    `clock`.
    """
    from railopt.solver.local import solve_local
    from railopt.solver.local.configurations import (  # with HiGHS, which most problems never need
        pack,
        suits,
    )

    sizes, speeds, live = _problem(cells, side, node)
    if len(set(speeds[live].tolist())) > 1:
        found = solve_local(sizes, speeds=speeds.tolist(), limit_s=limit_s, seed=seed, clock=clock)
        return NodeOptimum(
            found.bound, found.witness, found.checkable, found.value, found.assignment
        )
    speed = int(speeds[live[0]])
    if suits(sizes, len(live)):
        packed = pack(sizes, len(live), limit_s, seed, clock)
        return NodeOptimum(
            Fraction(packed.bound, speed),
            packed.witness,
            True,
            Fraction(packed.value, speed),
            live[packed.rail],
        )
    found = solve_local(sizes, len(live), limit_s=limit_s, seed=seed, clock=clock)
    bound, witness, checkable = found.bound, found.witness, found.checkable
    if not checkable:  # weights that refute as much as the search did are short to check
        packed = pack(sizes, len(live), limit_s, seed, clock)
        if packed.bound >= bound:
            bound, witness, checkable = Fraction(packed.bound), packed.witness, True
    return NodeOptimum(
        bound / speed, witness, checkable, found.value / speed, live[found.assignment]
    )


def fill(cells: Cells, side: int, node: int, time: Fraction, seed: int) -> Ints | None:
    """Rails of a node's chunks, largest first, that are done in `time`, where they are mostly caps
    and rails are equal; else None.
    """
    sizes, speeds, live = _problem(cells, side, node)
    if np.any(speeds[live] != speeds[live[0]]):
        return None
    local = filled(sizes, len(live), int(time * int(speeds[live[0]])), FILL_TRIES, seed)
    return None if local is None else live[local]


def arrange(
    cells: Cells, side: int, node: int, time: Fraction, limit_s: float, seed: int, clock: Clock
) -> Ints | None:
    """Rails of a node's chunks, largest first, that are done in `time`: others for another seed;
    None where none were found.
    """
    from railopt.solver.local.configurations import suits

    sizes, speeds, live = _problem(cells, side, node)
    equal = len(set(speeds[live].tolist())) == 1
    if equal and suits(sizes, len(live)):
        rail = fill(cells, side, node, time, seed)
    else:
        found = optimum(cells, side, node, limit_s, seed, clock)
        rail = found.rail if found.value <= time else None
    if rail is None or not equal:
        return rail
    labels = np.arange(len(speeds))
    labels[live] = np.random.default_rng(seed).permutation(live)
    return labels[rail]


def _problem(cells: Cells, side: int, node: int) -> tuple[Ints, Ints, Ints]:
    """(sizes, largest first; speeds of the rails; rails that live)."""
    speeds = cells.rate[side, node]
    return cells.chunks.size[cells.node_chunks(side, node)], speeds, np.flatnonzero(speeds)
