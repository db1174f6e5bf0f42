"""Tables in every form."""

from __future__ import annotations

import csv
import io
import re
from fractions import Fraction

import pytest

from railopt.base.tables import FORMS, duration, lines, percent, render, size, table


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
    assert percent(None) == "-"
    assert render(["gap %"], [[percent(None)], ["x"]], form="csv") == 'gap %\n""\nx\n'


HOSTILE = ["a\\b", 'x"y', "[1]", "*", "50 % & $1 #2 {_}^~", "<|>", "a,b\nc", "é--", "`x`", "-3"]


@pytest.mark.parametrize("form", sorted(FORMS))
def test_rows_of_another_width_are_refused_in_every_form(form: str) -> None:
    for row in (["x"], ["x", "y", "z"]):
        with pytest.raises(ValueError, match=r"zip|cells"):
            render(["a", "b"], [row], form=form)


def test_csv_reads_back_and_has_plain_numbers() -> None:
    rows = [
        [text, duration(Fraction(1, 1000)), size(2048), percent(Fraction(1, 3))] for text in HOSTILE
    ]
    text = render(["what", "time", "size", "gap %"], rows, "a title", form="csv")
    title, _, rest = text.partition("\n")
    assert title == "# a title"
    head, *body = csv.reader(io.StringIO(rest))
    assert head == ["what", "time", "size", "gap %"]
    assert [row[0] for row in body] == [t.replace("\n", "\\n") for t in HOSTILE]
    assert [float(cell) for cell in body[0][1:]] == [0.001, 2048, pytest.approx(100 / 3)]


def test_latex_is_a_booktabs_tabular_of_plain_ascii() -> None:
    text = render(["a_b", "gap %"], [[cell, "1"] for cell in HOSTILE], "ten % é", form="latex")
    assert text.isascii()
    assert text.startswith("% ten % ?\n% \\usepackage{booktabs}\n\\begin{tabular}{lr}\n\\toprule\n")
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    assert len(body) == len(HOSTILE)
    for line in body:
        assert line.endswith(r" & 1 \\")
        cell = line.removesuffix(r" & 1 \\")
        assert cell[:1] not in ("[", "*")  # would be an argument of the \\ before it
        words = re.sub(r"\\[a-z]+[0-9]*\{\}|\\[&%$#_{}\\]", "", cell)
        assert not set(words) & set('\\&%$#_~^<>|"'), cell
        assert words.count("{") == words.count("}")


def test_markdown_keeps_its_columns() -> None:
    text = render(["a", "b"], [[cell, "1"] for cell in HOSTILE], "title", form="markdown")
    lines = text.splitlines()
    assert lines[:4] == ["**title**", "", "| a | b |", "| --- | --: |"]
    for line in lines[4:]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3, line


def test_a_quantity_is_its_text() -> None:
    assert f"{duration(Fraction(1, 80))} {size(1536)}" == "12.5ms 1.50KiB"
