"""What ranks tell each other before rows move: counts once a call, and what is wrong, so that an
error of one rank is an error of all and nobody waits for rows that never come.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from railopt.arrays import Array, Ints
from railopt.errors import BackendError, InputError, printable

__all__ = ["Offer", "agreed", "gathered", "same"]

TEXT = 400  # bytes of a sentence that ranks tell each other
HEADER = 3


class Offer(NamedTuple):
    """What a rank brings to a call.

    send, recv   [R] rows to and from each rank; recv is None where the rank does not know it yet
    width        bytes of a row
    kind         what rows are, in words: "float32 rows of shape (4,)"
    problem      what is wrong with the rank's own arguments, "" if nothing
    """

    send: list[int]
    recv: list[int] | None
    width: int
    kind: str
    problem: str = ""


def gathered(group: Any, numbers: Array) -> Array:
    """[R, L]: the `numbers` [L] of every rank of a group."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    own = torch.from_numpy(numbers).to(device)
    every = torch.empty((dist.get_world_size(group), *own.shape), dtype=own.dtype, device=device)
    try:
        dist.all_gather(list(every.unbind(0)), own, group=group)
        return every.cpu().numpy()
    except RuntimeError as error:
        raise BackendError(
            f"rank {dist.get_rank(group)}: the exchange of counts failed; a rank is gone, late, or "
            f"makes other calls ({printable(error)})"
        ) from error


def texts(group: Any, text: str) -> list[str]:
    """The texts of all ranks."""
    padded = np.zeros(TEXT, np.uint8)
    raw = np.frombuffer(text.encode()[:TEXT], np.uint8)
    padded[: len(raw)] = raw
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in gathered(group, padded)]


def same(group: Any, setup: str, problem: str) -> None:
    """Raise on every rank what is wrong at any, or that two were made differently."""
    _raise_any(texts(group, problem))
    every = texts(group, setup)
    for rank, other in enumerate(every):
        if other != every[0]:
            raise InputError(
                f"rank {rank} was made for {printable(other)}, rank 0 for {printable(every[0])}: "
                f"expected the same everywhere"
            )


def agreed(group: Any, offer: Offer) -> Ints:
    """int64 [R, R]: rows from rank to rank, the same everywhere; what any rank finds wrong, or two
    ranks see differently, is an error of all.
    """
    ranks = dist.get_world_size(group)
    numbers = [0] * 2 * ranks if offer.problem else [*offer.send, *(offer.recv or [0] * ranks)]
    head = [bool(offer.problem), offer.width, offer.recv is not None]
    message = np.array([*head, *numbers], np.int64)
    every = gathered(group, message)
    if offer.problem or (every[:, :HEADER] != message[:HEADER]).any():
        _raise_unlike(group, offer, every)
    counts = np.ascontiguousarray(every[:, HEADER : HEADER + ranks])
    expected = every[:, HEADER + ranks :].T
    if offer.recv is not None and (counts != expected).any():
        source, target = np.argwhere(counts != expected)[0].tolist()
        raise InputError(
            f"rank {source} sends {counts[source, target]} rows to rank {target}, which expects "
            f"{expected[source, target]}: input_split_sizes of one and output_split_sizes of the "
            f"other must agree"
        )
    return counts


def _raise_unlike(group: Any, offer: Offer, every: Array) -> None:
    """Raise what is wrong at any rank, or how two differ; every rank comes here if one does."""
    if every[:, 0].any():
        _raise_any(texts(group, offer.problem))
    kinds = texts(group, offer.kind)
    rank = int(np.argmax((every[:, :HEADER] != every[0, :HEADER]).any(axis=1)))
    raise InputError(
        f"rank {rank} has {printable(kinds[rank])}, rank 0 {printable(kinds[0])}: expected the "
        f"same call, with rows of as many bytes"
    )


def _raise_any(problems: list[str]) -> None:
    for rank, problem in enumerate(problems):
        if problem:
            raise InputError(f"rank {rank}: {printable(problem, TEXT)}")
