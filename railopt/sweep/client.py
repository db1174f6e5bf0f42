"""Which instances are still to do, and who does them: a Dask cluster (local by default), or this
process's shard.

Workers write their rows themselves, each into a file of its own in the results folder (which they
must share with the
client); the client only counts.  A client that dies loses nothing that was finished, and the next
                                  one goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as threads_completed
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from railopt.errors import BackendError, InputError
from railopt.sweep import box, instance, results
from railopt.sweep.progress import Counter, counting
from railopt.sweep.spec import Instance, Sweep

IN_FLIGHT = (
    8  # instances handed out a worker, so that a million of them never wait in the scheduler
)


class Summary(NamedTuple):
    """What a run did."""

    total: int
    skipped: int
    done: int
    failed: int
    interrupted: bool


class Job(NamedTuple):
    """What a worker needs to know beside the instance."""

    folder: str
    memory: int
    timeout_s: float


_writers: dict[tuple[str, int], results.Writer] = {}


def run_one(point: Instance, key: str, job: Job) -> bool:
    """On a worker: compute one row, once more if its process died, and write it under the client's
    key.  True if it is good.
    """
    mine = box.of_this_worker(job.memory, point.threads)
    for attempt in (1, 2):
        try:
            row = mine.run(point, job.timeout_s)
            break
        except box.Failed as error:
            row = instance.failure(point, str(error))
            if not error.died or attempt == 2:
                break
    row["key"] = key  # a worker whose code changed meanwhile must not invent another
    place = (job.folder, os.getpid())
    if place not in _writers:
        _writers[place] = results.Writer(job.folder)
    _writers[place].append(row)
    return bool(row["status"] == "ok")


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
    if cluster and shard:
        raise InputError(
            "--cluster and --shard contradict each other: a shard runs without a scheduler"
        )
    points = sweep.instances
    if shard is not None:
        part, parts = shard
        if not 0 <= part < parts:
            raise InputError(f"shard {part}/{parts}: expected a part from 0 to {parts - 1}")
        points = points[part::parts]
    Path(folder).mkdir(parents=True, exist_ok=True)
    finished = results.good_keys(folder)
    todo = [point for point in points if point.key not in finished]
    job = Job(os.path.abspath(folder), sweep.memory, sweep.timeout_s)
    count = max(1, workers or (os.cpu_count() or 1) // sweep.threads)
    with counting(len(todo)) as counter:
        try:
            for ok in (
                _in_threads(todo, job, count)
                if shard is not None
                else _on_dask(todo, job, cluster, count, sweep.threads)
            ):
                counter.add(ok)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
    return _summary(points, todo, counter, interrupted)


def _summary(
    points: Sequence[Instance], todo: Sequence[Instance], counter: Counter, interrupted: bool
) -> Summary:
    return Summary(
        len(points),
        len(points) - len(todo),
        counter.done - counter.failed,
        counter.failed,
        interrupted,
    )


def _in_threads(todo: Sequence[Instance], job: Job, workers: int) -> Iterator[bool]:
    """Without Dask: threads that each keep a box; a row is written by the thread that got it."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(run_one, point, point.key, job) for point in todo]
        try:
            for future in threads_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def _on_dask(
    todo: Sequence[Instance], job: Job, cluster: str | None, workers: int, threads: int
) -> Iterator[bool]:
    try:
        from dask import config
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise BackendError(
            "a sweep needs dask and distributed: pip install 'railopt[sweep]', or use --shard 0/1"
        ) from error
    if not todo:
        return
    with config.set(
        {
            "distributed.scheduler.allowed-failures": 1,
            "distributed.worker.daemon": False,
            "distributed.admin.tick.limit": "60s",
        }
    ):
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
            elif "://" in cluster:
                client = Client(cluster, timeout="15s")
            else:
                client = Client(scheduler_file=cluster, timeout="15s")
        except OSError as error:
            raise BackendError(f"no scheduler answers at {cluster}: {error}") from error
        try:
            slots = max(1, len(client.scheduler_info()["workers"]) or workers)
            waiting = iter(todo)
            first = islice(waiting, IN_FLIGHT * slots)
            running: Any = as_completed(
                [
                    client.submit(run_one, point, point.key, job, pure=False, retries=0)
                    for point in first
                ]
            )
            for future in running:
                following = next(waiting, None)
                if following is not None:
                    running.add(
                        client.submit(run_one, following, following.key, job, pure=False, retries=0)
                    )
                yield _outcome(future)
        finally:
            client.close()
            if local is not None:
                local.close()


def _outcome(future: Any) -> bool:
    """Whether a task gave a good row; a worker that was lost twice with it, or an error while
    writing, is a failure.
    """
    error = future.exception()
    if isinstance(error, OSError):
        raise BackendError(f"a worker could not write its row: {error}") from error
    return error is None and bool(future.result())
