"""Searches that find the worst instances of a policy.  They know nothing of the theorems, only how
to make things worse.

    worst_lpt(N)        one sender: sizes that maximise lpt / optimum.  Rediscovers Graham's family,
                        4/3 - 1/(3N)
    worst_receive(N)    whole unit flows, every sender perfectly balanced: who sends to whom, so
                        that `lpt` makes a receiver as late as possible.  Rediscovers the factor N
    smallest_gap()      the smallest instance whose coupled optimum is above that of every node
                        alone

They list everything up to a size, or climb: all neighbours of an instance are run at once through
railopt's own policy and the worst is taken, from many starts.  Ratios are exact; among equals the
smallest instance wins; random starts come from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice

import numpy as np

from railopt.base.dice import Dice
from railopt.symbolic.search.oracle import (
    Instance,
    Sizes,
    best_coupled,
    best_local,
    lpt_plan,
    multisets,
    run_side_by_side,
)
from railopt.symbolic.statements.granularity import any_size_instances

BATCH = 20_000
STARTS = 8  # of a climb


@dataclass(frozen=True)
class WorstInstance:
    """The worst instance of a search: chunk sizes of one sender, or chunks (src, dst, size); value
    and optimum in bytes.
    """

    rails: int
    instance: Sizes | Instance
    value: int
    best: int

    @property
    def ratio(self) -> Fraction:
        """How far the policy is from the best possible."""
        return Fraction(self.value, self.best)


# ---------------------------------------------------------------- one sender
def lpt_ratios(
    instances: Sequence[Sizes], rails: int, above: Fraction = Fraction(0)
) -> list[tuple[Fraction, int, int]]:
    """(ratio, lpt, optimum) of each instance; where the average alone keeps the ratio below
    `above`, that estimate.
    """
    rated = []
    for sizes, value in zip(
        instances, (max(row) for row in lpt_plan(instances, rails).send.tolist()), strict=False
    ):
        floor = max(-(-sum(sizes) // rails), sizes[0])
        best = best_local(sizes, rails) if Fraction(value, floor) >= above else floor
        rated.append((Fraction(value, best), value, best))
    return rated


def worst_lpt(rails: int, *, largest: int | None = None) -> WorstInstance:
    """Every multiset of up to 2N + 1 chunks of up to 2N - 1 bytes (or `largest`); the smallest of
    the worst.

    Ties go to fewer chunks, then fewer bytes.  An instance whose average can't beat the worst so
    far is not solved.
    """
    top = largest or 2 * rails - 1
    best: tuple[Fraction, int, int, Sizes, int, int] | None = None
    for chunks in range(rails + 1, 2 * rails + 2):
        every = multisets(chunks, top, fewest=chunks)
        while batch := list(islice(every, BATCH)):
            rated = lpt_ratios(batch, rails, best[0] if best else Fraction(0))
            found = max(
                (ratio, -len(s), -sum(s), s, value, opt)
                for s, (ratio, value, opt) in zip(batch, rated, strict=True)
            )
            best = found if best is None or found[:3] > best[:3] else best
    assert best is not None
    return WorstInstance(
        rails, _primitive(best[3]), best[4] // _unit(best[3]), best[5] // _unit(best[3])
    )


def _unit(sizes: Sizes) -> int:
    return int(np.gcd.reduce(sizes))


def _primitive(sizes: Sizes) -> Sizes:
    return tuple(size // _unit(sizes) for size in sizes)


# ---------------------------------------------------------------- receivers
Targets = tuple[tuple[int, ...], ...]
"""For each node the N receivers of its N unit flows, or none: each sender's rails carry one unit
each under any LPT.
"""


def as_instance(targets: Targets) -> Instance:
    """The unit chunks of these targets, sender by sender."""
    return tuple((k, f, 1) for k, mine in enumerate(targets) for f in mine)


def receive_ratios(
    options: Sequence[Targets], rails: int, policy: str
) -> list[tuple[Fraction, int, int]]:
    """(ratio, makespan in bytes, optimum) of each option.  Unit chunks: the optimum is the largest
    degree over N, rounded up (T8).
    """
    nodes = len(options[0])
    plan = run_side_by_side([as_instance(targets) for targets in options], nodes, rails, policy)
    most = (
        np.maximum(plan.send.max(axis=1), plan.recv.max(axis=1))
        .reshape(-1, nodes)
        .max(axis=1)
        .tolist()
    )
    rated = []
    for targets, value in zip(options, most, strict=True):
        received = [sum(f in mine for mine in targets) for f in range(nodes)]
        best = -(-max(*received, *map(len, targets)) // rails)
        rated.append((Fraction(value, best) if best else Fraction(0), value, best))
    return rated


def _one_sender_changed(targets: Targets, rails: int) -> Iterator[Targets]:
    nodes = len(targets)
    for k in range(nodes):
        others = [f for f in range(nodes) if f != k]
        for chosen in ((), *combinations(others, rails)):
            if chosen != targets[k]:
                yield (*targets[:k], chosen, *targets[k + 1 :])


def worst_receive(rails: int, *, policy: str = "lpt") -> WorstInstance:
    """Climb from random targets on N + 2 nodes (one more than needed), then silence every sender
    that is not needed.
    """
    dice, nodes = Dice(1, "worst_receive"), rails + 2
    best: tuple[Fraction, int, Targets, int, int] | None = None
    for _ in range(STARTS):
        now: Targets = tuple(_others(k, nodes, rails, dice) for k in range(nodes))
        score: tuple[Fraction, int, Targets, int, int] | None = None
        while True:
            options = [now, *_one_sender_changed(now, rails)]
            rated = receive_ratios(options, rails, policy)
            top = max(
                (ratio, -sum(map(len, t)), t, value, opt)
                for t, (ratio, value, opt) in zip(options, rated, strict=True)
            )
            if score is not None and top[:2] <= score[:2]:
                break
            score, now = top, top[2]
        if best is None or score[:2] > best[:2]:
            best = score
    assert best is not None
    return WorstInstance(rails, _renumbered(as_instance(best[2])), best[3], best[4])


def _others(node: int, nodes: int, number: int, dice: Dice) -> tuple[int, ...]:
    """So many nodes other than this one, drawn without repetition, in order."""
    others = [f for f in range(nodes) if f != node]
    return tuple(sorted(others[i] for i in dice.permutation(len(others))[:number]))


def _renumbered(instance: Instance) -> Instance:
    """The same with the nodes that take part numbered from 0, in order."""
    names = {
        node: i for i, node in enumerate(sorted({end for chunk in instance for end in chunk[:2]}))
    }
    return tuple((names[src], names[dst], size) for src, dst, size in instance)


# ---------------------------------------------------------------- sizes that differ
def smallest_gap(most_chunks: int = 6, largest: int = 2) -> WorstInstance | None:
    """The first instance on three nodes of two rails, by chunks and then bytes, whose coupled
    optimum is above the optimum of every node and side alone.
    """
    nodes, rails = 3, 2
    every = sorted(
        any_size_instances(nodes, most_chunks, largest),
        key=lambda i: (len(i), sum(c[2] for c in i)),
    )
    for instance in every:
        alone = max(
            best_local([c[2] for c in instance if c[side] == k], rails)
            for side in (0, 1)
            for k in range(nodes)
        )
        value, _ = best_coupled(instance, rails)
        if value > alone:
            return WorstInstance(rails, instance, value, alone)
    return None
