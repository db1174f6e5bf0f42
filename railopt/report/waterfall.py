"""What each mechanism is worth, as a waterfall: a bar for the time of each row, a line for what no
method with the same freedom beats.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

from railopt.moe.weigh import Weighed
from railopt.report.captioned import Figure
from railopt.report.style import PAGE, blank, legend_above, printed

CHARACTERS = 13  # of a title, per inch


@printed
def waterfall(found: Weighed, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: dispatch and combine above, the iteration below, milliseconds per step.  Rows that
    were left out of those after them are pale.
    """
    figure, axes = blank(width, max(3.6, 0.6 * width), rows=2)
    names = [*(row.added or "as it is" for row in found.rows), "no placement beats"]
    colors = ["0.45", *("C0" if row.kept else "0.75" for row in found.rows[1:])]
    times = (
        ("dispatch and combine, ms", [r.exchange_ps for r in found.rows], found.exchange_bound_ps),
        ("iteration, ms", [r.iteration_ps for r in found.rows], found.iteration_bound_ps),
    )
    for axis, (label, each, bound) in zip(axes[:, 0], times, strict=True):
        last = len(each)
        axis.barh(range(last), [time / 1e9 for time in each], color=colors, height=0.7)
        axis.barh([last], [bound / 1e9], color="none", edgecolor="0.25", hatch="///", height=0.7)
        axis.axvline(bound / 1e9, color="0.25", linewidth=0.6, linestyle=":")
        axis.set_yticks(range(last + 1), names)
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(True, axis="x")
    marks = []
    for place, row in enumerate(found.rows):
        x, ends = row.bound_ps / 1e9, [place - 0.45, place + 0.45]
        marks = axes[0, 0].plot([x, x], ends, color="C3", linewidth=1.6)
    legend_above(figure, ["no method of this kind beats"], marks)
    axes[0, 0].set_title(fill(title, int(CHARACTERS * width)))
    return figure


def worth_figure(found: Weighed, *, width: float = PAGE) -> Figure:
    """The same for a page, with its data: milliseconds."""
    rows = [
        [
            row.added or "as it is",
            row.how(before),
            row.exchange_ps / 1e9,
            row.bound_ps / 1e9,
            row.iteration_ps / 1e9,
        ]
        for row, before in found.beside()
    ]
    together = ["any placement, each step's own; NICs alone", found.found_ps / 1e9, None, None]
    least = [found.exchange_bound_ps / 1e9, None, found.iteration_bound_ps / 1e9]
    added = "each by itself" if found.each_alone else "added one by one"
    return Figure(
        "worth",
        "What each mechanism is worth",
        f"Dispatch and combine of all layers, and an iteration, with mechanisms {added}: simulated "
        "on steps that no plan saw. Red: what no method of this kind beats. Hatched: what no "
        "placement in the slots beats, with any split, rails and stages. Pale: left out of what "
        "follows.",
        waterfall(found, width=width),
        ["mechanism", "how", "exchange, ms", "bound, ms", "iteration, ms"],
        [*rows, ["best found", *together], ["nothing beats", "any placement in the slots", *least]],
    )
