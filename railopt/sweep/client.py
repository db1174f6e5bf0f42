"""Which instances are still to do, and who does them: threads of this process, or the workers of a
Dask cluster.

Workers write their rows themselves, each process into a file of its own in the results folder
(which they must share with the client); the client only counts.  A client that dies loses nothing
that was finished, and the next one goes on.  An instance that fails leaves a row that says why,
written by its worker or, where the worker itself was lost, by the client.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from railopt.base.arrays import read_text
from railopt.base.errors import BackendError, InputError, printable
from railopt.base.extras import need
from railopt.sweep import box, instance, results
from railopt.sweep.spec import Instance, Sweep

BATCH = 1000  # instances of a message to the scheduler
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


@cache
def _writer(folder: str, _pid: int) -> results.Writer:
    """The writer of a process; threads that meet here first make one each, which does no harm."""
    return results.Writer(folder)


def write(folder: str, row: results.Row) -> None:
    """Append a row to this process's own file in the folder."""
    _writer(folder, os.getpid()).append(row)


def run_one(task: Task) -> str:
    """On a worker: compute one row and write it under the client's key.  Why it failed, or "" if
    the row is good.
    """
    mine = box.of_this_worker(task.memory, task.point.threads)
    try:
        row, why = mine.run(task.point, task.timeout_s), ""
    except box.Failed as error:
        row, why = instance.failure(task.point, str(error)), str(error)
    task.write(row)
    return why


def run(
    sweep: Sweep,
    folder: str | os.PathLike[str],
    *,
    cluster: str | None = None,
    shard: tuple[int, int] = (0, 1),
    workers: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Summary:
    """Run what is not finished yet, part i of n of it with `shard` (i, n): on a cluster, the
    address or file of a Dask scheduler, or by `workers` threads.  `tell` is told how far it is.
    """
    part, parts = shard
    if not 0 <= part < parts:
        raise InputError(f"shard {part}/{parts}: expected I/N, I from 0 to N - 1, e.g. 0/4")
    points = sweep.instances[part::parts]
    Path(folder).mkdir(parents=True, exist_ok=True)
    place = os.path.abspath(folder)
    finished = results.good_keys(folder)
    todo = [
        Task(point, point.key, place, sweep.memory, sweep.timeout_s, sweep.name)
        for point in points
        if point.key not in finished
    ]
    count = max(1, workers or (os.cpu_count() or 1) // sweep.threads)
    crew = _threads(todo, count) if cluster is None else _dask(todo, cluster)
    reasons: Tally[str] = Tally()
    done, interrupted, begun = 0, False, time.monotonic()
    try:
        with crew as outcomes:
            for done, why in enumerate(outcomes, 1):
                reasons.update([why] if why else [])
                left_s = (len(todo) - done) * (time.monotonic() - begun) / done
                tell(
                    f"{done}/{len(todo)} instances, {reasons.total()} failed, about {left_s:.0f} s "
                    f"left"
                )
    except KeyboardInterrupt:
        interrupted = True
    return Summary(
        len(points),
        len(points) - len(todo),
        done - reasons.total(),
        reasons.total(),
        interrupted,
        dict(reasons.most_common()),
    )


@contextmanager
def _threads(todo: Sequence[Task], workers: int) -> Iterator[Iterator[str]]:
    """The outcomes of threads that each keep a box and share this process's file of results."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_one, task) for task in todo]
        try:
            yield (future.result() for future in threads_completed(futures))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            box.stop_all()
    box.close_all()


@contextmanager
def _dask(todo: Sequence[Task], cluster: str) -> Iterator[Iterator[str]]:
    """The outcomes on the workers of the scheduler at this address or in this file."""
    need("distributed", "--cluster", ", or use --shard")
    from distributed import Client

    try:
        client = Client(_address(cluster), timeout=f"{WAIT_S}s")
    except (OSError, ValueError, TypeError, AssertionError) as error:  # whatever Dask makes of it
        raise BackendError(
            f"no scheduler answers at {printable(cluster)}: {printable(error)}"
        ) from error
    with client:
        yield _outcomes(client, todo)


def _outcomes(client: Any, todo: Sequence[Task]) -> Iterator[str]:
    """The tasks' outcomes as they end."""
    from distributed import as_completed

    given = client.map(run_one, todo, pure=False, retries=0, batch_size=BATCH)
    tasks = dict(zip(given, todo, strict=True))
    given.clear()  # a future that nobody holds is forgotten by the scheduler
    for future in as_completed(list(tasks)):
        yield _outcome(future, tasks.pop(future))


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
