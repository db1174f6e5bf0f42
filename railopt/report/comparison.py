"""A traffic on a healthy and a degraded fabric: two bars per policy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from railopt.answers.compare import Comparison
from railopt.report.style import INK, PAGE, blank, legend_above, look, printed, set_title

PALE = 0.4
LINES = {"healthy": ":", "degraded": "--"}


@printed
def comparison_figure(found: Comparison, title: str = "", *, width: float = PAGE) -> Any:
    """A figure: for each policy its time on the healthy fabric (pale) and on the degraded one, a
    stroke where its healthy plan would end on the degraded one, and both bounds as lines.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure, axes = blank(width, 0.9 + 0.34 * len(found.costs))
    axis = axes[0, 0]
    for place, cost in enumerate(reversed(found.costs)):
        colour = look(cost.policy).colour
        for offset, time, alpha in ((0.2, cost.healthy, PALE), (-0.2, cost.degraded, 1.0)):
            if time is None:
                axis.text(0, place + offset, " no plan", va="center")
            else:
                axis.barh(place + offset, _us(time), 0.36, color=colour, alpha=alpha, linewidth=0)
        if cost.kept is not None:
            axis.plot([_us(cost.kept)] * 2, [place - 0.42, place + 0.42], color=INK, linewidth=1.6)
    bounds = {name: getattr(found, name) for name in LINES if getattr(found, name) is not None}
    for name, bound in bounds.items():
        axis.axvline(_us(bound.value), color=INK, linestyle=LINES[name], linewidth=0.9)
    axis.set_yticks(range(len(found.costs)), [cost.policy for cost in reversed(found.costs)])
    axis.set_xlabel("time, us")
    axis.set_xlim(left=0)
    set_title(axis, title, width)
    entries = {
        "healthy": Patch(color="0.4", alpha=PALE),
        "degraded": Patch(color="0.4"),
        "healthy plan on the degraded fabric": Line2D(
            [], [], color=INK, marker="|", linestyle="", markersize=9, markeredgewidth=1.6
        ),
        **{
            f"bound, {name}": Line2D([], [], color=INK, linestyle=LINES[name], linewidth=0.9)
            for name in bounds
        },
    }
    legend_above(figure, list(entries), list(entries.values()))
    return figure


def _us(time: Fraction) -> float:
    return float(time * 10**6)
