"""What several nodes' sides rule out together: the checker's own search, offered the sides that
have the least to spare.

Where every node alone could be done in a time but all of them together can't, no bound of one node
shows it.  A few sides usually do. The search is `checker.prove_joint`, so that whatever it refutes
within its budget has a certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice

import numpy as np

from railopt.checker import Rejected, prove_joint
from railopt.evidence.bounds import Witness
from railopt.model.plan import SIDES
from railopt.solver.coupled.search import Cells
from railopt.solver.local.deadline import Deadline, TimedMeter

PAIRS = 4  # senders and receivers that are tried in pairs
MOST = 8  # sides that are tried at once
STEPS_A_SECOND = 12_000_000  # of the checker

Place = tuple[str, int]  # side, node


def refute(
    cells: Cells, value: Fraction, sets: int, steps: int, deadline: Deadline
) -> Witness | None:
    """A witness that no plan is faster than `value` seconds, if one of the first `sets` sets of
    sides gives it in `steps` steps of the checker and by the deadline.
    """
    rates = cells.fabric.tx.tolist(), cells.fabric.rx.tolist()
    columns = [
        column.tolist() for column in (cells.chunks.src, cells.chunks.dst, cells.chunks.size)
    ]
    for places in islice(_sets(_tightest(cells, value)), sets):
        affordable = deadline.afford(steps, STEPS_A_SECOND)
        if affordable <= 0:
            return None
        witness = joint_witness(places)
        try:
            prove_joint(*rates, columns, value, witness, TimedMeter(affordable, deadline))
        except Rejected:
            continue
        return witness
    return None


def joint_witness(places: Sequence[Place]) -> Witness:
    """That these sides of nodes together leave no faster plan: the checker searches anew."""
    return {"kind": "joint", **{side: [node for s, node in places if s == side] for side in SIDES}}


def _tightest(cells: Cells, value: Fraction) -> list[Place]:
    """The nodes with chunks, by the bytes to spare on all their rails together in `value`
    seconds.
    """
    # floats, which only choose what is tried first: capacities of many rails could wrap in int64
    spare = cells.capacity(value).sum(axis=2, dtype=np.float64) - cells.total
    order = np.argsort(spare.ravel(), kind="stable").tolist()
    places = [divmod(place, cells.fabric.nodes) for place in order if cells.total.flat[place]]
    return [(SIDES[row], node) for row, node in places]


def _sets(places: list[Place]) -> Iterator[list[Place]]:
    """Pairs of a sender and a receiver, the tightest first; then more and more of the tightest, and
    all.
    """
    sends, receives = ([place for place in places if place[0] == side][:PAIRS] for side in SIDES)
    pairs = sorted((i + j, i, j) for i in range(len(sends)) for j in range(len(receives)))
    yield from ([sends[i], receives[j]] for _, i, j in pairs)
    for many in range(3, min(MOST, len(places) - 1) + 1):
        if len({side for side, _ in places[:many]}) == 2:
            yield places[:many]
    if len(places) > 2:
        yield places
