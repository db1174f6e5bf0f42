"""What is known of an optimum: the one record that every result of railopt has.

Two questions have two words.  *Is this plan optimal?* is asked of a plan, and answered by its
value and a bound.  *Is the optimum known?* is asked of a problem, and answered by a `Status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from railopt.base.errors import InputError
from railopt.base.units import exact


class Status(StrEnum):
    """What is known of an optimum, never of a single plan.

    known        something attains the bound, which has a witness that the checker accepts; of
                 `schedule --optimum`, that and start-ups that railopt adds in whole numbers
    claimed      something attains the bound, which rests on a solver's word
    open         the optimum lies somewhere from the bound to the value
    """

    KNOWN = "known"
    CLAIMED = "claimed"
    OPEN = "open"


@dataclass(frozen=True)
class Bracket:
    """An optimum lies from `bound` to `value`.

    value      what the best solution known attains, re-evaluated by railopt whoever found it;
               None where none is known
    bound      nothing is better, by `witness`, or, if claimed, on the word of `by`
    status     of the optimum
    witness    JSON values that the checker re-checks; empty where only `by` stands for the bound
    by         who found value and bound, e.g. "remainders" or "cpsat 9.15"
    certified  beside a claimed bound, the best one that has a witness, and this
    """

    value: Fraction | None
    bound: Fraction
    status: Status
    witness: Mapping[str, Any] = field(default_factory=dict, repr=False)
    by: str = ""
    certified: tuple[Fraction, Mapping[str, Any]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.value is not None and self.value < self.bound:
            raise InputError(f"a value of {self.value} below its lower bound {self.bound}")
        if (self.status in (Status.KNOWN, Status.CLAIMED)) > (self.value == self.bound):
            raise InputError(f"{self.status}: value {self.value} and bound {self.bound} differ")

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound: what is not known of the optimum; 0 without either."""
        return gap_between(self.value, self.bound)

    @property
    def optimum_known(self) -> bool:
        """Whether the optimum is known, by a witness of its bound."""
        return self.status is Status.KNOWN

    @property
    def certified_bound(self) -> Fraction | None:
        """The best bound that has a witness; None where none has."""
        if self.certified is not None:
            return self.certified[0]
        return self.bound if self.witness and self.status is not Status.CLAIMED else None

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: exact numbers as "p/q"; the status under the key "optimum"."""
        names = ("value", "bound", "certified_bound", "gap")
        numbers = exact({name: getattr(self, name) for name in names})
        return {**numbers, "optimum": str(self.status), "by": self.by}


def gap_between(value: Fraction | None, bound: Fraction) -> Fraction:
    """(value - bound) / bound, railopt's only definition of a gap; 0 where there is no bound."""
    return (value - bound) / bound if bound and value is not None else Fraction(0)


def bytes_above(moved: int, least: int) -> Fraction | None:
    """The gap of bytes; None where some are moved and none need be: no ratio says how far."""
    return gap_between(Fraction(moved), Fraction(least)) if least or not moved else None
