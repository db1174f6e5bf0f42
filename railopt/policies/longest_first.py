"""Longest processing time first, with three horizons, and once with a guarantee.

    lpt          RailS: each sender alone, largest chunk first to its least loaded rail
    lpt-local    still alone, but each sender also spreads what it sends to every single receiver
    lpt-dealt    lpt-local, but each receiver's largest chunks are dealt in an order of the pair
    lpt-global   with the whole matrix known: the rail that minimises the later of sender and
                 receiver

`lpt` balances what is sent and nothing else: the receivers' rails may differ by a factor N (theorem
T2). `lpt-local` needs no more information than `lpt` and keeps most of the receivers' balance, but
guarantees none: what a node sends to others moves a chunk to any rail.  `lpt-dealt` deals chunks of
the sender's largest size, of equal chunks all, from rails that are spread over the pairs of a node,
in turn upwards and downwards.

Each has a fast kernel for equal rails and a plain one for all others (`by_size`,
`unequal_rails`); both follow the same rule, and `Senders` chooses between them for `railopt.plan`
and for `Planner` alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railopt.base.arrays import Ints, Rails, ranks
from railopt.base.dice import Dice
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import by_size, rounds, unequal_rails
from railopt.policies.common import Columns, Costs, check_alive, costs, rail_turns

__all__ = ["PAIR_WEIGHT", "Senders", "lpt", "lpt_dealt", "lpt_global", "lpt_local"]

# the best of 1, 2, 4 and 8 on generated MoE traffic (8 to 32 nodes, 64 KiB to 4 MiB)
PAIR_WEIGHT = 4


@dataclass(frozen=True)
class Senders:
    """Who plans, each for itself: all nodes of a fabric, or one of them.

    count       senders: the rows of `costs.tx`
    equal_nics  every sender's NICs are alike, and no receiver's NIC is slower than any sender's
    turns       one fair round over the rails, or None (`rail_turns`)
    """

    fabric: Fabric
    count: int
    costs: Costs
    equal_nics: bool
    turns: Ints | None

    @classmethod
    def of(cls, fabric: Fabric, node: int | None = None) -> Senders:
        """All nodes, or `node` alone."""
        tx, rx = fabric.tx, fabric.rx
        equal = bool(np.all(tx == tx[:, :1]) and 0 < tx.max() <= rx.min())
        every = costs(fabric)
        own = every if node is None else every._replace(tx=every.tx[node : node + 1], first=node)
        return cls(fabric, len(own.tx), own, equal, rail_turns(fabric))

    def lpt(self, chunks: Columns, rail: Rails) -> None:
        """Fill `rail`, int16 [C]: each sender's chunks, largest first, to its rail that would be
        done first; equal sizes go by chunk index, equal times by rail index.
        """
        if self.equal_nics and by_size.fits(chunks, self.count, self.fabric.rails):
            by_size.lpt(chunks, self.count, self.fabric.rails, rail)
        else:
            kernel, costs = unequal_rails.summed(unequal_rails.lpt, self.costs, chunks)
            kernel(by_size.largest_first(chunks.size), chunks, costs, rail)

    def lpt_local(self, chunks: Columns, rail: Rails) -> None:
        """Fill `rail`, int16 [C]: whole rounds of largest chunks for a receiver go one to each
        rail; the rest, largest first, to the rail with the fewest bytes, those for the same
        receiver counted `PAIR_WEIGHT` times more.
        """
        fabric, turns = self.fabric, self.turns
        if turns is None:
            rows = np.arange(len(chunks.size))
        else:
            rows = rounds.left_by_rounds(chunks, self.count, fabric.nodes, turns, rail)
        if not len(rows):
            return
        nodes, rails = fabric.nodes, fabric.rails
        if fabric.is_uniform and by_size.pairs_fit(chunks, nodes, rails, PAIR_WEIGHT):
            spread = by_size.Spread(self.count, nodes, rails, self.costs.first, PAIR_WEIGHT)
            by_size.lpt_local(chunks, rows, spread, rail)
        else:
            rail[rows] = -1
            self._by_pairs(chunks, rows, rail)

    def lpt_dealt(self, chunks: Columns, rail: Rails) -> None:
        """Fill `rail`, int16 [C]: chunks of the sender's largest size in turn, for every other
        receiver downwards, from a rail of the pair; then the others, as `lpt_local` does.  Where
        NICs differ, it is `lpt_local`.
        """
        if not self.fabric.is_uniform:
            self.lpt_local(chunks, rail)
            return
        nodes, rails = self.fabric.nodes, self.fabric.rails
        largest = rounds.largest_of_each(chunks.src, chunks.size, self.count)
        rows = np.flatnonzero(chunks.size == largest[chunks.src])
        ends = chunks.src[rows], chunks.dst[rows]
        turn, _ = ranks(*rounds.pair_numbers(*ends, self.costs.tx, nodes))
        apart = chunks.dst[rows] - chunks.src[rows] - self.costs.first - 1
        start, downwards = np.divmod(apart % nodes, 2)
        many = nodes > 2 * rails  # then neighbouring receivers get rails of their own
        start = 2 * start % rails if many else start * rails // (nodes // 2)
        rail[:] = -1
        rail[rows] = np.where(downwards, start - 1 - turn, start + turn) % rails
        self._by_pairs(chunks, np.arange(len(rail)), rail)

    def _by_pairs(self, chunks: Columns, rows: Ints, rail: Rails) -> None:
        """Those of the chunks `rows` whose `rail` is -1, among the others' loads, on any rails."""
        kernel, costs = unequal_rails.summed(
            unequal_rails.lpt_local, self.costs, chunks, 1 + PAIR_WEIGHT
        )
        words, ends = by_size.largest_first(chunks.size[rows]), (chunks.src[rows], chunks.dst[rows])
        pairs = rounds.pair_numbers(*ends, costs.tx, self.fabric.nodes)
        kernel(words, rows, pairs, chunks, costs, PAIR_WEIGHT, rail)


