"""Tables in every form."""

from __future__ import annotations

import csv
import io
import re
from fractions import Fraction

import pytest

from railopt.base.errors import InputError
from railopt.base.tables import FORMS, lines, pick, render, table
from railopt.base.units import duration, percent, rate, size


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
    assert text.startswith("% \\usepackage{booktabs,siunitx}\n\\begin{table}\n\\centering\n")
    assert "\\caption{ten \\% ?}\n\\begin{tabular}{lS}\n\\toprule\n" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n\\end{table}\n")
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


def test_latex_has_one_unit_per_column_and_plain_numbers() -> None:
    rows = [
        ["a", duration(Fraction(1, 80)), size(3 << 20), rate(50_000_000_000), percent(None), "x1"],
        ["b", duration(Fraction(1, 80_000)), size(512 << 10), "-", percent(Fraction(1, 3)), "y"],
    ]
    text = render(["p", "time", "size", "rate", "gap %", "what"], rows, form="latex")
    assert "\\begin{tabular}{lSSSSr}" in text
    head, _, *body = text.splitlines()[3:-2]
    assert head == (
        r"p & {time (\unit{\milli\second})} & {size (\unit{\mebi\byte})} & "
        r"{rate (\unit{\giga\bit\per\second})} & {gap \%} & what \\"
    )
    assert body == [
        r"a & 12.5 & 3 & 400 & {-} & x1 \\",
        r"b & 0.0125 & 0.5 & {-} & 33.3 & y \\",
    ]
    assert "caption" not in text


def test_latex_has_units_beside_the_numbers_of_a_column_that_mixes_them() -> None:
    rows = [["a", duration(Fraction(1, 80))], ["b", size(3 << 20)], ["c", "lpt"], ["d", "12"]]
    text = render(["", "value"], rows, form="latex", left=2)
    assert text.splitlines()[1] == r"\begin{tabular}{lSl}"
    assert text.splitlines()[5:9] == [
        r"a & 12.5 & \unit{\milli\second} \\",
        r"b & 3 & \unit{\mebi\byte} \\",
        r"c & {lpt} &  \\",
        r"d & 12 &  \\",
    ]


def test_long_cells_take_several_lines() -> None:
    words = "every sender is balanced and one receiver is not"
    made = lines(["id", "statement", "s"], [["T1", words, 12], ["T2", "x", 3]], left=2, width=30)
    assert max(map(len, made)) <= 30
    assert [line[-2:] for line in made if line.startswith("T")] == ["12", " 3"]
    assert " ".join(" ".join(line[4:26].split()) for line in made[2:-1]) == words
    assert lines(["a"], [["x" * 50]], width=20)[2:] == ["x" * 20, "x" * 20, "x" * 10]


def test_columns_by_name() -> None:
    columns = ["policy", "max send", "gap %"]
    assert pick(columns, ["gap", "max-send", "Policy"]) == [2, 1, 0]
    with pytest.raises(InputError, match="'bond' is no column; known columns: policy, max send"):
        pick(columns, ["policy", "bond"])
