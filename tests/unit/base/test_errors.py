"""What is foreign is shown as one printable line."""

from __future__ import annotations

import logging

import pytest

from railopt.base.errors import on_stderr, printable, say


def test_plain_text_stays_as_it_is() -> None:
    assert printable("lpt-global, µs, Gb/s") == "lpt-global, µs, Gb/s"
    assert printable(7) == "7"


def test_what_moves_a_cursor_is_spelled_out() -> None:
    forged = "lpt\nproved: yes\r\x1b[2Kproved\u202e\ud800\x00"
    assert printable(forged) == r"lpt\nproved: yes\r\x1b[2Kproved\u202e\ud800\x00"


def test_long_text_is_cut() -> None:
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 200 + "..."
    assert len(printable("\x00" * 10**6)) == 203
    assert printable("abcdef", 3) == "abc..."


def test_what_is_said_is_logged_once_or_a_command_s_line(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        say("much memory is taken")
        say("kernels are slower", slower=True)
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", "much memory is taken"),
        ("INFO", "kernels are slower"),
    ]
    assert capsys.readouterr().err == ""
    with on_stderr():
        say("another\nline")
    assert capsys.readouterr().err == "railopt: another\n"
    assert len(caplog.records) == 2
