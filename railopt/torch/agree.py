"""What ranks tell each other before rows move: counts once a call, and what is wrong, so that an
error of one rank is an error of all and nobody waits for rows that never come.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError, printable
from railopt.torch.shared import lost

__all__ = ["Offer", "agreed", "alike", "differentiable", "gathered", "mark", "same"]

TEXT = 400  # bytes of a sentence that ranks tell each other
# numbers: whether something is wrong, digests of what rows are and of who is called, which call
HEADER = 4
SENDS, SPLITS, COUNTS, NOTHING = range(4)  # calls, by what a rank tells
CALLS = (" to dispatch", "", " and counts", " to combine")


class Offer(NamedTuple):
    """What a rank brings to a call.

    send, recv   [R] rows to and from each rank; recv is None where the rank does not know it yet
    width        bytes of a row
    kind         what rows are, in words: "float32 rows of shape (4,)"; everywhere the same
    problem      what is wrong with the rank's own arguments, "" if nothing
    made         what the object that is called was made for, in words; everywhere the same
    """

    send: list[int]
    recv: list[int] | None
    width: int
    kind: str
    problem: str = ""
    made: str = ""


def differentiable(needed: bool) -> str:
    """How a kind begins where gradients are needed and will come back."""
    return "differentiable " if needed and torch.is_grad_enabled() else ""


@lru_cache(64)
def mark(text: str) -> int:
    """The number by which ranks compare a text, a kind of rows above all."""
    return _digest(text.encode())


def _digest(known: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(known, digest_size=7).digest())


def gathered(group: Any, numbers: Array, limit_s: float | None = None) -> Array:
    """[R, L]: the `numbers` [L] of every rank of a group, waited for so long, or as the group
    does.
    """
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    own = torch.from_numpy(numbers).to(device)
    every = torch.empty((dist.get_world_size(group), *own.shape), dtype=own.dtype, device=device)
    try:
        work = dist.all_gather(list(every.unbind(0)), own, group=group, async_op=True)
        work.wait(*([] if limit_s is None else [timedelta(seconds=limit_s)]))
        return every.cpu().numpy()
    except RuntimeError as error:
        raise lost(
            f"rank {dist.get_rank(group)}: the exchange of counts failed; a rank is gone, late, or "
            f"makes other calls ({printable(error)})"
        ) from error


def texts(group: Any, text: str) -> list[str]:
    """The texts of all ranks."""
    padded = np.zeros(TEXT, np.uint8)
    raw = np.frombuffer(text.encode(errors="replace")[:TEXT], np.uint8)
    padded[: len(raw)] = raw
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in gathered(group, padded)]


def same(group: Any, setup: str, problem: str) -> None:
    """Raise on every rank what is wrong at any, or that two were made differently."""
    _raise_any(texts(group, problem))
    _raise_unlike_setups(texts(group, setup), "was")


def agreed(group: Any, offer: Offer) -> Ints:
    """int64 [R, R]: rows from rank to rank, the same everywhere; what any rank finds wrong, or two
    ranks see differently, is an error of all.
    """
    ranks = dist.get_world_size(group)
    numbers = [] if offer.problem else [*offer.send, *(offer.recv or [0] * ranks)]
    every = _told(group, offer, SPLITS if offer.recv is not None else SENDS, numbers)
    counts = np.ascontiguousarray(every[:, :ranks])
    expected = every[:, ranks:].T
    if offer.recv is not None and (counts != expected).any():
        source, target = np.argwhere(counts != expected)[0].tolist()
        raise InputError(
            f"rank {source} sends {counts[source, target]} rows to rank {target}, which expects "
            f"{expected[source, target]}: input_split_sizes of one and output_split_sizes of the "
            f"other must agree"
        )
    return counts


def alike(group: Any, offer: Offer, counts: Ints | None = None) -> None:
    """Raise on every rank what is wrong at any, that rows of two differ, or that two were handed
    different `counts` [R, R], of which a digest is exchanged.
    """
    if counts is None:
        _told(group, offer, NOTHING, [])
        return
    digests = _told(group, offer, COUNTS, [_digest(counts.tobytes())])[:, 0]
    if (digests != digests[0]).any():
        tables = gathered(group, counts)
        rank, source, target = np.argwhere(tables != tables[0])[0].tolist()
        raise InputError(
            f"rank {rank} was handed counts with {tables[rank, source, target]} rows from rank "
            f"{source} to rank {target}, rank 0 with {tables[0, source, target]}: expected the "
            f"same everywhere"
        )


def _told(group: Any, offer: Offer, call: int, numbers: list[int]) -> Array:
    """int64 [R, 2R]: the `numbers` of every rank, zeros after them, once all make the same call
    with rows of one kind, and nothing is wrong at any.

    Messages of all calls are of one length: backends end a process where lengths differ.
    """
    head = [bool(offer.problem), mark(offer.kind), mark(offer.made), call]
    message = np.zeros(HEADER + 2 * dist.get_world_size(group), np.int64)
    message[: HEADER + len(numbers)] = [*head, *numbers]
    every = gathered(group, message)
    if offer.problem or (every[:, :HEADER] != message[:HEADER]).any():
        _raise_unlike(group, offer, every[:, :HEADER])
    return every[:, HEADER:]


def _raise_unlike(group: Any, offer: Offer, heads: Array) -> None:
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


def _raise_unlike_setups(setups: list[str], verb: str) -> None:
    for rank, other in enumerate(setups):
        if other != setups[0]:
            raise InputError(
                f"rank {rank} {verb} made for {printable(other)}, rank 0 for "
                f"{printable(setups[0])}: expected the same everywhere"
            )


def _raise_any(problems: list[str]) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            raise InputError(f"rank {rank}: {printable(problem, TEXT)}")
