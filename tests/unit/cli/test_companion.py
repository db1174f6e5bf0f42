"""The second process of a first run: when it is started, and that it ends with the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.base import kernels as compiled
from railopt.cli import companion as module
from railopt.cli import main, warm_up
from railopt.cli.companion import ALONE, companion

Processes = list["subprocess.Popen[bytes]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """On an idle machine: the processes, which sleep instead of compiling."""
    made: Processes = []
    plain = subprocess.Popen

    def sleeping(line: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
        assert line[:3] == [sys.executable, "-m", "railopt"]
        assert line[3] in main.COMMANDS
        assert ALONE in env
        made.append(plain([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return made[-1]

    monkeypatch.delenv(ALONE)
    monkeypatch.setattr(module, "_wanted", lambda: 1)
    monkeypatch.setattr(module, "_cores", lambda: 2)
    monkeypatch.setattr(subprocess, "Popen", sleeping)
    return made


def kernel() -> Callable[[int], int]:
    """One that nobody compiled yet."""
    made: Callable[[int], int] = compiled.njit()(lambda a: a + 1)
    return made


@pytest.mark.parametrize("command", warm_up.LATER)
def test_every_line_is_a_command_line(command: str) -> None:
    line = warm_up.LATER[command].split()
    assert command in main.COMMANDS
    assert main._parsed(line).command == line[0] != command


def test_it_starts_with_the_first_compilation_and_ends_with_the_command(started: Processes) -> None:
    with companion("gap"):
        assert started == []
        assert [kernel()(1), kernel()(2)] == [2, 3]
        (process,) = started
        assert process.poll() is None
    assert process.returncode != 0
    kernel()(1)
    assert len(started) == 1


def test_it_ends_with_a_command_that_fails(started: Processes) -> None:
    def interrupted() -> None:
        with companion("place"):
            kernel()(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [process.poll() is None for process in started] == [False]


def test_what_is_compiled_already_starts_none(started: Processes) -> None:
    made = kernel()
    made(1)
    with companion("gap"):
        made(2)
    assert started == []


@pytest.mark.parametrize("why", ["a busy machine", "one core", "asked not to", "another command"])
def test_none_where_it_would_not_help(
    why: str, started: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "a busy machine":
        monkeypatch.setattr(module, "_wanted", lambda: 2)
    elif why == "one core":
        monkeypatch.setattr(module, "_cores", lambda: 1)
    elif why == "asked not to":
        monkeypatch.setenv(ALONE, "1")
    with companion("hybrid" if why == "another command" else "gap"):
        assert kernel()(1) == 2
    assert started == []


@pytest.mark.parametrize(("of", "what"), [(subprocess, "Popen"), (module, "_wanted")])
def test_what_the_machine_refuses_is_done_without(
    of: Any, what: str, started: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("not here")

    monkeypatch.setattr(of, what, refused)
    with companion("gap"):
        assert kernel()(1) == 2


def test_cores_that_are_wanted_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "loadavg"
    monkeypatch.setattr(module, "RUNNING", text)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.8, 0.0, 0.0))
    assert module._wanted() == 3  # the average of a minute, and this process
    for line, wanted in (
        ("1.90 0.97 1.20 1/73 5508\n", 1),
        ("0.10 0.97 1.20 4/73 5508\n", 4),
        ("0 0 0 0/0 0\n", 1),
    ):
        text.write_text(line)
        assert module._wanted() == wanted
    text.write_text("hardly any\n")
    assert module._wanted() == 3


def test_a_look_at_this_machine() -> None:
    assert module._wanted() >= 1
