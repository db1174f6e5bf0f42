"""Decide a capacity exactly: list the loads of its window, then search for a cover.  See `window`
and `cover`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railopt.arrays import Ints
from railopt.solver.local.cover import FOUND, Loads, search
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.dual import PRICING_NODES, heaviest_load
from railopt.solver.local.fill import spread
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import LARGEST
from railopt.solver.local.window import (
    Half,
    codes_fit,
    count_window,
    interleaved,
    list_window,
    sums_and_codes,
)

HALF = 1 << 21  # sets of one half of the types: 32 MiB each
SETS_A_SECOND = 3_000_000  # listed and sorted
STEPS_A_SECOND = 3e9  # of the cover's search


@dataclass(frozen=True)
class Decision:
    """`status` FOUND (with an assignment), REFUTED or GAVE_UP; `rarest`: the sizes by rising number
    of loads that have them.
    """

    status: int
    assignment: Ints | None
    nodes: int
    rarest: Ints


def cover_witness(weights: list[list[int]] | None = None) -> Witness:
    """That no cover exists: the kernel searches anew, in the order of [size in bytes, weight] if
    given, and over no more than the loads that these weights leave.
    """
    return {"kind": "cover"} if weights is None else {"kind": "cover", "weights": weights}


class Windows:
    """The halves of all sets of jobs of at most `high`, for sizes int64 [n] in descending order on
    equal rails; `usable` unless there are more than `half` of them, or sums that could wrap.
    """

    def __init__(self, sizes: Ints, rails: int, high: int, half: int = HALF) -> None:
        self.sizes, self.rails, self.total = sizes, rails, int(sizes.sum())
        self.types, self.counts = interleaved(sizes)
        middle = (len(self.types) + 1) // 2
        self.usable = rails * high < LARGEST and bool(codes_fit(self.counts))
        if self.usable:
            left = sums_and_codes(self.types[:middle], self.counts[:middle], high, half)
            right = sums_and_codes(self.types[middle:], self.counts[middle:], high, half)
            self.left, self.right = Half(*left), Half(*right)
            self.usable = len(self.left.sums) > 0 and len(self.right.sums) > 0

    def count(self, capacity: int, limit: int) -> int:
        """How many loads the window of `capacity` has; counts no further than `limit`."""
        return self.between(self._low(capacity), capacity, limit)

    def between(self, low: int, high: int, limit: int) -> int:
        """How many sets of jobs have a sum in [low, high]; counts no further than `limit`."""
        return int(count_window(self.left.sums, self.right.sums, max(low, 0), high, limit))

    def largest(self, low: int, high: int, limit: int) -> int:
        """The largest capacity in [low - 1, high] with at most `limit` loads; low - 1 where even
        `low` has more.
        """
        while low <= high:
            middle = (low + high) // 2
            if self.count(middle, limit) > limit:
                high = middle - 1
            else:
                low = middle + 1
        return high

    def decide(
        self, capacity: int, limit: int, max_steps: int, weights: dict[int, int] | None = None
    ) -> Decision:
        """Search for an assignment within `capacity`, which must have at most `limit` loads.

        With weights of the sizes, only loads are used that weigh enough: N loads together weigh
        what all jobs weigh, so none may fall short of the heaviest by more than all may together
        (reduced-cost fixing).
        """
        low, found = self._low(capacity), self.count(capacity, limit)
        sums, table = list_window(self.left, self.right, self.counts, low, capacity, found)
        if weights is not None:
            weight = np.array([weights.get(int(size), 0) for size in self.types], np.int64)
            enough = _least(self.types, self.counts, weight, self.rails, capacity)
            heavy = table.astype(np.int64) @ weight >= enough
            sums, table = sums[heavy], table[heavy]
        order = np.argsort(capacity - sums, kind="stable")
        table, wastes, one_class = table[order], (capacity - sums)[order], np.zeros_like(sums)
        loads = Loads(
            self.types, self.counts, table, wastes, one_class, np.array([self.rails], np.int64)
        )
        chosen = np.full(self.rails, -1, np.int64)
        slack = self.rails * capacity - self.total
        status, nodes = search(loads, slack, max_steps, chosen)
        rarest = self.types[np.argsort(np.count_nonzero(table, axis=0), kind="stable")]
        if status != FOUND:
            return Decision(status, None, nodes, rarest)
        assignment = np.zeros(len(self.sizes), np.int64)
        spread(self.sizes, self.types, table, chosen, assignment)
        return Decision(status, assignment, nodes, rarest)

    def _low(self, capacity: int) -> int:
        return max(1, self.total - (self.rails - 1) * capacity)


def affordable_half(most: int, deadline: Deadline) -> int:
    """How many sets of each half, at most `most`, are listed in two thirds of the time left."""
    return max(1 << 10, deadline.afford(most, SETS_A_SECOND / 3))


def _least(types: Ints, counts: Ints, weights: Ints, rails: int, capacity: int) -> int:
    """What a load must weigh if `rails` loads of at most `capacity` carry all jobs; 0 where the
    knapsack takes too long.
    """
    heaviest, complete = heaviest_load(
        types, counts, weights, capacity, 0, PRICING_NODES, np.zeros(len(types), np.int64)
    )
    return int(heaviest) - (rails * int(heaviest) - int(weights @ counts)) if complete else 0