def lpt(fabric: Fabric, chunks: Chunks, *, seed: int | None = None) -> Plan:
    """Each sender alone.  Equal sizes go by chunk index and equal loads by rail index, or, with a
    seed, in random order.
    """
    check_alive(fabric, chunks)
    columns = Columns.of(chunks)
    rail = np.empty(len(columns.size), np.int16)
    if seed is None:
        Senders.of(fabric).lpt(columns, rail)
    else:
        _lpt_drawn(fabric, columns, seed, rail)
    return Plan.of(fabric, chunks, rail, "lpt")


def _lpt_drawn(fabric: Fabric, chunks: Columns, seed: int, rail: Rails) -> None:
    """`lpt` with the chunks and, where they are all alike, each sender's rails in random order."""
    dice = Dice(seed, "lpt")
    order = dice.permutation(len(rail))
    src, dst, size = (column[order] for column in (chunks.src, chunks.dst, chunks.size))
    shuffled = np.empty_like(rail)
    Senders.of(fabric).lpt(chunks._replace(src=src, dst=dst, size=size), shuffled)
    names = [dice.permutation(fabric.rails) for _ in range(fabric.nodes)]
    rail[order] = np.stack(names)[src, shuffled] if fabric.is_uniform else shuffled


def lpt_local(fabric: Fabric, chunks: Chunks) -> Plan:
    """Each sender alone, and each receiver's share spread over the rails too."""
    check_alive(fabric, chunks)
    columns = Columns.of(chunks)
    rail = np.empty(len(columns.size), np.int16)
    Senders.of(fabric).lpt_local(columns, rail)
    return Plan.of(fabric, chunks, rail, "lpt-local")


def lpt_dealt(fabric: Fabric, chunks: Chunks) -> Plan:
    """`lpt-local`, but the chunks of a sender's largest size are dealt to each receiver from a rail
    of the pair: for three nodes and equal chunks the optimum (T18d).
    """
    check_alive(fabric, chunks)
    rail = np.empty(len(chunks), np.int16)
    Senders.of(fabric).lpt_dealt(Columns.of(chunks), rail)
    return Plan.of(fabric, chunks, rail, "lpt-dealt")


def lpt_global(fabric: Fabric, chunks: Chunks) -> Plan:
    """All chunks of all senders, largest first, each to the rail that is done first at both
    ends.
    """
    check_alive(fabric, chunks)
    columns = Columns.of(chunks)
    rail = np.empty(len(columns.size), np.int16)
    nodes, rails = fabric.nodes, fabric.rails
    if len(rail) and fabric.is_uniform and by_size.pairs_fit(columns, nodes, rails):
        by_size.lpt_global(columns, nodes, rails, rail)
    else:
        kernel, paid = unequal_rails.summed(unequal_rails.lpt_global, costs(fabric), columns, 2)
        kernel(by_size.largest_first(chunks.size), columns, paid, rail)
    return Plan.of(fabric, chunks, rail, "lpt-global")
