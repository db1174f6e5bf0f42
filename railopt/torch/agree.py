"""What ranks agree on before rows move, so that an error of one rank is an error of all and nobody
waits for rows that never come.  Here all ranks tell all; `railopt.torch.circle` has the rounds of
policies that need their own node's counts alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError, printable
from railopt.torch.talk import TEXT, digest_number, gathered, mark, texts

__all__ = [
    "COUNTS",
    "HEADER",
    "NOTHING",
    "SENDS",
    "SPLITS",
    "Offer",
    "agreed",
    "alike",
    "differentiable",
    "identical",
    "raise_splits",
    "raise_unlike",
    "raise_unlike_counts",
    "raise_unlike_heads",
    "raise_unlike_splits",
    "same",
]

# numbers: whether something is wrong, digests of what rows are and of who is called, which call
HEADER = 4
SENDS, SPLITS, COUNTS, NOTHING = range(4)  # calls, by what a rank tells
CALLS = (" to dispatch", "", " and counts", " to combine")


class Offer(NamedTuple):
    """What a rank brings to a call.

    send, recv   int64 [R], rows to and from each rank, or none; recv is None where the rank does
                 not know it yet
    width        bytes of a row
    kind         what rows are, in words: "float32 rows of shape (4,)"; everywhere the same
    problem      what is wrong with the rank's own arguments, "" if nothing
    made         what the object that is called was made for, in words; everywhere the same
    """

    send: Ints
    recv: Ints | None
    width: int
    kind: str
    problem: str = ""
    made: str = ""

    @classmethod
    def none(cls, problem: str = "", kind: str = "", width: int = 0) -> Offer:
        """What a rank brings that has no rows to offer."""
        return cls(np.zeros(0, np.int64), None, width, kind, problem)

    def head(self, call: int) -> list[int]:
        """Numbers by which ranks compare what they bring."""
        return [bool(self.problem), mark(self.kind), mark(self.made), call]


def differentiable(needed: bool) -> str:
    """How a kind begins where gradients are needed and will come back."""
    return "differentiable " if needed and torch.is_grad_enabled() else ""


def same(group: Any, setup: str, problem: str) -> None:
    """Raise on every rank what is wrong at any, or that two were made differently."""
    _raise_any(texts(group, problem))
    identical(group, setup, None, "was")


def identical(group: Any, made: str, limit_s: float | None, verb: str = "calls what was") -> None:
    """Raise on every rank that two call objects that were made differently.  Which rounds follow,
    and how long their messages are, depends on the object: one number of each rank goes first.
    """
    marks = gathered(group, np.array([mark(made)], np.int64), limit_s)
    if (marks != marks[0]).any():
        _raise_unlike_setups(texts(group, made), verb)


def agreed(group: Any, offer: Offer) -> Ints:
    """int64 [R, R]: rows from rank to rank, the same everywhere; what any rank finds wrong, or two
    ranks see differently, is an error of all.
    """
    ranks = dist.get_world_size(group)
    sides = [offer.send] if offer.recv is None else [offer.send, offer.recv]
    every = _told(group, offer, SPLITS if len(sides) > 1 else SENDS, np.concatenate(sides))
    counts = np.ascontiguousarray(every[:, :ranks])
    if offer.recv is not None:
        raise_splits(counts, every[:, ranks:].T)
    return counts


def alike(group: Any, offer: Offer, counts: Ints | None = None) -> None:
    """Raise on every rank what is wrong at any, that rows of two differ, or that two were handed
    different `counts` [R, R], of which a digest is exchanged.
    """
    if counts is None:
        _told(group, offer, NOTHING, np.zeros(0, np.int64))
        return
    digest = np.array([digest_number(counts.tobytes())])
    digests = _told(group, offer, COUNTS, digest)[:, 0]
    if (digests != digests[0]).any():
        raise_unlike_counts(group, counts)


def _told(group: Any, offer: Offer, call: int, numbers: Ints) -> Array:
    """int64 [R, 2R]: the `numbers` of every rank, zeros after them, once all make the same call
    with rows of one kind, and nothing is wrong at any.

    Messages of all calls are of one length: backends end a process where lengths differ.
    """
    message = np.zeros(HEADER + 2 * dist.get_world_size(group), np.int64)
    message[:HEADER] = offer.head(call)
    if not offer.problem:
        message[HEADER : HEADER + len(numbers)] = numbers
    every = gathered(group, message)
    if offer.problem or (every[:, :HEADER] != message[:HEADER]).any():
        raise_unlike_heads(group, offer, every[:, :HEADER])
    return every[:, HEADER:]


def raise_unlike(group: Any, offer: Offer, call: int) -> None:
    """Raise what is wrong at any rank, or how two differ, if so; every rank comes here if one
    does.
    """
    heads = gathered(group, np.array(offer.head(call), np.int64))
    if heads[:, 0].any() or (heads != heads[0]).any():
        raise_unlike_heads(group, offer, heads)


def raise_unlike_splits(group: Any, offer: Offer) -> None:
    """Raise which rank sends another than it expects, if so; every rank comes here if one does."""
    every = gathered(group, np.array([offer.send, offer.recv]))
    raise_splits(every[:, 0], every[:, 1].T)


def raise_unlike_counts(group: Any, counts: Ints) -> None:
    """Raise where the counts differ that two ranks were handed; every rank comes here."""
    tables = gathered(group, counts)
    rank, source, target = np.argwhere(tables != tables[0])[0].tolist()
    raise InputError(
        f"rank {rank} was handed counts with {tables[rank, source, target]} rows from rank "
        f"{source} to rank {target}, rank 0 with {tables[0, source, target]}: expected the "
        f"same everywhere"
    )


def raise_unlike_heads(group: Any, offer: Offer, heads: Array) -> None:
    """Raise what is wrong at any rank, or how two differ; every rank comes here if one does."""
    if heads[:, 0].any():
        _raise_any(texts(group, offer.problem))
    if (heads[:, 2] != heads[0, 2]).any():
        _raise_unlike_setups(texts(group, offer.made), "calls what was")
    kinds = texts(group, offer.kind)
    rank = int(np.argmax((heads != heads[0]).any(axis=1)))
    raise InputError(
        f"rank {rank} has {printable(kinds[rank])}{CALLS[heads[rank, 3]]}, rank 0 "
        f"{printable(kinds[0])}{CALLS[heads[0, 3]]}: expected the same call, with rows that are "
        f"alike"
    )


def raise_splits(counts: Ints, expected: Ints) -> None:
    """Raise where rows that are sent and those that are expected differ, [source, target] each."""
    if (counts == expected).all():
        return
    source, target = np.argwhere(counts != expected)[0].tolist()
    raise InputError(
        f"rank {source} sends {counts[source, target]} rows to rank {target}, which expects "
        f"{expected[source, target]}: input_split_sizes of one and output_split_sizes of the "
        f"other must agree"
    )


def _raise_unlike_setups(setups: list[str], verb: str) -> NoReturn:
    """Raise how two setups differ whose marks do; texts are cut at `TEXT` bytes."""
    for rank, other in enumerate(setups):
        if other != setups[0]:
            raise InputError(
                f"rank {rank} {verb} made for {printable(other)}, rank 0 for "
                f"{printable(setups[0])}: expected the same everywhere"
            )
    raise InputError(
        f"two ranks differ in what they were made for, beyond the first {TEXT} bytes of "
        f"{printable(setups[0])}: expected the same everywhere"
    )


def _raise_any(problems: list[str]) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            raise InputError(f"rank {rank}: {printable(problem, TEXT)}")
