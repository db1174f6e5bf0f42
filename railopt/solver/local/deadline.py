"""When a search has to end, in seconds of the clock that its caller measures with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from railopt.base.kernels import wall_s
from railopt.base.units import time_limit
from railopt.checker import Meter, Rejected

Now = Callable[[], float]  # seconds since some moment
LOOKS = 64  # steps of the checker between two looks at the clock


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
