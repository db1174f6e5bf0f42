"""How every figure of railopt looks: a colour and a marker by policy name, widths for print, text
that fits them.

A policy has the same look in every figure, whichever others are drawn beside it.  Any two looks of
the palette differ by a CIEDE2000 distance of at least 11 for full colour vision and without red,
green or blue cones (tests/unit/report/test_style.py computes it), and by their markers too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from math import ceil, floor, log10
from textwrap import fill
from typing import Any, NamedTuple, ParamSpec, TypeVar
from zlib import crc32

from railopt.base.errors import InputError
from railopt.base.units import parse_number, quoted

PAGE = 7.0
WIDTHS = {"column": 3.33, "page": PAGE}
"""Inches of a column and of the whole width of a two-column page."""
NARROWEST, WIDEST = 2, 40
LEAST_GAP = 0.01  # %, where an axis of gaps becomes linear at the latest
CHARACTERS = 13  # of a title, per inch
HANDLE = 6  # characters that a legend's handle and the space beside it take
INK = "#010203"
"""Text, axes and grid: the report's page replaces it by its text colour, so figures follow the
theme."""


class Look(NamedTuple):
    """A line's or box's colour, and matplotlib's name of its marker."""

    colour: str
    marker: str


LOOKS = {
    "own-nic": Look("#a57896", "X"),
    "pxn": Look("#1e693c", "P"),
    "hash": Look("#ffa500", "v"),
    "random": Look("#d2c396", "<"),
    "round-robin": Look("#78d2e1", ">"),
    "rotate": Look("#a5a5ff", "p"),
    "lpt": Look("#d55e00", "o"),
    "lpt-local": Look("#0072b2", "s"),
    "lpt-dealt": Look("#000078", "H"),
    "lpt-global": Look("#962d78", "D"),
    "equitable": Look("#009e73", "^"),
    "even-excess": Look("#a569ff", "h"),
    "spill": Look("#b40000", "*"),
    "lpt, random labels": Look("#6e6e6e", "d"),
    "lpt, receive ties": Look("#a9a9a9", "8"),
    "best plan (bracket)": Look("#1a1a1a", "|"),
}
GREYS = tuple(Look(grey, marker) for marker in "d8H1" for grey in ("#6e6e6e", "#a9a9a9"))
"""Looks of names that LOOKS does not have, such as module:function."""


def look(name: str) -> Look:
    """The look of a policy; one that is not of railopt keeps one of GREYS, chosen by its name."""
    return LOOKS.get(name) or GREYS[crc32(name.encode("utf-8", "replace")) % len(GREYS)]


def parse_width(text: str) -> float:
    """`"column"`, `"page"` or inches -> inches."""
    if text in WIDTHS:
        return WIDTHS[text]
    try:
        inches = parse_number(text, "width")
    except InputError:
        inches = parse_number(0)
    if not NARROWEST <= inches <= WIDEST:
        raise InputError(
            f"{quoted(text)} is not a width of a figure: expected {', '.join(WIDTHS)}, or inches "
            f"from {NARROWEST} to {WIDEST}"
        )
    return float(inches)


def rc(width: float) -> dict[str, Any]:
    """Matplotlib's settings for a figure of this many inches; fonts go into PDF as outlines that
    keep their text (Type 42), as publishers ask for.
    """
    size = 7 if width < WIDTHS["page"] * 0.75 else 8
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys((*inks, "grid.color"), INK),
        "font.size": size,
        "axes.titlesize": size,
        "figure.titlesize": size + 1,
        "legend.fontsize": size,
        "legend.frameon": False,
        "legend.columnspacing": 1.2,
        "legend.handlelength": 1.8,
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.2,
        "lines.markersize": 4.5,
        "grid.alpha": 0.15,
        "grid.linewidth": 0.5,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
    }


Given = ParamSpec("Given")
Made = TypeVar("Made")


