"""Gaps: lines against the chunk size; of a sweep's rows boxes by policy, and lines against each
parameter that was swept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import log2
from typing import Any

import numpy as np

from railopt.base.units import format_bytes
from railopt.report.captioned import Figure
from railopt.report.style import (
    INK,
    PAGE,
    blank,
    gap_axis,
    legend_above,
    line,
    look,
    printed,
    set_title,
    spaced_ticks,
)
from railopt.report.swept import Scale, Swept, order, scale, swept
from railopt.sweep.results import Row

GAP = "gap above the certified bound, %"


def percent(row: Row) -> float:
    """The gap of a row in %."""
    return float(Fraction(row["gap"])) * 100


@printed
def gap_against_chunk(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    title: str = "",
    spread: Mapping[str, Sequence[tuple[int, float, float]]] | None = None,
    *,
    width: float = PAGE,
) -> Any:
    """A figure: for each policy its (chunk bytes, gap in %) points, gaps as `gap_axis` draws them.

    spread: for a policy, (chunk bytes, low %, high %) drawn as a band.
    """
    figure, axes = blank(width, max(2.6, 0.55 * width))
    axis = axes[0, 0]
    for policy, points in lines.items():
        axis.plot(*zip(*sorted(points), strict=True), **line(policy), clip_on=False)
    for policy, band in (spread or {}).items():
        chunks, low, high = zip(*sorted(band), strict=True)
        axis.fill_between(chunks, low, high, color=look(policy).colour, alpha=0.15, linewidth=0)
    shown = [gap for points in lines.values() for _, gap in points]
    shown += [gap for band in (spread or {}).values() for _, *ends in band for gap in ends]
    axis.set_xscale("log", base=2)
    axis.set(xlabel="largest chunk", ylabel=GAP)
    gap_axis(axis, "y", shown)
    axis.grid(True)
    sizes = {log2(chunk): chunk for points in lines.values() for chunk, _ in points}
    ticks = [sizes[place] for place in spaced_ticks(sorted(sizes), 0.5 / width)]
    axis.set_xticks(ticks, [format_bytes(chunk) for chunk in ticks])
    axis.minorticks_off()
    legend_above(figure, list(lines))
    set_title(axis, title, width)
    return figure


@printed
def gap_by_policy(rows: Sequence[Row], *, width: float = PAGE, title: str = "") -> Figure | None:
    """Boxes of the gap, one per policy; nothing where no policy has several instances."""
    policies = order(rows, "policy")
    gaps = {
        policy: [percent(row) for row in rows if row["instance"]["policy"] == policy]
        for policy in policies
    }
    if max(map(len, gaps.values())) < 2:
        return None
    made, axes = blank(width, 0.7 + 0.24 * len(policies))
    axis, table = axes[0, 0], []
    for place, policy in enumerate(policies):
        quartiles = np.percentile(gaps[policy], (0, 25, 50, 75, 100)).tolist()
        table.append([policy, len(gaps[policy]), *quartiles])
        _box(axis, place, quartiles, policy)
    axis.set_yticks(range(len(policies)), policies)
    axis.invert_yaxis()
    gap_axis(axis, "x", [gap for entry in table for gap in entry[2:]])
    made.supxlabel(GAP, fontsize="medium")  # of the figure: the axes may be narrower than it
    set_title(axis, title, width)
    return Figure(
        "gap-by-policy",
        "Gap by policy",
        "Gap of each plan above a lower bound whose witness checks, all instances; box: quartiles, "
        "marker: median, whiskers: extremes.",
        made,
        ["policy", "instances", "min %", "q1 %", "median %", "q3 %", "max %"],
        table,
    )


def _box(axis: Any, place: float, quartiles: Sequence[float], policy: str) -> None:
    """One box with its policy's marker at the median."""
    colour = look(policy).colour
    names = ("whislo", "q1", "med", "q3", "whishi")
    axis.bxp(
        [dict(zip(names, quartiles, strict=True))],
        [place],
        orientation="horizontal",
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.5},
        medianprops={"color": INK, "linewidth": 0.6},
        whiskerprops={"color": colour},
        capprops={"color": colour},
        manage_ticks=False,
    )
    mark = {**line(policy), "markeredgecolor": INK, "markeredgewidth": 0.5}
    axis.plot([quartiles[2]], [place], **mark, clip_on=False)


