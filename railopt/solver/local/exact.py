"""Decide capacities of rails exactly: list the loads of their windows, then search for a cover.
See `window` and `cover`.
"""

from __future__ import annotations

from math import isqrt
from operator import call

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.kernels import interruptible
from railopt.solver.local.cover import FOUND, GAVE_UP, REFUTED, CoverLoads, search
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.fill import on_rails, spread
from railopt.solver.local.state import LocalState
from railopt.solver.local.window import (
    Half,
    classed,
    codes_fit,
    count_window,
    interleaved,
    list_loads,
    sums_and_codes,
)

HALF = 1 << 21  # sets of one half of the types: 32 MiB each
SETS_A_SECOND = 9_000_000  # listed
STEPS_A_SECOND = 3e9  # of the cover's search
LONG = 100_000_000  # steps from which on Ctrl-C is handled meanwhile: a second or so


class Windows:
    """The halves of all sets of jobs of at most the largest of `capacities` int64 [rails], for
    sizes int64 [n] in descending order; `usable` unless there are more than `half` of them.
    """

    def __init__(self, sizes: Ints, capacities: Ints, half: int = HALF) -> None:
        self.sizes, self.total, high = sizes, int(sizes.sum()), int(capacities.max())
        self.types, self.counts = interleaved(sizes)
        middle = (len(self.types) + 1) // 2
        self.halves: list[Half] = []
        self.usable = bool(codes_fit(self.counts))
        if self.usable:
            for part in (slice(middle), slice(middle, None)):
                run = interruptible if half > SETS_A_SECOND // 10 else call
                found = run(sums_and_codes, self.types[part], self.counts[part], high, half)
                self.halves.append(Half(*found))
            self.usable = all(len(found.sums) for found in self.halves)

    def count(self, capacities: Ints, limit: int) -> int:
        """How many loads rails of these capacities can have, one class of them after the other;
        counts no further than `limit`.
        """
        found, slack = 0, int(capacities.sum()) - self.total
        left, right = self.halves
        for capacity in np.unique(capacities).tolist():
            low = max(1, capacity - slack)
            found += int(count_window(left.sums, right.sums, low, capacity, limit - found))
            if found > limit:
                break
        return found

    def decide(self, capacities: Ints, limit: int, max_steps: int) -> tuple[int, Ints]:
        """(FOUND, REFUTED or GAVE_UP; an assignment int64 [n] where FOUND) within capacities int64
        [rails]; gives up where they have more than `limit` loads.
        """
        assignment = np.zeros(len(self.sizes), np.int64)
        distinct, rails, class_of = classed(capacities)
        slack = int(capacities.sum()) - self.total
        left, right = self.halves
        run = interruptible if max_steps >= LONG else call
        few, wastes, classes, table = run(
            list_loads, left, right, self.counts, distinct, slack, limit
        )
        if not few:
            return GAVE_UP, assignment
        chosen = np.full(len(capacities), -1, np.int64)
        loads = CoverLoads(self.types, self.counts, table, wastes, classes, rails)
        status, _ = run(search, loads, slack, max_steps, chosen)
        if status == FOUND:
            load_of = on_rails(chosen, classes, class_of)
            spread(self.sizes, self.types, table, load_of, assignment)
        return status, assignment


def affordable_half(deadline: Deadline) -> int:
    """How many sets of each half, at most `HALF`, are listed in two thirds of the time left."""
    return max(1 << 10, deadline.afford(HALF, SETS_A_SECOND / 3))


def decide_times(state: LocalState, windows: Windows, limit: int, steps: int) -> None:
    """Decide times between bound and value, as far up as `limit` loads allow; half as far from the
    bound where that takes more than `steps`, or an assignment is found.
    """
    ceiling, by = state.value - 1, "exact cover"
    while not state.over():
        time = latest(state, windows, ceiling, limit)
        if time < state.bound:
            return
        affordable = state.deadline.afford(steps, STEPS_A_SECOND)
        status, assignment = windows.decide(state.capacities(time), limit, affordable)
        if status == FOUND:
            state.improve(assignment, by)
            ceiling = (state.bound + state.value) // 2
        elif status == REFUTED:
            state.refuted(time, {"kind": "cover"}, by)
            if time < ceiling:  # little later there are too many loads
                return
            ceiling = state.value - 1
        elif time > state.bound:
            ceiling = (state.bound + time) // 2
        else:
            return


def latest(state: LocalState, windows: Windows, high: int, limit: int) -> int:
    """A late time up to `high` within which there are at most `limit` loads: at least five sixths
    as far from the bound as the latest; one below the bound where even that has more.
    """
    low = before = state.bound - 1
    if high > before and windows.count(state.capacities(high), limit) <= limit:
        return high
    while high - low > 1 and 6 * (low - before) < 5 * (high - before):
        middle = before + isqrt(max(1, low - before) * (high - before))
        middle = min(max(middle, low + 1), high - 1)
        if windows.count(state.capacities(middle), limit) > limit:
            high = middle
        else:
            low = middle
    return low
