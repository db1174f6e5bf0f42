"""Ctrl-C: exit code 130, one line and no traceback, soon, and no process is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from railopt.sweep import results

OPEN = "dirichlet:seed=3,mean=2MiB --nodes 4 --gpus 4 --rails 8 --chunk flow --limit 100s"
SPEC = """limit = "100s"
[grid]
nodes = [4]
rails = [8]
gpus = [4]
seed = [3, 4, 5]
traffic = ["dirichlet:mean=2MiB"]
chunk = ["flow"]
policy = ["lpt"]
"""
CODES = 130, -signal.SIGINT  # the latter where it struck inside `exec`; shells call both 130


def started(line: str, folder: Path, mode: str = "auto") -> subprocess.Popen[str]:
    """A command in a group of processes of its own, all of its modules but the command's loaded,
    with its kernels compiled as `mode` says.
    """
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from railopt.cli.main import entry; print('ready', flush=True); entry()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *line.split()],
        cwd=folder,
        env={**os.environ, "RAILOPT_COMPILE": mode},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run, with theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, which a busy machine does not stretch."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def ended_s() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def struck(child: subprocess.Popen[str], within_s: float = 120) -> str:
    """Strike the command's group, as a terminal does; what it says on stderr.  The time is one for
    a busy machine.
    """
    own = children(child.pid)
    os.killpg(child.pid, signal.SIGINT)
    try:
        _, err = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        _, err = child.communicate()
        pytest.fail(f"no end {within_s} s after Ctrl-C: {err}")
    assert child.returncode in CODES, err
    assert "Traceback" not in err
    deadline = time.monotonic() + 60
    while any(map(running, own)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(running, own))
    return err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "mode"),
    [
        (f"solve {OPEN}", "auto"),
        ("simulate zipf:skew=0.8 --nodes 24 --balancer ecmp --exact", "never"),
        (f"gap {OPEN} --certificate certificates", "never"),
    ],
    ids=["solve", "simulate", "gap"],
)
def test_ctrl_c_ends_a_command(line: str, mode: str, tmp_path: Path) -> None:
    """Where nothing is compiled, within two seconds, of a processor since others may share it."""
    before = ended_s()
    child = started(line, tmp_path, mode)
    deadline = time.monotonic() + 180
    while cpu_s(child.pid) < 1.5 and time.monotonic() < deadline:  # modules, kernels are there
        time.sleep(0.05)
    used = cpu_s(child.pid)
    err = struck(child)
    assert err.splitlines().count("railopt: interrupted") == 1
    assert ended_s() - before - used < 2 or mode == "auto"


@pytest.mark.slow
def test_ctrl_c_ends_a_foreign_solver(tmp_path: Path) -> None:
    child = started(f"solve {OPEN} --backend cpsat", tmp_path)
    deadline = time.monotonic() + 180
    while not children(child.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert children(child.pid), "no solver was started"
    assert "railopt: interrupted" in struck(child)


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_and_the_instance_at_work_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    child = started("sweep spec.toml -o results --shard 0/1 --workers 1", tmp_path)
    deadline = time.monotonic() + 180
    while not any(cpu_s(pid) > 0.7 for pid in children(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "interrupted: run it again to go on" in struck(child)
    assert len(results.read(tmp_path / "results").rows) < 3
