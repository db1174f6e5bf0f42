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
slot, or sends its tokens for e.  Copies that are there already need no slot: for such e and A, w_A
is 0.  Any prices give a true bound, so they are the witness: integers, checked by adding up.  Good
ones are the dual of a linear program, found in floats; its other half says where experts would best
be, from which `together` starts.
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
MOST_CELLS = 1 << 13  # (node, expert) of one linear program: beyond, prices are even


class NodePrices(NamedTuple):
    """int64 [node] each, none negative: of a token received, of a token sent, of a slot."""

    recv: Ints
    send: Ints
    slot: Ints


class Relaxed(NamedTuple):
    """What the linear program says: prices, and float64 [node, expert], how much of an expert a
    node would best hold.
    """

    prices: NodePrices
    held: Floats


@dataclass(frozen=True, eq=False)
class Demand:
    """One layer's tokens and the nodes that serve them.

    tokens       int64 [node, expert]: tokens of the node's GPUs
    slots        int64 [node]: experts that the node's GPUs can hold together, beside `holds`
    tx, rx       int64 [node]: bytes per second of all its NICs
    token_bytes  of one token
    holds        bool [node, expert]: copies that are there already (None: none)
    """

    tokens: Ints = field(repr=False)
    slots: Ints
    tx: Ints
    rx: Ints
    token_bytes: int
    holds: Bools | None = field(repr=False, default=None)

    def __post_init__(self) -> None:
        for name, axes in (("tokens", 2), ("slots", 1), ("tx", 1), ("rx", 1)):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64, name, axes))

    @classmethod
    def of(cls, fabric: Fabric, counts: Ints, slots_per_gpu: int, token_bytes: int) -> Demand:
        """Demand of counts int [source GPU, expert], one rank per GPU; any placement is allowed."""
        tokens = counts.reshape(fabric.nodes, fabric.gpus, -1).sum(axis=1, dtype=np.int64)
        slots = np.full(fabric.nodes, fabric.gpus * slots_per_gpu, np.int64)
        return cls(tokens, slots, fabric.tx.sum(axis=1), fabric.rx.sum(axis=1), token_bytes)

    def holding(self, holds: Bools, free: Ints) -> Demand:
        """The same where copies bool [GPU, expert] stay, with free slots int [GPU] beside them."""
        nodes, experts = self.tokens.shape
        there = np.asarray(holds.reshape(nodes, -1, experts).any(axis=1))
        return replace(self, holds=there, slots=free.reshape(nodes, -1).sum(axis=1))

    @property
    def held(self) -> Bools:
        """`holds`, none where it is None."""
        return np.zeros(self.tokens.shape, np.bool_) if self.holds is None else self.holds

    def bound(self, prices: NodePrices) -> Fraction:
        """Seconds that no placement and no split beat, by these prices."""
        recv, send, slot = (each.tolist() for each in prices)
        pairs = zip(recv, send, self.rx.tolist(), self.tx.tolist(), strict=True)
        capacity = sum(u * rx + v * tx for u, v, rx, tx in pairs)
        if not capacity or min(map(min, prices)) < 0:
            raise InputError("prices: expected none negative, and one that is not zero")
        slots = sum(w * each for w, each in zip(slot, self.slots.tolist(), strict=True))
        return max(Fraction(0), Fraction((self._paid(prices) - slots) * self.token_bytes, capacity))

    def both_ways(self, prices: NodePrices) -> Fraction:
        """`bound` of the dispatch and of the combine."""
        return self.bound(prices) + self.back.bound(prices)

    def _paid(self, prices: NodePrices) -> int:
        """The sum over experts of the cheapest way to hold each; in Python's integers where 64 bits
        might be too few.
        """
        sent = int(self.tokens.max()) * (int(prices.recv.max()) + int(prices.send.max()))
        most = max(sent, self.tokens.size * int(prices.slot.max()))
        kind = np.int64 if most < 1 << 62 else object
        recv, send, price = (each.astype(kind) for each in prices)
        tokens, slot = self.tokens.astype(kind), np.where(self.held, 0, price[:, None])
        every = []
        for b in range(len(recv)):
            each = np.minimum(slot, tokens * (send + recv[b])[:, None])
            every.append(slot[b] + each.sum(axis=0) - each[b])
        return int(np.min(every, axis=0).sum())

    def relaxed(self) -> Relaxed:
        """Good prices, and where experts would best be if parts of them could be held."""
        one = np.ones(len(self.slots), np.int64)
        even = Relaxed(
            self.fitted(NodePrices(one, one, 0 * one)), self.tokens / max(1, self.tokens.max())
        )
        if self.tokens.size > MOST_CELLS or not self.tokens.any():
            return even
        found = _solved(self)
        largest = 0.0 if found is None else max(found[0].max(), found[1].max())
        if found is None or largest <= 0:
            return even
        *dual, held = found
        whole = (np.rint(np.maximum(each, 0) * (FINE / largest)).astype(np.int64) for each in dual)
        return Relaxed(self.fitted(NodePrices(*whole)), held)

    def fitted(self, prices: NodePrices) -> NodePrices:
        """The same with a price beyond reach for slots of nodes that have none free."""
        most = int(self.tokens.sum(axis=0).max()) * (
            int(prices.recv.max()) + int(prices.send.max())
        )
        slot = np.where(self.slots > 0, prices.slot, min(most, 1 << 61))
        return prices._replace(slot=slot.astype(np.int64))

    def prices(self) -> NodePrices:
        """Good prices."""
        return self.relaxed().prices

    def certificate(self, prices: NodePrices) -> Certificate:
        """The bound by these prices, for `railopt check`."""
        problem = {
            "kind": "layer",
            "tokens": self.tokens.T.tolist(),
            **{name: getattr(self, name).tolist() for name in ("slots", "tx", "rx")},
            "token_bytes": self.token_bytes,
        }
        if self.holds is not None:
            problem["holds"] = self.holds.T.astype(int).tolist()
        named = {name: each.tolist() for name, each in prices._asdict().items()}
        return Certificate(problem, self.bound(prices), {"kind": "node prices", **named})

    @property
    def back(self) -> Demand:
        """The combine: what a node sent it receives, so its rates change places."""
        return replace(self, tx=self.rx, rx=self.tx)


