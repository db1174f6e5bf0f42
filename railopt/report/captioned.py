"""A figure of the report with its title, its caption and the table of what it shows; as SVG for the
page, and as files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError, printable
from railopt.report.saving import save_figure
from railopt.report.style import INK, rc


class Figure(NamedTuple):
    """A figure for the page: what it shows, its picture, and its data as a table."""

    name: str
    title: str
    caption: str
    drawing: Any
    columns: list[str]
    rows: list[list[Any]]


def svg(figure: Figure) -> str:
    """The drawing as an inline `<svg>` that takes the page's text colour; its ids are its own."""
    import matplotlib

    drawing, text = figure.drawing, StringIO()
    salt = f"{figure.name} {drawing.get_figwidth()}"
    options = {**rc(drawing.get_figwidth()), "svg.fonttype": "none", "svg.hashsalt": salt}
    with matplotlib.rc_context(options):
        drawing.savefig(
            text, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL).replace(
        INK, "currentColor"
    )


def save_all(figures: Sequence[Figure], folder: Path, *, force: bool = False) -> None:
    """Each figure as SVG and PDF in a folder, which is made; none if something is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{printable(folder)}: can't be made: {error.strerror}") from error
    drawings = {
        folder / f"{figure.name}{suffix}": figure.drawing
        for figure in figures
        for suffix in (".svg", ".pdf")
    }
    check_targets(*drawings, force=force)
    for path, drawing in drawings.items():
        save_figure(drawing, path, force=force)
