"""What is known of one local problem after a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.certificate import Certificate
from railopt.check import WORK, Meter, Rejected, prove_local

Ints = npt.NDArray[np.int64]
Witness = dict[str, Any]


@dataclass(frozen=True)
class LocalOutcome:
    """What is known of one local problem.

    assignment  int64 [n], the rail of each job, in the order of the sizes given
    value       the fullest rail: bytes on equal rails, seconds where speeds are given
    bound       no assignment is better, by `witness`
    closed      value == bound: this solver found the optimum
    method      what gave the bound, then what gave the value
    problem     the sizes and the speed of each rail
    """

    assignment: Ints = field(repr=False)
    value: Fraction
    bound: Fraction
    witness: Witness
    closed: bool
    method: str
    time: float
    problem: tuple[Ints, Sequence[int]] = field(repr=False)

    @cached_property
    def checkable(self) -> bool:
        """Whether the kernel, asked here, accepts the witness; if that is too much work for it, the
        bound rests on this solver's search.
        """
        sizes, speeds = self.problem
        try:
            prove_local(sizes.tolist(), speeds, self.bound, self.witness, Meter(WORK))
        except Rejected:
            return False
        return True

    @property
    def proved(self) -> bool:
        """The optimum, by a witness that the kernel can check: nothing that rests on a search alone
        is called proved.
        """
        return self.closed and self.checkable

    def certificate(
        self,
        sizes: Sequence[int] | Ints,
        *,
        rails: int | None = None,
        speeds: Sequence[int] | None = None,
    ) -> Certificate:
        """The certificate of this outcome for the problem it was asked for."""
        listed, rail = np.asarray(sizes).tolist(), self.assignment.tolist()
        return Certificate.local(
            listed, self.bound, self.witness, rails=rails, speeds=speeds, assignment=rail
        )
