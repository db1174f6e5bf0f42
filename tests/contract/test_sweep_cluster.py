"""A sweep on clusters that were started as Dask's documentation says, by its commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from railopt.sweep import client, results, spec

SPEC = {
    "grid": {
        "nodes": [2],
        "rails": [2],
        "traffic": ["zipf:mean=4KiB"],
        "chunk": ["1KiB"],
        "policy": ["lpt", "equitable", "lpt-local"],
        "seed": list(range(8)),
    }
}


@pytest.fixture(autouse=True)
def kernels_are_compiled() -> None:
    """They are not, as where users sweep: so little work in so many processes."""


class Cluster:
    """A scheduler and workers, each a command of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self._folder, self._scheduler, self._workers = folder, ExitStack(), ExitStack()
        command = ("scheduler", "--scheduler-file", self.file, "--port", 0, "--no-dashboard")
        self._start(self._scheduler, *command)
        end = time.monotonic() + 60
        while not self.file.exists():
            assert time.monotonic() < end, "no scheduler file after 60 s"
            time.sleep(0.05)

    def worker(self, *options: object) -> subprocess.Popen[bytes]:
        """One more worker command."""
        command = ("worker", "--scheduler-file", self.file, "--no-dashboard", *options)
        return self._start(self._workers, *command)

    def _start(self, running: ExitStack, *command: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-m", "dask", *map(str, command), "--host", "127.0.0.1"],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        running.callback(_end, child)
        return child

    def end_workers(self) -> None:
        """End every worker that was started."""
        self._workers.close()

    def close(self) -> None:
        """End every process that was started."""
        self.end_workers()
        self._scheduler.close()


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(30)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def cluster(scheduler: Cluster) -> Iterator[Cluster]:
    """A scheduler without workers; those that a test starts end with it."""
    yield scheduler
    scheduler.end_workers()


NANNY: tuple[object, ...] = ("--nworkers", 1, "--nthreads", 1)
BARE: tuple[object, ...] = ("--no-nanny", "--nthreads", 1)


def test_a_worker_of_three_threads_started_by_its_command_does_everything(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Workers of one thread, with a nanny and without, do so below."""
    cluster.worker("--nworkers", 1, "--nthreads", 3)
    sweep = spec.parse(SPEC)
    summary = client.run(sweep, tmp_path / "results", cluster=str(cluster.file), workers=1)
    assert summary == (24, 0, 24, 0, False, {})
    found = results.read(tmp_path / "results")
    assert {row["key"] for row in found.rows} == {point.key for point in sweep.instances}
    assert found.torn == 0


def test_one_worker_is_killed_and_one_is_added(cluster: Cluster, tmp_path: Path) -> None:
    path, folder = tmp_path / "spec.toml", tmp_path / "results"
    grid = "\n".join(f"{name} = {values!r}" for name, values in SPEC["grid"].items())
    path.write_text("[grid]\n" + grid.replace("'", '"').replace("range(0, 8)", "[0, 1]"))
    victim = cluster.worker(*BARE)
    command = [sys.executable, "-m", "railopt", "sweep", str(path), "-o", str(folder)]
    sweeping = subprocess.Popen(
        [*command, "--cluster", str(cluster.file)], stderr=subprocess.PIPE, text=True
    )
    _wait(lambda: folder.is_dir() and len(results.good_keys(folder)) >= 3)
    os.killpg(victim.pid, signal.SIGKILL)
    cluster.worker(*NANNY)
    _, talk = sweeping.communicate(timeout=240)
    assert sweeping.returncode == 0, talk
    assert len(results.good_keys(folder)) == 24


def _wait(condition: Callable[[], bool], limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not so after {limit_s} s"
        time.sleep(0.05)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of its own Popen
def test_jobqueues_local_cluster(tmp_path: Path) -> None:
    """dask-jobqueue's own stand-in for a batch system: the worker's command as it would submit."""
    from dask_jobqueue.local import LocalCluster

    with LocalCluster(
        cores=1,
        processes=1,
        memory="1GiB",
        log_directory=str(tmp_path),
        scheduler_options={"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--host", "127.0.0.1"],
    ) as made:
        made.scale(jobs=1)
        summary = client.run(
            spec.parse(SPEC), tmp_path / "results", cluster=made.scheduler_address, workers=1
        )
    assert (summary.done, summary.failed) == (24, 0)


def test_a_worker_that_cannot_run_a_task_leaves_a_row_that_says_why(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(_: client.Task) -> str:
        raise RuntimeError("this worker has no memory for railopt")

    cluster.worker(*BARE)
    monkeypatch.setattr(client, "run_one", raises)
    summary = client.run(
        spec.parse(SPEC), tmp_path / "results", cluster=str(cluster.file), workers=1
    )
    assert (summary.done, summary.failed) == (0, 24)
    assert list(summary.reasons.values()) == [24]
    assert all("no memory for railopt" in row["error"] for row in _failed(tmp_path / "results"))


def _failed(folder: Path) -> tuple[results.Row, ...]:
    found = results.read(folder)
    assert len(found.failed) == 24
    return found.failed
