"""Gap against chunk size: one line a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def gap_against_chunk(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    title: str = "",
    spread: Mapping[str, Any] | None = None,
) -> Any:
    """A figure: for each policy its (chunk bytes, gap in %) points, both axes logarithmic; a gap of
    0 sits on the floor.

    spread: for a policy, (chunk bytes, low %, high %) drawn as a band.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axis = figure.subplots()
    positive = [gap for points in lines.values() for _, gap in points if gap > 0]
    floor = min(positive, default=1e-3) / 3
    for number, (policy, points) in enumerate(lines.items()):
        ordered = sorted(points)
        axis.plot(
            [chunk for chunk, _ in ordered],
            [max(gap, floor) for _, gap in ordered],
            marker="os^Dv<>*"[number % 8],
            color=f"C{number}",
            label=policy,
        )
        if spread and policy in spread:
            chunks, low, high = zip(*sorted(spread[policy]), strict=True)
            axis.fill_between(
                chunks,
                [max(v, floor) for v in low],
                [max(v, floor) for v in high],
                color=f"C{number}",
                alpha=0.15,
            )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("largest chunk, bytes")
    axis.set_ylabel("gap above the certified bound, %")
    axis.grid(True, which="both", alpha=0.2)
    axis.axhline(floor, color="0.6", linewidth=0.8, linestyle=":")
    axis.text(
        0.995,
        floor,
        "0",
        color="0.4",
        ha="right",
        va="bottom",
        transform=axis.get_yaxis_transform(),
        fontsize=8,
    )
    ticks = sorted({chunk for points in lines.values() for chunk, _ in points})
    axis.set_xticks(ticks, [_label(chunk) for chunk in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=8)
    axis.set_title(title, fontsize=10)
    return figure


def _label(chunk: int) -> str:
    from railopt.units import format_bytes

    return format_bytes(chunk)
