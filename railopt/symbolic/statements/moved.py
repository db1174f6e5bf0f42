"""T14: what a plan moves inside nodes, every small instance tried.

A unit of b bytes on GPU g of a node is needed by the GPUs H of another.  On rail n it is staged, b
bytes, if g is not near that NIC, and passed on to each GPU of H but one that is near.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import NamedTuple

from railopt.checker import (
    InsideNode,
    Meter,
    Moving,
    Rejected,
    Units,
    as_set,
    completion,
    prove_moved,
)
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import accepts

Prove = Callable[..., str]


class Unit(NamedTuple):
    """Bytes from GPU `gpu` of node `src` to the GPUs `needs` of node `dst`."""

    src: int
    gpu: int
    dst: int
    size: int
    needs: tuple[int, ...]


def moved(unit: Unit, rail: int, near: tuple[tuple[int, ...], ...]) -> int:
    """Bytes moved by one unit on a rail, as the definition says."""
    staged = unit.gpu not in near[rail]
    direct = [gpu for gpu in unit.needs if gpu in near[rail]]
    return unit.size * (staged + len(unit.needs) - (1 if direct else 0))


NEAR = (((0,), (1,)), ((0, 1), (1,)), ((0, 1), (0, 1)))  # own, one shared, both shared
RATES = ([[1, 1], [1, 1]], [[1, 1], [2, 1]], [[1, 1], [0, 1]])
PRICES = tuple(product((0, 1, 2), repeat=2))


def prices(quick: bool = False, *, prove: Prove = prove_moved) -> Result:
    """T14a: no prices are accepted for more than the least moved bytes; those of some instances
    show them exactly.
    """
    failures, tried, exact = [], 0, 0
    kinds = [
        Unit(0, gpu, 1, size, needs) for gpu in (0, 1) for size in (1, 2) for needs in ((), (0,))
    ]
    near_sets = NEAR[:2] if quick else NEAR
    for near, rates in product(near_sets, RATES):
        inside = InsideNode(2, [as_set(gpus) for gpus in near])
        for units in (c for n in (1, 2, 3) for c in combinations(kinds, n)):
            for time, least in _least(units, near, rates).items():
                moving = Moving(rates, rates, inside, _columns(units), time, Fraction(least))
                accepted = _accepted(moving, prove)
                tried, exact = tried + 1, exact + (accepted == least)
                if accepted > least:
                    failures.append(
                        f"{units} within {time}: accepted for {accepted}, least {least}"
                    )
    if not exact:
        failures.append("no prices show any optimum: the check refuses everything")
    return verdict(
        "exhaustive",
        f"M = N = 2, up to 3 units of 1..2 bytes, rates 0..2, every time of a plan: {tried} "
        f"optima, prices 0..2 of one sender's NICs or one receiver's",
        failures,
        found=f"{exact} of them are shown exactly",
    )


def _columns(units: tuple[Unit, ...]) -> Units:
    return Units(
        [2 * unit.src + unit.gpu for unit in units],
        [unit.dst for unit in units],
        [unit.size for unit in units],
        [as_set(unit.needs) for unit in units],
    )


def _least(
    units: tuple[Unit, ...], near: tuple[tuple[int, ...], ...], rates: list[list[int]]
) -> dict[Fraction, int]:
    """For the time of each plan the least bytes that plans of at most that time move."""
    found = []
    src, dst, size = ([getattr(unit, name) for unit in units] for name in ("src", "dst", "size"))
    for rails in product((0, 1), repeat=len(units)):
        try:
            time = completion(rates, rates, src, dst, size, rails)[0]
        except Rejected:
            continue  # on a dead rail
        bytes_ = sum(moved(unit, rail, near) for unit, rail in zip(units, rails, strict=True))
        found.append((time, bytes_))
    return {time: min(b for t, b in found if t <= time) for time, _ in found}


def _accepted(moving: Moving, prove: Prove) -> int:
    """The most that some prices are accepted for: 1 above the least is enough to be wrong."""
    best = -1
    for side, pair in product((0, 1), PRICES):
        price = [[[0, 0], [0, 0]], [[0, 0], [0, 0]]]
        price[side][side] = list(pair)
        witness = {"kind": "moved", "unit": 1, "send": price[0], "recv": price[1]}
        for bound in (moving.bound + 1, moving.bound):
            if best < bound and accepts(prove, moving._replace(bound=bound), witness, Meter(10**6)):
                best = int(bound)
    return best


def own_nic(quick: bool = False, *, own: bool = True) -> Result:
    """T14b: whatever a unit's GPU and targets, its own NIC costs no more than another, by the
    definition and by the checker's costs.

    `own=False` takes the next GPU's NIC instead.
    """
    most, failures, tried = (4 if quick else 7), [], 0
    for gpus in range(2, most + 1):
        near = tuple((n,) for n in range(gpus))
        inside = InsideNode(gpus, [as_set(some) for some in near])
        targets = [h for n in range(gpus + 1) for h in combinations(range(gpus), n)]
        for gpu, needs in product(range(gpus), targets):
            unit, tried = Unit(0, gpu, 1, 1, needs), tried + 1
            costs = [moved(unit, rail, near) for rail in range(gpus)]
            if costs != inside.costs(gpu, as_set(needs)):
                failures.append(f"{unit}: the checker's costs are not {costs}")
            if costs[gpu if own else (gpu + 1) % gpus] > min(costs):
                failures.append(f"{unit}: costs {costs}, own NIC {gpu}")
    return verdict(
        "exhaustive",
        f"every GPU and set of targets of up to {most} GPUs ({tried})",
        failures,
        ("one NIC per GPU",),
    )
