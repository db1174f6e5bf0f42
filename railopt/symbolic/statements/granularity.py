"""T4 and T8: chunks that can't be cut.  q is the chunk size, s the number of senders to a node (or
receivers of one).

Where the flows of a pair of nodes are spread so that their rails differ by at most q, N R <= c +
(N-1) s q (T4).  The equitable plan does better: N R <= c + (N-1) p_max whatever s is (T4c), and
                 floor or ceiling for equal chunks (T8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import sympy as sp

from railopt.base.arrays import Array, Ints
from railopt.model.plan import Plan
from railopt.symbolic.algebra import is_zero
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import Instance, run_side_by_side

Expr = Any
N, L, eps, s = sp.symbols("N L eps s", positive=True)
BATCH = 128  # instances at once: the per-pair policies keep a table of nodes x nodes x rails


def chunk_size(quick: bool = False, *, factor: Expr = N - 1) -> Result:
    """T4b: q = eps L / ((N-1) s) makes the bound of T4 (1 + eps) L / N, of either side; with s = 1
    the same for T4c.
    """
    value = L / N + (1 - 1 / N) * s * (eps * L / (factor * s))
    failures = (
        [] if is_zero(value - (1 + eps) * L / N) else [f"the bound becomes {sp.factor(value)}"]
    )
    return verdict(
        "symbolic",
        "all N >= 2, s, L, eps",
        failures,
        (
            "r_k, c_f <= L",
            "s is the most peers of any node, on either side, or 1 with T4c",
            "N >= 2",
            "the bound grows with q and s, so smaller chunks and fewer peers are as good",
        ),
    )


# ---------------------------------------------------------------- every instance up to a size, with
# railopt's own policies
def equal_chunk_instances(nodes: int, most: int) -> list[Instance]:
    """Every matrix of 0..most unit chunks between the pairs of a few nodes."""
    pairs = list(permutations(range(nodes), 2))
    return [
        tuple((*pair, 1) for pair, count in zip(pairs, counts, strict=True) for _ in range(count))
        for counts in product(range(most + 1), repeat=len(pairs))
        if any(counts)
    ]


def any_size_instances(nodes: int, most_chunks: int, largest: int) -> list[Instance]:
    """Every multiset of at most `most_chunks` chunks of 1..largest bytes between the pairs of a few
    nodes.
    """
    kinds = [
        (*pair, size) for pair in permutations(range(nodes), 2) for size in range(1, largest + 1)
    ]
    return [
        chosen
        for count in range(1, most_chunks + 1)
        for chosen in combinations_with_replacement(kinds, count)
    ]


def one_flow_instances(chunks: int, largest: int) -> list[Instance]:
    """Every sequence of so many chunks of 1..largest bytes from node 0 to node 1: order matters to
    round robin.
    """
    return [
        tuple((0, 1, size) for size in sizes)
        for sizes in product(range(1, largest + 1), repeat=chunks)
    ]


Claim = Callable[[Ints, Ints, Ints, Ints, int], Ints]
"""(loads [nodes, rails], bytes [nodes], largest chunk [nodes], partners [nodes], rails) ->
whether each node keeps the bound.
"""


def floor_or_ceiling(loads: Ints, total: Ints, largest: Ints, partners: Ints, rails: int) -> Ints:
    """T8: every rail carries floor or ceil of the node's unit chunks over N."""
    held: Ints = (loads.max(axis=1) <= -(-total // rails)) & (loads.min(axis=1) >= total // rails)
    return held


def within_largest(loads: Ints, total: Ints, largest: Ints, partners: Ints, rails: int) -> Ints:
    """T4c: N load <= total + (N-1) p_max, with the node's own largest chunk, whatever the number of
    partners.
    """
    held: Ints = rails * loads.max(axis=1) <= total + (rails - 1) * largest
    return held


def spread_within_largest(
    loads: Ints, total: Ints, largest: Ints, partners: Ints, rails: int
) -> Ints:
    """T8c: the rails of a node differ by at most its own largest chunk."""
    held: Ints = loads.max(axis=1) - loads.min(axis=1) <= largest
    return held


def within_flows(loads: Ints, total: Ints, largest: Ints, partners: Ints, rails: int) -> Ints:
    """T4: N load <= total + (N-1) s q."""
    held: Ints = rails * loads.max(axis=1) <= total + (rails - 1) * partners * largest
    return held


def violations(
    instances: Sequence[Instance], nodes: int, rails: int, policy: str, claim: Claim
) -> list[str]:
    """Every node and side at which a policy breaks a claim, in words."""
    found = []
    for start in range(0, len(instances), BATCH):
        batch = instances[start : start + BATCH]
        plan = run_side_by_side(batch, nodes, rails, policy)
        for side, ends, other in (
            ("send", plan.chunks.src, plan.chunks.dst),
            ("recv", plan.chunks.dst, plan.chunks.src),
        ):
            bad = np.flatnonzero(~claim(plan.loads(side), *_per_node(plan, ends, other), rails))
            found += [
                f"{policy}, N = {rails}: node {b % nodes} {side}s {plan.loads(side)[b].tolist()} "
                f"of {list(batch[b // nodes])}"
                for b in bad.tolist()
            ]
    return found


def _per_node(plan: Plan, ends: Array, other: Array) -> tuple[Ints, Ints, Ints]:
    nodes, size = plan.fabric.nodes, plan.chunks.size
    total, largest, partners = (np.zeros(nodes, np.int64) for _ in range(3))
    np.add.at(total, ends, size)
    np.maximum.at(largest, ends, size)
    pairs = np.unique(np.stack([ends, other]), axis=1)
    np.add.at(partners, pairs[0], 1)
    return total, largest, partners


def round_robin_bound(
    quick: bool = False, *, policies: Sequence[str] = ("round-robin", "rotate"), largest: int = 1
) -> Result:
    """T4 for railopt's per-pair policies on equal chunks, both sides; `largest` > 1 drops
    "equal".
    """
    most = 2 if quick else 3
    instances = equal_chunk_instances(3, most) if largest == 1 else one_flow_instances(4, largest)
    failures = [
        line
        for policy in policies
        for rails in (2, 3)
        for line in violations(instances, 3, rails, policy, within_flows)
    ]
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, 3, 0..{most} equal chunks per pair ({len(instances)} matrices), "
        f"{' and '.join(policies)}",
        failures,
        ("the chunks of a pair of nodes are equal",),
    )


def equitable_bound(quick: bool = False, *, policy: str = "equitable") -> Result:
    """T4c for the equitable policy, any sizes, both sides."""
    return _any_sizes(quick, policy, within_largest)


def equitable_spread(quick: bool = False, *, policy: str = "equitable") -> Result:
    """T8c for the equitable policy, any sizes, both sides."""
    return _any_sizes(quick, policy, spread_within_largest)


def _any_sizes(quick: bool, policy: str, claim: Claim) -> Result:
    jobs = 4 if quick else 5
    instances = any_size_instances(3, jobs, 3)
    failures = [line for rails in (2, 3) for line in violations(instances, 3, rails, policy, claim)]
    return verdict(
        "exhaustive",
        f"M = 3, N = 2, 3, up to {jobs} chunks of 1..3 bytes ({len(instances)} instances)",
        failures,
        ("equal rates",),
    )


def ceiling_attained(quick: bool = False, *, policy: str = "equitable", largest: int = 1) -> Result:
    """T8 for the equitable policy: floor or ceiling on both sides at once; `largest` > 1 drops
    "equal chunks".
    """
    most = 2 if quick else 3
    instances = (
        equal_chunk_instances(3, most) if largest == 1 else any_size_instances(3, 3, largest)
    )
    failures = [
        line
        for rails in (2, 3, 4)
        for line in violations(instances, 3, rails, policy, floor_or_ceiling)
    ]
    if not quick and largest == 1:
        ones = equal_chunk_instances(4, 1)
        failures += [
            line
            for rails in (2, 3)
            for line in violations(ones, 4, rails, policy, floor_or_ceiling)
        ]
    return verdict(
        "exhaustive",
        f"M = 3, N = 2..4, 0..{most} chunks a "
        f"pair{'' if quick else '; M = 4, N = 2, 3, 0..1 chunks per pair'}",
        failures,
        ("equal chunks", "equal rates"),
    )
