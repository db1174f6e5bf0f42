"""Worlds of processes on this machine.  `run` keeps one a number of ranks for all tests that leave
it as it was; `outcomes_of` makes one that may be left broken.  None outlives pytest.

They talk over gloo, or with RAILOPT_TEST_BACKEND=nccl over NCCL, all on one GPU, where tensors are
then made: that needs NCCL 2.30 or newer (LD_PRELOAD), which lets ranks share a GPU.
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

import pytest
import torch
import torch.distributed as dist

from railopt.base.errors import InputError

MOST = 8  # processes of a world; at most two worlds are kept, of 4 and of 8
LIMIT_S = 100.0  # for one job
WAIT_S = 30.0  # for one exchange

_CONTEXT = mp.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.torch.warm"])
_kept: dict[tuple[int, str], World] = {}
BACKEND = os.environ.get("RAILOPT_TEST_BACKEND", "gloo")

over_gloo = pytest.mark.skipif(BACKEND != "gloo", reason="of what ranks do over gloo alone")

Outcome = tuple[bool, Any]  # (True, result) or (False, what was raised)


class World:
    """Processes with a process group, which do one job after the other."""

    def __init__(self, ranks: int, backend: str = BACKEND) -> None:
        assert ranks <= MOST
        self._folder = tempfile.TemporaryDirectory()
        self._ends, self._processes = [], []
        for rank in range(ranks):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_live,
                args=(rank, ranks, f"{self._folder.name}/store", there, backend),
                daemon=True,
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


def run(ranks: int, job: Callable[..., Any], *arguments: Any, backend: str = BACKEND) -> list[Any]:
    """What `job(*arguments)` returns on each rank; an exception of any fails."""
    key = ranks, backend
    if key not in _kept:
        _kept[key] = World(ranks, backend)
    world = _kept[key]
    outcomes = world.outcomes(job, *arguments)
    wrong = [f"rank {rank}: {text}" for rank, (fine, text) in enumerate(outcomes) if not fine]
    if wrong:
        _kept.pop(key).end()
    assert not wrong, "\n".join(wrong)
    return [value for _, value in outcomes]


def outcomes_of(
    ranks: int, job: Callable[..., Any], *arguments: Any, backend: str = BACKEND
) -> list[Outcome]:
    """The same in a world of its own, whatever becomes of it."""
    world = World(ranks, backend)
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


def _on_one_gpu(rank: int) -> None:
    """Ranks that share a GPU count as machines of their own, and talk over sockets."""
    os.environ |= {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_HOSTID": f"rank{rank}"}
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MAX_CTAS": "2"}
    os.environ |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_ALGO": "Ring"}
    torch.cuda.set_device(0)
    torch.set_default_device("cuda")


def _live(rank: int, ranks: int, store: str, end: Any, backend: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if "nccl" in backend:
        _on_one_gpu(rank)
    dist.init_process_group(
        backend,
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
