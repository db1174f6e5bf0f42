"""T10a: what one GPU can send to another node.  R1 is a GPU's scale-up rate, R2 a NIC's rate, N
GPUs and NICs per node.

RailS's Theorem 1 claims N parallel channels of R2 whenever R1 > R2.  A single hot GPU reaches its
own NIC directly and the other N-1 only through its scale-up port: the maximum flow is R2 + min(R1,
(N-1) R2), which is N R2 only if R1 >= (N-1) R2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import sympy as sp

from railopt.symbolic.algebra import is_zero, on_cone
from railopt.symbolic.result import Result, verdict

Expr = Any
R1, R2 = sp.symbols("R1 R2", positive=True)
Edge = tuple[str, str, int, int]
"""(from, to, how many R1, how many R2): the capacity as a linear form"""


def edges(rails: int, hot: bool = True) -> list[Edge]:
    """The graph from GPU 0 of one node to GPU 0 of another: scale-up ports at both ends, NICs and
    rails between.

    `hot=False` starts from all GPUs of the node at once and ends at all GPUs of the other.
    """
    found: list[Edge] = [
        ("gpu", "up", 1, 0),
        ("down", "target", 1, 0),
        ("gpu", "out0", 0, 1),
        ("in0", "target", 0, 1),
    ]
    if not hot:
        found += [("gpu", f"out{n}", 0, 1) for n in range(1, rails)] + [
            (f"in{n}", "target", 0, 1) for n in range(1, rails)
        ]
    for n in range(1, rails):
        found += [
            ("up", f"peer{n}", 1, 0),
            (f"peer{n}", f"out{n}", 0, 1),
            (f"in{n}", f"fore{n}", 0, 1),
            (f"fore{n}", "down", 1, 0),
        ]
    return found + [(f"out{n}", f"in{n}", 0, 1) for n in range(rails)]


def cuts(rails: int, hot: bool = True) -> Iterator[tuple[int, int]]:
    """(a, b) for every cut: its capacity is a R1 + b R2.  Identical peers are taken in one order of
    their states.
    """
    graph = edges(rails, hot)
    states = list(product((0, 1), repeat=4))
    for up, down, out, into in product((0, 1), repeat=4):
        for chosen in _nondecreasing(len(states), rails - 1):
            side = {"gpu": 1, "target": 0, "up": up, "down": down, "out0": out, "in0": into}
            for n, state in enumerate(chosen, 1):
                side |= dict(
                    zip((f"peer{n}", f"out{n}", f"in{n}", f"fore{n}"), states[state], strict=True)
                )
            crossing = [(a, b) for start, end, a, b in graph if side[start] and not side[end]]
            yield sum(a for a, _ in crossing), sum(b for _, b in crossing)


def _nondecreasing(values: int, length: int, low: int = 0) -> Iterator[tuple[int, ...]]:
    if not length:
        yield ()
        return
    for first in range(low, values):
        for rest in _nondecreasing(values, length - 1, first):
            yield (first, *rest)


def minimum_cut(quick: bool = False, *, hot: bool = True) -> Result:
    """No cut is below R2 + min(R1, (N-1) R2), and one attains it, in each of the two cones of (R1,
    R2); every cut of every N.
    """
    most, failures = 4 if quick else 5, []
    for rails in range(2, most + 1):
        found = set(cuts(rails, hot))
        wide, narrow = rails * R2, R2 + R1
        for name, formula, rays in (
            ("R1 >= (N-1) R2", wide, [{R1: 1, R2: 0}, {R1: rails - 1, R2: 1}]),
            ("R1 <= (N-1) R2", narrow, [{R1: 0, R2: 1}, {R1: rails - 1, R2: 1}]),
        ):
            below = [cut for cut in found if not on_cone(cut[0] * R1 + cut[1] * R2 - formula, rays)]
            failures += [
                f"N = {rails}, {name}: the cut {a} R1 + {b} R2 is below {formula}" for a, b in below
            ]
            if not any(is_zero(a * R1 + b * R2 - formula) for a, b in found):
                failures.append(f"N = {rails}, {name}: no cut attains {formula}")
    return verdict(
        "exhaustive",
        f"N = 2..{most}, every cut, all rates",
        failures,
        ("max flow = min cut (Ford and Fulkerson)", "full duplex links"),
    )


def flow_and_cut_general(quick: bool = False, *, enough: Expr | None = None) -> Result:
    """For all N: the flow R2 directly and f = min(R1/(N-1), R2) through each peer respects all
    capacities and meets a cut.
    """
    N = sp.Symbol("N", positive=True, integer=True)
    extra = sp.Symbol("extra", nonnegative=True)
    needed = (N - 1) * R2 if enough is None else enough
    facts = [
        ("R1 >= (N-1) R2: N R2 in all", (R2 + (N - 1) * R2 - N * R2).subs(R1, needed + extra)),
        (
            "R1 >= (N-1) R2: the scale-up port has R1 - (N-1) R2 to spare",
            (R1 - (N - 1) * R2).subs(R1, needed + extra) - extra,
        ),
        ("R1 <= (N-1) R2: R2 + R1 in all", R2 + (N - 1) * (R1 / (N - 1)) - (R1 + R2)),
        (
            "R1 <= (N-1) R2: each peer's NIC has its share to spare",
            (R2 - R1 / (N - 1)).subs(R1, (N - 1) * R2 - extra) - extra / (N - 1),
        ),
    ]
    return verdict(
        "symbolic",
        "all N >= 2, all rates",
        [name for name, zero in facts if not is_zero(zero)],
        ("one GPU sends to one GPU", "own NIC reached without scale-up"),
    )
