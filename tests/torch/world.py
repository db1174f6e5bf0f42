"""Worlds of gloo processes on this machine.  `run` keeps one a number of ranks for all tests that
leave it as it was; `outcomes_of` makes one that may be left broken.  None outlives pytest.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from railopt.base.errors import InputError

MOST = 8  # processes of a world; at most two worlds are kept, of 4 and of 8
LIMIT_S = 100.0  # for one job
WAIT_S = 30.0  # for one exchange

_CONTEXT = mp.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.torch.warm"])
_kept: dict[int, World] = {}

Outcome = tuple[bool, Any]  # (True, result) or (False, what was raised)


class World:
    """Processes with a process group, which do one job after the other."""

    def __init__(self, ranks: int) -> None:
        assert ranks <= MOST
        self._folder = tempfile.TemporaryDirectory()
        self._ends, self._processes = [], []
        for rank in range(ranks):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_live, args=(rank, ranks, f"{self._folder.name}/store", there), daemon=True
            )
            process.start()
            self._ends.append(here)
            self._processes.append(process)

    def outcomes(self, job: Callable[..., Any], *arguments: Any) -> list[Outcome]:
        """What `job(*arguments)` does on each rank."""
        for end in self._ends:
            end.send((job, arguments))
        deadline = time.monotonic() + LIMIT_S
        found: list[Outcome] = []
        for end in self._ends:
            late = not end.poll(max(0.0, deadline - time.monotonic()))
            try:
                found.append((False, f"no answer after {LIMIT_S:g} s") if late else end.recv())
            except EOFError:
                found.append((False, "the process is gone"))
        return found

    def end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        self._folder.cleanup()


def run(ranks: int, job: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `job(*arguments)` returns on each rank; an exception of any fails."""
    if ranks not in _kept:
        _kept[ranks] = World(ranks)
    world = _kept[ranks]
    outcomes = world.outcomes(job, *arguments)
    wrong = [f"rank {rank}: {text}" for rank, (fine, text) in enumerate(outcomes) if not fine]
    if wrong:
        _kept.pop(ranks).end()
    assert not wrong, "\n".join(wrong)
    return [value for _, value in outcomes]


def outcomes_of(ranks: int, job: Callable[..., Any], *arguments: Any) -> list[Outcome]:
    """The same in a world of its own, whatever becomes of it."""
    world = World(ranks)
    try:
        return world.outcomes(job, *arguments)
    finally:
        world.end()


def said(call: Callable[..., Any], *arguments: Any) -> str:
    """What a call refuses its arguments with."""
    try:
        call(*arguments)
    except InputError as error:
        return str(error)
    return "no error"


def _live(rank: int, ranks: int, store: str, end: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=WAIT_S),
    )
    while True:
        job, arguments = end.recv()
        torch.manual_seed(rank)
        try:
            result = job(*arguments)
            dist.barrier()
            end.send((True, result))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            end.send((False, f"{type(error).__name__}: {error}"))
