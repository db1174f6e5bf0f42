"""Plain-text tables, for commands and experiments alike."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from railopt.errors import printable


def lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, left: int = 1) -> list[str]:
    """An aligned table, a line a row below its head: the first `left` columns to the left, the
    others to the right.  Cells are shown as printable text.
    """
    cells = [[printable(cell, 1000) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (columns, ["-" * width for width in widths], *cells)
    ]


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table: first column to the left, the others to the right."""
    if title:
        print(title)
    print("\n".join(lines(columns, rows)))


def percent(gap: Fraction) -> str:
    """A gap as a percentage, three significant digits; an exact zero says so."""
    return "0" if gap == 0 else f"{float(gap) * 100:.3g}"
