"""Which instances are still to do, and who does them: a Dask cluster (local by default), or this
process's shard.

Workers write their rows themselves, each process into a file of its own in the results folder
(which they must share with the client); the client only counts.  A client that dies loses nothing
that was finished, and the next one goes on.  An instance that fails leaves a row that says why,
written by its worker or, where the worker itself was lost, by the client.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from railopt.base.arrays import read_text
from railopt.base.errors import BackendError, InputError, printable
from railopt.base.extras import need
from railopt.sweep import box, instance, results
from railopt.sweep.progress import counting
from railopt.sweep.spec import Instance, Sweep

# instances handed out a worker, so that a million of them never wait in the scheduler
IN_FLIGHT = 8
WAIT_S = 15.0  # for a scheduler's file, and for its answer


class Summary(NamedTuple):
    """What a run did; `reasons`: why instances failed, the most frequent first."""

    total: int
    skipped: int
    done: int
    failed: int
    interrupted: bool
    reasons: dict[str, int]


class Task(NamedTuple):
    """One instance for a worker: what to compute, under which key, within which limits."""

    point: Instance
    key: str
    folder: str
    memory: int
    timeout_s: float
    name: str = ""

    def write(self, row: results.Row) -> None:
        """Append the row with the sweep's name, under the client's key: a worker whose code changed
        meanwhile must not invent another.
        """
        write(self.folder, {**row, "key": self.key, **({"sweep": self.name} if self.name else {})})


_writers: dict[tuple[str, int], results.Writer] = {}
_writers_lock = threading.Lock()


def write(folder: str, row: results.Row) -> None:
    """Append a row to this process's own file in the folder."""
    place = (folder, os.getpid())
    with _writers_lock:
        if place not in _writers:
            _writers[place] = results.Writer(folder)
    _writers[place].append(row)


def run_one(task: Task) -> str:
    """On a worker: compute one row, once more if its process died, and write it under the client's
    key.  Why it failed, or "" if the row is good.
    """
    mine = box.of_this_worker(task.memory, task.point.threads)
    for attempt in (1, 2):
        try:
            row, why = mine.run(task.point, task.timeout_s), ""
            break
        except box.Failed as error:
            row, why = instance.failure(task.point, str(error)), str(error)
            if not error.died or attempt == 2:
                break
    task.write(row)
    return why


def run(
    sweep: Sweep,
    folder: str | os.PathLike[str],
    *,
    cluster: str | None = None,
    shard: tuple[int, int] | None = None,
    workers: int | None = None,
) -> Summary:
    """Run what is not finished yet.  `cluster` is a scheduler's address or file; `shard` (i, n)
    runs part i of n without Dask.
    """
    if cluster == "":
        raise InputError("--cluster '': expected a scheduler's address, or the name of its file")
    if cluster and shard:
        raise InputError(
            "--cluster and --shard contradict each other: a shard runs without a scheduler"
        )
    points = sweep.instances
    if shard is not None:
        part, parts = shard
        if parts < 1:
            raise InputError(f"shard {part}/{parts}: expected at least 1 part")
        if not 0 <= part < parts:
            raise InputError(f"shard {part}/{parts}: expected a part from 0 to {parts - 1}")
        points = points[part::parts]
    Path(folder).mkdir(parents=True, exist_ok=True)
    place = os.path.abspath(folder)
    finished = results.good_keys(folder)
    todo = [
        Task(point, point.key, place, sweep.memory, sweep.timeout_s, sweep.name)
        for point in points
        if point.key not in finished
    ]
    count = max(1, workers or (os.cpu_count() or 1) // sweep.threads)
    reasons: Tally[str] = Tally()
    crew = _threads(todo, count) if shard is not None else _dask(todo, cluster, count)
    interrupted = False
    with counting(len(todo)) as counter:
        try:
            with crew as outcomes:
                for why in outcomes:
                    counter.add(not why)
                    reasons.update([why] if why else [])
        except KeyboardInterrupt:
            interrupted = True
    return Summary(
        len(points),
        len(points) - len(todo),
        counter.done - counter.failed,
        counter.failed,
        interrupted,
        dict(reasons.most_common()),
    )


@contextmanager
def _threads(todo: Sequence[Task], workers: int) -> Iterator[Iterator[str]]:
    """The outcomes without Dask: threads that each keep a box and share this process's file of
    results.
    """
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_one, task) for task in todo]
        try:
            yield (future.result() for future in threads_completed(futures))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            box.stop_all()
    box.close_all()


@contextmanager
def _dask(todo: Sequence[Task], cluster: str | None, workers: int) -> Iterator[Iterator[str]]:
    """The outcomes on Dask's workers."""
    if not todo:
        yield iter(())
        return
    need("distributed", "a sweep on Dask", ", or use --shard 0/1")
    with _dask_client(cluster, workers) as client:
        yield _outcomes(client, todo, sum(client.nthreads().values()) or workers)


def _outcomes(client: Any, todo: Sequence[Task], slots: int) -> Iterator[str]:
    """The tasks' outcomes as they end; at most `IN_FLIGHT` per worker's thread are under way."""
    from distributed import as_completed

    waiting = iter(todo)
    given = {
        client.submit(run_one, task, pure=False, retries=0): task
        for task in islice(waiting, IN_FLIGHT * slots)
    }
    running: Any = as_completed(list(given))
    for future in running:
        following = next(waiting, None)
        if following is not None:
            submitted = client.submit(run_one, following, pure=False, retries=0)
            given[submitted] = following
            running.add(submitted)
        yield _outcome(future, given.pop(future))


@contextmanager
def _dask_client(cluster: str | None, workers: int) -> Iterator[Any]:
    """A client of the scheduler at this address or in this file, or of a cluster of our own."""
    from dask import config
    from distributed import Client, LocalCluster

    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.admin.tick.limit": "60s",
    }
    with config.set(settings):
        local = None
        try:
            if cluster is None:
                local = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=50,
                    memory_limit=0,
                    worker_dashboard_address=None,
                )
                client = Client(local)
            else:
                client = Client(_address(cluster), timeout=f"{WAIT_S}s")
        except (
            OSError,
            ValueError,
            TypeError,
            AssertionError,
        ) as error:  # whatever Dask makes of it
            raise BackendError(
                f"no scheduler answers at {printable(cluster)}: {printable(error)}"
            ) from error
        try:
            yield client
        finally:
            client.close()
            if local is not None:
                local.close()


def _address(cluster: str) -> str:
    """A scheduler's address, as given or as its file says, which may still have to be written."""
    if "://" in cluster:
        return cluster
    until, found = time.monotonic() + WAIT_S, None
    while time.monotonic() < until:
        try:
            found = json.loads(read_text(cluster))
            break
        except (InputError, ValueError, RecursionError):
            time.sleep(0.1)
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise InputError(
            f"--cluster {printable(cluster)}: no scheduler's file; expected a JSON object with an "
            f"address, as dask scheduler --scheduler-file writes it, or tcp://host:port"
        )
    return address


def _outcome(future: Any, task: Task) -> str:
    """Why a task failed, or "".  A worker that could not write ends the sweep; one that was lost,
    or could not run the task at all, leaves a row of the client's.
    """
    error = future.exception()
    if error is None:
        return str(future.result())
    if isinstance(error, OSError):
        raise BackendError(f"a worker could not write its row: {error}") from error
    why = f"{type(error).__name__} on its worker: {error}"
    task.write(instance.failure(task.point, why))
    return why
