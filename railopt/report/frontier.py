"""Time against bytes moved inside nodes: the certified front, and one point per policy."""

from __future__ import annotations

from typing import Any

from railopt.answers.frontier import Frontier
from railopt.base.units import format_time
from railopt.report.style import PAGE, blank, legend_above, line, printed, set_title

LEFT = 0.1  # % of the time that is drawn below the least


@printed
def moved_against_time(found: Frontier, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: time above the least in %, linear up to 1, bytes moved in % of all bytes between
    nodes; left of the front and below it there is no plan.
    """
    first = found.bounds[0].time
    last = max([stand.plan.makespan for stand in found.stands] + [found.bounds[-1].time])
    figure, axes = blank(width, max(2.6, 0.55 * width))
    axis = axes[0, 0]

    def above(time: Any) -> float:
        return float(time / first - 1) * 100 if first else 0.0

    curve = found.curve(last + (last - first) / 5 if last > first else first * 21 / 20)
    x = [above(time) for time, _ in curve]
    y = [float(bytes_ / found.total) * 100 for _, bytes_ in curve]
    highest = max([stand.plan.moved / found.total * 100 for stand in found.stands] + y)
    lowest = min(y) - max(1.0, (highest - min(y)) / 8)
    top = highest + (highest - lowest) / 12
    axis.fill_between(x, lowest, y, color="0.5", alpha=0.15, linewidth=0)
    axis.axvspan(-LEFT, 0, color="0.5", alpha=0.15, linewidth=0)
    axis.plot([0, *x], [top, *y], color="0.25", linewidth=1.5, label="certified front")
    axis.text(
        0.98, 0.02, "no plan", color="0.35", ha="right", va="bottom", transform=axis.transAxes
    )
    for stand in found.stands:
        axis.plot(
            [above(stand.plan.makespan)],
            [stand.plan.moved / found.total * 100],
            linestyle="none",
            label=stand.plan.policy,
            **line(stand.plan.policy),
        )
    axis.set_xscale("symlog", linthresh=1.0)
    ticks = [tick for tick in (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= max(x)]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlim(-LEFT, max(x))
    axis.set_ylim(lowest, top)
    axis.set_xlabel(f"time above the least, {format_time(first)}, in %")
    axis.set_ylabel("moved inside nodes,\n% of all bytes between nodes")
    axis.grid(True)
    handles, labels = axis.get_legend_handles_labels()
    legend_above(figure, labels, handles)
    set_title(axis, title, width)
    return figure
