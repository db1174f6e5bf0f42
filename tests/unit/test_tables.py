"""Plain-text tables."""

from __future__ import annotations

from fractions import Fraction

import pytest

from railopt.tables import lines, percent, table


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert lines(["policy", "gap %"], [["lpt", 12], ["equitable", "0"]]) == [
        "policy     gap %",
        "---------  -----",
        "lpt           12",
        "equitable      0",
    ]
    assert lines(["a", "long"], [["x", "y"]], left=2) == ["a  long", "-  ----", "x  y"]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    table(["a", "bc"], [], "nothing")
    assert capsys.readouterr().out == "nothing\na  bc\n-  --\n"


def test_foreign_cells_stay_in_their_line() -> None:
    assert lines(["x"], [["a\nb\x1b[2J"]])[2:] == [r"a\nb\x1b[2J"]


def test_rows_have_as_many_cells_as_columns() -> None:
    with pytest.raises(ValueError, match="zip"):
        lines(["a", "b"], [["x"]])


def test_percent() -> None:
    assert [percent(Fraction(gap)) for gap in ("0", "1/3", "1/100000")] == ["0", "33.3", "0.001"]
