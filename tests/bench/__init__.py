"""Speed, measured side by side with a yardstick in one run, as ratios.

A verdict is given on ratios, balances and counts alone, so that it means the same on every machine:
against a named peer where there is one, else against a step of a plain loop (`judged`).  Absolute
times stand beside them without a verdict.  Both sides of a ratio are measured in turns
(`in_turns`): a virtual machine may run at half its speed for seconds at a time.

Each module `bench_*.py` here has `rows() -> Iterator[Row]`; `python -m tests.bench [NAME ...]
[--json]` runs them. Nothing here is asserted in a test: a busy machine is slow, not wrong.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from railopt.base.dice import Dice

SEEDS = 2**31  # instances are drawn with seeds below


@dataclass(frozen=True)
class Row:
    """One line of the table: `value` in `unit`, and the goal it is held against (`at most` or `at
    least`), if any.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return "" if self.at_least is None else f">= {self.at_least:g}"

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return bool(self.value <= self.at_most)
        return None if self.at_least is None else bool(self.value >= self.at_least)


# calls are repeated for at least so long: a slow moment of the machine is not a measurement
SHORT_S = 0.1
READ_S = 1e-3  # of CPU time between two readings of its clock
TURNS = 7


def best(
    call: Callable[[], Any],
    repeats: int = 7,
    budget_s: float = 10.0,
    *,
    cpu: bool = False,
    short_s: float = SHORT_S,
) -> float:
    """Seconds of the fastest of several calls, after one that warms up; more of them where they are
    short, fewer where they are long.  CPU time, whose clock is slow to read and coarse on some
    machines, is read around so many calls at a time that they take a millisecond.
    """
    clock = time.process_time if cpu else time.perf_counter
    call()
    fastest, spent, calls, together = float("inf"), 0.0, 0, 1
    while (calls < repeats or spent < short_s) and spent <= budget_s:
        start = clock()
        for _ in range(together):
            call()
        took = clock() - start
        fastest, spent, calls = min(fastest, took / together), spent + took, calls + together
        if cpu and took < READ_S:
            together, fastest = 2 * together, float("inf")
    return fastest


def in_turns(
    calls: Sequence[Callable[[], Any]], repeats: int = 7, budget_s: float = 10.0
) -> np.ndarray:
    """CPU seconds of each call, `best` of its share of the repeats in every turn, float64 [TURNS,
    calls].  The calls of a turn come right after each other, so that a slow stretch of the machine
    meets all of them.
    """
    each, budget_s, short_s = -(-repeats // TURNS), budget_s / TURNS, SHORT_S / TURNS
    return np.array(
        [
            [best(call, each, budget_s, cpu=True, short_s=short_s) for call in calls]
            for _ in range(TURNS)
        ]
    )


def ratio(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How many times longer ours took than theirs, float64 [TURNS] each: in the middle turn, which
    a machine that changes its pace within a turn or two does not move.
    """
    return float(np.median(ours / theirs))


def drawn_seeds(number: int, count: int) -> list[int]:
    """`count` seeds of instances, drawn from one number; a longer list begins with a shorter."""
    return Dice(number, "instances").below(SEEDS, count).tolist()


def heapq_lpt(sizes: list[int], rails: int) -> list[int]:
    """The plain LPT of a textbook, sort included."""
    heap, rail = [(0, n) for n in range(rails)], [0] * len(sizes)
    for c in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        load, n = heap[0]
        rail[c] = n
        heapq.heapreplace(heap, (load + sizes[c], n))
    return rail


# What a step took on the machine on which the goals were set, a two-core x86-64 Xeon at rest: a
# goal of so many seconds there is one of as many steps everywhere.
STEP_S = 600e-9

_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_STEPS = 8192
_SIZES = np.random.default_rng(0).integers(1, 1 << 20, _STEPS).tolist()


def plain_steps() -> None:
    """The plain loop: `heapq_lpt` of 8,192 chunks, a step a chunk."""
    heapq_lpt(_SIZES, 8)


def judged(
    name: str,
    calls: Sequence[Callable[[], Any]],
    unit: str,
    goal_s: float | None,
    note: str = "",
    repeats: int = 7,
) -> Iterator[Row]:
    """The time of the slowest of these calls in `unit`, and in steps of a plain loop measured in
    turns with them, held against `goal_s` seconds of the machine on which the goals were set.
    """
    *times, loop = in_turns([*calls, plain_steps], repeats).T
    fastest = [took.min() * _PER_SECOND[unit] for took in times]
    if len(calls) > 1:
        note = f"median {np.median(fastest):.3g}; {note}"
    yield Row(name, max(fastest), unit, note=note)
    if goal_s is not None:
        yield max((in_steps(took, loop, goal_s) for took in times), key=lambda row: row.value)


def judged_once(
    name: str, took_s: float, unit: str, goal_s: float | None, note: str = ""
) -> Iterator[Row]:
    """The same for what took so many seconds and is not called again for its time's sake."""
    yield Row(name, took_s * _PER_SECOND[unit], unit, note=note)
    if goal_s is not None:
        loop_s = best(plain_steps, 3, cpu=True)
        yield in_steps(np.array([took_s]), np.array([loop_s]), goal_s)


def in_steps(took: np.ndarray, loop: np.ndarray, goal_s: float) -> Row:
    """Seconds of every turn in steps of the plain loop, whose seconds are `loop`, held against
    `goal_s` seconds of the machine on which the goals were set.
    """
    name, steps = "  the same over a step of a plain loop", _STEPS * ratio(took, loop)
    return Row(name, steps, "x", at_most=goal_s / STEP_S)