@printed
def gap_against(
    rows: Sequence[Row], parameter: Swept, *, width: float = PAGE, title: str = ""
) -> Figure:
    """Gap against a parameter that varies: for each policy the median, and the range from least to
    largest as a band, or as strokes where the values are no numbers.
    """
    policies, where = order(rows, "policy"), scale(parameter)
    made, axes = blank(width, max(2.6, 0.45 * width))
    axis, table = axes[0, 0], []
    for rank, policy in enumerate(policies):
        points = []
        for place, value in zip(where.places, parameter.values, strict=True):
            mine = zip(rows, parameter.of, strict=True)
            found = [percent(r) for r, v in mine if (r["instance"]["policy"], v) == (policy, value)]
            if found:
                points.append((place, min(found), float(np.median(found)), max(found)))
                table.append([policy, value, len(found), *points[-1][1:]])
        if where.measured:
            _line(axis, policy, points)
        elif points:
            _strokes(axis, policy, points, 0.7 * ((rank + 0.5) / len(policies) - 0.5))
    axis.set(xlabel=parameter.called, ylabel=GAP)
    if where.logarithmic:
        axis.set_xscale("log", base=2)
    gap_axis(axis, "y", [gap for entry in table for gap in entry[3:]])
    _value_ticks(axis, parameter, where, width)
    legend_above(made, policies)
    set_title(axis, title, width)
    return Figure(
        f"gap-by-{parameter.name}",
        f"Gap against {parameter.called}",
        _summarised(rows, parameter),
        made,
        ["policy", parameter.name, "instances", "min %", "median %", "max %"],
        table,
    )


def _line(axis: Any, policy: str, points: Sequence[tuple[float, ...]]) -> None:
    """Medians as a line in the band of their ranges."""
    x, low, middle, high = zip(*points, strict=True) if points else ((), (), (), ())
    axis.plot(x, middle, **line(policy), clip_on=False)
    if low != high:
        axis.fill_between(x, low, high, color=look(policy).colour, alpha=0.12, linewidth=0)


def _strokes(axis: Any, policy: str, points: Sequence[tuple[float, ...]], aside: float) -> None:
    """Medians as markers on strokes of their ranges, so far beside the value's place."""
    places, low, middle, high = zip(*points, strict=True)
    x = [place + aside for place in places]
    axis.vlines(x, low, high, color=look(policy).colour, linewidth=1.2)
    axis.plot(x, middle, **line(policy), linestyle="none", clip_on=False)


def _value_ticks(axis: Any, parameter: Swept, where: Scale, width: float) -> None:
    """Ticks at the values, as far as their texts have room."""
    texts = [str(value) or "none" for value in parameter.values]
    turned = not where.measured and sum(map(len, texts)) > 9 * width
    on_axis = [log2(place) if where.logarithmic else place for place in where.places]
    share = 0.14 / width if turned else max(0.3, 0.09 * max(map(len, texts))) / width
    shown = [on_axis.index(tick) for tick in spaced_ticks(on_axis, share)]
    axis.set_xticks([where.places[i] for i in shown], [texts[i] for i in shown])
    axis.tick_params(axis="x", which="minor", bottom=False)
    if turned:
        axis.tick_params(axis="x", rotation=90)
    if not where.measured:
        axis.set_xlim(-0.5, len(texts) - 0.5)


def _summarised(rows: Sequence[Row], parameter: Swept) -> str:
    """What a point of the figure is made of, in words."""
    counts = {"seeds": len({row["instance"]["seed"] for row in rows})}
    counts |= {other.called: len(other.values) for other in swept(rows) if other != parameter}
    several = [
        f"{count} seeds" if name == "seeds" else f"{count} values of {name}"
        for name, count in counts.items()
        if count > 1
    ]
    missing = sum(value is None for value in parameter.of)
    left_out = f" {missing} instances without {parameter.name} are left out." if missing else ""
    if not several:
        return f"Gap above a lower bound whose witness checks; one instance per point.{left_out}"
    return (
        "Gap above a lower bound whose witness checks: median, and range from least to largest, "
        f"over {' and '.join(several)}.{left_out}"
    )
