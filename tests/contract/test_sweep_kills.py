"""A sweep loses nothing: not with a killed worker, not with a killed client, not with two clients
at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from railopt.sweep import results, spec

SPEC = """name = "contract"
[grid]
nodes = [4]
rails = [4]
traffic = ["moe:tokens=256,skew=0.3", "moe:tokens=256,skew=0.9"]
chunk = ["16KiB", "64KiB"]
policy = ["lpt", "lpt-local", "lpt-global", "equitable"]
seed = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""


@pytest.fixture(autouse=True)
def kernels_are_compiled() -> None:
    """They are not, as where users sweep: so little work in so many processes."""


def start(path: Path, folder: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    options = ["-o", str(folder), "--workers", str(workers)]
    return subprocess.Popen(
        [sys.executable, "-m", "railopt", "sweep", str(path), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(folder: Path, count: int, limit_s: float = 120.0) -> None:
    """Wait for so many different instances: a row that its killed worker wrote but did not report
    is computed once more.
    """
    end = time.monotonic() + limit_s
    while (seen := len(results.good_keys(folder))) < count:
        assert time.monotonic() < end, f"{seen} instances after {limit_s} s, expected {count}"
        time.sleep(0.05)


def worker_pids(client: int) -> list[int]:
    """The processes that run a client's instances."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == client:
                found.append(int(entry.name))
    return found


def test_killed_worker_killed_client_two_clients(tmp_path: Path) -> None:
    path, folder = tmp_path / "spec.toml", tmp_path / "results"
    path.write_text(SPEC.replace(", 3, 4, 5, 6, 7, 8, 9]", "]"))
    keys = {point.key for point in spec.read(path).instances}
    assert len(keys) == 48

    client = start(path, folder, workers=2)  # a worker is killed in the middle
    wait_for(folder, 6)
    os.kill(worker_pids(client.pid)[0], signal.SIGKILL)
    wait_for(folder, 16)
    os.killpg(client.pid, signal.SIGKILL)  # then the client, with all its workers
    client.communicate()
    finished = results.good_keys(folder)
    assert len(finished) >= 16
    assert finished <= keys

    both = [start(path, folder), start(path, folder)]  # two clients go on in one folder
    for one in both:
        _, talk = one.communicate(timeout=300)
        assert one.returncode == 0, talk.decode()
    found = results.read(folder)
    assert results.good_keys(folder) == keys
    assert found.failed == ()
    assert found.torn <= 2  # a kill can tear the line that was being written


def test_interrupt_stops_cleanly(tmp_path: Path) -> None:
    path, folder = tmp_path / "spec.toml", tmp_path / "results"
    path.write_text(SPEC.replace("tokens=256", "tokens=255"))
    client = start(path, folder)
    wait_for(folder, 5)
    os.kill(client.pid, signal.SIGINT)
    _, talk = client.communicate(timeout=60)
    assert client.returncode == 130, talk.decode()
    assert b"run it again to go on" in talk
    assert b"Traceback" not in talk
    assert results.read(folder).torn == 0
