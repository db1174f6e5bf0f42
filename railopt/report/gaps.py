"""Gap against chunk size: one line per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log2, log10
from typing import Any

from railopt.base.units import format_bytes
from railopt.report.style import PAGE, apart, blank, legend_above, line, number, printed


@printed
def gap_against_chunk(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    title: str = "",
    spread: Mapping[str, Any] | None = None,
    *,
    width: float = PAGE,
) -> Any:
    """A figure: for each policy its (chunk bytes, gap in %) points, both axes logarithmic; a gap of
    0 sits on the floor, a power of 10 below all others.

    spread: for a policy, (chunk bytes, low %, high %) drawn as a band.
    """
    figure, axes = blank(width, max(2.6, 0.55 * width))
    axis = axes[0, 0]
    positive = [gap for points in lines.values() for _, gap in points if gap > 0]
    floor = 10.0 ** (ceil(log10(min(positive, default=1))) - 1)
    for policy, points in lines.items():
        chunks, gaps = zip(*sorted(points), strict=True) if points else ((), ())
        axis.plot(chunks, [max(gap, floor) for gap in gaps], **line(policy), clip_on=False)
        if spread and policy in spread:
            chunks, low, high = zip(*sorted(spread[policy]), strict=True)
            edges = ([max(gap, floor) for gap in side] for side in (low, high))
            axis.fill_between(chunks, *edges, color=line(policy)["color"], alpha=0.15, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set(xlabel="largest chunk", ylabel="gap above the certified bound, %")
    axis.yaxis.set_major_formatter(lambda gap, _: number(gap) if gap > floor else "0")
    axis.set_ylim(bottom=floor)
    axis.grid(True)
    sizes = {log2(chunk): chunk for points in lines.values() for chunk, _ in points}
    ticks = [sizes[place] for place in apart(sorted(sizes), 0.5 / width)]
    axis.set_xticks(ticks, [format_bytes(chunk) for chunk in ticks])
    axis.minorticks_off()
    legend_above(figure, list(lines))
    axis.set_title(title)
    return figure
