"""What ranks agree on before rows move, so that an error of one rank is an error of all and nobody
waits for rows that never come.  All ranks tell all what they call, with which rows.  Over gloo they
do so in a round of its own, a few numbers of each rank, before any whose messages depend on the
object that is called; over NCCL with the counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError, printable
from railopt.torch.talk import TEXT, digest_number, gathered, mark, texts

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

    @property
    def call(self) -> int:
        """Which call it is that brings counts."""
        return SENDS if self.recv is None else SPLITS

    @property
    def counts(self) -> Ints:
        """Rows to each rank, and after them those from each where they are known."""
        return self.send if self.recv is None else np.concatenate([self.send, self.recv])

    def write(self, message: Ints, call: int, numbers: Ints) -> None:
        """Fill a `message` of zeros: numbers by which ranks compare what they bring, then, where
        nothing is wrong, `numbers`.
        """
        message[:HEADER] = bool(self.problem), mark(self.kind), mark(self.made), call
        if not self.problem:
            message[HEADER : HEADER + len(numbers)] = numbers


def differentiable(needed: bool) -> str:
    """How a kind begins where gradients are needed and will come back."""
    return "differentiable " if needed and torch.is_grad_enabled() else ""


def same(group: Any, setup: str, problem: str) -> None:
    """Raise on every rank what is wrong at any, or that two were made differently."""
    raise_any(group, problem)
    marks = gathered(group, np.array([mark(setup)], np.int64))
    if (marks != marks[0]).any():
        _raise_unlike_setups(texts(group, setup), "was")


def agreed(group: Any, offer: Offer) -> Ints:
    """int64 [R, R]: rows from rank to rank, the same everywhere; what any rank finds wrong, or two
    ranks see differently, is an error of all.
    """
    ranks = dist.get_world_size(group)
    every = _gathered_numbers(group, offer, offer.call, offer.counts, 2 * ranks, None)
    counts = np.ascontiguousarray(every[:, :ranks])
    if offer.recv is not None:
        raise_splits(counts, every[:, ranks:].T)
    return counts


def raise_unlike(
    group: Any, offer: Offer, call: int, counts: Ints | None, limit_s: float | None, *, first: bool
) -> None:
    """Raise on every rank what is wrong at any, that two make different calls or have rows of
    different kinds, or were handed different `counts` [R, R], of which a digest is exchanged.

    first   the round goes before all others; else its messages are as long as those of `agreed`
    """
    digest = 0 if counts is None else digest_number(counts.tobytes())
    length = 1 if first else 2 * dist.get_world_size(group)
    digests = _gathered_numbers(group, offer, call, np.array([digest]), length, limit_s)[:, 0]
    if counts is not None and (digests != digests[0]).any():
        _raise_unlike_counts(group, counts)


def _gathered_numbers(
    group: Any, offer: Offer, call: int, numbers: Ints, length: int, limit_s: float | None
) -> Array:
    """int64 [R, length]: the `numbers` of every rank, zeros after them, once all make the same call
    with rows of one kind, and nothing is wrong at any.

    Messages of all calls are of one length: backends end a process where lengths differ.
    """
    message = np.zeros(HEADER + length, np.int64)
    offer.write(message, call, numbers)
    every = gathered(group, message, limit_s)
    if offer.problem or (every[:, :HEADER] != message[:HEADER]).any():
        raise_unlike_heads(group, offer, every[:, :HEADER])
    return every[:, HEADER:]


def raise_unlike_splits(group: Any, offer: Offer) -> None:
    """Raise which rank sends another than it expects, if so; every rank comes here if one does."""
    every = gathered(group, np.array([offer.send, offer.recv]))
    raise_splits(every[:, 0], every[:, 1].T)


def _raise_unlike_counts(group: Any, counts: Ints) -> None:
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
        raise_any(group, offer.problem)
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


def raise_any(group: Any, problem: str) -> None:
    """Raise on every rank what is wrong at any; every rank comes here."""
    for rank, text in enumerate(texts(group, problem)):
        if text:
            raise InputError(f"rank {rank}: {printable(text, TEXT)}")
