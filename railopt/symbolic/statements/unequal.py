"""T9: rails that differ.  b_n is a rail's rate, B the sum of a node's rates, L the largest row or
column sum of D.

T9    tx[k,n] = a_k b_n, rx[f,n] = c_f b_n    the split D b_n/B is optimal on both sides at once
T9a   any rates, b_n the least of rail n       the same split is done by L/B; optimal if a node of
      rates b has r = L or c = L
T9b   one NIC at a fraction phi                the uniform split costs 1/phi, T9a N/(N-1+phi), if
      its node is a bottleneck: 2 against 16/15 for N = 8, phi = 1/2
T9c   one NIC dead                             uniform over the rails alive at both ends costs at
      most N/(N-1)

Coq's kernel has T9 with one profile at all nodes, T9b, and that some split attains T9c; here is
what goes beyond it.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from railopt.symbolic.algebra import is_nonnegative, is_zero, sums_agree
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.topology import (
    SymbolicFabric,
    arbitrary,
    healthy,
    loads,
    one_slow,
    proportional,
)

Expr = Any
N, L, phi = sp.symbols("N L phi", positive=True)


def proportional_split(
    topology: SymbolicFabric, weights: list[Expr]
) -> dict[tuple[int, int, int], Expr]:
    """x[k,f,n] = D[k,f] w_n / sum of w."""
    total = sp.Add(*weights)
    return {
        (k, f, n): size * w / total
        for (k, f), size in topology.demand.items()
        for n, w in enumerate(weights)
    }


def even_split_needs_equal_rates(quick: bool = False, *, decided_by: str = "rates") -> Result:
    """T1a on every generated topology, healthy, degraded, unequal and arbitrary: the even split
    makes a node's NICs finish together exactly if they have one rate; S[k,n]/tx[k,n] = r_k/(N
    tx[k,n]).  `decided_by="kind"` expects it of healthy topologies only.
    """
    most, failures, count = 3 if quick else 4, [], 0
    for nodes in range(2, most + 1):
        for rails in range(1, most + 1):
            for topology in (
                healthy(nodes, rails),
                one_slow(nodes, rails, phi),
                proportional(nodes, rails),
                arbitrary(nodes, rails),
            ):
                even = proportional_split(topology, [sp.Integer(1)] * rails)
                for table, rates in zip(
                    loads(topology, even), (topology.tx, topology.rx), strict=True
                ):
                    for k in range(nodes):
                        times = [table[k][n] / rates[k][n] for n in range(rails)]
                        together = all(is_zero(time - times[0]) for time in times)
                        equal = all(is_zero(rate - rates[k][0]) for rate in rates[k])
                        count += 1
                        if together != (
                            equal if decided_by == "rates" else topology.kind == "healthy"
                        ):
                            failures.append(
                                f"{topology}: node {k} finishes "
                                f"{'together' if together else 'apart'}"
                            )
    return verdict(
        "symbolic",
        f"all M, N <= {most}, four kinds of topology ({count} nodes and sides), every D",
        failures,
        ("D and all rates are symbols, equal only where the topology says so",),
    )


def same_everywhere_general(quick: bool = False, *, proportionally: bool = True) -> Result:
    """T9 with symbolic M and N."""
    nodes, rails = sp.symbols("M N", positive=True, integer=True)
    k, f, n, m = sp.symbols("k f n m", integer=True)
    D, b = sp.IndexedBase("D"), sp.IndexedBase("b")
    B, a = sp.Symbol("B", positive=True), sp.Symbol("a_k", positive=True)
    share = b[n] / B if proportionally else 1 / rails
    time = sp.Sum(D[k, f] * share, (f, 0, nodes - 1)) / (a * b[n])
    bound = sp.Sum(D[k, f], (f, 0, nodes - 1)) / (a * B)
    carried = sp.Sum(D[k, f] * b[m] / B, (m, 0, rails - 1))
    facts = [
        ("every NIC is done with its node", sums_agree(time, bound)),
        ("the shares add up", sums_agree(carried, D[k, f] * sp.Sum(b[m], (m, 0, rails - 1)) / B)),
    ]
    return verdict(
        "symbolic",
        "all M, N",
        [name for name, held in facts if not held],
        ("B is the sum of b_n", "the receive side is the same with k and f exchanged"),
    )


def least_profile(quick: bool = False, *, least: bool = True) -> Result:
    """T9a: with weights b_n = the least rate of rail n anywhere, every NIC is done by L/B.

    With tx[k,n] = b_n + e and r_k = L - d (e, d >= 0):  L/B - (r_k b_n/B)/tx  =  (L e + d b_n) / (B
    (b_n + e)).
    """
    b, e, d, B = sp.symbols("b e d B", nonnegative=True)
    rate = b + e if least else b - e
    margin = L / B - ((L - d) * b / B) / rate
    numerator = sp.expand(sp.cancel(margin * B * rate))
    shown = is_nonnegative(numerator)
    failures = (
        []
        if shown and is_zero(numerator - (L * e + d * b))
        else [f"the margin is {numerator}, not shown non-negative"]
    )
    return verdict(
        "symbolic",
        "all M, N, D, rates",
        failures,
        ("b_n <= every tx[k,n] and rx[f,n]", "B > 0", "r_k, c_f <= L"),
    )


def dead_rail(quick: bool = False, *, avoided: bool = True) -> Result:
    """T9c with symbolic M and N: NIC 0 of node 0 dead, every pair uniform over the rails alive at
    both ends: at most L/(N-1) everywhere.

    A receiver's living rails carry c_f/N + D[0,f]/(N(N-1)), as node 0 is on N-1 rails and all other
    pairs are on N; with D[0,f] <= c_f <= L that is at most L/(N-1).
    """
    nodes, rails = sp.symbols("M N", positive=True, integer=True)
    k, f = sp.symbols("k f", integer=True)
    D = sp.IndexedBase("D")
    more = 1 / (rails - 1) - 1 / rails if avoided else 0
    recv = sp.Sum(D[k, f] * (1 / rails + sp.KroneckerDelta(k, 0) * more), (k, 0, nodes - 1))
    expected = sp.Sum(D[k, f], (k, 0, nodes - 1)) / rails + D[0, f] / (rails * (rails - 1))
    failures = []
    if not sums_agree(recv, expected):
        failures.append("a receiver's living rails do not carry c/N + D[0,f]/(N(N-1))")
    first, d, e = sp.symbols("D d e", nonnegative=True)  # D[0,f], c = D + d, L = D + d + e
    margin = (first + d + e) / (N - 1) - (first + d) / N - first / (N * (N - 1))
    if not is_zero(margin * N * (N - 1) - (N * e + d)):
        failures.append(f"the margin is {sp.factor(margin)}")
    return verdict(
        "symbolic",
        "all M, N >= 2",
        failures,
        ("one dead NIC", "N >= 2", "the send side is the same with k and f exchanged"),
    )
