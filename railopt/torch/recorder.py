"""Routing that a layer has seen, kept as a trace that `railopt place`, `split` and `weigh` read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Ints
from railopt.base.errors import InputError, RailoptError, printable
from railopt.moe.routing.trace import Trace
from railopt.torch import agree
from railopt.torch.talk import gathered

MOST = 1 << 15  # experts: choices are kept in 16 bits


class Recorder:
    """Keeps the choices of every call in 2 bytes each; `save` writes them at rank 0.

    path   None: nothing is kept
    like   a module of the experts' make; None: unknown
    """

    def __init__(self, path: str | os.PathLike[str] | None, experts: int, like: Any) -> None:
        self.path: Any = path  # a rank may give anything, which all ranks are told
        self.experts = experts
        self._size = sum(p.numel() for p in like.parameters()) if like is not None else 0
        self._calls: list[Any] = []
        self._width, self._paused = 0, False

    def problem(self, rank: int) -> str:
        """Why nothing can be recorded, in words; "" if it can.  The file is rank 0's."""
        if self.path is None:
            return ""
        if self.experts > MOST:
            return f"{self.experts} experts: at most {MOST} can be recorded"
        return _unwritable(self.path) if rank == 0 or not _is_name(self.path) else ""

    def add(self, idx: Any, width: int) -> None:
        """The choices [T, K] of one call with tokens so wide; a copy to the host is not waited
        for.
        """
        self._width = width
        if self.path is not None and not self._paused:
            self._calls.append(idx.detach().to(torch.int16).to("cpu", non_blocking=True, copy=True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls inside are not kept."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def save(self, group: Any, path: Any = None) -> None:
        """Write what all ranks of a group have seen since the last time, to another file than
        `path` of the recorder if so; every rank calls this.
        """
        if self.path is None:
            raise InputError("nothing was recorded: give the layer a file, record=")
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        top_k = max((call.shape[1] for call in self._calls), default=0)
        shape = gathered(group, np.array([len(self._calls), top_k]))
        problem = ""
        if shape.min() < 1 or (shape != shape[0]).any():
            other = int(np.argmax((shape != shape[0]).any(axis=1)))
            (first, top), (calls, choices) = shape[0].tolist(), shape[other].tolist()
            problem = (
                f"rank {other} has recorded {calls} calls of {choices} choices, rank 0 {first} of "
                f"{top}: expected as many everywhere, at least 1"
            )
        agree.same(group, "", problem)
        tokens = gathered(group, np.array([len(call) for call in self._calls]))  # [R, calls]
        own = np.full((len(self._calls), int(tokens.max()), top_k), -1, np.int16)
        for row, call in zip(own, self._calls, strict=True):
            row[: len(call), : call.shape[1]] = call.numpy()
        every = _at_first(group, own)
        if every is not None:
            problem = self._written(every, self.path if path is None else path)
        agree.same(group, "", problem)
        self._calls.clear()

    def _written(self, choices: Ints, path: Any) -> str:
        """Write choices [rank, call, token, top_k]; what is wrong, "" if nothing."""
        # readers take an expert for three matrices [model_dim, ffn]
        ffn = max(1, round(self._size / (3 * max(1, self._width))))
        if problem := _unwritable(path):
            return problem
        try:
            trace = _trace(choices.swapaxes(0, 1)[:, None], self.experts)
            known: dict[str, Any] = {"model_dim": self._width, "meta": {"model": {"ffn": ffn}}}
            replace(trace, **known).save(str(path))
        except (RailoptError, OSError) as error:
            return str(error)
        return ""


def _is_name(path: Any) -> bool:
    return isinstance(path, str | os.PathLike)


def _unwritable(path: Any) -> str:
    """Why a trace can't be written there, in words; "" if it may."""
    if not _is_name(path):
        return f"record is of type {type(path).__name__}: expected the name of a file"
    return f"{printable(path)} exists: give the trace another name" if Path(path).exists() else ""


def _trace(choices: Ints, experts: int) -> Trace:
    """The trace of choices [call, layer, rank, token, top_k]; counts alone where a token chose
    fewer experts than others.
    """
    none = choices < 0
    if not (none.any(axis=-1) & ~none.all(axis=-1)).any():
        return Trace.from_choices(choices, experts)
    calls, layers, ranks, tokens, top_k = choices.shape
    row = np.arange(calls * layers * ranks).repeat(tokens * top_k) * experts
    flat = row + choices.reshape(-1)
    counts = np.bincount(flat[~none.reshape(-1)], minlength=calls * layers * ranks * experts)
    shape = (calls, layers, ranks, experts)
    return Trace(counts.reshape(shape).astype(np.int32), top_k, tokens)


def _at_first(group: Any, own: Ints) -> Ints | None:
    """The arrays of all ranks [R, ...], at the group's first rank."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    mine = torch.from_numpy(own.reshape(-1).view(np.uint8)).to(device)
    first = dist.get_rank(group) == 0
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))] if first else None
    dist.gather(mine, every, dst=dist.get_process_group_ranks(group)[0], group=group)
    if every is None:
        return None
    return np.stack([part.cpu().numpy().view(np.int16).reshape(own.shape) for part in every])
