"""Speed, measured side by side with a named peer in one run, as ratios.

Each module `bench_*.py` here has `rows() -> Iterator[Row]`; `python -m tests.bench [NAME ...]
[--json]` runs them. Nothing here is asserted in a test: a busy machine is slow, not wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from railopt.dice import Dice

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
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


# calls are repeated for at least so long: a slow moment of the machine is not a measurement
SHORT_S = 0.1


def best(
    call: Callable[[], Any], repeats: int = 7, budget_s: float = 10.0, *, cpu: bool = False
) -> float:
    """Seconds of the fastest of several calls, after one that warms up; more of them where they are
    short, fewer where they are long.
    """
    clock = time.process_time if cpu else time.perf_counter
    call()
    fastest, spent, calls = float("inf"), 0.0, 0
    while (calls < repeats or spent < SHORT_S) and spent <= budget_s:
        start = clock()
        call()
        took = clock() - start
        fastest, spent, calls = min(fastest, took), spent + took, calls + 1
    return fastest


def drawn_seeds(number: int, count: int) -> list[int]:
    """`count` seeds of instances, drawn from one number; a longer list begins with a shorter."""
    return Dice(number, "instances").below(SEEDS, count).tolist()
