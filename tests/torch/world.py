"""A world of gloo processes on this machine, none of which outlives its test."""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from railopt.errors import InputError

MOST = 8  # processes
LIMIT_S = 100.0  # for a whole world
WAIT_S = 30.0  # for one exchange

_CONTEXT = mp.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.torch.warm"])


def run(ranks: int, path: Path, job: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `job(*arguments)` returns on each rank, in a process each; an exception of any fails."""
    outcomes = outcomes_of(ranks, path, job, *arguments)
    wrong = [f"rank {rank}: {text}" for rank, (fine, text) in enumerate(outcomes) if not fine]
    assert not wrong, "\n".join(wrong)
    return [value for _, value in outcomes]


def outcomes_of(
    ranks: int, path: Path, job: Callable[..., Any], *arguments: Any
) -> list[tuple[bool, Any]]:
    """(True, result) or (False, what was raised) of each rank."""
    assert ranks <= MOST
    results: Any = _CONTEXT.Queue()
    store = str(path / "store")
    processes = [
        _CONTEXT.Process(target=_live, args=(rank, ranks, store, results, job, arguments))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    found: dict[int, tuple[bool, Any]] = {}
    end = time.monotonic() + LIMIT_S
    try:
        while len(found) < ranks:
            rank, fine, value = results.get(timeout=max(0.1, end - time.monotonic()))
            found[rank] = fine, value
    finally:
        for process in processes:
            process.join(timeout=5 if len(found) == ranks else 0)
            if process.is_alive():
                process.kill()
                process.join()
    return [found[rank] for rank in range(ranks)]


def said(call: Callable[..., Any], *arguments: Any) -> str:
    """What a call refuses its arguments with."""
    try:
        call(*arguments)
    except InputError as error:
        return str(error)
    return "no error"


def _live(
    rank: int, ranks: int, store: str, results: Any, job: Callable[..., Any], arguments: Any
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, ranks),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=WAIT_S),
        )
        results.put((rank, True, job(*arguments)))
        dist.barrier()
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        results.put((rank, False, f"{type(error).__name__}: {error}"))
    if dist.is_initialized():
        dist.destroy_process_group()
