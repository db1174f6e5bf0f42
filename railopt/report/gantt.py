"""Timelines of training iterations as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railopt.moe.iteration.timeline import IterationTimeline
from railopt.report.style import PAGE, blank, legend_above, printed, set_title

# operation -> colour and what it is
OPERATIONS = {
    "a2a": ("#0072b2", "all-to-all of tokens"),
    "trans": ("#ffa500", "copies of experts sent out (Trans)"),
    "agg": ("#962d78", "their gradients summed (Agg)"),
    "fec": ("#009e73", "experts' computation"),
    "bec": ("#009e73", "experts' computation"),
    "fnec": ("#a9a9a9", "other computation"),
    "bnec": ("#a9a9a9", "other computation"),
}
NAMES = {
    "deepspeed": "no balancing\n(as DeepSpeed)",
    "fastermoe": "FasterMoE",
    "pro-prophet": "Pro-Prophet",
    "ours": "railopt",
}
"""Styles of a timeline as the picture calls them."""
ROW = {"compute": 0.48, "network": 0.12}  # where a stream lies in its band of height 1
PS_PER_MS = 1e9


@printed
def gantt(
    timelines: Sequence[IterationTimeline],
    names: Sequence[str] = (),
    *,
    title: str = "",
    width: float = PAGE,
) -> Any:
    """A figure: one band per timeline, compute above network, on one time axis; bands are
    called by `names`, or by their styles.
    """
    from matplotlib.patches import Patch

    figure, grid = blank(width, 1.1 + 0.75 * len(timelines))
    axes = grid[0, 0]
    for band, line in enumerate(reversed(timelines)):
        _band(axes, band, line)
    called = names or [NAMES.get(line.style, line.style) for line in timelines]
    axes.set_yticks([band + 0.45 for band in range(len(timelines))], called[::-1])
    axes.set_xlabel("time of one iteration, ms\n(a band from above: GPU, network)")
    room = 1 + 0.9 / width  # for the lengths behind the bands
    axes.set_xlim(0, max(line.total_ps for line in timelines) / PS_PER_MS * room or 1)
    events = [event for line in timelines for event in line.events]
    seen = {event.operation for event in events if event.end_ps > event.start_ps}
    legend = {text: colour for name, (colour, text) in OPERATIONS.items() if name in seen}
    legend_above(figure, list(legend), [Patch(color=colour) for colour in legend.values()])
    set_title(axes, title, width)
    return figure


def _band(axes: Any, band: int, line: IterationTimeline) -> None:
    """The events of a timeline, and its length behind them."""
    spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for event in line.events:
        span = event.start_ps / PS_PER_MS, (event.end_ps - event.start_ps) / PS_PER_MS
        spans.setdefault((event.stream, event.operation), []).append(span)
    for (stream, operation), times in spans.items():
        place, colour = (band + ROW[stream], 0.34), OPERATIONS[operation][0]
        axes.broken_barh(times, place, color=colour, linewidth=0)
    end = line.total_ps / PS_PER_MS
    axes.text(end, band + 0.6, f" {end:.2f} ms", va="center")
