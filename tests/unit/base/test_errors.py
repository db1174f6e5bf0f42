"""What is foreign is shown as one printable line."""

from __future__ import annotations

from railopt.base.errors import printable


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
