"""What each mechanism is worth, as a waterfall: a bar for the time of each row, a line for what no
method with the same freedom beats.
"""

from __future__ import annotations

from typing import Any

from railopt.moe.weigh import Weighed
from railopt.report.captioned import Figure
from railopt.report.style import PAGE, blank, legend_above, printed, set_title


@printed
def waterfall(found: Weighed, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: dispatch and combine above, the iteration below, milliseconds per step.  Rows that
    were left out of those after them are pale.
    """
    figure, axes = blank(width, max(3.6, 0.6 * width), rows=2)
    names = [row.added or "as it is" for row in found.rows]
    colors = ["0.45", *("C0" if row.kept else "0.75" for row in found.rows[1:])]
    exchange = [(row.exchange_ps, row.bound_ps) for row in found.rows]
    iteration = [(row.iteration_ps, row.iteration_bound_ps) for row in found.rows]
    times = (
        ("dispatch and combine, ms", exchange, [found.found_ps, found.exchange_bound_ps]),
        ("iteration, ms", iteration, [found.iteration_bound_ps]),
    )
    hatched = {"color": "none", "edgecolor": "0.25", "height": 0.7}
    marks = []
    for axis, (label, each, last) in zip(axes[:, 0], times, strict=True):
        axis.barh(range(len(each)), [time / 1e9 for time, _ in each], color=colors, height=0.7)
        for place, (_, bound) in enumerate(each):
            x, ends = bound / 1e9, [place - 0.45, place + 0.45]
            marks = axis.plot([x, x], ends, color="C3", linewidth=1.6)
        for place, (time, hatch) in enumerate(zip(last, ["...", "///"][-len(last) :], strict=True)):
            axis.barh([len(each) + place], [time / 1e9], hatch=hatch, **hatched)
        axis.axvline(last[-1] / 1e9, color="0.25", linewidth=0.6, linestyle=":")
        called = [*names, *["best found", "no placement beats"][-len(last) :]]
        axis.set_yticks(range(len(called)), called)
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(True, axis="x")
    legend_above(figure, ["no method of this kind beats"], marks)
    set_title(axes[0, 0], title, width)
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
            row.iteration_bound_ps / 1e9,
        ]
        for row, before in found.beside()
    ]
    together = ["each step's own placement; NICs alone", found.found_ps / 1e9, None, None, None]
    least = [found.exchange_bound_ps / 1e9, None, found.iteration_bound_ps / 1e9, None]
    added = "each by itself" if found.each_alone else "added one by one"
    return Figure(
        "worth",
        "What each mechanism is worth",
        f"Dispatch and combine of all layers, and an iteration, with mechanisms {added}: simulated "
        "on steps that no plan saw. Red: what no method of this kind beats. Hatched: what no "
        "placement in the slots beats, with any split, rails and stages; dotted: the best that "
        "was found, on NICs alone. Pale: left out of what follows.",
        waterfall(found, width=width),
        ["mechanism", "how", "exchange, ms", "bound, ms", "iteration, ms", "its bound, ms"],
        [*rows, ["best found", *together], ["nothing beats", "any placement in the slots", *least]],
    )
