"""What no placement can beat, with any split of tokens over its copies, on any rails.

Tokens that leave a node cross its NICs, and those of a node that holds their expert.  In a time T
node A sends at most T tx_A bytes and receives at most T rx_A.  Take prices, none negative: u_B of a
token that B receives, v_A of one that A sends, w_B of a slot of B.  Every placement S (the nodes
S_e that hold expert e, at most K_B experts on B) has

    T (sum_B u_B rx_B + sum_A v_A tx_A) / bytes of a token
        >= sum over e and A outside S_e of n[A, e] (v_A + min over B in S_e of u_B)
        >= sum over e of min over b of (w_b + sum over A != b of min(w_A, n[A, e] (v_A + u_b)))
           - sum_B w_B K_B

because b, the cheapest holder of e, is in S_e, and every other node either holds e, which costs its
slot, or sends its tokens for e.  Any prices give a true bound, so they are the witness: integers,
checked by adding up.  Good ones are the dual of a linear program, found in floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints, frozen
from railopt.base.errors import InputError
from railopt.evidence.certificate import Certificate
from railopt.model.fabric import Fabric

FINE = 1 << 20  # prices are whole multiples of 1/FINE of the largest
MOST_PAIRS = 1 << 18  # (node, expert, node) of one linear program: beyond, prices are even


class NodePrices(NamedTuple):
    """int64 [node] each, none negative: of a token received, of a token sent, of a slot."""

    recv: Ints
    send: Ints
    slot: Ints


@dataclass(frozen=True, eq=False)
class Demand:
    """One layer's tokens and the nodes that serve them.

    tokens       int64 [node, expert]: tokens of the node's GPUs
    slots        int64 [node]: experts that the node's GPUs can hold together
    tx, rx       int64 [node]: bytes per second of all its NICs
    token_bytes  of one token
    """

    tokens: Ints = field(repr=False)
    slots: Ints
    tx: Ints
    rx: Ints
    token_bytes: int

    def __post_init__(self) -> None:
        for name, axes in (("tokens", 2), ("slots", 1), ("tx", 1), ("rx", 1)):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name, axes))
        nodes, experts = self.tokens.shape
        if {len(self.slots), len(self.tx), len(self.rx)} != {nodes}:
            raise InputError(f"slots, tx and rx: expected {nodes} numbers each, one per node")
        if min(each.min() for each in (self.tokens, self.slots, self.tx, self.rx)) < 0:
            raise InputError("tokens, slots and rates can't be negative")
        if int(self.slots.sum()) < experts:
            raise InputError(f"{int(self.slots.sum())} slots can't hold {experts} experts")

    @classmethod
    def of(cls, fabric: Fabric, counts: Ints, slots_per_gpu: int, token_bytes: int) -> Demand:
        """From counts int [source GPU, expert], one rank per GPU."""
        tokens = counts.reshape(fabric.nodes, fabric.gpus, -1).sum(axis=1, dtype=np.int64)
        slots = np.full(fabric.nodes, fabric.gpus * slots_per_gpu, np.int64)
        return cls(tokens, slots, fabric.tx.sum(axis=1), fabric.rx.sum(axis=1), token_bytes)

    def bound(self, prices: NodePrices, holds: Bools | None = None) -> Fraction:
        """Seconds that no placement beats, by these prices; with holds bool [node, expert], that
        no split over these copies beats.
        """
        recv, send, slot = (each.tolist() for each in prices)
        capacity = sum(
            u * int(rx) + v * int(tx)
            for u, v, rx, tx in zip(recv, send, self.rx, self.tx, strict=True)
        )
        if not capacity or min(map(min, prices)) < 0:
            raise InputError("prices: expected none negative, and one that is not zero")
        if holds is None:
            paid = self._any_placement(prices) - sum(
                w * int(slots) for w, slots in zip(slot, self.slots, strict=True)
            )
        else:
            paid = self._given(prices, holds)
        return max(Fraction(0), Fraction(paid * self.token_bytes, capacity))

    def _any_placement(self, prices: NodePrices) -> int:
        """The sum over experts of the cheapest way to hold each, in Python's integers."""
        recv, send, slot = (each.astype(object) for each in prices)
        tokens = self.tokens.astype(object)
        every = []
        for b in range(len(recv)):
            each = np.minimum(slot[:, None], tokens * (send + recv[b])[:, None])
            every.append(slot[b] + each.sum(axis=0) - each[b])
        return int(np.min(every, axis=0).sum())

    def _given(self, prices: NodePrices, holds: Bools) -> int:
        recv, send = (each.astype(object) for each in prices[:2])
        cheapest = np.array([recv[held].min() for held in holds.T], object)
        away = np.where(holds, 0, self.tokens).astype(object)
        return int((away * (send[:, None] + cheapest[None, :])).sum())

    def prices(self, holds: Bools | None = None) -> NodePrices:
        """Good prices: the dual of the linear program of `bound`."""
        nodes, experts = self.tokens.shape
        none = np.zeros(nodes, np.int64)
        if nodes * nodes * experts > MOST_PAIRS or not self.tokens.any():
            return NodePrices(none + 1, none + 1, none)
        found = _dual(self, holds)
        largest = 0.0 if found is None else max(found[0].max(), found[1].max())
        if found is None or largest <= 0:
            return NodePrices(none + 1, none + 1, none)
        return NodePrices(
            *(np.rint(np.maximum(each, 0) * (FINE / largest)).astype(np.int64) for each in found)
        )

    def certificate(self, prices: NodePrices) -> Certificate:
        """The bound on any placement by these prices, for `railopt check`."""
        problem = {
            "kind": "layer",
            "tokens": self.tokens.T.tolist(),
            **{name: getattr(self, name).tolist() for name in ("slots", "tx", "rx")},
            "token_bytes": self.token_bytes,
        }
        named = {name: each.tolist() for name, each in prices._asdict().items()}
        return Certificate(problem, self.bound(prices), {"kind": "node prices", **named})

    @property
    def back(self) -> Demand:
        """The combine: what a node sent it receives, so its rates change places."""
        return replace(self, tx=self.rx, rx=self.tx)

    def best(self, holds: Bools | None = None) -> tuple[Fraction, NodePrices]:
        """The bound by good prices, and these."""
        prices = self.prices(holds)
        return self.bound(prices, holds), prices


