"""The state of one coupled solve: the best plan and bound so far, the clock, and what a Ctrl-C
does.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from types import FrameType
from typing import NamedTuple

from numba.core.event import Event, Listener, install_listener

from railopt.bounds import Witness
from railopt.errors import BackendError, CheckFailed
from railopt.policies.common import make_plan
from railopt.solver.coupled.search import Cells, Rails
from railopt.solver.outcome import Outcome


class Clock(Listener):  # type: ignore[misc]  # numba carries no types
    """Seconds that do not pass while numba compiles kernels, which it does once a machine and
    version.
    """

    def __init__(self, base: Callable[[], float] = time.perf_counter) -> None:
        self.base, self.compiled, self.depth, self.since = base, 0.0, 0, 0.0

    def on_start(self, event: Event) -> None:
        if self.depth == 0:
            self.since = self.base()
        self.depth += 1

    def on_end(self, event: Event) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.compiled += self.base() - self.since

    def __call__(self) -> float:
        return self.base() - self.compiled


class Progress(NamedTuple):
    """Where a race stands: seconds since its start, the best value and bound, and what is at
    work.
    """

    time: float
    value: Fraction
    bound: Fraction
    stage: str


@dataclass
class Race:
    """The best plan and the best bound so far, and on whose word; `limit_s` is in seconds of
    `clock`.
    """

    cells: Cells
    limit_s: float
    seed: int
    tolerance: Fraction
    report: Callable[[Progress], None] | None
    clock: Clock = field(default_factory=Clock)
    began: float = field(init=False)
    rail: Rails | None = None
    value: Fraction = Fraction(-1)
    bound: Fraction = Fraction(0)
    witness: Witness = field(
        default_factory=lambda: {
            "kind": "node",
            "node": 0,
            "side": "send",
            "witness": {"kind": "average"},
        }
    )
    plan_by: str = ""
    bound_by: str = "average"
    claimed_by: str = ""
    unchecked: tuple[Fraction, str] = (
        Fraction(0),
        "",
    )  # a bound that the kernel would refuse to check, and by what
    interrupted: bool = False
    settled: set[tuple[int, int]] = field(
        default_factory=set
    )  # (side, node) whose local optimum is known
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def left_s(self) -> float:
        return self.limit_s - self.time

    @property
    def time(self) -> float:
        return self.clock() - self.began

    @property
    def met(self) -> bool:
        """Value and bound have met, within the tolerance, or a back-end says that they would."""
        bound = max(self.bound, self.unchecked[0])
        return bool(self.claimed_by) or (
            self.rail is not None and self.value <= bound * (1 + self.tolerance)
        )

    @property
    def over(self) -> bool:
        return self.met or self.interrupted or self.left_s <= 0

    def offer(self, rail: Rails, value: Fraction, by: str) -> None:
        """A plan, and its makespan as summed up from its rails; kept if it is better."""
        if self.rail is None or value < self.value:
            self.rail, self.value, self.plan_by = rail, value, by
            self.tell(by)

    def lift(self, bound: Fraction, witness: Witness, by: str) -> None:
        """A bound with its witness; kept if it is better."""
        if bound > self.bound:
            self.bound, self.witness, self.bound_by = bound, witness, by
            self.tell(by)
        if self.rail is not None and max(self.bound, self.unchecked[0]) > self.value:
            raise CheckFailed(
                f"a bound of {self.bound} s by {self.bound_by} above a plan of {self.value} s by "
                f"{self.plan_by}: "
                "please report this with the traffic"
            )

    def tell(self, stage: str) -> None:
        if self.report is not None and self.rail is not None:
            self.report(Progress(self.time, self.value, self.bound, stage))

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it lasts, compilation stops the clock, and Ctrl-C ends the race and is noted.

        A KeyboardInterrupt can get lost in foreign code that calls Python back, so the race also
        remembers it; a handler that the program has set itself stays.
        """

        def remember(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            raise KeyboardInterrupt

        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if ours:
            signal.signal(signal.SIGINT, remember)
        try:
            with install_listener("numba:compile", self.clock):
                yield
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            if ours:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.interrupted:
                self.notes.append("interrupted")

    def outcome(self) -> Outcome:
        if self.rail is None:
            raise BackendError("; ".join(self.notes) or "no plan was found within the time limit")
        cells, took = self.cells, self.time
        plan = make_plan(cells.fabric, cells.chunks, self.rail, f"solve: {self.plan_by}")
        status, bound, witness, method = (
            "open",
            self.bound,
            self.witness,
            f"{self.plan_by} > {self.bound_by}",
        )
        if self.value == self.bound:
            status, method = "proved", f"{self.plan_by} = {self.bound_by}"
        elif self.claimed_by or self.value == self.unchecked[0]:
            by = self.claimed_by or self.unchecked[1]
            status, bound, method, witness = (
                "claimed",
                self.value,
                f"{self.plan_by}, {by}",
                {"kind": "claimed", "by": by},
            )
        return Outcome(plan, self.value, bound, status, witness, method, took, tuple(self.notes))
