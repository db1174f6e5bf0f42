"""A way: the steps by which one rank's rows get from its input to its output.

A step either reorders what the rank holds or exchanges it with the ranks of a group.  Rows are the
unit: what a row is, and how many bytes it has, is not known here.  Every step has a way back, so
every way has one; it needs no plan and no counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.torch.tally import by_column


class Reorder(NamedTuple):
    """Cut into consecutive pieces of `sizes` rows, and put piece `order[0]` first, ...; int64."""

    sizes: Ints
    order: Ints

    def back(self) -> Reorder:
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(self.order))
        return Reorder(self.sizes[self.order], place)

    @property
    def moves(self) -> bool:
        """Whether anything changes its place."""
        return bool((self.order[1:] < self.order[:-1]).any())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reorder) and all(map(np.array_equal, self, other))


class Picked(NamedTuple):
    """Row i becomes row index[i]; on a device, where `rows` moves them (`railopt.torch.device`)."""

    index: Any
    inverse: Any
    rows: Any

    def back(self) -> Picked:
        return self._replace(index=self.inverse, inverse=self.index)


class Turn(NamedTuple):
    """A stage of an exchange as one member has it: `out` rows to member `to`, the next of those for
    it, and `into` rows from member `source`; 0 for none.
    """

    to: int
    out: int
    source: int
    into: int


class Exchange(NamedTuple):
    """An all-to-all(v) in the group `within`, "node" or "rail": rows to and from each of its
    members, in the order of their ranks there; one stage after the other where there are `turns`.
    """

    within: str
    send: list[int]
    recv: list[int]
    turns: tuple[Turn, ...] | None = None

    def in_turn(self, own: int) -> tuple[Turn, ...]:
        """In turn i each member sends to the i-th after it and receives from the i-th before it."""
        members = len(self.send)
        peers = [((own + i) % members, (own - i) % members) for i in range(1, members)]
        return tuple(Turn(to, self.send[to], source, self.recv[source]) for to, source in peers)

    def back(self) -> Exchange:
        turns = self.turns
        if turns is not None:
            turns = tuple(Turn(t.source, t.into, t.to, t.out) for t in reversed(turns))
        return self._replace(send=self.recv, recv=self.send, turns=turns)


Step = Reorder | Picked | Exchange
Way = tuple[Step, ...]


def back(way: Way) -> Way:
    """The way back: what arrives by `way` returns to where it came from."""
    return tuple(step.back() for step in reversed(way))


def transposed(pieces: Array) -> Reorder:
    """Pieces [A, B] that lie one after the other, row by row, are put column by column; empty ones
    are left out.
    """
    return Reorder(*by_column(pieces))
