"""One door to the solvers of a micro-batch."""

from __future__ import annotations

import numpy as np

from railopt.arrays import Ints
from railopt.moe.micro.greedy import Parts, balance, parts_of
from railopt.moe.micro.slots import Slots, Split


class Greedy:
    """The greedy solver with its buffers, for micro-batch after micro-batch of one layer.

    slack   how far the fullest GPU may lie above what none can beat, in 1/1024 of it; more slack
            makes fewer copies
    """

    def __init__(self, slots: Slots, slack: int = 0) -> None:
        self.slots, self.slack, self.layer = slots, slack, slots.layer
        self._work = (parts_of(self.layer), parts_of(self.layer), parts_of(self.layer))

    @property
    def plan(self) -> Parts:
        """The last plan; the next one overwrites it."""
        return self._work[2]

    @property
    def start(self) -> Parts:
        """What the last plan began with: no copies."""
        return self._work[0]

    def largest(self, counts: Ints) -> int:
        """Plan a micro-batch, int64 [experts] of numbers from 0 to 2**40: the largest load."""
        return int(balance(self.layer, counts, self.slack, self._work))

    def split(self, counts: Ints) -> Split:
        """Plan a micro-batch: a value of its own, checked."""
        slots = self.slots
        self.largest(slots.counts(counts))
        used, plan = int(self.plan.used[0]), self.plan
        tokens = np.zeros(slots.holds.shape, np.int64)
        np.add.at(tokens, (plan.rank[:used], plan.expert[:used]), plan.tokens[:used])
        return Split(slots, counts, tokens, (tokens > 0) & ~slots.holds)