def printed(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Draw in this style, text as large as the keyword `width` wants it."""

    @wraps(make)
    def draw(*args: Given.args, **options: Given.kwargs) -> Made:
        import matplotlib

        width: Any = options.get("width", PAGE)
        with matplotlib.rc_context(rc(width)):
            return make(*args, **options)

    return draw


def blank(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> Any:
    """A figure and its axes [rows, columns]; nothing of it overlaps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def grid_of(panels: int, width: float, each: float) -> tuple[int, int]:
    """Rows and columns for panels of about `each` inches, at least two in a row, rows evenly
    full.
    """
    rows = -(-panels // max(2, round(width / each)))
    return max(1, rows), max(1, -(-panels // max(1, rows)))


def columns_that_fit(labels: Sequence[str], width: float) -> int:
    """How many entries of a legend, filled column by column, stand side by side in so many
    inches.
    """
    room = width * 72 / (0.58 * rc(width)["font.size"])  # characters
    for rows in range(1, len(labels)):
        columns = -(-len(labels) // rows)
        low, higher = divmod(len(labels), columns)  # matplotlib makes the first columns higher
        ends = [low * at + min(at, higher) for at in range(columns + 1)]
        widths = [max(map(len, labels[a:b])) + HANDLE for a, b in pairwise(ends)]
        if sum(widths) <= room:
            return columns
    return 1


def legend_above(figure: Any, labels: Sequence[str], handles: Sequence[Any] = ()) -> None:
    """A legend above the axes, for which the figure grows; without handles the labels are
    policies.
    """
    from matplotlib.lines import Line2D

    width = figure.get_figwidth()
    columns = columns_that_fit(labels, width)
    figure.legend(
        handles=list(handles) or [Line2D([], [], **line(name)) for name in labels],
        labels=list(labels),
        loc="outside upper center",
        ncols=columns,
    )
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 1.45 * rows * rc(width)["font.size"] / 72)


def wrapped_title(title: str, width: float) -> str:
    """A title in lines that fit so many inches, its own breaks kept."""
    return "\n".join(fill(part, int(CHARACTERS * width)) for part in title.split("\n"))


def wrapped_name(policy: str, width: float) -> str:
    """A policy's name as a title: `module:function` breaks at the colon."""
    long = len(policy) > int(CHARACTERS * width)
    return wrapped_title(policy.replace(":", ":\n") if long else policy, width)


def set_title(axes: Any, title: str, width: float) -> None:
    """The title of a figure that has one pair of axes; "" is none."""
    axes.set_title(wrapped_title(title, width))


def line(policy: str) -> dict[str, Any]:
    """Colour and marker as matplotlib's `plot` takes them."""
    return {"color": look(policy).colour, "marker": look(policy).marker}


def spaced_ticks(ticks: Sequence[float], share: float) -> list[float]:
    """Those of some rising ticks that leave a share of the whole range between each other."""
    kept = list(ticks[:1])
    for tick in ticks[1:]:
        if tick - kept[-1] >= share * (ticks[-1] - ticks[0]):
            kept.append(tick)
    return kept


def gap_axis(axes: Any, side: str, gaps: Sequence[float]) -> None:
    """Gaps in % on the axis `side` ("x" or "y"), linear from 0 to the power of 10 below the least
    that is not 0 (at least LEAST_GAP), and logarithmic above it.
    """
    least = min((gap for gap in gaps if gap > 0), default=1)
    linear = max(LEAST_GAP, 10.0 ** floor(log10(least)))
    most = 2 * max([linear, *gaps])
    axis = getattr(axes, f"{side}axis")
    getattr(axes, f"set_{side}scale")("symlog", linthresh=linear)
    subs = (1, 2, 5) if most < 200 * linear else (1,)
    powers = range(round(log10(linear)), ceil(log10(most)) + 1)
    ticks = [0.0, *(sub * 10.0**power for power in powers for sub in subs)]
    axis.set_ticks([tick for tick in ticks if tick <= most], minor=False)
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(number)
    axes.set(**{f"{side}lim": (0, most)})
    axes.grid(True, axis=side)


def number(value: float, _place: object = None) -> str:
    """A tick in plain digits: 0.01, 1, 100."""
    return f"{value:g}"
