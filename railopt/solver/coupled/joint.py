"""What several nodes' sides rule out together: the kernel's own search, offered the sides that have
the least to spare.

Where every node alone could be done in a time but all of them together can't, no bound of one node
shows it.  A few sides usually do. The search is `check.prove_joint`, so that whatever it refutes
           within its budget has a certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice

import numpy as np

from railopt.bounds import Witness
from railopt.check import Meter, Rejected, prove_joint
from railopt.plans import SIDES
from railopt.solver.coupled.search import Cells

PAIRS = 4  # senders and receivers that are tried in pairs
MOST = 8  # sides that are tried at once

Side = tuple[int, int]


def refute(cells: Cells, value: Fraction, sets: int, work: Callable[[], int]) -> Witness | None:
    """A witness that no plan is faster than `value`, if one of the first `sets` sets of sides gives
    it; `work()` says how many steps of the kernel the next of them may take, and none ends the
    search.
    """
    rates = cells.fabric.tx.tolist(), cells.fabric.rx.tolist()
    columns = [
        column.tolist() for column in (cells.chunks.src, cells.chunks.dst, cells.chunks.size)
    ]
    for sides in islice(_sets(_tightest(cells, value)), sets):
        steps = work()
        if steps <= 0:
            return None
        witness = {
            "kind": "joint",
            **{name: [node for s, node in sides if s == side] for side, name in enumerate(SIDES)},
        }
        try:
            prove_joint(*rates, columns, value, witness, Meter(steps))
        except Rejected:
            continue
        return witness
    return None


def _tightest(cells: Cells, value: Fraction) -> list[Side]:
    """(side, node) of the nodes with chunks, by the bytes to spare on all their rails together in
    `value` seconds.
    """
    need = np.stack([cells.chunks.node_matrix.sum(axis=1), cells.chunks.node_matrix.sum(axis=0)])
    order = np.argsort((cells.capacity(value).sum(axis=2) - need).ravel(), kind="stable").tolist()
    return [divmod(place, cells.fabric.nodes) for place in order if need.flat[place]]


def _sets(sides: list[Side]) -> Iterator[list[Side]]:
    """Pairs of a sender and a receiver, the tightest first; then more and more of the tightest, and
    all.
    """
    sends, receives = ([place for place in sides if place[0] == side][:PAIRS] for side in (0, 1))
    pairs = sorted((i + j, i, j) for i in range(len(sends)) for j in range(len(receives)))
    yield from ([sends[i], receives[j]] for _, i, j in pairs)
    for many in range(3, min(MOST, len(sides) - 1) + 1):
        if len({side for side, _ in sides[:many]}) == 2:
            yield sides[:many]
    if len(sides) > 2:
        yield sides
