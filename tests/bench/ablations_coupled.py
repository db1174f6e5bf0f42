"""What each step of the coupled solver gains: instances drawn once, with one step left out.

Every instance is solved once with all steps, which tells the steps that it comes to; then once
without each of these.  An instance that does not come to a step has the same answer without it.
Times are CPU seconds of one thread.

small   the small family of `solver_coupled`, 3 seeds
moe     one MoE dispatch, 4 to 32 nodes, caps of 64 KiB to 4 MiB
worn    the same and matrices of bytes where NICs are slow or dead
tiny    up to 12 chunks, NICs of any rates
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from railopt import Chunks, Fabric, workloads
from railopt.solver.coupled import (
    chunk_sums,
    joint,
    nodes,
    resplit_kernels,
    search,
    solve,
)
from railopt.solver.coupled.race import Race, first_bound
from railopt.solver.coupled.solve import run_race
from tests.bench import drawn_seeds
from tests.bench.ablations import Ablation, source_lines
from tests.bench.solver_coupled import KIB, MIB, WORN, moe, small, worn

TINY = 240
LIMIT_S = 0.5  # CPU seconds per instance
CAPS = (4 * MIB, MIB, 256 * KIB, 64 * KIB)
Problem = tuple[Fabric, Chunks]


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is found."""


def _average(race: Race) -> None:
    """The bound of the sums of the most loaded node alone."""
    race.lift(*first_bound(race.fabric, race.chunks), "average")


# step -> (where it is called from, its name, what stands in for it)
STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "bounds of all nodes": (solve, "_closed_form", _average),
    "fluid bound": (solve, "_fluid", _nothing),
    "whole chunks": (solve, "_chunk_sums", _nothing),
    "restarts": (solve, "_restart", _nothing),
    "re-split": (solve, "_even_out", _nothing),
    "exact nodes": (solve, "_nodes", _nothing),
    "anchored": (solve, "_anchored", _nothing),
    "joint": (solve, "_joint", _nothing),
}


# step -> what exists for it alone, beside the step itself
ALONE: dict[str, tuple[Any, ...]] = {
    "whole chunks": (chunk_sums,),
    "re-split": (resplit_kernels, search.even_out),
    "exact nodes": (nodes, solve.critical_sides),
    "anchored": (search.anchor,),
    "joint": (joint,),
}


class Answer(NamedTuple):
    """What a solve came to: the optimum is known, or a solver says so; value over bound; CPU
    seconds.
    """

    known: bool
    claimed: bool
    gap: Fraction
    time_s: float


def instances(seed: int) -> Iterator[tuple[str, Problem]]:
    """(family and name, problem)."""
    seeds = drawn_seeds(seed, 3)
    for name, problem in small(seeds):
        yield f"small {name}", problem
    for count, skew, cap in product((4, 8, 16, 32), (0.0, 0.5, 0.8, 1.2), CAPS):
        name = f"moe {count} nodes, skew {skew}, {cap // KIB} KiB"
        yield name, (Fabric.uniform(count, 8), moe(count, skew, cap, seeds[0]))
    for kind, count, cap, drawn in product(WORN, (4, 16), CAPS, seeds[:2]):
        fabric = worn(Fabric.uniform(count, 8), kind, drawn)
        skew = (0.0, 0.5, 0.8, 1.2)[drawn % 4]
        name = f"worn {kind}, {count} nodes, {cap // KIB} KiB, {drawn}"
        yield f"{name} dispatch", (fabric, moe(count, skew, cap, drawn))
        yield f"{name} bytes", (fabric, workloads.zipf(fabric, seed=drawn).chunks(cap))
    for number in range(TINY):
        yield f"tiny {number}", tiny(np.random.default_rng([seed, number]))


def tiny(rng: np.random.Generator) -> Problem:
    """Up to 12 chunks between 2 to 4 nodes of 1 to 4 rails, some of them slow or dead in three
    quarters of the instances.
    """
    count, rails = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    rates = rng.choice([0, 1, 2, 3, 4], (2, count, rails), p=[0.15, 0.1, 0.2, 0.2, 0.35])
    kind = int(rng.integers(4))
    if kind == 0:
        rates[:] = 4
    elif kind == 1:
        rates[1] = rates[0]
    elif kind == 2:
        rates[rng.random(rates.shape) < 0.75] = 4
    rates[:, :, 0] = np.maximum(rates[:, :, 0], 1)
    src = rng.integers(0, count, int(rng.integers(1, 13)))
    dst = (src + rng.integers(1, count, len(src))) % count
    size = rng.integers(1, int(rng.choice([2, 4, 10, 100])), len(src))
    chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=count)
    return Fabric(count, rails, rails, rates[0], rates[1]), chunks


def rows(seed: int) -> Iterator[Ablation]:
    """How many instances come to each step, how many of them are known with and without it."""
    command = f"python -m tests.bench ablations coupled --seed {seed}"
    chosen = list(instances(seed))
    for _, problem in (chosen[0], chosen[-1]):
        run_race(Race(*problem, 1.0))  # kernels are loaded
    found: dict[str, list[tuple[Answer, Answer]]] = {name: [] for name in STEPS}
    total: list[Answer] = []
    for _, problem in chosen:
        answer, met = steps_of(problem)
        total.append(answer)
        for name in met:
            found[name].append((answer, without(name, problem)))
    known, spent_s = sum(one.known for one in total), sum(one.time_s for one in total)
    yield Ablation("nothing", 0, f"{known} known of {len(total)}, {spent_s:.1f} s", command)
    for name, pairs in found.items():
        lines = source_lines(getattr(*STEPS[name][:2]), *ALONE.get(name, ()))
        yield Ablation(name, lines, _gain(pairs), command)


def _gain(pairs: list[tuple[Answer, Answer]]) -> str:
    """What the instances that come to a step lose without it."""
    before, after = [one for one, _ in pairs], [one for _, one in pairs]
    known, left = (sum(one.known for one in side) for side in (before, after))
    spent_s, then_s = (sum(one.time_s for one in side) for side in (before, after))
    wider = sum(b.gap > a.gap for a, b in pairs)
    closer = sum(b.gap < a.gap for a, b in pairs)
    return (
        f"{len(pairs)} come to it, {known} known, {left} without it; brackets {wider} wider, "
        f"{closer} closer without it; {spent_s:.1f} s, {then_s:.1f} s without it"
    )


def solved(problem: Problem) -> Answer:
    """One solve, on a clock of CPU time."""
    race = Race(*problem, LIMIT_S, clock=time.process_time)
    found = run_race(race)
    return Answer(found.optimum == "known", found.optimum == "claimed", found.gap, found.time_s)


def steps_of(problem: Problem) -> tuple[Answer, set[str]]:
    """The answer with all steps, and the steps that it came to."""
    met: set[str] = set()

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def within(*args: Any, **options: Any) -> Any:
            met.add(name)
            return call(*args, **options)

        within.__name__ = call.__name__
        return within

    with ExitStack() as stack:
        for name, (module, attribute, _) in STEPS.items():
            call = watched(name, getattr(module, attribute))
            stack.enter_context(patch.object(module, attribute, call))
        return solved(problem), met


def without(name: str, problem: Problem) -> Answer:
    """The answer without a step."""
    with patch.object(*STEPS[name]):
        return solved(problem)
