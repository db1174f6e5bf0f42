"""Rails of different speeds (Q||Cmax): bounds of `railopt.bounds`, greedy values with re-splits,
then exact cover.

"Done before T" gives each rail a capacity, the bytes it can carry in less than T; rails of equal
capacity are one
class.  All comparisons that decide a value or a bound are exact; floats only choose where to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from railopt.bounds import local_bound
from railopt.errors import InputError
from railopt.solver.local.cover import FOUND, REFUTED, search
from railopt.solver.local.exact import HALF
from railopt.solver.local.fill import spread
from railopt.solver.local.outcome import LocalOutcome
from railopt.solver.local.solve import State, run
from railopt.solver.local.subsets import POOL, best_subset, seeded, shuffle
from railopt.solver.local.window import codes_fit, count_window, half_sums, interleaved, list_window

Ints = npt.NDArray[np.int64]
Clock = Callable[[], float]


def solve_unequal(
    given: Ints, speeds: Sequence[int], limit_s: float, seed: int, clock: Clock = time.perf_counter
) -> LocalOutcome:
    """`solve_local` for speeds in bytes per second; bounds and values are seconds."""
    start = clock()
    if any(speed < 0 for speed in speeds):
        raise InputError("speeds: expected whole numbers of at least 0 (0 is a dead rail)")
    live = [rail for rail, speed in enumerate(speeds) if speed]
    if not live and len(given):
        raise InputError("sizes, but every rail is dead: nothing can carry them")
    order = np.argsort(-given, kind="stable")
    sizes = np.ascontiguousarray(given[order])
    if len(given) and len({speeds[rail] for rail in live}) == 1:
        return _equal(given, order, speeds, live, start + limit_s, seed, clock)
    problem = Unequal(sizes, [speeds[rail] for rail in live], start + limit_s, seed, clock)
    if len(given):
        problem.run()
    assignment = np.empty(len(given), np.int64)
    assignment[order] = (
        np.array(live, np.int64)[problem.assignment] if len(given) else problem.assignment
    )
    return LocalOutcome(
        assignment,
        problem.value,
        problem.bound,
        problem.witness,
        problem.bound >= problem.value,
        f"{problem.bound_by}, {problem.value_by}",
        clock() - start,
        (given, speeds),
    )


def _equal(
    given: Ints,
    order: Ints,
    speeds: Sequence[int],
    live: list[int],
    deadline: float,
    seed: int,
    clock: Clock,
) -> LocalOutcome:
    """All live rails have one speed: the problem of equal rails, in seconds."""
    start, unit, speed = clock(), int(np.gcd.reduce(given)), speeds[live[0]]
    state = State(
        np.ascontiguousarray(given[order]) // unit, len(live), unit, deadline, seed, clock
    )
    run(state)
    assignment = np.empty(len(given), np.int64)
    assignment[order] = np.array(live, np.int64)[state.assignment]
    witness = {key: value for key, value in state.witness.items() if key != "capacity"}
    return LocalOutcome(
        assignment,
        Fraction(state.value * unit, speed),
        Fraction(state.bound * unit, speed),
        witness,
        state.done,
        f"{state.bound_by}, {state.value_by}",
        clock() - start,
        (given, speeds),
    )


class Unequal:
    """The search so far; sizes in descending bytes, speeds of the live rails."""

    def __init__(
        self, sizes: Ints, speeds: list[int], deadline: float, seed: int, clock: Clock
    ) -> None:
        self.sizes, self.speeds, self.deadline, self.seed, self.clock = (
            sizes,
            speeds,
            deadline,
            seed,
            clock,
        )
        self.unit = int(np.gcd.reduce(sizes)) if len(sizes) else 1
        self.bound, self.bound_by = Fraction(0), "average"
        self.witness: dict[str, Any] = {"kind": "average"}
        self.value, self.value_by, self.assignment = (
            Fraction(0),
            "nothing",
            np.zeros(len(sizes), np.int64),
        )

    def run(self) -> None:
        """Bound, greedy, re-splits, exact search, until bound and value meet or time is over."""
        self.bound, self.witness = local_bound(self.sizes, self.speeds)
        self.bound_by = str(self.witness["kind"])
        self.value = self.time_of(self.assignment)
        rates = np.array(self.speeds, np.float64)
        self.improve(greedy(self.sizes, rates), "lpt")
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
        self.resplit(200)
        self.exact()
        while not self.over():
            self.seed += 1
            self.resplit(1000)

    def over(self) -> bool:
        return self.bound >= self.value or self.clock() >= self.deadline

    def loads(self, assignment: Ints) -> list[int]:
        loads = [0] * len(self.speeds)
        for rail, size in zip(assignment.tolist(), self.sizes.tolist(), strict=True):
            loads[rail] += size
        return loads

    def time_of(self, assignment: Ints) -> Fraction:
        return max(
            Fraction(load, speed)
            for load, speed in zip(self.loads(assignment), self.speeds, strict=True)
        )

    def improve(self, assignment: Ints, by: str) -> None:
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
            # as slow as before is taken too: other jobs give other sums
            if max(
                Fraction(new[0], self.speeds[slow]), Fraction(new[1], self.speeds[other])
            ) <= Fraction(loads[slow], self.speeds[slow]):
                assignment[jobs] = np.where((int(mask) >> np.arange(len(jobs))) & 1, slow, other)
                loads[slow], loads[other] = new
                self.improve(assignment, "re-split")

    def exact(self) -> None:
        """Decide "done before T": at the value first, then halfway down to the bound."""
        types, counts = interleaved(self.sizes // self.unit)
        if not codes_fit(counts):
            return
        highest, middle = max(self.capacities(self.value)), (len(types) + 1) // 2
        halves = (
            half_sums(types[:middle], counts[:middle], highest, HALF),
            half_sums(types[middle:], counts[middle:], highest, HALF),
        )
        if min(len(half[0]) for half in halves) == 0:
            return
        limit, steps, goal = 4000, 30_000_000, self.value
        while not self.over() and limit <= 300_000:
            status = self.decide(
                goal,
                types,
                counts,
                halves,
                limit,
                min(steps, int(3e9 * (self.deadline - self.clock()))),
            )
            if status in (FOUND, REFUTED):
                goal = self.value
            elif goal - self.bound > (self.value - self.bound) / 1024:
                goal = (self.bound + goal) / 2
            else:
                limit, steps, goal = 4 * limit, 4 * steps, self.value

    def capacities(self, goal: Fraction) -> list[int]:
        """What each rail can carry in less than `goal`, in units."""
        return [(ceil(goal * speed) - 1) // self.unit for speed in self.speeds]

    def decide(
        self, goal: Fraction, types: Ints, counts: Ints, halves: Any, limit: int, steps: int
    ) -> int | None:
        """Search for an assignment that is done before `goal`, or refute it; None where that takes
        too long.
        """
        capacities = self.capacities(goal)
        classes, rails = np.unique(np.array(capacities, np.int64), return_counts=True)
        slack, parts = sum(capacities) - int(self.sizes.sum()) // self.unit, []
        for number, capacity in enumerate(classes.tolist()):
            low = max(1, capacity - slack)
            found = int(count_window(halves[0][0], halves[1][0], low, capacity, limit))
            if found > limit:
                return None
            sums, table = list_window(*halves[0], *halves[1], counts, low, capacity, found)
            parts.append((capacity - sums, np.full(found, number, np.int64), table))
        wastes, number_of, table = (np.concatenate(column) for column in zip(*parts, strict=True))
        by_waste, chosen = np.argsort(wastes, kind="stable"), np.full(len(capacities), -1, np.int64)
        status, _ = search(
            types,
            table[by_waste],
            wastes[by_waste],
            number_of[by_waste],
            counts,
            rails,
            slack,
            steps,
            chosen,
        )
        if status == FOUND:
            self.improve(
                self._assign(
                    types, table[by_waste], number_of[by_waste], chosen, capacities, classes
                ),
                "exact cover",
            )
        elif status == REFUTED:
            self.bound = min(
                Fraction((capacity + 1) * self.unit, speed)
                for capacity, speed in zip(capacities, self.speeds, strict=True)
            )
            self.witness, self.bound_by = {"kind": "cover"}, "exact cover"
        else:
            return None
        return int(status)

    def _assign(
        self,
        types: Ints,
        table: Any,
        number_of: Ints,
        chosen: Ints,
        capacities: list[int],
        classes: Ints,
    ) -> Ints:
        """Each chosen load goes to a free rail of its class."""
        free = {
            number: [rail for rail, c in enumerate(capacities) if c == capacity]
            for number, capacity in enumerate(classes.tolist())
        }
        rail_of_choice = np.array(
            [free[int(number_of[load])].pop() if load >= 0 else 0 for load in chosen], np.int64
        )
        place = np.zeros(len(self.sizes), np.int64)
        spread(self.sizes // self.unit, types, table, chosen, place)
        return rail_of_choice[place]


@njit(cache=True)
def greedy(sizes: Any, speeds: Any) -> Any:
    """Each job, largest first, to the rail that would be done with it first."""
    loads, assignment = np.zeros(speeds.size, np.float64), np.empty(sizes.size, np.int64)
    for job in range(sizes.size):
        rail = np.argmin((loads + sizes[job]) / speeds)
        loads[rail] += sizes[job]
        assignment[job] = rail
    return assignment


@njit(cache=True)
def first_fit(sizes: Any, speeds: Any, goal: float) -> Any:
    """Each job, largest first, to the slowest rail that is done with it by `goal`; empty where one
    finds none.
    """
    order, loads, assignment = (
        np.argsort(speeds),
        np.zeros(speeds.size, np.float64),
        np.empty(sizes.size, np.int64),
    )
    for job in range(sizes.size):
        for rail in order:
            if loads[rail] + sizes[job] <= goal * speeds[rail]:
                loads[rail] += sizes[job]
                assignment[job] = rail
                break
        else:
            return assignment[:0]
    return assignment
