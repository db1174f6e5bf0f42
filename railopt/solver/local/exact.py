"""Decide capacities of rails exactly: list the loads of their windows, then search for a cover.
See `window` and `cover`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.local.cover import FOUND, GAVE_UP, REFUTED, CoverLoads, search
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.dual import PRICING_NODES, heaviest_load
from railopt.solver.local.fill import on_rails, spread
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import LocalState
from railopt.solver.local.window import (
    Bounds,
    Half,
    classed,
    codes_fit,
    count_heavy,
    interleaved,
    list_loads,
    sums_and_codes,
    weighed,
)

HALF = 1 << 21  # sets of one half of the types: 32 MiB each
SETS_A_SECOND = 9_000_000  # listed
STEPS_A_SECOND = 3e9  # of the cover's search


class Windows:
    """The halves of all sets of jobs of at most the largest of `capacities` int64 [rails], for
    sizes int64 [n] in descending order; `usable` unless there are more than `half` of them.

    With weights of the types, only loads are used that weigh enough: all loads together weigh what
    all jobs weigh, so none may fall short of the heaviest of its rail by more than all may together
    (reduced-cost fixing).
    """

    def __init__(self, sizes: Ints, capacities: Ints, half: int = HALF) -> None:
        self.sizes, self.total, high = sizes, int(sizes.sum()), int(capacities.max())
        self.types, self.counts = interleaved(sizes)
        self.weights = np.zeros(len(self.types), np.int64)
        middle = (len(self.types) + 1) // 2
        self.halves: list[Half] = []
        self.usable = bool(codes_fit(self.counts))
        if self.usable:
            for part in (slice(middle), slice(middle, None)):
                found = sums_and_codes(self.types[part], self.counts[part], high, half)
                nothing = np.zeros(len(found[0]), np.int64)
                self.halves.append(Half(found[0], found[1], nothing, nothing))
            self.usable = all(len(found.sums) for found in self.halves)

    @property
    def sifted(self) -> bool:
        """Whether only loads are used that weigh enough."""
        return bool(self.weights.any())

    def sift(self, given: dict[int, int]) -> None:
        """Use only loads that weigh enough, by these weights of the sizes."""
        middle = (len(self.types) + 1) // 2
        self.weights = np.array([given.get(int(size), 0) for size in self.types], np.int64)
        for i, part in enumerate((slice(middle), slice(middle, None))):
            found = self.halves[i]
            weights_and_peaks = weighed(found.codes, self.counts[part], self.weights[part])
            self.halves[i] = Half(found.sums, found.codes, *weights_and_peaks)

    def count(self, capacities: Ints, limit: int) -> int:
        """How many loads rails of these capacities can have, one class of them after the other;
        counts no further than `limit`.
        """
        bounds = self._bounds(capacities)
        if bounds is None:
            return limit + 1
        found, least = 0, bounds.heaviest - bounds.spare
        for k, capacity in enumerate(bounds.capacities.tolist()):
            low = max(1, capacity - bounds.slack)
            found += int(count_heavy(*self.halves, low, capacity, least[k], limit - found))
            if found > limit:
                break
        return found

    def decide(self, capacities: Ints, limit: int, max_steps: int) -> tuple[int, Ints]:
        """(FOUND, REFUTED or GAVE_UP; an assignment int64 [n] where FOUND) within capacities int64
        [rails]; gives up where they have more than `limit` loads.
        """
        assignment = np.zeros(len(self.sizes), np.int64)
        bounds = self._bounds(capacities)
        if bounds is None:
            return GAVE_UP, assignment
        few, costs, wastes, classes, table = list_loads(*self.halves, self.counts, bounds, limit)
        if not few:
            return GAVE_UP, assignment
        _, rails, class_of = classed(capacities)
        chosen = np.full(len(capacities), -1, np.int64)
        loads = CoverLoads(self.types, self.counts, table, costs, wastes, classes, rails)
        budget = bounds.spare if self.sifted else bounds.slack
        status, _ = search(loads, budget, max_steps, chosen)
        if status == FOUND:
            load_of = on_rails(chosen, classes, class_of)
            spread(self.sizes, self.types, table, load_of, assignment)
        return status, assignment

    def _bounds(self, capacities: Ints) -> Bounds | None:
        """Of the loads of rails of these capacities; None where a knapsack takes too long."""
        distinct, rails, _ = classed(capacities)
        jobs = self.types, self.counts, self.weights
        load, heaviest = np.zeros(len(self.types), np.int64), np.zeros(len(rails), np.int64)
        for k, capacity in enumerate(distinct.tolist() if self.sifted else ()):
            heaviest[k], complete = heaviest_load(*jobs, capacity, 0, PRICING_NODES, load)
            if not complete:
                return None
        slack = int(capacities.sum()) - self.total
        return Bounds(distinct, slack, heaviest, int(rails @ heaviest - self.weights @ self.counts))

    def witness(self, unit: int) -> Witness:
        """That no cover exists; sizes are in units of so many bytes.  The checker searches anew, in
        the order of the weights and over no more than the loads that they leave; they are listed by
        falling size, since large jobs have the fewest loads.
        """
        if not self.sifted:
            return {"kind": "cover"}
        by_size = np.argsort(-self.types)
        sizes, weights = (self.types[by_size] * unit).tolist(), self.weights[by_size].tolist()
        return {
            "kind": "cover",
            "weights": [list(pair) for pair in zip(sizes, weights, strict=True)],
        }


def affordable_half(most: int, deadline: Deadline) -> int:
    """How many sets of each half, at most `most`, are listed in two thirds of the time left."""
    return max(1 << 10, deadline.afford(most, SETS_A_SECOND / 3))


def decide_times(
    state: LocalState,
    windows: Windows,
    limit: int,
    steps: int,
    sift: Callable[[int], None] | None = None,
) -> None:
    """Decide times between bound and value, as far up as `limit` loads allow; half as far from the
    bound where that takes more than `steps`, or an assignment is found.

    `sift` sifts the windows for a time: asked for the last before the value, which is the one to
    be shown impossible.
    """
    ceiling, by = state.value - 1, "sifted cover" if windows.sifted else "exact cover"
    while not state.over():
        time = latest(state, windows, ceiling, limit)
        if time < state.bound:
            return
        if sift is not None and time == state.value - 1:
            sift(time)
        affordable = state.deadline.afford(steps, STEPS_A_SECOND)
        status, assignment = windows.decide(state.capacities(time), limit, affordable)
        if status == FOUND:
            state.improve(assignment, by)
            ceiling = (state.bound + state.value) // 2
        elif status == REFUTED:
            state.refuted(time, windows.witness(state.unit), by)
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
