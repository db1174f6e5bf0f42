"""What each step of the coupled solver gains: instances drawn once, with one step left out.

`python -m tests.bench.ablations_coupled --seed 400871 [--only NAME ...] [--limit 0.5]`

Every instance is solved once with all steps, which tells the steps that it comes to; then once
without each of these.  An instance that does not come to a step has the same answer without it.
Times are CPU seconds of one thread.

small   the small family of `solver_coupled`, 3 seeds
moe     one MoE dispatch, 4 to 32 nodes, caps of 64 KiB to 4 MiB
worn    the same and matrices of bytes where NICs are slow or dead
tiny    up to 12 chunks, NICs of any rates
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from railopt import Chunks, Fabric, workloads
from railopt.solver.coupled import steps
from railopt.solver.coupled.race import Clock, Race
from railopt.solver.coupled.solve import run_race
from tests.bench import drawn_seeds
from tests.bench.solver_coupled import KIB, MIB, WORN, moe, small, worn

TINY = 240
CAPS = (4 * MIB, MIB, 256 * KIB, 64 * KIB)
Problem = tuple[Fabric, Chunks]


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is found."""


# step -> (where it is called from, its name, what stands in for it)
STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "cap weights": (steps, "_cap_weights", _nothing),
    "bounds of all nodes": (steps, "_bounds", _nothing),
    "fluid bound": (steps, "_fluid", _nothing),
    "whole chunks": (steps, "_chunk_sums", _nothing),
    "restarts": (steps, "_restart", _nothing),
    "re-split": (steps, "_even_out", _nothing),
    "exact nodes": (steps, "_nodes", _nothing),
    "anchored": (steps, "_anchored", _nothing),
    "joint": (steps, "_joint", _nothing),
    "integer program": (steps, "integer_program", _nothing),
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


def solved(problem: Problem, limit_s: float) -> Answer:
    """One solve, on a clock of CPU time."""
    race = Race(*problem, limit_s, clock=Clock(time.process_time))
    found = run_race(race)
    return Answer(found.status == "known", found.status == "claimed", found.gap, found.time_s)


def steps_of(problem: Problem, limit_s: float) -> tuple[Answer, set[str]]:
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
        return solved(problem, limit_s), met


def without(name: str, problem: Problem, limit_s: float) -> Answer:
    """The answer without a step."""
    with patch.object(*STEPS[name]):
        return solved(problem, limit_s)


def row(name: str, pairs: Sequence[tuple[str, Answer, Answer]]) -> str:
    """How many instances come to a step, and what they lose without it."""
    known, left = (sum(each[i].known for each in pairs) for i in (1, 2))
    wider = sum(b.gap > a.gap for _, a, b in pairs)
    closer = sum(b.gap < a.gap for _, a, b in pairs)
    spent, then = (sum(each[i].time_s for each in pairs) for i in (1, 2))
    return (
        f"{name} | {len(pairs)} | {known} | {left} | {wider} wider, {closer} closer | "
        f"{spent:.1f} s | {then:.1f} s"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ablations_coupled", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.5, help="CPU seconds per instance")
    parser.add_argument("--only", nargs="*", default=list(STEPS), help="steps")
    parser.add_argument("--family", default="", help="what an instance's name begins with")
    parser.add_argument("--shard", default="0/1", help="K/N: each N-th instance from the K-th on")
    args = parser.parse_args(argv)
    first, every = map(int, args.shard.split("/"))
    chosen = [one for one in instances(args.seed) if one[0].startswith(args.family)][first::every]
    for case in (chosen[0], chosen[-1]):
        run_race(Race(*case[1], 1.0))  # kernels are loaded
    found: dict[str, list[tuple[str, Answer, Answer]]] = {name: [] for name in args.only}
    total: list[Answer] = []
    for case, problem in chosen:
        answer, met = steps_of(problem, args.limit)
        total.append(answer)
        for name in (name for name in args.only if name in met):
            found[name].append((case, answer, without(name, problem, args.limit)))
            left = found[name][-1][2]
            if answer.known != left.known:
                word = "lost" if answer.known else "won"
                print(f"{word} without {name}: {case}: {float(left.gap):.1e}", flush=True)
    known, claimed = sum(one.known for one in total), sum(one.claimed for one in total)
    spent = sum(one.time_s for one in total)
    print(f"all steps: {known} known, {claimed} claimed, of {len(total)}; {spent:.1f} s")
    print("step | come to it | known | known without it | brackets | CPU | CPU without it")
    print("\n".join(row(name, pairs) for name, pairs in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
