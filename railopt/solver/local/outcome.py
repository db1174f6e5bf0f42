"""What is known of one local problem after a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from railopt.base.arrays import Ints
from railopt.checker import WORK, Meter, Rejected, prove_local
from railopt.evidence.bracket import Bracket
from railopt.evidence.certificate import Certificate

Witness = dict[str, Any]


class LocalOutcome(NamedTuple):
    """What is known of one local problem.

    assignment  int64 [n], the rail of each job, in the order of the sizes given
    searched    what the search says: value and bound (bytes on equal rails, seconds where speeds
                are given), the bound's witness, what gave bound and value; "claimed" where they
                meet, since the checker has not been asked yet
    time_s      how long it took
    problem     the sizes, int64 [n], and the speed of each rail
    notes       steps that failed, and how: what the others found stays
    """

    assignment: Ints
    searched: Bracket
    time_s: float
    problem: tuple[Ints, Sequence[int]]
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        """The fullest rail."""
        assert self.searched.value is not None
        return self.searched.value

    @property
    def bound(self) -> Fraction:
        """No assignment is better, by `witness`."""
        return self.searched.bound

    @property
    def witness(self) -> Mapping[str, Any]:
        return self.searched.witness

    @property
    def closed(self) -> bool:
        """Value and bound meet: this solver found the optimum."""
        return self.value == self.bound

    @property
    def checkable(self) -> bool:
        """Whether the checker, asked here, accepts the witness; if that is too much work for it,
        the bound rests on this solver's search.
        """
        return self.accepted(Meter(WORK))

    @property
    def optimal(self) -> bool:
        """Whether the assignment is optimal, by a witness that the checker accepts."""
        return self.closed and self.checkable

    def accepted(self, meter: Meter) -> bool:
        """Whether the checker accepts the witness with no more work than `meter` allows."""
        sizes, speeds = self.problem
        try:
            prove_local(sizes.tolist(), speeds, self.bound, self.witness, meter)
        except Rejected:
            return False
        return True

    def certificate(self) -> Certificate:
        """The certificate of this outcome."""
        sizes, speeds = self.problem
        equal = set(speeds) == {1}
        return Certificate.local(
            sizes.tolist(),
            self.bound,
            self.witness,
            rails=len(speeds) if equal else None,
            speeds=None if equal else speeds,
            assignment=self.assignment.tolist(),
        )
