"""Timelines of training iterations as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railopt.moe.iteration.timeline import Timeline

COLORS = {
    "a2a": "#4c72b0",
    "trans": "#dd8452",
    "agg": "#c44e52",
    "fec": "#55a868",
    "bec": "#55a868",
    "fnec": "#8c8c8c",
    "bnec": "#8c8c8c",
    "plan": "#8172b3",
}
LEGEND = {
    "a2a": "all-to-all",
    "trans": "Trans",
    "agg": "Agg",
    "fec": "experts",
    "fnec": "other compute",
    "plan": "Plan",
}
ROW = {"compute": 0.62, "network": 0.3, "cpu": 0.0}  # where a stream lies in its band of height 1
PS_PER_MS = 1e9


def gantt(timelines: Sequence[Timeline], *, title: str = "") -> Any:
    """A figure: one band a timeline, compute above network, on one time axis."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11, 1 + 0.9 * len(timelines)))
    axes = figure.subplots()
    for band, line in enumerate(reversed(timelines)):
        _band(axes, band, line)
    axes.set_yticks(
        [band + 0.55 for band in range(len(timelines))],
        [line.style for line in reversed(timelines)],
    )
    axes.set_xlabel("time of one iteration, ms (upper row compute, lower row network)")
    axes.set_xlim(0, max(line.total_ps for line in timelines) / PS_PER_MS * 1.1)
    axes.legend(
        handles=[Patch(color=COLORS[key], label=name) for key, name in LEGEND.items()],
        ncols=6,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.0 + 0.5 / (1 + len(timelines))),
        frameon=False,
    )
    if title:
        axes.set_title(title, fontsize=9, pad=24)
    figure.tight_layout()
    return figure


def _band(axes: Any, band: int, line: Timeline) -> None:
    """The events of a timeline, and its length behind them."""
    for event in line.events:
        axes.broken_barh(
            [(event.start_ps / PS_PER_MS, (event.end_ps - event.start_ps) / PS_PER_MS)],
            (band + ROW[event.stream], 0.28),
            color=COLORS[event.operation],
            linewidth=0,
        )
    end = line.total_ps / PS_PER_MS
    axes.text(end, band + 0.55, f" {end:.2f} ms", va="center", fontsize=8)
