"""A placement and a split of one layer's tokens, found together: what the bound on any placement
(`joint`) is held against.

Where the linear program would hold parts of experts, whole ones are held; then experts change
places, one random change after the other, as long as the busiest nodes gain.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Floats, Ints
from railopt.base.kernels import below, kernel, part, seeded
from railopt.moe.joint import Demand

ROUNDS = 2  # in which each expert's tokens are split, the others' being where they are
ROUNDING = 1e-6  # of a token
TRIES, MOST_TRIES = 32, 1 << 14  # changes that are tried: per node and expert, in all


class FoundPlacement(NamedTuple):
    """bool [node, expert], and the whole tokens, int64 [node] each, that nodes then send and
    receive.
    """

    holds: Bools
    sent: Ints
    received: Ints

    def seconds(self, demand: Demand) -> Fraction:
        """Seconds of the busiest node's NICs."""
        ends = [*zip(self.sent.tolist(), demand.tx.tolist(), strict=True)]
        ends += zip(self.received.tolist(), demand.rx.tolist(), strict=True)
        times = (Fraction(tokens * demand.token_bytes, rate) for tokens, rate in ends if tokens)
        return max(times, default=Fraction(0))

    def both_ways(self, demand: Demand) -> Fraction:
        """Seconds of the dispatch and of the combine."""
        return self.seconds(demand) + self.seconds(demand.back)


def find_placement(demand: Demand, wish: Floats) -> FoundPlacement:
    """A placement in the slots that starts near float64 [node, expert], the part of an expert that
    a node should hold; nodes can send and receive, and none holds an expert already.
    """
    holds = _rounded(demand, wish).astype(np.int64)
    largest = np.argsort(-demand.tokens.sum(axis=0), kind="stable")
    rates = demand.tx.astype(np.float64), demand.rx.astype(np.float64)
    _descend(holds, demand.tokens, largest, *rates, min(MOST_TRIES, TRIES * holds.size))
    return split_over(demand, holds.astype(np.bool_))


def split_over(demand: Demand, holds: Bools) -> FoundPlacement:
    """Tokens over given copies, bool [node, expert]: experts with one holder first, then those with
    most tokens, to the holders that are done first; then each again, beside all others.
    """
    away, rx = np.where(holds, 0, demand.tokens), demand.rx.astype(np.float64)
    shares, tokens = np.zeros(holds.shape), away.sum(axis=0)
    several = holds.sum(axis=0) > 1
    order = np.lexsort((-demand.tokens.sum(axis=0), several)).tolist()
    for _ in range(ROUNDS):
        for expert in order:
            others = shares.sum(axis=1) - shares[:, expert]
            loads = others.copy()
            _pour(holds, expert, float(tokens[expert]), rx, loads)
            shares[:, expert] = loads - others
    whole = np.floor(shares + ROUNDING).astype(np.int64)
    first = holds.argmax(axis=0), np.arange(len(tokens))
    whole[first] += tokens - whole.sum(axis=0)  # what rounding left over
    return FoundPlacement(holds, away.sum(axis=1), whole.sum(axis=1))


def _rounded(demand: Demand, wish: Floats) -> Bools:
    """The largest wishes that fit into the slots, each expert once before any twice."""
    holds, free = np.zeros(wish.shape, np.bool_), demand.slots.copy()
    near = wish + demand.tokens / (1e3 * max(1, int(demand.tokens.max())))  # breaks ties
    order = [divmod(each, wish.shape[1]) for each in np.argsort(-near, axis=None, kind="stable")]
    for again in (False, True):
        for node, expert in order:
            if free[node] and not holds[node, expert] and (again or not holds[:, expert].any()):
                holds[node, expert], free[node] = True, free[node] - 1
    return holds


@part
def _pour(holds: Array, expert: int, amount: float, rx: Array, loads: Array) -> None:
    """Add what an expert receives to its holders' loads so that they end together, without those
    that end later anyway.
    """
    end = np.inf
    for _ in range(len(rx)):
        total, rate = amount, 0.0
        for node in range(len(rx)):
            if holds[node, expert] and loads[node] < end * rx[node]:
                total, rate = total + loads[node], rate + rx[node]
        if total >= end * rate:
            break
        end = total / rate
    for node in range(len(rx)):
        if holds[node, expert] and loads[node] < end * rx[node]:
            loads[node] = end * rx[node]


@part
def _cost(holds: Array, tokens: Array, largest: Array, tx: Array, rx: Array) -> float:
    """The sum of all nodes' times of sending and of receiving, to the eighth power: mostly that of
    the slowest.  Experts with one holder come first, then those with most tokens.
    """
    nodes, experts = tokens.shape
    cost, loads, away = 0.0, np.zeros(nodes), np.zeros(experts)
    for node in range(nodes):
        sent = 0.0
        for expert in range(experts):
            if not holds[node, expert]:
                sent += tokens[node, expert]
                away[expert] += tokens[node, expert]
        cost += (sent / tx[node]) ** 8
    for few in range(2):
        for i in range(experts):
            expert, copies = largest[i], 0
            for node in range(nodes):
                copies += holds[node, expert]
            if (copies > 1) == (few == 1) and away[expert] > 0:
                _pour(holds, expert, away[expert], rx, loads)
    for node in range(nodes):
        cost += (loads[node] / rx[node]) ** 8
    return cost


@kernel(element_s=1e-3)  # a call tries many changes of the same few elements
def _descend(holds: Array, tokens: Array, largest: Array, tx: Array, rx: Array, tries: int) -> None:
    """Change holds int64 [node, expert] in place while that gains.  A node takes an expert instead
    of another; where that was the last copy, another node takes it instead of an expert that has
    more, or of the first one.
    """
    nodes, experts = tokens.shape
    draws, cost = seeded(nodes * experts), _cost(holds, tokens, largest, tx, rx)
    copies = holds.sum(axis=0)
    for _ in range(tries):
        node, other = below(draws, nodes), below(draws, nodes)
        new, old, third = below(draws, experts), below(draws, experts), below(draws, experts)
        if holds[node, new] or not holds[node, old]:
            continue
        last = copies[old] == 1
        if last and (
            other == node or not holds[other, third] or (copies[third] == 1 and third != new)
        ):
            continue
        holds[node, new], holds[node, old] = 1, 0
        if last:
            holds[other, old], holds[other, third] = 1, 0
        changed = _cost(holds, tokens, largest, tx, rx)
        if changed < cost:
            cost, copies = changed, holds.sum(axis=0)
        else:
            holds[node, new], holds[node, old] = 0, 1
            if last:
                holds[other, old], holds[other, third] = 0, 1
