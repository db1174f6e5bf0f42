"""When a search has to end, in seconds of the clock that its caller measures with."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from railopt.base.errors import InputError
from railopt.base.kernels import compiling_s
from railopt.base.units import quoted
from railopt.checker import Meter, Rejected

Now = Callable[[], float]  # seconds since some moment
LOOKS = 64  # steps of the checker between two looks at the clock


def wall_s() -> float:
    """Wall-clock seconds in which no kernel was compiled or loaded, which is paid once."""
    return time.perf_counter() - compiling_s()


def time_limit(limit_s: Any, least: float = -math.inf) -> float:
    """A limit in seconds, once it is known to be a number of at least `least`."""
    try:
        found = math.nan if isinstance(limit_s, str) else float(limit_s)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if math.isnan(found):
        raise InputError(f"a time limit of {quoted(limit_s)}: expected seconds, a number")
    if found < least:
        raise InputError(f"a time limit of {quoted(limit_s)} s: expected {least:g} or more")
    return found


@dataclass(frozen=True)
class Deadline:
    """The moment `at` of `clock`."""

    clock: Now
    at: float

    @classmethod
    def after(cls, limit_s: float, clock: Now = wall_s) -> Deadline:
        """`limit_s` seconds from now."""
        return cls(clock, clock() + time_limit(limit_s))

    @property
    def left_s(self) -> float:
        """Seconds left; negative when it is over."""
        return self.at - self.clock()

    @property
    def over(self) -> bool:
        return self.clock() >= self.at

    def within(self, limit_s: float) -> Deadline:
        """`limit_s` seconds from now, or itself if that is earlier."""
        return Deadline(self.clock, min(self.at, self.clock() + limit_s))

    def afford(self, most: int, a_second: float) -> int:
        """How many steps, at most `most`, fit into the time left at `a_second` of them."""
        return int(min(float(most), max(0.0, a_second * self.left_s)))


class TimedMeter(Meter):
    """The checker's meter, which also stops a check when the time is up."""

    def __init__(self, limit: int, deadline: Deadline) -> None:
        super().__init__(limit)
        self.deadline, self.calls = deadline, 0

    def spend(self, steps: int) -> None:
        super().spend(steps)
        self.calls += 1
        if self.calls % LOOKS == 1 and self.deadline.over:
            raise Rejected("refused: no time is left for the check")
