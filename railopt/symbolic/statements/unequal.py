"""T9: rails that differ.  b_n is a rail's rate, B the sum of a node's rates, L the largest row or
column sum of D.

T9    tx[k,n] = a_k b_n, rx[f,n] = c_f b_n    the split D b_n/B is optimal on both sides at once
T9a   any rates, b_n the least of rail n       the same split is done by L/B; optimal if a node of
      rates b has r = L or c = L
T9b   one NIC at a fraction phi                the uniform split costs 1/phi, T9a N/(N-1+phi), if
      its node is a bottleneck: 2 against 16/15 for N = 8, phi = 1/2
T9c   one NIC dead                             uniform over the rails alive at both ends costs at
      most N/(N-1)
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
    line_sums,
    loads,
    one_slow,
    proportional,
)

Expr = Any
N, M, L, phi = sp.symbols("N M L phi", positive=True)


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


def same_everywhere(quick: bool = False, *, same: bool = True) -> Result:
    """T9 on generated topologies: every NIC is done exactly at its node's bytes over its node's
    rates, which no split beats.

    `same=False` gives every NIC a rate of its own.
    """
    most, failures = 2 if quick else 4, []
    for topology in (
        (proportional if same else arbitrary)(m, n)
        for m in range(2, most + 1)
        for n in range(2, most + 1)
    ):
        weights = [sp.Symbol(f"b_{n}", positive=True) for n in range(topology.rails)]
        send, recv = loads(topology, proportional_split(topology, weights))
        for side, table, rates, sums in zip(
            ("send", "recv"),
            (send, recv),
            (topology.tx, topology.rx),
            line_sums(topology),
            strict=True,
        ):
            failures += [
                f"{topology}: {side}[{k},{n}] is not done with its node"
                for k in range(topology.nodes)
                for n in range(topology.rails)
                if not is_zero(table[k][n] / rates[k][n] - sums[k] / sp.Add(*rates[k]))
            ]
    return verdict(
        "symbolic",
        f"all M, N <= {most}, every D and profile b",
        failures,
        (
            "tx[k,n] = a_k b_n and rx[f,n] = c_f b_n",
            "all rates positive",
            "a node's bytes over its rates is a lower bound",
        ),
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


def one_slow_nic(quick: bool = False, *, fraction: Expr = phi, bottleneck: bool = True) -> Result:
    """T9b on generated topologies: T9a's split makes the slow node's NICs finish together at
    r/(N-1+phi); uniform costs 1/phi there.

    That node can't be faster, so where its row (or column) is L the optimum is N/(N-1+phi) times
    the healthy L/N.
    """
    most, failures = 3 if quick else 5, []
    for nodes in range(2, most + 1):
        for rails in range(2, most + 1):
            topology = one_slow(nodes, rails, fraction)
            rows, columns = line_sums(topology)
            row = rows[0] if bottleneck else rows[1]
            send, recv = loads(
                topology, proportional_split(topology, [fraction, *[sp.Integer(1)] * (rails - 1)])
            )
            for table, rates, total in ((send, topology.tx, row), (recv, topology.rx, columns[0])):
                failures += [
                    f"{topology}: NIC (0,{n}) is not done at r/(N-1+phi)"
                    for n in range(rails)
                    if not is_zero(table[0][n] / rates[0][n] - total / (rails - 1 + fraction))
                ]
            uniform, _ = loads(topology, proportional_split(topology, [sp.Integer(1)] * rails))
            if not is_zero(uniform[0][0] / fraction - rows[0] / rails / fraction):
                failures.append(f"{topology}: the uniform split does not take r/(N phi)")
    failures += (
        []
        if is_zero((L / (N - 1 + phi)) / (L / N) - N / (N - 1 + phi))
        else ["the factor is not N/(N-1+phi)"]
    )
    at = (N / (N - 1 + phi)).subs({N: 8, phi: sp.Rational(1, 2)})
    failures += [] if at == sp.Rational(16, 15) else [f"N = 8, phi = 1/2: {at}"]
    return verdict(
        "symbolic",
        f"the factor for all N; every NIC for M, N <= {most}, every D and phi",
        failures,
        ("0 < phi <= 1, the same both ways", "r_0 = L or c_0 = L for 1/phi and for optimality"),
        "N = 8, phi = 1/2: 16/15 against 2",
    )


def dead_rail(quick: bool = False, *, avoided: bool = True) -> Result:
    """T9c: NIC 0 of node 0 dead, every pair uniform over the rails alive at both ends: at most
    L/(N-1) everywhere.

    The other nodes carry c_f/N + D[0,f]/(N(N-1)), which with D[0,f] <= c_f <= L is at most L/(N-1);
    node 0 r_0/(N-1).
    """
    most, failures = 3 if quick else 5, []
    for nodes in range(2, most + 1):
        for rails in range(2, most + 1):
            topology = one_slow(nodes, rails, 0)
            demand = topology.demand
            split = {
                (k, f, n): demand[k, f]
                * (
                    sp.Rational(n > 0, rails - 1)
                    if 0 in (k, f) and avoided
                    else sp.Rational(1, rails)
                )
                for k, f in topology.pairs
                for n in range(rails)
            }
            (send, recv), (rows, columns) = loads(topology, split), line_sums(topology)
            for name, table, sums, other in (
                ("send", send, rows, lambda k: (k, 0)),
                ("recv", recv, columns, lambda f: (0, f)),
            ):
                if not is_zero(table[0][0]):
                    failures.append(f"{topology}: {name} bytes on the dead NIC")
                for k in range(nodes):
                    for n in range(1, rails):
                        expected = (
                            sums[0] / (rails - 1)
                            if k == 0
                            else sums[k] / rails + demand[other(k)] / (rails * (rails - 1))
                        )
                        if not is_zero(table[k][n] - expected):
                            failures.append(f"{topology}: {name}[{k},{n}] is {table[k][n]}")
    failures += _dead_rail_general(avoided)
    D, d, e = sp.symbols("D d e", nonnegative=True)  # c = D + d, L = D + d + e
    margin = sp.cancel(((D + d + e) / (N - 1) - (D + d) / N - D / (N * (N - 1))) * N * (N - 1))
    if not is_zero(margin - (N * e + d)):
        failures.append(f"the margin is {margin}")
    return verdict(
        "symbolic",
        f"all M, N >= 2; every NIC for M, N <= {most}",
        failures,
        ("one dead NIC", "N >= 2"),
    )


def _dead_rail_general(avoided: bool) -> list[str]:
    """The loads of T9c with symbolic M and N: node 0 is on N-1 rails, all other pairs on N."""
    nodes, rails = sp.symbols("M N", positive=True, integer=True)
    k, f = sp.symbols("k f", integer=True)
    D = sp.IndexedBase("D")
    more = 1 / (rails - 1) - 1 / rails if avoided else 0
    recv = sp.Sum(D[k, f] * (1 / rails + sp.KroneckerDelta(k, 0) * more), (k, 0, nodes - 1))
    expected = sp.Sum(D[k, f], (k, 0, nodes - 1)) / rails + D[0, f] / (rails * (rails - 1))
    return (
        []
        if sums_agree(recv, expected)
        else ["all M, N: a receiver's living rails do not carry c/N + D[0,f]/(N(N-1))"]
    )
