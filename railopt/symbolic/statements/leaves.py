"""T17: rails of several leaves: what bounds plans there, and when links above leaves are even.

up[A,n] = sum over k in A, f not in A of x[k,f,n] goes up from the leaf of group A on rail n, and
down[A,n], with k and f exchanged, comes down to it.  Leaves have U links each way; packets are
spread over all of them, or a flow takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

import sympy as sp

from railopt.checker import check_leaves
from railopt.symbolic.algebra import is_zero, rank, sums_agree
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.topology import SymbolicFabric, crossing, switched
from railopt.symbolic.statements.balance import M, N, aggregate_uniform, constraints, f, k, n
from railopt.symbolic.statements.layer import Prove, accepted

Expr = Any
UNIFORM = "every NIC sends and receives the same share of its node"


# ---------------------------------------------------------------- T17: the kernel's verdicts
class SmallLeaves(NamedTuple):
    """Nodes by rails at rate 1, a leaf's nodes, its links and their rate, and unit chunks."""

    nodes: int
    rails: int
    below: int
    uplinks: int
    rate: int
    flows: tuple[tuple[int, int], ...]


def _small(quick: bool) -> Iterator[SmallLeaves]:
    """Up to three unit chunks between three or four nodes on one or two rails."""
    for nodes, below in ((3, 1), (3, 2), (4, 2)):
        pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
        chosen = combinations(pairs, 2 if quick else 3)
        for flows in list(chosen)[:: 3 if quick else 4]:
            for rails, uplinks, rate in ((1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 1, 2)):
                yield SmallLeaves(nodes, rails, below, uplinks, rate, flows)


