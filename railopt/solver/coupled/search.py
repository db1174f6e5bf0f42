"""The coupled problem as cells, and the search for a plan in which none is overloaded.

Aimed at a time T, NIC n of node k can carry floor(T * rate) bytes; a plan attains T when no NIC
carries more.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Ints, Rails
from railopt.base.kernels import added_up
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.policies import by_size
from railopt.solver.coupled import search_kernels as kernels
from railopt.solver.coupled.resplit_kernels import resplit

SIDE = {"send": kernels.SEND, "recv": kernels.RECV}


@dataclass(frozen=True, eq=False)
class Cells:
    """Chunks and NICs with both sides in one array: `SIDE` is its first index."""

    fabric: Fabric
    chunks: Chunks

    @cached_property
    def end(self) -> npt.NDArray[np.int32]:
        """int32 [2, C]: a chunk's node on each side."""
        return np.stack([self.chunks.src, self.chunks.dst])

    @cached_property
    def rate(self) -> Ints:
        """int64 [2, nodes, rails]: bytes per second."""
        return np.stack([self.fabric.tx, self.fabric.rx])

    @cached_property
    def fastest(self) -> int:
        """The fastest NIC's rate."""
        return int(self.rate.max())

    @cached_property
    def weight(self) -> Floats:
        """float64 [2, nodes, rails]: fastest rate / rate, 0 for a dead NIC."""
        return np.divide(
            self.fastest, self.rate, out=np.zeros(self.rate.shape), where=self.rate > 0
        )

    @cached_property
    def order(self) -> Ints:
        """Chunks by size, largest first."""
        return by_size.largest_first(self.chunks.size) & by_size.INDEX

    @cached_property
    def grouped(self) -> tuple[Ints, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """`start`, `members` and `below`: the chunks of every node on both sides, largest first."""
        return kernels.group(self.end, self.chunks.size, self.order, self.fabric.nodes)

    def node_chunks(self, side: str, node: int) -> npt.NDArray[np.int32]:
        """Indices of what a node sends or receives, largest first."""
        start, members, _ = self.grouped
        row = SIDE[side]
        return members[row, start[row, node] : start[row, node + 1]]

    def rates(self, side: str, node: int) -> Ints:
        """int64 [rails]: bytes per second of a node's NICs on a side."""
        rates: Ints = self.rate[SIDE[side], node]
        return rates

    @cached_property
    def living(self) -> Ints:
        """int64 [nodes, nodes]: how many rails live at both ends, by sender and receiver."""
        lives = (self.rate > 0).astype(np.int64)
        return lives[kernels.SEND] @ lives[kernels.RECV].T

    @cached_property
    def total(self) -> Ints:
        """int64 [2, nodes]: bytes that each node sends and receives."""
        return self._loads(np.zeros(len(self.chunks), np.int16), 1)[:, :, 0]

    def loads(self, rail: Rails) -> Ints:
        """int64 [2, nodes, rails]: bytes on every cell."""
        return self._loads(rail, self.fabric.rails)

    def _loads(self, rail: Rails, rails: int) -> Ints:
        src, dst = self.end * rails + rail
        size, count = self.chunks.size, self.fabric.nodes * rails
        loads = added_up(src, size, count), added_up(dst, size, count)
        return np.stack(loads).reshape(2, -1, rails)

    def value(self, load: Ints) -> Fraction:
        """Seconds until the last cell is done, exact: floats only choose what is compared."""
        if self.fabric.is_uniform:
            return Fraction(int(load.max()), self.fastest)
        times = load * self.weight
        near = np.flatnonzero(times >= times.max() * (1 - 1e-9))
        return max(Fraction(int(load.flat[i]), int(self.rate.flat[i]) or 1) for i in near)

    def capacity(self, time: Fraction) -> Ints:
        """int64 [2, nodes, rails]: whole bytes that each NIC carries in `time` seconds, at most all
        there are.
        """
        capacity = np.empty(self.rate.shape, np.int64)
        for rate in np.unique(self.rate).tolist():
            capacity[self.rate == rate] = min(time * rate // 1, self.chunks.total)
        return capacity

    @cached_property
    def unit(self) -> int:
        """The sizes' common divisor."""
        return int(np.gcd.reduce(self.chunks.size))

    @cached_property
    def mean(self) -> Floats:
        """float64 [2, nodes]: what a node carries, over the rates of its rails."""
        return self.total / np.maximum(self.rate.sum(axis=2), 1)

    def state(self, rail: Rails, time: Fraction) -> kernels.SearchState:
        """A plan to be changed, aimed at `time`."""
        return kernels.SearchState(
            *self.grouped,
            self.end,
            self.chunks.size,
            rail.copy(),
            self.loads(rail),
            self.capacity(time),
            self.weight,
        )


def improve(
    cells: Cells,
    rail: Rails,
    target: Fraction,
    *,
    tolerance: Fraction = Fraction(0),
    steps: int,
    seed: int,
    locked: Bools | None = None,
) -> tuple[Rails, Fraction]:
    """The best plan that `steps` steps find on the way to `target`, and its exact makespan."""
    state = cells.state(rail, target)
    until = np.zeros(len(rail), np.int32)  # until when each chunk rests
    if locked is not None:
        until[locked] = kernels.LOCKED
    kernels.tabu(state, until, float(tolerance * target * cells.fastest), steps, seed)
    return state.rail, cells.value(cells.loads(state.rail))


def even_out(cells: Cells, rail: Rails, aim: Fraction, rounds: int, seed: int) -> Rails:
    """A plan whose overloaded rails shared their chunks anew with others of their node, so that
    fewer of them need more than `aim` seconds.
    """
    state = cells.state(rail, aim)
    resplit(state, rounds, seed)
    return state.rail


def construct(cells: Cells, target: Fraction, order: Ints) -> Rails:
    """A plan from scratch: chunks in this order, each to the rail that is fullest least at both
    ends.
    """
    return _complete(
        cells,
        target,
        order,
        np.zeros((1, cells.fabric.rails), np.int64),
        np.full(len(cells.chunks), -1, np.int32),
        "send",
    )


def anchor(
    cells: Cells, target: Fraction, side: str, node: int, rails: Ints, seed: int
) -> tuple[Rails, Bools]:
    """A plan in which a node's rails carry what `rails` says, the other chunks where they fit; and
    which chunks are fixed: the node's, if that could be, in spite of dead rails.

    rails  int64, the rail of each of `node_chunks(side, node)`.  Chunks of one size are
           interchangeable at a node: which of them takes which place is decided by the other ends,
           those with fewer living rails first, else in an order that the seed draws: one after the
           other, the last sender or receiver would be left with the places that suit it least.
    """
    rows = cells.node_chunks(side, node)
    sizes, place = np.unique(cells.chunks.size[rows], return_inverse=True)
    slots = np.zeros((len(sizes), cells.fabric.rails), np.int64)
    np.add.at(slots, (place, rails), 1)
    anchored = np.full(len(cells.chunks), -1, np.int32)
    anchored[rows] = place
    order, fixed = cells.order.copy(), anchored >= 0
    among = fixed[order]
    chosen = np.random.default_rng(seed).permutation(order[among])
    living = cells.living[cells.end[kernels.SEND, chosen], cells.end[kernels.RECV, chosen]]
    order[among] = chosen[np.lexsort((living, -cells.chunks.size[chosen]))]
    rail = _complete(cells, target, order, slots, anchored, side)
    size = cells.chunks.size[rows]
    asked, carried = (
        np.bincount(places, size, cells.fabric.rails) for places in (rails, rail[rows])
    )
    fixed[rows] = np.array_equal(asked, carried)
    return rail, fixed


def _complete(
    cells: Cells,
    target: Fraction,
    order: Ints,
    slots: Ints,
    anchored: npt.NDArray[np.int32],
    side: str,
) -> Rails:
    """See the kernel of this name."""
    state = cells.state(np.zeros(len(cells.chunks), np.int16), target)
    kernels.complete(state, order, slots, anchored, SIDE[side])
    return state.rail
