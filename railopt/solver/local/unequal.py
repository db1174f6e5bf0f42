"""Rails of different speeds (Q||Cmax): bounds of `railopt.bounds`, greedy values with re-splits,
then exact cover.

"Done before T" gives each rail a capacity, the whole units that it can carry in less than T:
ceil(T * speed / unit) - 1, at most all there are; rails of equal capacity are one class.  All
comparisons that decide a value or a bound are exact; floats only choose where to look.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from railopt.arrays import Array, Ints
from railopt.bounds import local_bound
from railopt.kernels import njit
from railopt.solver.local.cover import FOUND, REFUTED, Loads, search
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.equal import failure
from railopt.solver.local.exact import HALF, STEPS_A_SECOND, affordable_half, cover_witness
from railopt.solver.local.fill import spread
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import LARGEST
from railopt.solver.local.subsets import POOL, best_subset, seeded, shuffle
from railopt.solver.local.window import (
    Half,
    codes_fit,
    count_window,
    interleaved,
    list_window,
    sums_and_codes,
)

MOST_LOADS = 300_000  # of all rails together that the exact search lists


class Sets(NamedTuple):
    """The jobs by type, and all sets of each half of the types: see `window`."""

    types: Ints
    counts: Ints
    left: Half
    right: Half


class Unequal:
    """The search so far: sizes int64 [n] in descending bytes, speeds of the live rails in bytes per
    second; bounds and values are seconds.
    """

    def __init__(self, sizes: Ints, speeds: list[int], deadline: Deadline, seed: int) -> None:
        self.sizes, self.speeds, self.deadline, self.seed = sizes, speeds, deadline, seed
        self.unit = int(np.gcd.reduce(sizes)) if len(sizes) else 1
        self.bound, self.bound_by = Fraction(0), "average"
        self.witness: Witness = {"kind": "average"}
        self.value, self.value_by = Fraction(0), "nothing"
        self.assignment = np.zeros(len(sizes), np.int64)
        self.notes: list[str] = []

    def search(self) -> None:
        """Bound, greedy, re-splits, exact search, until bound and value meet or time is over; a
        step that fails leaves a note.
        """
        self.value = self.time_of(self.assignment)
        self.value_by = "one rail"
        steps = self.first_bound, self.greedy, self.multifit, self.resplits, self.exact, self.go_on
        for step in steps:
            if self.over():
                return
            self._try(step)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # whatever a step breaks on, what the others found stays
            self.notes.append(failure(step.__name__, error))

    def first_bound(self) -> None:
        self.bound, self.witness = local_bound(self.sizes, self.speeds)
        self.bound_by = str(self.witness["kind"])

    def greedy(self) -> None:
        self.improve(greedy(self.sizes, np.array(self.speeds, np.float64)), "lpt")

    def multifit(self) -> None:
        """First fit at times bisected between bound and value."""
        rates = np.array(self.speeds, np.float64)
        low, high = float(self.bound), float(self.value)
        for _ in range(40):
            if self.over():
                return
            middle = (low + high) / 2
            found = first_fit(self.sizes, rates, middle)
            if len(found):
                self.improve(found, "multifit")
                high = middle
            else:
                low = middle

    def resplits(self) -> None:
        self.resplit(200)

    def go_on(self) -> None:
        """More re-splits while time is left."""
        while not self.over():
            self.seed += 1
            self.resplit(1000)

    def over(self) -> bool:
        return self.bound >= self.value or self.deadline.over

    def loads(self, assignment: Ints) -> list[int]:
        """Bytes on each rail."""
        loads = [0] * len(self.speeds)
        for rail, size in zip(assignment.tolist(), self.sizes.tolist(), strict=True):
            loads[rail] += size
        return loads

    def time_of(self, assignment: Ints) -> Fraction:
        """Seconds until the slowest rail is done, exact."""
        return max(
            Fraction(load, speed)
            for load, speed in zip(self.loads(assignment), self.speeds, strict=True)
        )

    def improve(self, assignment: Ints, by: str) -> None:
        """Keep an assignment if it is better."""
        value = self.time_of(assignment)
        if value < self.value:
            self.value, self.value_by, self.assignment = value, by, assignment.copy()

    def resplit(self, rounds: int) -> None:
        """The slowest rail and a random other share their jobs anew, near the time at which both
        would end together.
        """
        rng, buffers = np.random.default_rng(self.seed), np.empty((6, 1 << 10), np.int64)
        seeded(self.seed)
        assignment, loads = self.assignment.copy(), self.loads(self.assignment)
        for _ in range(rounds):
            if self.over():
                return
            slow = max(range(len(loads)), key=lambda rail: Fraction(loads[rail], self.speeds[rail]))
            other = int(rng.integers(len(loads)))
            if other == slow:
                continue
            jobs = np.flatnonzero((assignment == slow) | (assignment == other))
            shuffle(jobs, len(jobs))
            jobs = jobs[:POOL]
            kept = loads[slow] - int(self.sizes[jobs[assignment[jobs] == slow]].sum())
            both = loads[slow] + loads[other]
            meet = Fraction(both, self.speeds[slow] + self.speeds[other])
            pool = np.ascontiguousarray(self.sizes[jobs])
            most = int(meet * self.speeds[slow]) - kept
            total, mask = best_subset(pool, len(pool), most, most, buffers)
            if total < 0:
                continue
            new = (kept + int(total), both - kept - int(total))
            times = Fraction(new[0], self.speeds[slow]), Fraction(new[1], self.speeds[other])
            # as slow as before is taken too: other jobs give other sums
            if max(times) <= Fraction(loads[slow], self.speeds[slow]):
                assignment[jobs] = np.where((int(mask) >> np.arange(len(jobs))) & 1, slow, other)
                loads[slow], loads[other] = new
                self.improve(assignment, "re-split")

    def exact(self) -> None:
        """Decide "done before T": at the value first, then halfway down to the bound."""
        sets = self.sets()
        if sets is None:
            return
        limit, steps, goal = 4000, 30_000_000, self.value
        while not self.over() and limit <= MOST_LOADS:
            status = self.decide(goal, sets, limit, self.deadline.afford(steps, STEPS_A_SECOND))
            if status in (FOUND, REFUTED):
                goal = self.value
            elif goal - self.bound > (self.value - self.bound) / 1024:
                goal = (self.bound + goal) / 2
            else:
                limit, steps, goal = 4 * limit, 4 * steps, self.value

    def sets(self) -> Sets | None:
        """The halves of all sets that a rail may carry; None where there are too many."""
        types, counts = interleaved(self.sizes // self.unit)
        if not codes_fit(counts):
            return None
        highest, middle = max(self.capacities(self.value)), (len(types) + 1) // 2
        most = affordable_half(HALF, self.deadline)
        left = Half(*sums_and_codes(types[:middle], counts[:middle], highest, most))
        right = Half(*sums_and_codes(types[middle:], counts[middle:], highest, most))
        return Sets(types, counts, left, right) if min(len(left.sums), len(right.sums)) else None

    def capacities(self, goal: Fraction) -> list[int]:
        """What each rail can carry in less than `goal`, in units, at most all there are."""
        whole = int(self.sizes.sum()) // self.unit
        return [min(whole, (ceil(goal * speed) - 1) // self.unit) for speed in self.speeds]

    def decide(self, goal: Fraction, sets: Sets, limit: int, steps: int) -> int | None:
        """Search for an assignment that is done before `goal`, or refute it; None where that takes
        too long.
        """
        capacities = self.capacities(goal)
        slack = sum(capacities) - int(self.sizes.sum()) // self.unit
        if slack >= LARGEST:
            return None
        loads = self._loads(sets, capacities, slack, limit)
        if loads is None:
            return None
        chosen = np.full(len(capacities), -1, np.int64)
        status, _ = search(loads, slack, steps, chosen)
        if status == FOUND:
            self.improve(self._assign(loads, chosen, capacities), "exact cover")
        elif status == REFUTED:
            self.bound = self._next_time(capacities)
            self.witness, self.bound_by = cover_witness(), "exact cover"
        else:
            return None
        return int(status)

    def _next_time(self, capacities: list[int]) -> Fraction:
        """The least time in which some rail could carry a unit more than its capacity; one that
        could carry everything is never the last to be done.
        """
        whole = int(self.sizes.sum()) // self.unit
        return min(
            Fraction((capacity + 1) * self.unit, speed)
            for capacity, speed in zip(capacities, self.speeds, strict=True)
            if capacity < whole
        )

    def _loads(self, sets: Sets, capacities: list[int], slack: int, limit: int) -> Loads | None:
        """The loads of every class of rails that waste at most `slack`; None where a class has more
        than `limit` of them.
        """
        classes, rails = np.unique(np.array(capacities, np.int64), return_counts=True)
        parts = []
        for number, capacity in enumerate(classes.tolist()):
            low = max(1, capacity - slack)
            found = int(count_window(sets.left.sums, sets.right.sums, low, capacity, limit))
            if found > limit:
                return None
            sums, table = list_window(sets.left, sets.right, sets.counts, low, capacity, found)
            parts.append((capacity - sums, np.full(found, number, np.int64), table))
        wastes, number_of, table = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(wastes, kind="stable")
        return Loads(sets.types, sets.counts, table[order], wastes[order], number_of[order], rails)

    def _assign(self, loads: Loads, chosen: Ints, capacities: list[int]) -> Ints:
        """Each chosen load goes to a free rail of its class."""
        free: dict[int, list[int]] = {}
        for rail, number in enumerate(np.unique(capacities, return_inverse=True)[1].tolist()):
            free.setdefault(number, []).append(rail)
        rail_of_choice = np.array(
            [free[int(loads.classes[load])].pop() if load >= 0 else 0 for load in chosen], np.int64
        )
        place = np.zeros(len(self.sizes), np.int64)
        spread(self.sizes // self.unit, loads.sizes, loads.table, chosen, place)
        return rail_of_choice[place]


@njit(cache=True)
def greedy(sizes: Array, speeds: Array) -> Array:
    """Each job, largest first, to the rail that would be done with it first."""
    loads, assignment = np.zeros(speeds.size, np.float64), np.empty(sizes.size, np.int64)
    for job in range(sizes.size):
        rail = np.argmin((loads + sizes[job]) / speeds)
        loads[rail] += sizes[job]
        assignment[job] = rail
    return assignment


@njit(cache=True)
def first_fit(sizes: Array, speeds: Array, goal: float) -> Array:
    """Each job, largest first, to the slowest rail that is done with it by `goal`; empty where one
    finds none.
    """
    order, loads = np.argsort(speeds), np.zeros(speeds.size, np.float64)
    assignment = np.empty(sizes.size, np.int64)
    for job in range(sizes.size):
        for rail in order:
            if loads[rail] + sizes[job] <= goal * speeds[rail]:
                loads[rail] += sizes[job]
                assignment[job] = rail
                break
        else:
            return assignment[:0]
    return assignment
