"""T7: every lower bound that a certificate may use is sound, and the trusted checker never accepts
one that is not.

For every small instance whose optimum is known by brute force, every witness of a kind is shown to
`checker.py` with a bound above the optimum; all must be refused.  So that refusing everything does
not pass, each kind must also prove the optimum of some instance.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from railopt.checker import (
    Meter,
    Rejected,
    completion,
    prove_joint,
    prove_local,
    prove_whole_chunks,
)
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import (
    Sizes,
    accepts,
    best_coupled,
    best_local,
    best_unequal,
    multisets,
)
from railopt.symbolic.statements.granularity import any_size_instances

Prove = Callable[..., str]
STEPS = 10**7  # of the checker, for one witness


def witnesses(kind: str, sizes: Sizes, rails: int) -> list[dict[str, Any]]:
    """Every witness of a kind for these sizes on so many rails."""
    jobs = range(1, len(sizes) + 1)
    if kind == "pigeonhole":
        return [{"kind": kind, "jobs": j, "rails": k} for j in jobs for k in range(1, rails + 1)]
    if kind == "count":
        return [{"kind": kind, "jobs": j} for j in jobs]
    if kind == "dual":
        distinct = sorted(set(sizes))
        every = product(range(4), repeat=len(distinct))
        return [
            {"kind": kind, "weights": [list(pair) for pair in zip(distinct, each, strict=True)]}
            for each in every
        ]
    return [{"kind": kind}]


def kernel_refuses(kind: str, quick: bool = False, *, prove: Prove = prove_local) -> Result:
    """No witness of this kind is accepted for more than the optimum; some are for the optimum
    itself.
    """
    most, failures, tried, proved = 4 if quick else 5, [], 0, 0
    for rails in (2, 3):
        for sizes in multisets(most, 4):
            best = best_local(sizes, rails)
            for witness in witnesses(kind, sizes, rails):
                tried += 1
                shown = [
                    accepts(prove, sizes, [1] * rails, Fraction(best + more), witness, Meter(STEPS))
                    for more in (0, 1, 2)
                ]
                proved += shown[0]
                if any(shown[1:]):
                    failures.append(
                        f"{sizes} on {rails} rails: {witness} accepted above the optimum {best}"
                    )
    unequal = kind != "pigeonhole"  # which is about equal rails
    if unequal:
        found = _refuses_unequal(kind, 3 if quick else 4, prove)
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


def _refuses_unequal(kind: str, most: int, prove: Prove) -> tuple[list[str], int, int]:
    failures, tried, proved = [], 0, 0
    for speeds in ((1, 2), (2, 3), (1, 3), (0, 1), (1, 1, 2), (1, 2, 3)):
        for sizes in multisets(most, 3):
            best = best_unequal(sizes, speeds)
            for witness in witnesses(kind, sizes, len(speeds)):
                tried += 1
                proved += accepts(prove, sizes, speeds, best, witness, Meter(STEPS))
                # a capacity is floor of the time just above the optimum: nothing between can behave
                # differently
                above = best + Fraction(1, 10**6)
                if accepts(prove, sizes, speeds, above, witness, Meter(STEPS)):
                    failures.append(
                        f"{sizes} on speeds {speeds}: {witness} accepted above the optimum {best}"
                    )
    return failures, tried, proved


average = partial(kernel_refuses, "average")  # T7a
pigeonhole = partial(kernel_refuses, "pigeonhole")  # T7b
count = partial(kernel_refuses, "count")  # T7c
dual = partial(kernel_refuses, "dual")  # T7d
cover = partial(kernel_refuses, "cover")  # T7f


def joint(quick: bool = False, *, prove: Callable[..., str] = prove_joint) -> Result:
    """T7i: no sides are accepted for more than the optimum; all sides together show the optimum of
    every instance.
    """
    most, nodes = 3 if quick else 4, [0, 1, 2]
    sides = [*product([[], [0], [1], [2]], repeat=2), (nodes, nodes)]
    instances, rates, failures = any_size_instances(3, most, 2), [[1, 1]] * 3, []
    for instance in instances:
        best = Fraction(best_coupled(instance, 2)[0])
        columns = [list(column) for column in zip(*instance, strict=True)]
        shown = partial(accepts, prove, rates, rates, columns)
        failures += [
            f"{list(instance)}: senders {send} and receivers {recv} accepted for {best + 1}, the "
            f"optimum is {best}"
            for send, recv in sides
            if shown(best + 1, {"kind": "joint", "send": send, "recv": recv}, Meter(STEPS))
        ]
        if not shown(best, {"kind": "joint", "send": nodes, "recv": nodes}, Meter(STEPS)):
            failures.append(f"{list(instance)}: all sides do not show the optimum {best}")
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, up to {most} chunks of 1..2 ({len(instances)} instances), at most one "
        f"sender and one "
        "receiver, or all sides",
        failures,
        ("equal rails",),
    )


def whole_chunks(quick: bool = False, *, prove: Callable[..., str] = prove_whole_chunks) -> Result:
    """T7k: no prices are accepted for more than the optimum; those of some instances show it."""
    most, rates = 2 if quick else 3, [[2, 1], [1, 1], [1, 0]]
    instances, failures, met = any_size_instances(3, most, 2), [], 0
    nothing = [[0, 0]] * 3
    some = [
        [list(row) for row in rows] for rows in product([(0, 0), (1, 0), (0, 1), (1, 1)], repeat=3)
    ]
    every = [
        {"kind": "whole", "send": send, "recv": recv}
        for prices in some
        for send, recv in ((prices, nothing), (nothing, prices))
    ]
    for instance in instances:
        columns = [list(column) for column in zip(*instance, strict=True)]
        best = _fastest(rates, columns)
        shown = partial(accepts, prove, rates, rates, columns)
        above = best + Fraction(1, 4)  # times are halves
        failures += [
            f"{list(instance)}: {witness} accepted for {above}, the optimum is {best}"
            for witness in every
            if shown(above, witness, Meter(STEPS))
        ]
        met += any(shown(best, witness, Meter(STEPS)) for witness in every)
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