def time_of(small: SmallLeaves, rails: tuple[int, ...], links: tuple[int, ...] | None) -> Fraction:
    """Seconds of the busiest NIC or link; without `links` all of a leaf are one."""
    loads: dict[tuple[Any, ...], int] = {}
    for (a, b), rail, link in zip(small.flows, rails, links or rails, strict=True):
        ends: list[tuple[Any, ...]] = [("send", a, rail), ("recv", b, rail)]
        if a // small.below != b // small.below:
            which = link if links else -1
            ends += [("up", a // small.below, rail, which), ("down", b // small.below, rail, which)]
        for end in ends:
            loads[end] = loads.get(end, 0) + 1
    above = small.rate * (1 if links else small.uplinks)
    return max(Fraction(load, 1 if len(end) == 3 else above) for end, load in loads.items())


def certificate(small: SmallLeaves, witness: dict[str, Any]) -> dict[str, Any]:
    """What the kernel reads of a bound by a cut."""
    ones = [[1] * small.rails for _ in range(small.nodes)]
    src, dst = ([pair[i] for pair in small.flows] for i in (0, 1))
    leaf = {"nodes": small.below, "rails": 1, "uplinks": small.uplinks, "rate": small.rate}
    chunks = {"src": src, "dst": dst, "size": [1] * len(src)}
    problem = {"kind": "leaves", "tx": ones, "rx": ones, "leaf": leaf, "chunks": chunks}
    return {"problem": problem, "witness": witness}


def cut(quick: bool = False, *, prove: Prove = check_leaves) -> Result:
    """T17: no cut is accepted for more than the least over all plans, sprayed; some show it."""
    failures, tried, exact = [], 0, 0
    for small in _small(quick):
        count = len(small.flows)
        least = min(
            time_of(small, rails, None) for rails in product(range(small.rails), repeat=count)
        )
        groups, shown = range(-(-small.nodes // small.below)), False
        for group, side in product(groups, ("send", "recv")):
            record = certificate(small, {"kind": "leaf", "group": group, "side": side})
            shown = shown or accepted(prove, record, least)
            if accepted(prove, record, least + Fraction(1, 16)):
                failures.append(f"{small}: group {group} {side} shows more than {least}")
        tried, exact = tried + 1, exact + shown
    if not 8 * exact >= tried:
        failures.append(f"only {exact} of {tried} shown exactly")
    return verdict("exhaustive", f"{tried} instances of 3 or 4 nodes", failures)


# ---------------------------------------------------------------- T17a: even splits
def even_links(quick: bool = False, *, deviation: bool = False) -> Result:
    """T17a on every generated topology with leaves, D symbolic: x[k,f,n] = D[k,f]/N sends the same
    up from all leaves of a group, and down to them.

    With `deviation` only what each node sends in total is uniform.
    """
    most, failures = (3, 3) if quick else (5, 4), []
    topologies = list(switched(*most))
    for topology in topologies:
        demand, rails = topology.demand, range(topology.rails)
        shares = {pair: demand[pair] / topology.rails for pair in topology.pairs}
        split = {(*pair, i): share for pair, share in shares.items() for i in rails}
        if deviation:
            for t, vector in enumerate(aggregate_uniform(topology)):
                for place, amount in vector.items():
                    split[place] += sp.Symbol(f"t_{t}") * amount
        failures += [
            f"{topology}: {way} of {group} on rail {i} is not its share"
            for group in topology.groups
            for way, pairs in _ways(topology, group)
            for i in rails
            if not is_zero(
                sp.Add(*(split[(*pair, i)] for pair in pairs))
                - sp.Add(*(demand[pair] for pair in pairs)) / topology.rails
            )
        ]
    covered = f"all {len(topologies)} topologies with leaves, M <= {most[0]}, N <= {most[1]}"
    return verdict("symbolic", covered, failures, ("x[k,f,n] = D[k,f]/N for every pair",))


def _ways(topology: SymbolicFabric, group: range) -> list[tuple[str, list[tuple[int, int]]]]:
    up = crossing(topology, group)
    return [("up", up), ("down", [(b, a) for a, b in up])]


# ---------------------------------------------------------------- T17c: uniform NICs
def exact_condition(
    quick: bool = False, *, condition: Callable[[SymbolicFabric], bool] | None = None
) -> Result:
    """T17c by rank, of all traffic at once: uniform sending and receiving force even links exactly
    if there is one rail, or each group, or all nodes but those of the group, are one node.
    """
    expected = condition or _forced
    most, failures, count = (4, 2) if quick else (5, 3), [], 0
    for topology in switched(*most):
        columns = len(topology.pairs) * topology.rails
        fixed, received = constraints(topology.pairs, topology.rails)
        places = [(*pair, i) for pair in topology.pairs for i in range(topology.rails)]
        links = [
            [int(place[:2] in pairs and place[2] == i) for place in places]
            for group in topology.groups
            for _, pairs in _ways(topology, group)
            for i in range(topology.rails)
        ]
        uniform = fixed + received
        count += 1
        if (rank(uniform, columns) == rank(uniform + links, columns)) != expected(topology):
            failures.append(f"{topology}: {'uneven' if expected(topology) else 'even'} links")
    covered = f"all {count} topologies with leaves, M <= {most[0]}, N <= {most[1]}"
    return verdict("symbolic", covered, failures, (UNIFORM, "equal rates"))


def _forced(topology: SymbolicFabric) -> bool:
    alone = (min(len(group), topology.nodes - len(group)) <= 1 for group in topology.groups)
    return topology.rails == 1 or all(alone)


def exact_condition_general(quick: bool = False, *, distinct: bool = True) -> Result:
    """T17c with symbolic M and N: with a, c in a group and b, d outside, y = (delta(k,a) -
    delta(k,d)) (delta(f,c) - delta(f,b)) (delta(n,0) - delta(n,1)) changes no NIC's bytes, and what
    goes up on rail 0 by one.
    """
    a, b, c, d = sp.symbols("a b c d", integer=True)
    apart, delta = (a, b, c, d) if distinct else (), sp.KroneckerDelta

    def y(k: Expr, f: Expr, n: Expr) -> Expr:
        ends = (delta(k, a) - delta(k, d)) * (delta(f, c) - delta(f, b))
        return ends * (delta(n, 0) - delta(n, 1))

    up = y(a, b, sp.Integer(0)) + y(c, b, sp.Integer(0)) + y(a, d, sp.Integer(0))
    facts = [
        ("every flow still adds up", sp.Sum(y(k, f, n), (n, 0, N - 1)), 0),
        ("what is sent stays", sp.Sum(y(k, f, n), (f, 0, M - 1)), 0),
        ("what is received stays", sp.Sum(y(k, f, n), (k, 0, M - 1)), 0),
        ("no node sends to itself", y(a, a, n) + y(b, b, n) + y(c, c, n) + y(d, d, n), 0),
        ("rail 0 carries one unit less up", up + y(c, d, sp.Integer(0)), -1),
    ]
    failures = [name for name, left, right in facts if not sums_agree(left, right, distinct=apart)]
    assumed = (
        "a, c are in the group, b, d outside, and 0, 1 are rails",
        "D/N + t y with t the least of the four flows over N keeps all bytes non-negative",
    )
    return verdict("symbolic", "all M, N", failures, assumed)


# ---------------------------------------------------------------- T17d: hashing
def hashing(quick: bool = False, *, most_nodes: int = 3) -> Result:
    """T17d is refuted by four nodes and no fewer: as many links as NICs below a leaf and as fast,
    one rail, unit flows, every traffic and every hash of up to three nodes.
    """
    failures, tried = [], 0
    for nodes in range(2, most_nodes + 1):
        pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
        for below in range(1, nodes):
            for size in range(1, (3 if nodes > 3 else len(pairs)) + 1):
                for flows in combinations(pairs, size):
                    small = SmallLeaves(nodes, 1, below, below, 1, flows)
                    rails = (0,) * size
                    free = time_of(small, rails, None)
                    for links in product(range(below), repeat=size):
                        tried += 1
                        if time_of(small, rails, links) > free:
                            failures.append(f"{small}: links {links} take longer than {free}")
    return verdict("exhaustive", f"{tried} hashes of up to {most_nodes} nodes", failures[:3])
