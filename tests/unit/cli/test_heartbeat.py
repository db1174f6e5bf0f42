"""The lines that say what a long command does."""

from __future__ import annotations

import io
import sys
import time

import pytest

from railopt.cli import heartbeat as beat
from railopt.cli.heartbeat import heartbeat, stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(stream: io.StringIO, command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is printed while a command is at `plan 1 of 3` for a while, and after it."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(beat, "EVERY_S", 0.02)
    with heartbeat(command):
        stage("plan 1 of 3")
        deadline = time.monotonic() + (20 if stream.isatty() and command != "sweep" else 0.1)
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


@pytest.mark.parametrize(("stream", "command"), [(io.StringIO(), "place"), (Terminal(), "sweep")])
def test_nothing_is_said_in_a_log_or_beside_a_counter(
    stream: io.StringIO, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(stream, command, monkeypatch) == ""
