"""Children: killed at their time with what they started, within their memory, for any parent."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from railopt.base import processes

READS = "problem, answers, until, *more = sys.argv[1:]\n"


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A function that makes a module of a body, and gives its name."""
    root = str(Path(processes.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), root]))

    def make(body: str) -> str:
        (tmp_path / "a_child.py").write_text(f"import os, sys, time\n{READS}{body}\n")
        return "a_child"

    return make


def nothing(path: Path) -> None:
    path.write_text("the problem")


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie, which nobody has waited for yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_child_is_given_its_problem_and_answers_in_lines(child: Callable[[str], str]) -> None:
    name = child(
        "from railopt.base.processes import answers as answering\n"
        "with answering(answers) as say:\n"
        "    left = float(until) - time.time()\n"
        "    say({'problem': open(problem).read(), 'more': more, 'left': left})\n"
        "print('some talk')"
    )
    output = processes.ask(name, nothing, 30, "one", "two")
    (line,) = map(json.loads, output.lines)
    assert (line["problem"], line["more"]) == ("the problem", ["one", "two"])
    assert 0 < line["left"] < 30
    assert output.ended == (0, False, False)
    assert output.said == "some talk"
    assert output.failure is None


def timed_out(name: str) -> processes.ChildOutput:
    """What a child that does not end has said, with longer limits until a slow machine let it."""
    for limit_s in (2, 8, 32):
        output = processes.ask(name, nothing, limit_s)
        assert output.ended.timed_out
        if output.lines:
            break
    return output


@pytest.mark.slow
def test_what_was_said_before_the_kill_survives_and_half_a_line_does_not(
    child: Callable[[str], str],
) -> None:
    output = timed_out(child("open(answers, 'a').write('[1]\\n[2'); time.sleep(60)"))
    assert output.lines == [b"[1]\n"]
    assert output.failure == "did not stop at its time limit and was killed"


@pytest.mark.slow
def test_a_crash_is_told_with_the_last_words(child: Callable[[str], str]) -> None:
    output = processes.ask(child("sys.exit('no licence')"), nothing, 30)
    assert output.failure == "crashed (exit code 1): no licence"
    output = processes.ask(child("os.kill(os.getpid(), 11)"), nothing, 30)
    assert output.failure == "crashed (signal SIGSEGV): it said nothing"


@pytest.mark.slow
def test_memory_is_limited(child: Callable[[str], str]) -> None:
    name = child("held = bytearray(400 << 20); print(len(held))")
    assert processes.ask(name, nothing, 30, memory=1 << 30).said == str(400 << 20)
    output = processes.ask(name, nothing, 30, memory=300 << 20)
    assert output.failure == "crashed (exit code 1): MemoryError"


@pytest.mark.slow
def test_what_a_child_started_is_killed_with_it(child: Callable[[str], str]) -> None:
    name = child(
        "import subprocess\n"
        "open(answers, 'a').write(str(subprocess.Popen(['sleep', '60']).pid) + '\\n')\n"
        "time.sleep(60)"
    )
    (pid,) = map(int, timed_out(name).lines)
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once(child: Callable[[str], str]) -> None:
    name = child("open(answers, 'a').write('[1]\\n'); time.sleep(60)")
    timer = threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    output = processes.ask(name, nothing, 60)
    assert time.monotonic() - began < 50
    assert output.ended.interrupted
    assert output.failure is None


def _in_a_daemon(name: str, output: multiprocessing.SimpleQueue[str | None]) -> None:
    output.put(processes.ask(name, nothing, 30).said)


@pytest.mark.slow
def test_a_daemonic_process_may_have_one(child: Callable[[str], str]) -> None:
    """As workers of a cluster are, which may have no children of multiprocessing."""
    context = multiprocessing.get_context("spawn")
    output: multiprocessing.SimpleQueue[str | None] = context.SimpleQueue()
    worker = context.Process(
        target=_in_a_daemon, args=(child("print('here')"), output), daemon=True
    )
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert output.get() == "here"


@pytest.mark.slow
def test_a_child_whose_parent_has_ended_does_not_begin() -> None:
    line = processes.command("json.tool")
    line[3] = "1"  # as where the parent ended while this child started
    assert subprocess.run(line, input=b"[1]").returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """However that ends: here by a signal that nobody can handle."""
    sleeper = "import time, os; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    (tmp_path / "sleeper.py").write_text(sleeper)
    code = (
        "from railopt.base import processes; import time; "
        "processes.start(processes.command('sleeper')); time.sleep(60)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environ)
    until = time.monotonic() + 90
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    while time.monotonic() < until:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")
