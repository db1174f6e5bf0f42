"""What each mechanism is worth, as a waterfall: a bar for the time of each row, a line for what no
method with the same freedom beats.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

from railopt.moe.weigh import Weighed
from railopt.report.style import PAGE, blank, legend_above, printed

CHARACTERS = 13  # of a title, an inch


@printed
def waterfall(found: Weighed, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: dispatch and combine above, the iteration below, milliseconds per step."""
    figure, axes = blank(width, max(3.6, 0.7 * width), rows=2)
    names = [row.added or "as it is" for row in found.rows]
    least = ["nothing in\nthe slots"]
    times = (
        ("dispatch and combine, ms", [r.exchange_ps for r in found.rows], found.exchange_bound_ps),
        ("iteration, ms", [r.iteration_ps for r in found.rows], found.iteration_bound_ps),
    )
    for axis, (label, each, bound) in zip(axes[:, 0], times, strict=True):
        colors = ["0.45", *("C0" if row.kept else "0.75" for row in found.rows[1:])]
        axis.bar(range(len(each)), [time / 1e9 for time in each], color=colors, width=0.7)
        axis.bar([len(each)], [bound / 1e9], color="none", edgecolor="0.25", hatch="///", width=0.7)
        axis.axhline(bound / 1e9, color="0.25", linewidth=0.6, linestyle=":")
        axis.set_xticks(range(len(each) + 1), [*names, *least], fontsize=7)
        axis.set_ylabel(label)
        axis.grid(True, axis="y")
    handles = []
    for place, row in enumerate(found.rows):
        if row.bound_ps is not None:
            y = row.bound_ps / 1e9
            drawn = axes[0, 0].plot([place - 0.4, place + 0.4], [y, y], color="C3", linewidth=1.6)
            handles = drawn
    if handles:
        legend_above(figure, ["no method of this kind beats"], handles)
    axes[0, 0].set_title(fill(title, int(CHARACTERS * width)))
    return figure
