"""Brute force for small instances, and the real policies on many small instances at once.

The optima here are found by trying everything: slow, and therefore independent of every bound that
they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from railopt.checker import Rejected
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import plan

Sizes = tuple[int, ...]
Instance = tuple[tuple[int, int, int], ...]
"""Chunks (src, dst, size) between a few nodes."""


def accepts(prove: Callable[..., Any], *claim: Any) -> bool:
    """Whether a function of the checker takes a claim, which is its arguments."""
    try:
        return bool(prove(*claim))
    except Rejected:
        return False


def multisets(most_jobs: int, largest: int, fewest: int = 1) -> Iterator[Sizes]:
    """Every multiset of sizes 1..largest with `fewest` to `most_jobs` members, largest first."""
    for jobs in range(fewest, most_jobs + 1):
        yield from combinations_with_replacement(range(largest, 0, -1), jobs)


def best_local(sizes: Sequence[int], rails: int) -> int:
    """The least possible largest load of `sizes` on equal rails."""
    sizes = tuple(sorted(sizes, reverse=True))
    low = max(-(-sum(sizes) // rails), max(sizes, default=0))
    while not _fits(sizes, (low,) * rails):
        low += 1
    return low


@lru_cache(maxsize=1 << 16)
def _fits(sizes: Sizes, room: Sizes) -> bool:
    """Whether the sizes fit into these rooms; tries each different room for the largest size."""
    if not sizes:
        return True
    tried = {r for r in room if r >= sizes[0]}
    return any(
        _fits(sizes[1:], tuple(sorted((*room[:i], r - sizes[0], *room[i + 1 :]))))
        for r in sorted(tried)
        for i in [room.index(r)]
    )


def best_unequal(sizes: Sequence[int], speeds: Sequence[int]) -> Fraction:
    """The least time of `sizes` on rails of these speeds (0 = dead), over all assignments."""
    live = [speed for speed in speeds if speed]
    best = None
    for rails in product(range(len(live)), repeat=len(sizes)):
        loads = [0] * len(live)
        for size, rail in zip(sizes, rails, strict=True):
            loads[rail] += size
        time = max(Fraction(load, speed) for load, speed in zip(loads, live, strict=True))
        best = time if best is None or time < best else best
    return best or Fraction(0)


def best_coupled(instance: Instance, rails: int) -> tuple[int, tuple[int, ...]]:
    """(the least largest send or receive load, an assignment that attains it) on equal rails, over
    all assignments.
    """
    best: tuple[int, tuple[int, ...]] | None = None
    for assignment in product(range(rails), repeat=max(0, len(instance) - 1)):
        chosen = (0, *assignment) if instance else ()  # rails are interchangeable
        loads: dict[tuple[int, int, int], int] = {}
        for (src, dst, size), rail in zip(instance, chosen, strict=True):
            for end in ((0, src, rail), (1, dst, rail)):
                loads[end] = loads.get(end, 0) + size
        value = max(loads.values(), default=0)
        if best is None or value < best[0]:
            best = value, chosen
    assert best is not None
    return best


def greedy(sizes: Sequence[int], rails: int) -> int:
    """List scheduling in the given order, each to the least loaded rail: its largest load."""
    loads = [0] * rails
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return max(loads)


def lpt_plan(instances: Sequence[Sizes], rails: int) -> Plan:
    """railopt's own `lpt` on many local instances at once: instance i is what node i sends to one
    common receiver.

    `lpt` looks at each sender alone, so row i of `send` is what the rails of instance i carry.
    """
    src = np.repeat(np.arange(len(instances)), [len(sizes) for sizes in instances])
    chunks = Chunks.from_arrays(
        src=src,
        dst=np.full(len(src), len(instances)),
        nodes=len(instances) + 1,
        size=np.fromiter((size for sizes in instances for size in sizes), np.int64, len(src)),
    )
    return plan(Fabric.uniform(len(instances) + 1, rails, "1B/s"), chunks, "lpt")


def run_side_by_side(instances: Sequence[Instance], nodes: int, rails: int, policy: str) -> Plan:
    """One policy on many coupled instances at once: instance i lives on nodes i*nodes ..
    (i+1)*nodes - 1.
    """
    columns = np.array(
        [
            (i * nodes + src, i * nodes + dst, size)
            for i, instance in enumerate(instances)
            for src, dst, size in instance
        ],
        np.int64,
    ).reshape(-1, 3)
    chunks = Chunks.from_arrays(
        src=columns[:, 0], dst=columns[:, 1], size=columns[:, 2], nodes=len(instances) * nodes
    )
    return plan(Fabric.uniform(len(instances) * nodes, rails, "1B/s"), chunks, policy)
