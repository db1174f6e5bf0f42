"""Tables, for commands and experiments alike: as text, CSV, LaTeX or Markdown.

Text, LaTeX and Markdown show cells as people read them; CSV has the number behind a `Quantity`:
seconds, bytes, bytes per second, percent.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from railopt.base.errors import printable
from railopt.base.units import format_bytes, format_rate, format_time

Rows = Sequence[Sequence[Any]]


class Quantity(str):
    """A number as people read it; `value` is the number itself, None where there is none."""

    value: float | None

    def __new__(cls, text: str, value: float | None) -> Quantity:
        made = super().__new__(cls, text)
        made.value = value
        return made


def duration(seconds: Fraction | int) -> Quantity:
    """Seconds, as `12.3us`."""
    return Quantity(format_time(seconds), float(seconds))


def size(count: int) -> Quantity:
    """Bytes, as `256KiB`."""
    return Quantity(format_bytes(count), count)


def rate(bytes_per_s: Fraction | int) -> Quantity:
    """Bytes per second, as `400Gb/s`."""
    return Quantity(format_rate(int(bytes_per_s)), float(bytes_per_s))


def percent(gap: Fraction | None) -> Quantity:
    """A gap as a percentage, three significant digits; an exact zero says so.  Where there is none
    it is a dash, and empty in CSV.
    """
    if gap is None:
        return Quantity("-", None)
    return Quantity("0" if gap == 0 else f"{float(gap) * 100:.3g}", float(gap * 100))


def lines(columns: Sequence[str], rows: Rows, *, left: int = 1) -> list[str]:
    """An aligned table, a line a row below its head: the first `left` columns to the left, the
    others to the right.  Cells are shown as printable text.
    """
    cells = _texts(rows)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (columns, ["-" * width for width in widths], *cells)
    ]


def _texts(rows: Rows) -> list[list[str]]:
    return [[printable(cell, 1000) for cell in row] for row in rows]


def _text(columns: Sequence[str], rows: Rows, title: str | None, left: int) -> str:
    return "\n".join([*([title] if title else []), *lines(columns, rows, left=left)]) + "\n"


def _csv(columns: Sequence[str], rows: Rows, title: str | None, left: int) -> str:
    out = io.StringIO()
    if title:
        out.write(f"# {printable(title)}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            cell.value if isinstance(cell, Quantity) else printable(cell, 1000)
            for _, cell in zip(columns, row, strict=True)
        )
    return out.getvalue()


_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{mark: f"{{{mark}}}" for mark in "[]*"},  # after \\ these would be read as its arguments
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
}


def _latex_cell(text: str) -> str:
    cell = "".join(_LATEX.get(c, c if c.isascii() else "?") for c in printable(text, 1000))
    return re.sub("-(?=-)", "-{}", cell)  # two are no dash


def _latex(columns: Sequence[str], rows: Rows, title: str | None, left: int) -> str:
    """A booktabs tabular; what is not ASCII is a question mark, so that every LaTeX takes it."""
    align = "".join("l" if i < left else "r" for i in range(len(columns)))
    head, *body = [
        " & ".join(map(_latex_cell, row)) + r" \\" for row in _even(columns, [columns, *rows])
    ]
    above = [f"% {title.encode('ascii', 'replace').decode()}"] if title else []
    return "\n".join(
        [
            *above,
            r"% \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{align}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            "",
        ]
    )


def _markdown(columns: Sequence[str], rows: Rows, title: str | None, left: int) -> str:
    def line(cells: Sequence[Any]) -> str:
        escaped = (re.sub(r"([\\`*_|<>\[\]])", r"\\\1", printable(cell, 1000)) for cell in cells)
        return f"| {' | '.join(escaped)} |"

    rule = ["---" if i < left else "--:" for i in range(len(columns))]
    head, *body = [line(row) for row in _even(columns, [columns, *rows])]
    above = [f"**{printable(title)}**", ""] if title else []
    return "\n".join([*above, head, f"| {' | '.join(rule)} |", *body, ""])


def _even(columns: Sequence[str], rows: Rows) -> Rows:
    """The rows, if each has a cell a column."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells under {len(columns)} columns")
    return rows


FORMS: dict[str, Callable[[Sequence[str], Rows, str | None, int], str]] = {
    "text": _text,
    "csv": _csv,
    "latex": _latex,
    "markdown": _markdown,
}


def render(
    columns: Sequence[str], rows: Rows, title: str | None = None, *, form: str, left: int = 1
) -> str:
    """A table in one of `FORMS`: the first `left` columns to the left, the others to the right."""
    return FORMS[form](columns, rows, title, left)


def table(columns: Sequence[str], rows: Rows, title: str | None = None) -> None:
    """Print a table as text: first column to the left, the others to the right."""
    print(render(columns, rows, title, form="text"), end="")
