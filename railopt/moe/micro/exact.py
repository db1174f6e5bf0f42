"""The optimum over copies and split, for small cases: is there a plan in which no GPU has more than
T?  Branch on whether a copy is made until a set of experts finds no room or a linear program's
shares, copied as they are, give a plan.  What was refuted is a witness (theorem T15a).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints
from railopt.moe.micro.flow import evened
from railopt.moe.micro.room import Case, best_of, relaxed

DEPTH = 200  # cases inside cases: what the checker reads without complaint

Witness = dict[str, Any]


class OutOfTimeError(Exception):
    """The limit was reached before the question was answered."""


def within(case: Case, counts: Ints, most: int, deadline: float, depth: int = 0) -> Ints | Witness:
    """A plan of tokens counts int64 [experts] in which no GPU has more than `most`, int64 [GPU,
    expert], or a witness that there is none; OutOfTimeError after the `deadline` of
    time.monotonic.
    """
    if time.monotonic() > deadline or depth > DEPTH:
        raise OutOfTimeError
    found = relaxed(case, counts, deadline - time.monotonic())
    if found is None:
        raise OutOfTimeError
    shares, sets = found
    bound = best_of(case, counts, sets)
    if bound.tokens > most:
        return bound.witness
    tokens, tight = rounded(case, counts, shares)
    if int(tokens.sum(axis=1).max()) <= most:
        return tokens
    bound = best_of(case, counts, [tight])
    if bound.tokens > most:
        return bound.witness
    gpu, expert = _undecided(case, shares)
    there = within(case.with_copy(gpu, expert), counts, most, deadline, depth + 1)
    if isinstance(there, np.ndarray):
        return there
    absent = within(case.without_copy(gpu, expert), counts, most, deadline, depth + 1)
    if isinstance(absent, np.ndarray):
        return absent
    return {"kind": "cases", "copy": [expert, gpu], "with": there, "without": absent}


def rounded(case: Case, counts: Ints, shares: Floats) -> tuple[Ints, Bools]:
    """Copies where shares are largest, as slots allow, the best split over them, and the experts
    that allow no better.
    """
    wanted = np.where(case.may, shares, 0.0)
    rank = np.argsort(np.argsort(-wanted, axis=1, kind="stable"), axis=1, kind="stable")
    has = case.holds | ((rank < case.spare[:, None]) & (wanted > 1e-9))
    start = np.zeros(has.shape, np.int64)
    start[has.argmax(axis=0), np.arange(has.shape[1])] = counts
    return evened(start, has)


def _undecided(case: Case, shares: Floats) -> tuple[int, int]:
    """The open copy whose share is least decided: there is one, since without open copies the
    experts that allow no better split find no room.
    """
    doubt = np.where(case.may, np.minimum(shares, 1.0 - shares), -np.inf)
    gpu, expert = divmod(int(doubt.argmax()), doubt.shape[1])
    return gpu, expert