def _solved(demand: Demand) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Prices of receiving, sending and slots, float64 [node] each, and y float64 [node, expert], at
    an optimum of the program

        least T: sum_e n[A, e] (1 - z[A, e]) <= T tx_A;   sum_e r[B, e] <= T rx_B
                 sum_B r[B, e] = sum_A n[A, e] (1 - z[A, e]);   z <= y
                 r[B, e] <= (tokens of e elsewhere) y[B, e];   sum_e y[B, e] <= K_B;   0 <= y <= 1
                 sum_B y[B, e] >= 1

    where z stays on its node and r is received; y is 1 and needs no slot where a copy is there.
    None where the solver gives up.
    """
    from scipy.optimize import linprog

    upper, limits, equal, sums, highest = layer_program(demand)
    nodes, experts = demand.tokens.shape
    made = linprog(
        np.arange(len(highest)) == len(highest) - 1,
        A_ub=upper,
        b_ub=limits,
        A_eq=equal,
        b_eq=sums,
        bounds=np.stack([np.zeros(len(highest)), highest], axis=1),
        method="highs-ipm",
    )
    if made.status != 0:
        return None
    send, recv, slot = -made.ineqlin.marginals[: 3 * nodes].reshape(3, nodes)
    held = made.x[2 * demand.tokens.size : -1].reshape(nodes, experts)
    return recv, send, slot * (demand.tokens.sum() / nodes), np.where(demand.held, 1.0, held)


def layer_program(demand: Demand) -> tuple[Any, Floats, Any, Floats, Floats]:
    """Inequalities, equalities and upper bounds of `_solved`.  Columns are z, r and y by node and
    expert, then T.  Tokens are counted in the mean node's, bytes in the fastest node's.
    """
    from scipy.sparse import block_array, csr_array, diags_array, eye_array, kron

    nodes, experts = demand.tokens.shape
    tokens = demand.tokens / (demand.tokens.sum() / nodes)
    elsewhere = (tokens.sum(axis=0) - tokens).ravel()
    tx, rx = (
        csr_array(rate[:, None] / max(demand.tx.max(), demand.rx.max()))
        for rate in (demand.tx, demand.rx)
    )
    there = demand.held.ravel().astype(float)
    new = diags_array(1 - there)  # y counts where there is no copy yet
    of_node = kron(eye_array(nodes), np.ones((1, experts)), format="csr")
    of_expert = kron(np.ones((1, nodes)), eye_array(experts), format="csr")
    stay, every = diags_array(tokens.ravel()), eye_array(len(there))
    upper = block_array(
        [
            [-of_node @ stay, None, None, -tx],
            [None, of_node, None, -rx],
            [None, None, of_node @ new, None],
            [every, None, -new, None],
            [None, every, -diags_array(elsewhere) @ new, None],
            [None, None, -of_expert, None],
        ],
        format="csr",
    )
    none = np.zeros(nodes)
    limits = [-tokens.sum(axis=1), none, demand.slots, there, there * elsewhere, -np.ones(experts)]
    equal = block_array(
        [[of_expert @ stay, of_expert, 0 * of_expert, csr_array((experts, 1))]], format="csr"
    )
    highest = np.ones(3 * len(there) + 1)
    highest[len(there) : 2 * len(there)] = highest[-1] = np.inf
    return upper, np.concatenate(limits), equal, tokens.sum(axis=0), highest
