"""T7: every lower bound that a certificate may use is sound, and the trusted checker never accepts
one that is not.

Exhaustive: for every small instance whose optimum is known by brute force, every witness of a kind
is shown to `checker.py` with a bound above the optimum; all must be refused.  So that refusing
everything does not pass, each kind must also prove the optimum of some instance.  Symbolic: the
identities behind the average, the node lifting and LP duality, for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import sympy as sp

from railopt.checker import Meter, Rejected, completion, prove_joint, prove_local
from railopt.checker import whole as prove_whole
from railopt.symbolic.algebra import is_zero, sums_agree
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import Sizes, best_coupled, best_local, best_unequal, multisets
from railopt.symbolic.search.topology import SymbolicFabric, arbitrary, loads
from railopt.symbolic.statements.granularity import any_size_instances

Witnesses = Callable[[Sizes, int, int], Iterator[dict[str, Any]]]
Prove = Callable[[Sequence[int], Sequence[int], Fraction, Any, Meter], str]


def _averages(sizes: Sizes, rails: int, best: int) -> Iterator[dict[str, Any]]:
    yield {"kind": "average"}


def _pigeonholes(sizes: Sizes, rails: int, best: int) -> Iterator[dict[str, Any]]:
    yield from (
        {"kind": "pigeonhole", "jobs": j, "rails": k}
        for j in range(1, len(sizes) + 1)
        for k in range(1, rails + 1)
    )


def _counts(sizes: Sizes, rails: int, best: int) -> Iterator[dict[str, Any]]:
    yield from ({"kind": "count", "jobs": j} for j in range(1, len(sizes) + 1))


def _duals(sizes: Sizes, rails: int, best: int) -> Iterator[dict[str, Any]]:
    distinct = sorted(set(sizes))
    for weights in product(range(4), repeat=len(distinct)):
        yield {
            "kind": "dual",
            "weights": [list(pair) for pair in zip(distinct, weights, strict=True)],
        }


def _covers(sizes: Sizes, rails: int, best: int) -> Iterator[dict[str, Any]]:
    yield {"kind": "cover"}


KINDS: dict[str, tuple[Witnesses, bool]] = {
    "average": (_averages, True),
    "pigeonhole": (_pigeonholes, False),
    "count": (_counts, True),
    "dual": (_duals, True),
    "cover": (_covers, True),
}
"""kind -> (every witness of it for an instance, whether it may be used on rails of different
speeds)
"""


def accepts(
    prove: Prove, sizes: Sizes, speeds: Sequence[int], bound: Fraction, witness: dict[str, Any]
) -> bool:
    """Whether the checker takes the witness for "no assignment is done before `bound`"."""
    try:
        prove(sizes, speeds, bound, witness, Meter(10**7))
    except Rejected:
        return False
    return True


def kernel_refuses(kind: str, quick: bool, prove: Prove = prove_local) -> Result:
    """No witness of this kind is accepted for more than the optimum; some are for the optimum
    itself.
    """
    witnesses, unequal = KINDS[kind]
    most, failures, tried, proved = 4 if quick else 5, [], 0, 0
    for rails in (2, 3):
        for sizes in multisets(most, 4):
            best = best_local(sizes, rails)
            for witness in witnesses(sizes, rails, best):
                tried += 1
                proved += accepts(prove, sizes, [1] * rails, Fraction(best), witness)
                failures += [
                    f"{sizes} on {rails} rails: {witness} accepted for {best + more}, the optimum "
                    f"is {best}"
                    for more in (1, 2)
                    if accepts(prove, sizes, [1] * rails, Fraction(best + more), witness)
                ]
    if unequal:
        found = _refuses_unequal(witnesses, 3 if quick else 4, prove)
        failures, tried, proved = failures + found[0], tried + found[1], proved + found[2]
    if not proved:
        failures.append(f"no {kind} witness proves any optimum: the check refuses everything")
    speeds = ", and rails of speeds 0..3" if unequal else ""
    return verdict(
        "exhaustive",
        f"N = 2, 3, up to {most} chunks of 1..4{speeds}: {tried} witnesses",
        failures,
        found=f"{proved} of them prove an optimum",
    )


def _refuses_unequal(witnesses: Witnesses, most: int, prove: Prove) -> tuple[list[str], int, int]:
    failures, tried, proved = [], 0, 0
    for speeds in ((1, 2), (2, 3), (1, 3), (0, 1), (1, 1, 2), (1, 2, 3)):
        for sizes in multisets(most, 3):
            best = best_unequal(sizes, speeds)
            for witness in witnesses(sizes, len(speeds), 0):
                tried += 1
                proved += accepts(prove, sizes, speeds, best, witness)
                # a capacity is floor of the time just above the optimum: nothing between can behave
                # differently
                if accepts(prove, sizes, speeds, best + Fraction(1, 10**6), witness):
                    failures.append(
                        f"{sizes} on speeds {speeds}: {witness} accepted above the optimum {best}"
                    )
    return failures, tried, proved


def average(quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """T7a."""
    return kernel_refuses("average", quick, prove)


def pigeonhole(quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """T7b."""
    return kernel_refuses("pigeonhole", quick, prove)


def count(quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """T7c."""
    return kernel_refuses("count", quick, prove)


def dual(quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """T7d."""
    return kernel_refuses("dual", quick, prove)


def cover(quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """T7f."""
    return kernel_refuses("cover", quick, prove)


def node_lifting(quick: bool = False, *, coupled: bool = True) -> Result:
    """T7g: what one node sends (or receives) is a local problem; no coupled plan beats its optimum.

    `coupled=False` compares with the node's loads alone, halved, which a plan may beat.
    """
    instances = any_size_instances(3, 3 if quick else 4, 2)
    failures = []
    for instance in instances:
        value, _ = best_coupled(instance, 2)
        for side in (0, 1):
            for node in range(3):
                sizes = [chunk[2] for chunk in instance if chunk[side] == node]
                bound = best_local(sizes, 2) if coupled else sum(sizes)
                if bound > value:
                    failures.append(
                        f"{list(instance)}: node {node} alone needs {bound}, a plan does {value}"
                    )
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, up to {3 if quick else 4} chunks of 1..2 ({len(instances)} instances)",
        failures,
        ("equal rails",),
    )


def joint(quick: bool = False, *, prove: Callable[..., str] = prove_joint) -> Result:
    """T7i: no sides are accepted for more than the optimum; all sides together show the optimum of
    every instance.
    """
    most, nodes = 3 if quick else 4, [0, 1, 2]
    sides = [*product([[], [0], [1], [2]], repeat=2), (nodes, nodes)]
    instances, rates, failures = any_size_instances(3, most, 2), [[1, 1]] * 3, []
    for instance in instances:
        best, columns = (
            best_coupled(instance, 2)[0],
            [list(column) for column in zip(*instance, strict=True)],
        )

        def accepted(
            bound: int, send: list[int], recv: list[int], columns: list[list[int]] = columns
        ) -> bool:
            try:
                prove(
                    rates,
                    rates,
                    columns,
                    Fraction(bound),
                    {"kind": "joint", "send": send, "recv": recv},
                    Meter(10**7),
                )
            except Rejected:
                return False
            return True

        failures += [
            f"{list(instance)}: senders {send} and receivers {recv} accepted for {best + 1}, the "
            f"optimum is {best}"
            for send, recv in sides
            if accepted(best + 1, send, recv)
        ]
        if not accepted(best, nodes, nodes):
            failures.append(f"{list(instance)}: all sides do not show the optimum {best}")
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, up to {most} chunks of 1..2 ({len(instances)} instances), at most one "
        f"sender and one "
        "receiver, or all sides",
        failures,
        ("equal rails",),
    )


def whole_chunks(quick: bool = False, *, prove: Callable[..., str] = prove_whole) -> Result:
    """T7k: no prices are accepted for more than the optimum; those of some instances show it."""
    most, rates = 2 if quick else 3, [[2, 1], [1, 1], [1, 0]]
    instances, failures, met = any_size_instances(3, most, 2), [], 0
    nothing = [[0, 0]] * 3
    some = [
        [list(row) for row in rows] for rows in product([(0, 0), (1, 0), (0, 1), (1, 1)], repeat=3)
    ]
    witnesses = [
        {"kind": "whole", "send": send, "recv": recv}
        for prices in some
        for send, recv in ((prices, nothing), (nothing, prices))
    ]
    for instance in instances:
        columns = [list(column) for column in zip(*instance, strict=True)]
        best = _fastest(rates, columns)

        def accepted(bound: Fraction, witness: Any, columns: list[list[int]] = columns) -> bool:
            try:
                prove(rates, rates, columns, bound, witness, Meter(10**7))
            except Rejected:
                return False
            return True

        above = best + Fraction(1, 4)  # times are halves
        failures += [
            f"{list(instance)}: {witness} accepted for {above}, the optimum is {best}"
            for witness in witnesses
            if accepted(above, witness)
        ]
        met += any(accepted(best, witness) for witness in witnesses)
    if not met:
        failures.append("no prices show any optimum: the check refuses everything")
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, a fast and a dead NIC, up to {most} chunks of 1..2 ({len(instances)} "
        f"instances, {met} optima shown), prices 0..1 of all senders' NICs or of all receivers'",
        failures,
    )


def _fastest(rates: list[list[int]], columns: list[list[int]]) -> Fraction:
    """The least time over all assignments to live rails."""
    (src, dst, size), times = columns, []
    for rail in product(range(len(rates[0])), repeat=len(src)):
        try:
            times.append(completion(rates, rates, src, dst, size, rail)[0])
        except Rejected:
            continue  # bytes on a dead rail
    return min(times)


# ---------------------------------------------------------------- LP duality
def fluid_duality(quick: bool = False, *, cheapest: bool = True) -> Result:
    """T7h: T * (prices x rates) - (cheapest price of all bytes) is a sum of products of
    non-negative terms, D and rates symbolic.

    With slacks: T tx = S + u, T rx = R + v, and a[k,n] + b[f,n] = p[k,f] + w[k,f,n], all of u, v, w
    >= 0, the difference is sum a u + sum b v + sum x w.
    """
    most = 2 if quick else 3
    failures = [
        f"{topology}: the identity fails"
        for topology in (arbitrary(m, n) for m in range(2, most + 1) for n in range(1, most + 1))
        if not is_zero(_duality_gap(topology, cheapest))
    ]
    return verdict(
        "symbolic",
        f"all M, N <= {most}, every D, rate and price",
        failures,
        (
            "prices, bytes and slacks are non-negative",
            "p[k,f] <= a[k,n] + b[f,n] on every live rail",
        ),
    )


def _duality_gap(topology: SymbolicFabric, cheapest: bool) -> Any:
    rails, nodes = range(topology.rails), range(topology.nodes)
    a, b, u, v = (
        {(k, n): sp.Symbol(f"{name}_{k}_{n}") for k in nodes for n in rails} for name in "abuv"
    )
    x = {(k, f, n): sp.Symbol(f"x_{k}_{f}_{n}") for k, f in topology.pairs for n in rails}
    w = {place: sp.Symbol("w_{}_{}_{}".format(*place)) for place in x}
    send, recv = loads(topology, x)
    # T times each rate, written as load + slack; each byte's price, as the rail's price less its
    # slack
    earned = sum(
        a[k, n] * (send[k][n] + u[k, n]) + b[k, n] * (recv[k][n] + v[k, n])
        for k in nodes
        for n in rails
    )
    paid = sum(x[k, f, n] * (a[k, n] + b[f, n] - (w[k, f, n] if cheapest else 0)) for k, f, n in x)
    slack = sum(a[k, n] * u[k, n] + b[k, n] * v[k, n] for k in nodes for n in rails) + sum(
        x[place] * w[place] for place in x
    )
    return earned - paid - slack


def fluid_duality_general(quick: bool = False, *, both_sides: bool = True) -> Result:
    """T7h with symbolic M and N: sum over NICs of a S + b R is the sum over bytes of a + b on their
    rail.
    """
    M, N = sp.symbols("M N", positive=True, integer=True)
    k, f, n = sp.symbols("k f n", integer=True)
    a, b, x = (sp.IndexedBase(name) for name in "abx")
    nodes, others, rails = (k, 0, M - 1), (f, 0, M - 1), (n, 0, N - 1)
    spent = sp.Sum(a[k, n] * sp.Sum(x[k, f, n], others), rails, nodes)
    if both_sides:
        spent += sp.Sum(b[f, n] * sp.Sum(x[k, f, n], nodes), rails, others)
    held = sums_agree(spent, sp.Sum((a[k, n] + b[f, n]) * x[k, f, n], rails, others, nodes))
    return verdict(
        "symbolic", "all M, N", [] if held else ["not shown"], ("finite sums may be exchanged",)
    )
