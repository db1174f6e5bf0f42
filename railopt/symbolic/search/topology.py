"""Generated topologies: every M and N up to a size, healthy, degraded, unequal and under leaf
switches, with symbolic rates where they matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

Expr = Any


@dataclass(frozen=True)
class SymbolicFabric:
    """M nodes, N rails and the rate of every NIC as an expression: `tx[k][n]`, `rx[f][n]`; `kind`
    names the family.  Every rail spans leaf switches of `below` nodes each, or is one switch (0).
    """

    kind: str
    nodes: int
    rails: int
    tx: tuple[tuple[Expr, ...], ...]
    rx: tuple[tuple[Expr, ...], ...]
    below: int = 0

    @property
    def groups(self) -> list[range]:
        """Nodes below the same leaves."""
        step = self.below or self.nodes
        return [range(k, min(k + step, self.nodes)) for k in range(0, self.nodes, step)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every (sender, receiver) of different nodes."""
        return [(k, f) for k in range(self.nodes) for f in range(self.nodes) if k != f]

    @property
    def demand(self) -> dict[tuple[int, int], Expr]:
        """A symbol D_k_f for each pair: bytes from k to f, non-negative."""
        return {(k, f): sp.Symbol(f"D_{k}_{f}", nonnegative=True) for k, f in self.pairs}

    def __str__(self) -> str:
        leaves = f", leaves of {self.below}" if self.below else ""
        return f"{self.kind} {self.nodes} x {self.rails}{leaves}"


def sizes(most: int) -> Iterator[tuple[int, int]]:
    """(M, N) with 1 <= M, N <= most."""
    return ((nodes, rails) for nodes in range(1, most + 1) for rails in range(1, most + 1))


def healthy(nodes: int, rails: int) -> SymbolicFabric:
    """Every NIC at rate 1."""
    rates = tuple(tuple(sp.Integer(1) for _ in range(rails)) for _ in range(nodes))
    return SymbolicFabric("healthy", nodes, rails, rates, rates)


def switched(most_nodes: int, most_rails: int) -> Iterator[SymbolicFabric]:
    """Every NIC at rate 1, every number of nodes per leaf that makes several leaves a rail."""
    for nodes in range(2, most_nodes + 1):
        for rails in range(1, most_rails + 1):
            for below in range(1, nodes):
                yield replace(healthy(nodes, rails), below=below)


def proportional(nodes: int, rails: int) -> SymbolicFabric:
    """NIC n of node k sends at a_k b_n and receives at c_k b_n: one profile b, any factor per
    node and side.
    """
    b = [sp.Symbol(f"b_{n}", positive=True) for n in range(rails)]
    tx, rx = (
        tuple(
            tuple(sp.Symbol(f"{side}_{k}", positive=True) * rate for rate in b)
            for k in range(nodes)
        )
        for side in "ac"
    )
    return SymbolicFabric("unequal rails", nodes, rails, tx, rx)


def one_slow(nodes: int, rails: int, fraction: Expr) -> SymbolicFabric:
    """NIC 0 of node 0 at a fraction of the others' rate 1, both ways; 0 is dead."""
    rates = tuple(
        tuple(sp.sympify(fraction) if k == n == 0 else sp.Integer(1) for n in range(rails))
        for k in range(nodes)
    )
    return SymbolicFabric("one slow NIC", nodes, rails, rates, rates)


def arbitrary(nodes: int, rails: int) -> SymbolicFabric:
    """A symbol for every NIC and direction: no relation between them."""
    tx, rx = (
        tuple(
            tuple(sp.Symbol(f"{side}_{k}_{n}", positive=True) for n in range(rails))
            for k in range(nodes)
        )
        for side in ("tx", "rx")
    )
    return SymbolicFabric("arbitrary", nodes, rails, tx, rx)


def loads(
    topology: SymbolicFabric, split: dict[tuple[int, int, int], Expr]
) -> tuple[list[list[Expr]], list[list[Expr]]]:
    """(S[k][n], R[f][n]) of the bytes `split[k, f, n]` that k sends to f on rail n."""
    rails, nodes = range(topology.rails), range(topology.nodes)
    send = [[sp.Add(*(split[k, f, n] for f in nodes if f != k)) for n in rails] for k in nodes]
    recv = [[sp.Add(*(split[k, f, n] for k in nodes if k != f)) for n in rails] for f in nodes]
    return send, recv


def crossing(topology: SymbolicFabric, group: range) -> list[tuple[int, int]]:
    """The (sender, receiver) whose bytes go up from the group's leaves; reversed, down to them."""
    return [(k, f) for k, f in topology.pairs if k in group and f not in group]


def line_sums(topology: SymbolicFabric) -> tuple[list[Expr], list[Expr]]:
    """(r_k, c_f): what each node sends and receives in all."""
    demand, nodes = topology.demand, range(topology.nodes)
    rows = [sp.Add(*(demand[k, f] for f in nodes if f != k)) for k in nodes]
    return rows, [sp.Add(*(demand[k, f] for k in nodes if k != f)) for f in nodes]
