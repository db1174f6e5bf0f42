"""The line that says what a quiet command does."""

from __future__ import annotations

import io
import sys
import time

import pytest

from railopt.base import kernels as compiled
from railopt.cli import heartbeat as beat
from railopt.cli.heartbeat import ERASE, heartbeat, stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr from here on; a fixture's would be replaced by pytest's own."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(beat, "QUIET_S", 0.02)
    monkeypatch.setattr(beat, "EVERY_S", 0.01)
    monkeypatch.setattr(beat, "SELDOM_S", 0.0)
    return made


def wait_for(terminal: Terminal, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert text in terminal.getvalue()


def test_a_quiet_command_says_what_it_does_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = shown(monkeypatch)
    with heartbeat("place"):
        stage("plan 1 of 3")
        wait_for(terminal, f"{ERASE}place: plan 1 of 3, ")
        print("saved", file=sys.stderr)
        wait_for(terminal, "saved\n")
    assert f"{ERASE}saved\n" in terminal.getvalue()
    assert sys.stderr is terminal
    last = terminal.getvalue()
    assert last.endswith((ERASE, "saved\n"))
    time.sleep(0.05)
    assert terminal.getvalue() == last


def test_a_new_stage_is_shown_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may keep the thread that draws the line from running."""
    terminal = shown(monkeypatch)
    with heartbeat("gap"):
        stage("traffic")
        wait_for(terminal, "gap: traffic")
        monkeypatch.setattr(beat, "EVERY_S", 60.0)
        time.sleep(0.1)  # in which the thread falls asleep
        stage("lpt")
        assert terminal.getvalue().rpartition(ERASE)[2].startswith("gap: lpt, ")


@pytest.mark.parametrize("command", beat.OWN)
def test_commands_with_a_line_of_their_own_are_left_alone(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = shown(monkeypatch)
    with heartbeat(command):
        time.sleep(0.1)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("command", ["gap", "place"])
def test_that_kernels_are_compiled_is_said_once(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = shown(monkeypatch)
    made = [compiled.njit()(lambda a, more=more: a + more) for more in (1, 2)]
    for _ in range(2):  # the second time nothing is left to compile
        with heartbeat(command):
            assert [kernel(1) for kernel in made] == [2, 3]
    made[0](1.5)  # of no command
    assert terminal.getvalue().count(beat.COMPILING) == 1
    assert f"{ERASE}{beat.COMPILING}\n" in terminal.getvalue()


def test_only_that_kernels_are_compiled_is_said_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat, "QUIET_S", 0.01)
    with heartbeat("place"):
        assert compiled.njit()(lambda a: a + 1)(1) == 2
        time.sleep(0.1)
    assert capsys.readouterr().err == f"{beat.COMPILING}\n"


def test_a_command_that_takes_long_says_so_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, and when that time has doubled; one that takes less says nothing."""
    monkeypatch.setattr(beat, "LONG_S", 0.05)
    with heartbeat("split"):
        stage("batch 1 of 9")
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert set(lines) == {"split: batch 1 of 9, 0 s so far"}
    assert 1 <= len(lines) <= 3
    with heartbeat("split"):
        pass
    assert capsys.readouterr().err == ""
