"""T0 to T3: what makes sends and receives uniform, exactly when, and how bad it gets otherwise.

S[k,n] = sum over f of x[k,f,n] and R[f,n] = sum over k of x[k,f,n]; r_k and c_f are the row and
column sums of D. A split is *per-destination uniform* if x[k,f,n] = D[k,f]/N, and
*aggregate-uniform* if only S[k,n] = r_k/N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import sympy as sp

from railopt.symbolic.algebra import is_zero, null_space, rank, sums_agree
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.topology import SymbolicFabric, healthy, line_sums, loads, sizes

Expr = Any
Pair = tuple[int, int]
M, N = sp.symbols("M N", positive=True, integer=True)
D = sp.IndexedBase("D")
k, f, n = sp.symbols("k f n", integer=True)


def uniform_split(quick: bool = False, *, deviation: bool = False) -> Result:
    """T1 on every generated topology, D symbolic, as polynomial identities.

    With `deviation` the hypothesis is weakened to aggregate-uniform sending: any combination of the
    null space is added.
    """
    most = 3 if quick else 5
    failures = []
    for topology in (healthy(*size) for size in sizes(most)):
        demand, rails = topology.demand, range(topology.rails)
        split = {(a, b, i): demand[a, b] / topology.rails for a, b in topology.pairs for i in rails}
        if deviation:
            for t, vector in enumerate(aggregate_uniform(topology)):
                for place, amount in vector.items():
                    split[place] += sp.Symbol(f"t_{t}") * amount
        failures += [
            f"{topology}: {side}[{node},{i}] is not its share"
            for side, node, i, load, share in _shares(topology, split)
            if not is_zero(load - share)
        ]
    return verdict(
        "symbolic",
        f"all M, N <= {most}, every D",
        failures,
        ("x[k,f,n] = D[k,f]/N for every pair", "equal rates"),
    )


def _shares(
    topology: SymbolicFabric, split: dict[tuple[int, int, int], Expr]
) -> Iterable[tuple[str, int, int, Expr, Expr]]:
    for side, table, sums in zip(
        ("send", "recv"), loads(topology, split), line_sums(topology), strict=True
    ):
        for node in range(topology.nodes):
            for i in range(topology.rails):
                yield side, node, i, table[node][i], sums[node] / topology.rails


# ---------------------------------------------------------------- T2: the linear system of
# aggregate-uniform sending
def constraints(pairs: list[Pair], rails: int) -> tuple[list[list[int]], list[list[int]]]:
    """For the deviations y[k,f,n] = x[k,f,n] - D[k,f]/N of the pairs with traffic, in the order
    pair by pair, rail by rail:

    (rows that must vanish: each flow adds up to D, each sender's rails carry r_k/N;  rows that are
    the receivers' deviations).
    """
    columns = {(a, b, i): p * rails + i for p, (a, b) in enumerate(pairs) for i in range(rails)}

    def row(wanted: Callable[[int, int, int], bool]) -> list[int]:
        return [int(wanted(*place)) for place in columns]

    def leaving(sender: int, rail: int) -> list[int]:
        return row(lambda a, b, i: a == sender and i == rail)

    def arriving(receiver: int, rail: int) -> list[int]:
        return row(lambda a, b, i: b == receiver and i == rail)

    def between(pair: tuple[int, int]) -> list[int]:
        return row(lambda a, b, i: (a, b) == pair)

    flows = [between(pair) for pair in pairs]
    sent = [leaving(s, m) for s in sorted({a for a, _ in pairs}) for m in range(rails)]
    received = [arriving(s, m) for s in sorted({b for _, b in pairs}) for m in range(rails)]
    return flows + sent, received


def aggregate_uniform(topology: SymbolicFabric) -> list[dict[tuple[int, int, int], Expr]]:
    """A basis of *all* deviations from D/N that keep sending aggregate-uniform; every
    counterexample is a combination.
    """
    pairs, rails = topology.pairs, topology.rails
    places = [(a, b, i) for a, b in pairs for i in range(rails)]
    basis = null_space(constraints(pairs, rails)[0], len(places)) if pairs else []
    return [
        {place: value for place, value in zip(places, vector, strict=True) if value}
        for vector in basis
    ]


def implied(pairs: list[Pair], rails: int) -> bool:
    """Whether aggregate-uniform sending forces uniform receiving when exactly these pairs have
    traffic: a rank test.
    """
    fixed, received = constraints(pairs, rails)
    columns = len(pairs) * rails
    return not pairs or rank(fixed, columns) == rank(fixed + received, columns)


def exact_condition(
    quick: bool = False, *, condition: Callable[[int, int], bool] | None = None
) -> Result:
    """T2a for every pair with traffic: implied exactly if M <= 2 or N = 1, with the dimensions of
    the null space and its image for M >= 3.
    """
    most = 4 if quick else 5
    expected = condition or (lambda nodes, rails: nodes <= 2 or rails == 1)
    failures = []
    for nodes, rails in sizes(most):
        pairs = healthy(nodes, rails).pairs
        fixed, received = constraints(pairs, rails) if pairs else ([], [])
        columns = len(pairs) * rails
        free = columns - rank(fixed, columns)
        image = rank(fixed + received, columns) - rank(fixed, columns)
        if (image == 0) != expected(nodes, rails):
            failures.append(f"M = {nodes}, N = {rails}: receivers deviate in {image} dimensions")
        if nodes >= 3 and (free, image) != (
            nodes * (nodes - 2) * (rails - 1),
            (nodes - 1) * (rails - 1),
        ):
            failures.append(
                f"M = {nodes}, N = {rails}: null space of dimension {free}, image {image}"
            )
    assumed = ("every pair of different nodes has traffic", "equal rates")
    return verdict(
        "symbolic",
        f"all M, N <= {most}",
        failures,
        assumed,
        "M >= 3: null space of dimension M (M-2)(N-1), receivers deviate in (M-1)(N-1) dimensions",
    )


def exact_condition_sparse(quick: bool = False, *, most_destinations: int = 1) -> Result:
    """T2b: for every set of pairs with traffic, implied exactly if N = 1 or no sender has two
    destinations.
    """
    failures, count = [], 0
    for nodes, rails in [(2, 2), (2, 3), (3, 1), (3, 2), (3, 3)] + (
        [] if quick else [(3, 4), (4, 2)]
    ):
        pairs = healthy(nodes, rails).pairs
        for chosen in (
            list(c) for size in range(len(pairs) + 1) for c in combinations(pairs, size)
        ):
            degree = max((sum(a == s for a, _ in chosen) for s in range(nodes)), default=0)
            count += 1
            if implied(chosen, rails) != (rails == 1 or degree <= most_destinations):
                failures.append(f"M = {nodes}, N = {rails}, pairs {chosen}")
    more = "N <= 3" if quick else "N <= 4, and M = 4, N = 2"
    return verdict(
        "symbolic", f"all {count} sets of pairs, M = 3, {more}", failures, ("equal rates",)
    )


def exact_condition_general(quick: bool = False, *, distinct: bool = True) -> Result:
    """T2a, T2b with symbolic M and N: y = delta(k,c) (delta(f,a) - delta(f,b)) (delta(n,0) -
    delta(n,1)) is a counterexample.

    It needs a sender c with two destinations a, b and two rails; without either the deviation is
    zero.
    """
    a, b, c = sp.symbols("a b c", integer=True)
    apart = (a, b, c) if distinct else ()
    delta = sp.KroneckerDelta

    def y(k: Expr, f: Expr, n: Expr) -> Expr:
        return delta(k, c) * (delta(f, a) - delta(f, b)) * (delta(n, 0) - delta(n, 1))

    facts = [
        ("every flow still adds up", sp.Sum(y(k, f, n), (n, 0, N - 1)), 0),
        ("every sender's rails stay equal", sp.Sum(y(k, f, n), (f, 0, M - 1)), 0),
        ("no node sends to itself", y(c, c, n), 0),
        (
            "receiver a has one unit more on rail 0",
            sp.Sum(y(k, a, sp.Integer(0)), (k, 0, M - 1)),
            1,
        ),
    ]
    failures = [name for name, left, right in facts if not sums_agree(left, right, distinct=apart)]
    x, r = sp.IndexedBase("x"), sp.Symbol("r")
    only = sp.Sum(x[k, n] * delta(f, a), (f, 0, M - 1))  # all of sender k's traffic goes to a
    if not sums_agree(only - r / N, x[k, n] - r / N):
        failures.append("a single destination: the sender's rails are the flow's rails")
    assumed = (
        "c has traffic to two different nodes a, b, and 0, 1 are rails (M >= 3, N >= 2)",
        "x = D/N + t y with t = min(D[c,a], D[c,b])/N keeps all bytes non-negative",
    )
    return verdict("symbolic", "all M, N", failures, assumed)


# ---------------------------------------------------------------- T3: how bad aggregate-uniform
# sending can be
