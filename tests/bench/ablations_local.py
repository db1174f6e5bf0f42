"""The local solver without each of its steps and some of their parts, on the families of
`solver_instances`: how many instances it proves, and how long it takes.

Steps run in turn until an instance is solved, so a step that an instance never reached changes
nothing: only the others are solved anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from railopt.solver.local import steps, values
from railopt.solver.local.solve import solve_local
from railopt.solver.local.state import LocalState
from tests.bench import drawn_seeds
from tests.bench.ablations import Ablation, source_lines
from tests.bench.solver_bench import Case, cases, warm_up

FAMILIES = ("grid", "classes", "lawrinenko", "unequal")
LIMIT_S = 1.0  # CPU seconds per instance


class Solved(NamedTuple):
    """One instance: whether its optimum is proved, CPU seconds, the steps that it reached."""

    proved: bool
    took_s: float
    reached: frozenset[str]


class Variant(NamedTuple):
    """The solver without something: a step, or a part of one that is replaced.

    lines    of code that exist for it alone
    step     the step that is left out, or has the part
    replace  (module, name, what takes its place); None where the step is left out
    """

    name: str
    lines: int
    step: steps.Step
    replace: tuple[Any, str, Callable[..., Any]] | None = None


def variants() -> Iterator[Variant]:
    for step in steps.STEPS:
        yield Variant(step.__name__, source_lines(step), step)
    name = values.differencing.plain.__name__
    lines = source_lines(values.differencing.plain)
    yield Variant(
        name,
        lines,
        steps.STEPS[0],
        (values, name, lambda sizes, rails: values.lpt(sizes, np.ones(rails))),
    )


def rows(seed: int) -> Iterator[Ablation]:
    instances = list(cases(FAMILIES, drawn_seeds(seed, 1)))
    warm_up([])
    everything = [solved(case, steps.STEPS) for case in instances]
    command = f"python -m tests.bench ablations local --seed {seed}"
    yield Ablation("nothing", 0, _summary(instances, everything, everything), command)
    for variant in variants():
        without = [
            _solved_without(variant, case) if variant.step.__name__ in before.reached else before
            for case, before in zip(instances, everything, strict=True)
        ]
        gain = _summary(instances, everything, without)
        yield Ablation(variant.name, variant.lines, gain, command)


def solved(case: Case, chosen: Sequence[steps.Step]) -> Solved:
    reached = set[str]()

    def noted(step: steps.Step) -> steps.Step:
        def run(state: LocalState) -> None:
            reached.add(step.__name__)
            step(state)

        return run

    began = time.process_time()
    outcome = solve_local(
        case.sizes,
        **case.shape,
        limit_s=LIMIT_S,
        clock=time.process_time,
        chosen=[noted(step) for step in chosen],
    )
    took_s = time.process_time() - began
    return Solved(outcome.optimal, took_s, frozenset(reached))


def _solved_without(variant: Variant, case: Case) -> Solved:
    if variant.replace is None:
        return solved(case, [step for step in steps.STEPS if step is not variant.step])
    with mock.patch.object(*variant.replace):
        return solved(case, steps.STEPS)


def _summary(instances: list[Case], before: list[Solved], after: list[Solved]) -> str:
    """How many of each family are proved, and the CPU seconds of all."""
    parts = []
    for family in FAMILIES:
        places = [i for i, case in enumerate(instances) if case.family == family]
        more = sum(after[i].proved - before[i].proved for i in places)
        parts.append(f"{family} {sum(after[i].proved for i in places)} ({more:+d})")
    return f"{', '.join(parts)}; {sum(one.took_s for one in after):.0f} s"
