"""Gap against chunk size: one line per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from railopt.base.units import format_bytes
from railopt.report.style import (
    PAGE,
    blank,
    gap_axis,
    legend_above,
    line,
    printed,
    set_title,
    spaced_ticks,
)


@printed
def gap_against_chunk(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    title: str = "",
    spread: Mapping[str, Any] | None = None,
    *,
    width: float = PAGE,
) -> Any:
    """A figure: for each policy its (chunk bytes, gap in %) points, gaps as `gap_axis` draws them.

    spread: for a policy, (chunk bytes, low %, high %) drawn as a band.
    """
    figure, axes = blank(width, max(2.6, 0.55 * width))
    axis = axes[0, 0]
    for policy, points in lines.items():
        chunks, gaps = zip(*sorted(points), strict=True) if points else ((), ())
        axis.plot(chunks, gaps, **line(policy), clip_on=False)
        if spread and policy in spread:
            chunks, low, high = zip(*sorted(spread[policy]), strict=True)
            axis.fill_between(
                chunks, low, high, color=line(policy)["color"], alpha=0.15, linewidth=0
            )
    axis.set_xscale("log", base=2)
    axis.set(xlabel="largest chunk", ylabel="gap above the certified bound, %")
    shown = [gap for points in lines.values() for _, gap in points]
    shown += [gap for points in (spread or {}).values() for point in points for gap in point[1:]]
    gap_axis(axis, "y", shown)
    axis.grid(True)
    sizes = {log2(chunk): chunk for points in lines.values() for chunk, _ in points}
    ticks = [sizes[place] for place in spaced_ticks(sorted(sizes), 0.5 / width)]
    axis.set_xticks(ticks, [format_bytes(chunk) for chunk in ticks])
    axis.minorticks_off()
    legend_above(figure, list(lines))
    set_title(axis, title, width)
    return figure