def _dual(demand: Demand, holds: Bools | None) -> tuple[Floats, Floats, Floats] | None:
    """Prices of receiving, sending and slots, float64 [node] each, at an optimum of the program

        least T: sum_B x[A, e, B] = n[A, e];  x[A, e, B] <= n[A, e] y[e, B];  sum_e y[e, B] <= K_B;
                 tokens sent by A and received by B within T of their rates;  0 <= y <= 1

    where x[A, e, A] is what stays; None where the solver gives up.  With `holds`, y is given.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    nodes, experts = demand.tokens.shape
    at, of = np.nonzero(demand.tokens)  # the pairs (A, e) that have tokens
    pair = np.repeat(np.arange(len(at)), nodes)
    to = np.tile(np.arange(nodes), len(at))
    if holds is not None:
        allowed = holds[to, of[pair]]
        pair, to = pair[allowed], to[allowed]
    ways = _Ways(at[pair], of[pair], to)
    flows, last = len(pair), len(pair) + (nodes * experts if holds is None else 0)
    upper, limits = _limits(demand, ways, slots=holds is None)
    whole = coo_array((np.ones(flows), (pair, np.arange(flows))), shape=(len(at), last + 1))
    made = linprog(
        np.arange(last + 1) == last,
        A_ub=upper,
        b_ub=limits,
        A_eq=whole.tocsr(),
        b_eq=np.ones(len(at)),
        bounds=[(0, 1)] * last + [(0, None)],
        method="highs-ipm",
    )
    if made.status != 0:
        return None
    dual = -made.ineqlin.marginals
    slot = dual[2 * nodes : 3 * nodes] if holds is None else np.zeros(nodes)
    return dual[nodes : 2 * nodes], dual[:nodes], slot * (demand.tokens.sum() / nodes)


class _Ways(NamedTuple):
    """Tokens of node `src` for `expert` may be computed at node `dst`: a variable each."""

    src: Ints
    expert: Ints
    dst: Ints


def _limits(demand: Demand, ways: _Ways, *, slots: bool) -> tuple[Any, Floats]:
    """The program's inequalities: columns are x (shares of n[A, e]), y[B, e] where `slots`, and T;
    rows are what nodes send, what they receive, then slots of nodes and y of each x.  Tokens are
    counted in the mean node's, bytes in the fastest node's.
    """
    from scipy.sparse import coo_array

    nodes, experts = demand.tokens.shape
    flows, mean = len(ways.src), demand.tokens.sum() / nodes
    away = np.flatnonzero(ways.src != ways.dst)
    share = demand.tokens[ways.src, ways.expert][away] / mean
    rate = np.concatenate([demand.tx, demand.rx]) / max(demand.tx.max(), demand.rx.max())
    last = flows + (nodes * experts if slots else 0)
    rows = [ways.src[away], nodes + ways.dst[away], np.arange(2 * nodes)]
    columns = [away, away, np.full(2 * nodes, last)]
    values = [share, share, -rate]
    limits = [np.zeros(2 * nodes)]
    if slots:
        held = flows + np.arange(nodes * experts)
        linked = 3 * nodes + np.arange(flows)
        rows += [2 * nodes + np.repeat(np.arange(nodes), experts), linked, linked]
        columns += [held, np.arange(flows), flows + ways.dst * experts + ways.expert]
        values += [np.ones(len(held)), np.ones(flows), -np.ones(flows)]
        limits += [demand.slots.astype(float), np.zeros(flows)]
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    made = coo_array(entries, shape=(sum(map(len, limits)), last + 1))
    return made.tocsr(), np.concatenate(limits)
