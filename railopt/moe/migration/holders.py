"""Which holder supplies which copy.

A copy that a GPU of the own node can supply crosses no NIC.  Of the others, how many a node
receives is settled by the maps; how many it sends is a choice.  `least_busy` makes the most that
any node sends, over the rate of its NICs, as small as it can be; then the most that any rank sends.
Each is the least cap at which a flow carries everything:

    copies of an expert -> ranks that hold it -> their nodes

Below that cap the flow ends in a cut: copies whose holders all lie on nodes that are full.  They
are the witness of the bound, which the checker adds up again; scipy's word is not taken.

`by_position` is vLLM's rule: the ranks that lack an expert in equal runs over its holders, those
that are left one by one to the first holders.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.migration.copies import NeededCopies


class Holders(NamedTuple):
    """Who supplies the copies.

    from_rank  int32 [C]
    sends      [nodes]: copies that leave each node
    time       the largest of sends / rate, as small as any choice makes it
    tight      the copies that show it: all their holders lie on nodes that would be full before
    """

    from_rank: Int32s
    sends: list[int]
    time: Fraction
    tight: list[int]


def least_busy(copies: NeededCopies, ranks: int, rates: Sequence[int]) -> Holders:
    """The holders that keep the busiest node least busy; rates [nodes] of what each sends."""
    node_of = np.arange(ranks) // (ranks // len(rates))
    near, far = _by_reach(copies, node_of)
    crossing, inside = _Supply(far, ranks), _Supply(near, ranks)
    time, tight = _least_time(crossing, node_of, rates)
    caps = [int(time * rate) for rate in rates]
    nothing = np.zeros(ranks, np.int64)
    sent = crossing.evenest(nothing, node_of, caps)
    close = inside.evenest(sent.sum(axis=0), node_of, [inside.total] * len(rates))
    chosen = np.zeros(len(copies.layer), np.int32)
    crossing.enter(sent, chosen)
    inside.enter(close, chosen)
    sends = np.bincount(node_of, weights=sent.sum(axis=0), minlength=len(rates))
    return Holders(chosen, sends.astype(np.int64).tolist(), time, tight)


def least_busy_ranks(copies: NeededCopies, ranks: int) -> Int32s:
    """int32 [C]: the holders that keep the busiest rank least busy, wherever ranks are."""
    everywhere, chosen = np.zeros(ranks, np.int64), np.zeros(len(copies.layer), np.int32)
    supply = _Supply(_by_reach(copies, np.arange(ranks))[1], ranks)
    supply.enter(supply.evenest(everywhere, everywhere, [supply.total]), chosen)
    return chosen


def _least_time(
    crossing: _Supply, node_of: Ints, rates: Sequence[int]
) -> tuple[Fraction, list[int]]:
    """The least time in which nodes send all copies, and the copies that allow no less."""
    if not crossing.total:
        return Fraction(0), []
    speeds = {rate for rate in rates if rate > 0}
    times = sorted({Fraction(n, rate) for rate in speeds for n in range(crossing.total + 1)})
    free = np.full(len(node_of), crossing.total)

    def caps(time: Fraction) -> list[int]:
        return [int(time * rate) for rate in rates]

    def carried(time: Fraction) -> bool:
        return crossing.carried(free, node_of, caps(time)) is not None

    if not times or not carried(times[-1]):
        raise InputError("all holders of an expert are on nodes whose NICs are dead")
    at = bisect_left(times, True, key=carried)
    return times[at], crossing.stuck(free, node_of, caps(times[at - 1]))


def by_position(copies: NeededCopies) -> Int32s:
    """int32 [C]: the holders that vLLM's rule takes."""
    chosen = np.zeros(len(copies.layer), np.int32)
    for members in _groups(copies, range(len(copies.layer)), lambda _: 0):
        holders = copies.holders[members[0]]
        each = len(members) // len(holders)
        for place, copy in enumerate(members):
            over = place - each * len(holders)
            chosen[copy] = holders[over if over >= 0 else place // each]
    return chosen


Grouped = list[tuple[list[int], list[int]]]  # copies of one expert, and the ranks to choose from


def _by_reach(copies: NeededCopies, node_of: Ints) -> tuple[Grouped, Grouped]:
    """Copies that a GPU of their own node can supply, and the others."""
    home = node_of[copies.to_rank].tolist()
    inside = [
        [rank for rank in holders if node_of[rank] == node]
        for holders, node in zip(copies.holders, home, strict=True)
    ]
    near = [copy for copy, found in enumerate(inside) if found]
    far = [copy for copy, found in enumerate(inside) if not found]
    return (
        [(group, inside[group[0]]) for group in _groups(copies, near, home.__getitem__)],
        [(group, copies.holders[group[0]]) for group in _groups(copies, far, lambda _: 0)],
    )


def _groups(
    copies: NeededCopies, members: Sequence[int], apart: Callable[[int], int]
) -> list[list[int]]:
    """Copies of one layer's expert together, where `apart` is the same."""
    found: dict[tuple[int, int, int], list[int]] = {}
    layer, expert = copies.layer.tolist(), copies.expert.tolist()
    for copy in members:
        found.setdefault((layer[copy], expert[copy], apart(copy)), []).append(copy)
    return list(found.values())


class _Supply:
    """Groups of copies, each with the ranks that may supply it, as a flow."""

    def __init__(self, grouped: Grouped, ranks: int) -> None:
        self.members = [members for members, _ in grouped]
        self.wanted = np.array([len(members) for members in self.members], np.int64)
        self.total, self.ranks = int(self.wanted.sum()), ranks
        each = [len(holders) for _, holders in grouped]
        self._holders = [holders for _, holders in grouped]
        self._group = np.repeat(np.arange(len(grouped)), each)
        self._rank = np.array([rank for _, holders in grouped for rank in holders], np.int64)

    def _graph(self, free: Ints, node_of: Ints, caps: Sequence[int]) -> Any:
        """Capacities from the source 0 through groups, ranks and nodes to the last vertex."""
        from scipy.sparse import csr_array

        groups, nodes = len(self.members), len(caps)
        ranks = 1 + groups + np.arange(self.ranks)
        first_node = 1 + groups + self.ranks
        parts: list[tuple[Array, Array, Array]] = [
            (np.zeros(groups, np.int64), 1 + np.arange(groups), self.wanted),
            (1 + self._group, ranks[self._rank], self.wanted[self._group]),
            (ranks, first_node + node_of, free),
            (first_node + np.arange(nodes), np.full(nodes, first_node + nodes), np.array(caps)),
        ]
        rows, columns, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        shape = (first_node + nodes + 1,) * 2
        return csr_array((np.minimum(values, self.total).astype(np.int32), (rows, columns)), shape)

    def carried(self, free: Ints, node_of: Ints, caps: Sequence[int]) -> Ints | None:
        """int64 [group, rank]: a choice in which no rank sends more than `free` [ranks] and no node
        more than `caps` [nodes]; None where there is none.
        """
        from scipy.sparse.csgraph import maximum_flow

        groups = len(self.members)
        found = maximum_flow(
            self._graph(free, node_of, caps), 0, groups + self.ranks + len(caps) + 1
        )
        if found.flow_value < self.total:
            return None
        flow: Ints = found.flow[1 : 1 + groups, 1 + groups : 1 + groups + self.ranks].toarray()
        sent = flow.sum(axis=0)
        assert (flow.sum(axis=1) == self.wanted).all()
        assert (sent <= free).all()
        return flow

    def stuck(self, free: Ints, node_of: Ints, caps: Sequence[int]) -> list[int]:
        """Copies that find no way within these caps, with all others that compete with them."""
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        graph = self._graph(free, node_of, caps)
        flow = maximum_flow(graph, 0, graph.shape[0] - 1).flow
        left = graph - flow
        left.data = (left.data > 0).astype(np.int32)
        left.eliminate_zeros()
        reached = breadth_first_order(left, 0, return_predecessors=False)
        groups = reached[(reached > 0) & (reached <= len(self.members))] - 1
        return sorted(copy for group in groups.tolist() for copy in self.members[group])

    def enter(self, flow: Ints, chosen: Int32s) -> None:
        """Write the ranks of a choice, int64 [group, rank], to its copies, `chosen` [C]."""
        for members, shares in zip(self.members, flow, strict=True):
            chosen[members] = np.repeat(np.arange(self.ranks), shares)

    def evenest(self, sent: Ints, node_of: Ints, caps: Sequence[int]) -> Ints:
        """int64 [group, rank]: a choice within the nodes' caps whose busiest rank, with the copies
        that it sends already, `sent` [ranks], sends least.

        Flows are asked only where the plain choice is above what any choice needs.
        """
        plain = self._in_turn(sent)
        mine = plain.sum(axis=0)
        alone = np.array([len(holders) == 1 for holders in self._holders], np.bool_)
        forced = plain[alone].sum(axis=0)
        least = max(
            int((sent + forced)[forced > 0].max(initial=0)),
            0 if sent.any() else -(-self.total // self.ranks),
        )
        fits = np.bincount(node_of, weights=mine, minlength=len(caps)) <= np.array(caps)
        if fits.all() and (sent + mine)[mine > 0].max(initial=0) <= least:
            return plain

        def choice(most: int) -> Ints | None:
            return self.carried(np.maximum(most - sent, 0), node_of, caps)

        low = high = max(least, 1)
        while choice(high) is None:
            low, high = high + 1, 2 * high
        found = choice(bisect_left(range(high), True, low, key=lambda cap: choice(cap) is not None))
        assert found is not None
        return found

    def _in_turn(self, sent: Ints) -> Ints:
        """int64 [group, rank]: copy after copy, those with the fewest holders first, from the
        holder that sends least so far.
        """
        flow, load = np.zeros((len(self.members), self.ranks), np.int64), sent.tolist()
        for group in sorted(range(len(flow)), key=lambda each: len(self._holders[each])):
            for _ in self.members[group]:
                rank = min(self._holders[group], key=load.__getitem__)
                load[rank] += 1
                flow[group, rank] += 1
        return flow
