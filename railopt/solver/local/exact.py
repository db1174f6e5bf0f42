"""Decide capacities of rails exactly: list the loads of their windows, then search for a cover.
See `window` and `cover`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railopt.arrays import Ints
from railopt.solver.local.cover import FOUND, GAVE_UP, Loads, search
from railopt.solver.local.deadline import Deadline
from railopt.solver.local.dual import PRICING_NODES, heaviest_load
from railopt.solver.local.fill import on_rails, spread
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import LARGEST
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
    """The halves of all sets of jobs of at most the largest of `capacities` int64 [rails], for
    sizes int64 [n] in descending order; `usable` unless there are more than `half` of them, or
    sums that could wrap.
    """

    def __init__(self, sizes: Ints, capacities: Ints, half: int = HALF) -> None:
        self.sizes, self.total, high = sizes, int(sizes.sum()), int(capacities.max())
        self.types, self.counts = interleaved(sizes)
        middle = (len(self.types) + 1) // 2
        self.usable = sum(capacities.tolist()) < LARGEST and bool(codes_fit(self.counts))
        if self.usable:
            left = sums_and_codes(self.types[:middle], self.counts[:middle], high, half)
            right = sums_and_codes(self.types[middle:], self.counts[middle:], high, half)
            self.left, self.right = Half(*left), Half(*right)
            self.usable = len(self.left.sums) > 0 and len(self.right.sums) > 0

    def count(self, capacities: Ints, limit: int) -> int:
        """How many loads rails of these capacities can have, one class of them after the other;
        counts no further than `limit`.
        """
        slack, found = int(capacities.sum()) - self.total, 0
        for capacity in np.unique(capacities).tolist():
            found += self.between(max(1, capacity - slack), capacity, limit - found)
            if found > limit:
                break
        return found

    def between(self, low: int, high: int, limit: int) -> int:
        """How many sets of jobs have a sum in [low, high]; counts no further than `limit`."""
        return int(count_window(self.left.sums, self.right.sums, max(low, 0), high, limit))

    def decide(
        self, capacities: Ints, limit: int, max_steps: int, weights: dict[int, int] | None = None
    ) -> Decision:
        """Search for an assignment within capacities int64 [rails]; gives up where they have more
        than `limit` loads.

        With weights of the sizes, only loads are used that weigh enough: all loads together weigh
        what all jobs weigh, so none may fall short of the heaviest of its rail by more than all may
        together (reduced-cost fixing).
        """
        if self.count(capacities, limit) > limit:
            return Decision(GAVE_UP, None, 0, self.types)
        distinct, rails, class_of = classed(capacities)
        slack = int(capacities.sum()) - self.total
        wastes, classes, table = list_loads(
            self.left, self.right, self.counts, distinct, slack, limit
        )
        if weights is not None:
            weight = np.array([weights.get(int(size), 0) for size in self.types], np.int64)
            enough = _least(self.types, self.counts, weight, rails, distinct)
            heavy = table.astype(np.int64) @ weight >= enough[classes]
            wastes, classes, table = wastes[heavy], classes[heavy], table[heavy]
        chosen = np.full(len(capacities), -1, np.int64)
        loads = Loads(self.types, self.counts, table, wastes, classes, rails)
        status, nodes = search(loads, slack, max_steps, chosen)
        rarest = self.types[np.argsort(np.count_nonzero(table, axis=0), kind="stable")]
        if status != FOUND:
            return Decision(status, None, nodes, rarest)
        assignment = np.zeros(len(self.sizes), np.int64)
        load_of = on_rails(chosen, classes, class_of)
        spread(self.sizes, self.types, table, load_of, assignment)
        return Decision(status, assignment, nodes, rarest)


def affordable_half(most: int, deadline: Deadline) -> int:
    """How many sets of each half, at most `most`, are listed in two thirds of the time left."""
    return max(1 << 10, deadline.afford(most, SETS_A_SECOND / 3))


def _least(types: Ints, counts: Ints, weights: Ints, rails: Ints, capacities: Ints) -> Ints:
    """int64 [classes]: what a load must weigh if rails[k] loads of at most capacities[k] each carry
    all jobs; nothing where a knapsack takes too long.
    """
    load, most = np.zeros(len(types), np.int64), np.zeros(len(rails), np.int64)
    for k, capacity in enumerate(capacities.tolist()):
        most[k], complete = heaviest_load(types, counts, weights, capacity, 0, PRICING_NODES, load)
        if not complete:
            return np.zeros(len(rails), np.int64)
    return most - (rails @ most - weights @ counts)
