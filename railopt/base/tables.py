"""Tables and text in lines that fit, for commands and experiments alike: as text, CSV, LaTeX or
Markdown.

Text and Markdown show cells as people read them; CSV has the number behind a `Quantity`: seconds,
bytes, bytes per second, percent.  LaTeX has plain numbers in columns of siunitx, one unit per
column, which its head names.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from railopt.base.errors import InputError, did_you_mean, printable
from railopt.base.units import Quantity, parse_bytes, size

Rows = Sequence[Sequence[Any]]
Left = int | Sequence[bool]  # how many columns stand to the left, or for each whether it does
LEAST = 8  # characters of a column that is made narrower
_cell = partial(printable, limit=1000)


def pick(columns: Sequence[str], names: Sequence[str]) -> list[int]:
    """Indices of the columns that `names` lists, in that order; "gap" is "gap %", and case, spaces,
    "-" and "_" make no difference.
    """
    places = {_plain(column): i for i, column in reversed(list(enumerate(columns)))}
    for name in names:
        if _plain(name) not in places:
            raise InputError(
                f"{printable(name, 60)!r} is no column; known columns: {', '.join(columns)}"
                f"{did_you_mean(name, columns)}"
            )
    return [places[_plain(name)] for name in names]


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+|\s*%$", "", name.lower())


def lines(
    columns: Sequence[str], rows: Rows, *, left: Left = 1, width: int | None = None
) -> list[str]:
    """An aligned table, one line per row below its head: the first `left` columns to the left, the
    others to the right.  Cells are shown as printable text; those of the widest columns take
    several lines where the table is wider than `width`.
    """
    cells = [list(map(str, columns)), *_texts(rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = widths if width is None else _narrowed(widths, width)
    sides = _sides(columns, left)
    head, *body = [_row(row, widths, sides) for row in cells]
    rule = "  ".join("-" * each for each in widths)
    return [*head, rule, *(line for row in body for line in row)]


def _narrowed(widths: list[int], total: int) -> list[int]:
    """Narrow the widest columns, one character at a time, until all fit or none can shrink."""
    widths = list(widths)
    room = total - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _row(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> list[str]:
    parts = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return [
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]


def _sides(columns: Sequence[str], left: Left) -> list[bool]:
    return [i < left for i in range(len(columns))] if isinstance(left, int) else list(left)


def _texts(rows: Rows) -> list[list[str]]:
    return [list(map(_cell, row)) for row in rows]


def _csv(columns: Sequence[str], rows: Rows, title: str | None, left: Left) -> str:
    out = io.StringIO()
    if title:
        out.write(f"# {printable(title)}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            cell.value if isinstance(cell, Quantity) else _cell(cell)
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


_SCALES = {
    "s": [
        (1.0, r"\second"),
        (1e-3, r"\milli\second"),
        (1e-6, r"\micro\second"),
        (1e-9, r"\nano\second"),
    ],
    "B": [
        (2.0**40, r"\tebi\byte"),
        (2.0**30, r"\gibi\byte"),
        (2.0**20, r"\mebi\byte"),
        (2.0**10, r"\kibi\byte"),
        (1.0, r"\byte"),
    ],
    "B/s": [(1.25e8, r"\giga\bit\per\second"), (0.125, r"\bit\per\second")],
}
_SIZE = re.compile(r"\d{1,12}(B|[KMGT]i?B)", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)


def _latex_columns(name: str, cells: Sequence[Any], to_left: bool) -> list[tuple[str, list[str]]]:
    """How siunitx aligns a column, and its cells below its head: numbers of one unit, if that is
    what they are.  Where rows have several units these are a column of their own.
    """
    cells = [cell if isinstance(cell, Quantity) else _size(cell) for cell in cells]
    numbers = [_number(cell) for cell in cells]
    units = {cell.unit for cell in cells if isinstance(cell, Quantity) and cell.value is not None}
    words = [cell for cell, number in zip(cells, numbers, strict=True) if number is None]
    known = [number for number in numbers if number is not None]
    if len(units) > 1:
        return _mixed(name, cells)
    named = any(str(word) not in ("", "-") for word in words)
    if to_left or not known or (named and not any(units)):
        return [("l" if to_left else "r", [_latex_cell(name), *map(_latex_cell, cells)])]
    scale, unit = _scaled(max(map(abs, known)), "".join(units))
    head = f"{_latex_cell(name)} (\\unit{{{unit}}})" if unit else _latex_cell(name)
    shown = [_latex_number(cell, scale if unit else None) for cell in cells]
    return [("S", [f"{{{head}}}", *shown])]


def _mixed(name: str, cells: Sequence[Any]) -> list[tuple[str, list[str]]]:
    """Numbers and words, and beside them the unit of each number."""
    values, units = [f"{{{_latex_cell(name)}}}"], ["unit"]
    for cell in cells:
        number = _number(cell)
        scale, unit = _scaled(abs(number or 0), cell.unit if isinstance(cell, Quantity) else "")
        values.append(_latex_number(cell, scale if unit else None))
        units.append(f"\\unit{{{unit}}}" if unit and number is not None else "")
    return [("S", values), ("l", units)]


def _latex_number(cell: Any, scale: float | None) -> str:
    """A number over a scale, or as it is where there is none; words in braces."""
    number = _number(cell)
    if number is None:
        return f"{{{_latex_cell(cell)}}}"
    if scale is not None:
        return f"{number / scale:.4g}"
    return str(cell) if _NUMBER.fullmatch(str(cell)) else f"{number:.6g}"


def _scaled(largest: float, unit: str) -> tuple[float, str]:
    """The scale that shows such a number of a unit best, and its name for siunitx."""
    scales = _SCALES.get(unit, [(1.0, "")])
    return next((pair for pair in scales if largest >= pair[0]), scales[-1])


def _size(cell: Any) -> Any:
    """A size that is given as text, `256KiB`, as a number of bytes; other cells as they are."""
    return size(parse_bytes(str(cell))) if _SIZE.fullmatch(str(cell)) else cell


def _number(cell: Any) -> float | None:
    if isinstance(cell, Quantity):
        return cell.value
    return float(str(cell)) if _NUMBER.fullmatch(str(cell)) else None


def _latex_cell(text: str) -> str:
    cell = "".join(_LATEX.get(c, c if c.isascii() else "?") for c in _cell(text))
    return re.sub("-(?=-)", "-{}", cell)  # two are no dash


def _latex(columns: Sequence[str], rows: Rows, title: str | None, left: Left) -> str:
    """A booktabs tabular with siunitx columns, in a table with a caption where there is a title;
    what is not ASCII is a question mark, so that every LaTeX takes it.
    """
    cells = list(zip(*_even(columns, rows), strict=True)) if rows else [()] * len(columns)
    made = [
        made
        for column in zip(columns, cells, _sides(columns, left), strict=True)
        for made in _latex_columns(*column)
    ]
    align = "".join(letter for letter, _ in made)
    head, *body = [
        " & ".join(row) + r" \\" for row in zip(*(column for _, column in made), strict=True)
    ]
    tabular = [
        rf"\begin{{tabular}}{{{align}}}",
        *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
        r"\end{tabular}",
    ]
    if title:
        caption = rf"\caption{{{_latex_cell(title)}}}"
        tabular = [r"\begin{table}", r"\centering", caption, *tabular, r"\end{table}"]
    return "\n".join([r"% \usepackage{booktabs,siunitx}", *tabular, ""])


def _markdown(columns: Sequence[str], rows: Rows, title: str | None, left: Left) -> str:
    def line(cells: Sequence[Any]) -> str:
        escaped = (re.sub(r"([\\`*_|<>\[\]])", r"\\\1", _cell(cell)) for cell in cells)
        return f"| {' | '.join(escaped)} |"

    rule = ["---" if to_left else "--:" for to_left in _sides(columns, left)]
    head, *body = [line(row) for row in _even(columns, [columns, *rows])]
    above = [f"**{printable(title)}**", ""] if title else []
    return "\n".join([*above, head, f"| {' | '.join(rule)} |", *body, ""])


def _even(columns: Sequence[str], rows: Rows) -> Rows:
    """The rows, if each has one cell per column."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row of {len(row)} cells under {len(columns)} columns")
    return rows


def _text(columns: Sequence[str], rows: Rows, title: str | None, left: Left) -> str:
    return "\n".join([*([title] if title else []), *lines(columns, rows, left=left)]) + "\n"


FORMS: dict[str, Callable[[Sequence[str], Rows, str | None, Left], str]] = {
    "text": _text,
    "csv": _csv,
    "latex": _latex,
    "markdown": _markdown,
}


def render(
    columns: Sequence[str], rows: Rows, title: str | None = None, *, form: str, left: Left = 1
) -> str:
    """A table in one of `FORMS`: the first `left` columns to the left, the others to the right."""
    return FORMS[form](columns, rows, title, left)


def table(columns: Sequence[str], rows: Rows, title: str | None = None) -> None:
    """Print a table as text: first column to the left, the others to the right."""
    print(render(columns, rows, title, form="text"), end="")


def screen() -> int | None:
    """Characters that a line may have: those of the terminal, or COLUMNS; None in a pipe."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(40, columns) if columns else None


def wrapped(text: str) -> str:
    """The text in lines that fit the screen; a line that goes on is indented by two more."""
    width = screen()
    if width is None:
        return text
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )
