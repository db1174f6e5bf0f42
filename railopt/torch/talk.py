"""Numbers and sentences between the ranks of a process group."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Array
from railopt.base.errors import printable
from railopt.torch.shared import lost

TEXT = 400  # bytes of a sentence that ranks tell each other


def gathered(group: Any, numbers: Array, limit_s: float | None = None) -> Array:
    """[R, L]: the `numbers` [L] of every rank of a group, waited for so long, or as the group
    does.
    """
    shape = (dist.get_world_size(group), *numbers.shape)
    return collective(dist.all_gather_into_tensor, group, numbers, shape, limit_s)


def exchanged(group: Any, numbers: Array, limit_s: float | None = None) -> Array:
    """[R, L]: what every rank of a group has for this one; `numbers` [R, L] is what this one has
    for every rank.
    """
    return collective(dist.all_to_all_single, group, numbers, numbers.shape, limit_s)


def collective(
    call: Any, group: Any, numbers: Array, shape: tuple[int, ...], limit_s: float | None
) -> Array:
    """What a collective of PyTorch brings, of `shape`."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    own = torch.from_numpy(numbers.reshape(-1)).to(device, non_blocking=True)
    every = torch.empty(math.prod(shape), dtype=own.dtype, device=device)
    with counts_or_lost():
        work = call(every, own, group=group, async_op=True)
        work.wait(*([] if limit_s is None else [timedelta(seconds=limit_s)]))
        return every.cpu().numpy().reshape(shape)


@contextmanager
def counts_or_lost() -> Iterator[None]:
    """Where the exchange of counts inside fails, say so, and share nothing any more."""
    try:
        yield
    except RuntimeError as error:
        raise lost(
            f"rank {dist.get_rank()}: the exchange of counts failed; a rank is gone, late, or "
            f"makes other calls ({printable(error)})"
        ) from error


def texts(group: Any, text: str) -> list[str]:
    """The texts of all ranks."""
    padded = np.zeros(TEXT, np.uint8)
    raw = np.frombuffer(text.encode(errors="replace")[:TEXT], np.uint8)
    padded[: len(raw)] = raw
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in gathered(group, padded)]


@lru_cache(64)
def mark(text: str) -> int:
    """The number by which ranks compare a text, a kind of rows above all."""
    return digest_number(text.encode())


def digest_number(known: bytes) -> int:
    """56 bits by which ranks compare what they know."""
    return int.from_bytes(hashlib.blake2b(known, digest_size=7).digest())
