"""The lines that say what a long command does."""

from __future__ import annotations

import io
import sys
import time

import pytest

from railopt.cli import progress as beat
from railopt.cli.progress import heartbeat, stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(
    stream: io.StringIO, command: str, monkeypatch: pytest.MonkeyPatch, wait_s: float = 20
) -> str:
    """What is printed while a command is at `plan 1 of 3` for a while, and after it."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(beat, "EVERY_S", 0.02)
    with heartbeat(command):
        stage("plan 1 of 3")
        deadline = time.monotonic() + wait_s
        while "\n" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    time.sleep(0.05)
    text = stream.getvalue()
    time.sleep(0.1)
    assert stream.getvalue() == text, "it goes on after the command"
    return text


def test_a_terminal_shows_command_stage_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(Terminal(), "place", monkeypatch).splitlines()
    assert set(lines) == {"place: plan 1 of 3, 0 s"}


def test_a_log_says_seldom_that_a_command_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beat, "LONG_S", 0.05)
    assert said(io.StringIO(), "place", monkeypatch).splitlines()[0] == "place: plan 1 of 3, 0 s"


def test_nothing_is_said_of_a_short_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(io.StringIO(), "place", monkeypatch, wait_s=0.1) == ""
