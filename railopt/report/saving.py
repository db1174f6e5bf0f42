"""Figures as files: the suffix decides the format, and nothing is written under an unknown one."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError, printable
from railopt.base.extras import need
from railopt.report.style import rc

# suffix -> metadata without a date, so that the same figure is the same file
FORMATS: dict[str, dict[str, None] | None] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
    ".png": None,
}
DOTS = 300  # per inch of a PNG


def figure_format(path: str | os.PathLike[str], also: str = "") -> str:
    """The suffix of a figure's file; any but those of FORMATS is refused: ask before drawing.
    `also` says what else the file could be.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(FORMATS) + also
        raise InputError(f"{printable(path)}: a figure is written as {known}: give such a name")
    need("matplotlib", "a figure")
    return suffix


def save_figure(figure: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a matplotlib figure, format by suffix (see FORMATS), whole or not at all; the same
    figure gives the same bytes.
    """
    import matplotlib

    suffix = figure_format(path)
    buffer = BytesIO()
    with matplotlib.rc_context({**rc(figure.get_figwidth()), "svg.hashsalt": "railopt"}):
        figure.savefig(buffer, format=suffix[1:], dpi=DOTS, metadata=FORMATS[suffix])
    write_atomic(path, buffer.getvalue(), force=force)
