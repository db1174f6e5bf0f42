"""A timeline as a picture: one row per rail, time to the right, height the share of the rail's
transmit rate in use; two more rows where bytes are staged and passed on in phases of their own.
A run with faults has one row per NIC, the share as a colour, and each fault at its NIC and time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Floats
from railopt.base.units import format_time, seconds
from railopt.report.style import PAGE, blank, printed, wrapped_title
from railopt.sim import Timeline
from railopt.sim.timeline import NicChange

BINS = 240
TICKS = 6
RAIL, SCALE_UP, FAULT = "#0072b2", "#d55e00", "#b40000"
TALLEST = 9.0  # inches
MAX_NODES_NAMED = 32


@printed
def timeline_figure(timeline: Timeline, title: str | None = None, *, width: float = PAGE) -> Any:
    """A figure: each track a stepped area of BINS equal slices of the run, its mean at the
    right; of a run with faults, a row per NIC.  Without a title it says what it shows.
    """
    if timeline.nic_curve is not None and timeline.nic_changes:
        return _nics_figure(timeline, title, width)
    shares = _shares(timeline)
    end = int(timeline.curve.till.max(initial=0))
    tracks = len(shares)
    rails = timeline.fabric.rails if timeline.fabric else tracks
    names = [*(f"rail {rail}" for rail in range(rails)), "staged", "passed on"]
    figure, axes = blank(width, 0.9 + 0.3 * tracks, tracks, sharex=True)
    edges = np.linspace(0, max(end, 1), BINS + 1)
    for track, axis in enumerate(axes[:, 0]):
        axis.stairs(shares[track], edges, fill=True, color=RAIL if track < rails else SCALE_UP)
        axis.set(xlim=(0, max(end, 1)), ylim=(0, 1), yticks=[], facecolor="#f2f4f8")
        axis.tick_params(bottom=track == tracks - 1)
        axis.set_ylabel(names[track], rotation=0, ha="right", va="center")
        mean = f"{np.mean(shares[track]):.0%}"
        axis.text(1.005, 0.5, mean, transform=axis.transAxes, va="center")
        for side in axis.spines.values():
            side.set_visible(False)
    _time_ticks(axes[-1, 0], end, width)
    inside = " and of scale-up" if tracks > rails else ""
    usual = _title(timeline, f"share of each rail's transmit rate{inside} in use, and its mean")
    _set_title(figure, usual if title is None else title, width)
    return figure


def _time_ticks(axis: Any, end: int, width: float) -> None:
    count = TICKS if width >= PAGE else TICKS // 2
    ticks = [end * tick // (count - 1) for tick in range(count)]
    axis.set_xticks(ticks, [format_time(seconds(tick)) for tick in ticks])


def _nics_figure(timeline: Timeline, title: str | None, width: float) -> Any:
    """A row a transmit NIC, nodes below each other, its rails in order."""
    curve, fabric = timeline.nic_curve, timeline.fabric
    assert curve is not None
    assert fabric is not None
    rails, nics, end = fabric.rails, fabric.nodes * fabric.rails, max(curve.end_ps, 1)
    rates, full = curve.throughput(nics, BINS), fabric.tx.reshape(-1, 1).astype(np.float64)
    shares = np.divide(rates, full, out=np.zeros_like(rates), where=full > 0).clip(0, 1)
    figure, axes = blank(width, min(max(1.1 + 0.11 * nics, 2.5), TALLEST))
    axis = axes[0, 0]
    image = axis.imshow(
        shares,
        cmap="Blues",
        vmin=0,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(0, end, nics - 0.5, -0.5),
    )
    for node in range(1, fabric.nodes):
        axis.axhline(node * rails - 0.5, color="white", linewidth=1.2)
    for change in timeline.nic_changes:
        _mark(axis, change, change.node * rails + change.rail, end)
    step = -(-fabric.nodes // MAX_NODES_NAMED)
    named = range(0, fabric.nodes, step)
    axis.set_yticks(
        [node * rails + (rails - 1) / 2 for node in named], [f"node {k}" for k in named]
    )
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(0, end)
    _time_ticks(axis, end, width)
    bar = figure.colorbar(image, ax=axis, fraction=0.03, pad=0.01)
    bar.set_ticks([0, 0.5, 1], labels=["0", "50%", "100%"])
    usual = _title(timeline, "share of each NIC's transmit rate in use,\nrails of a node in order")
    _set_title(figure, usual if title is None else title, width)
    return figure


def _set_title(figure: Any, title: str, width: float) -> None:
    if title:
        figure.suptitle(wrapped_title(title, width))


def _mark(axis: Any, change: NicChange, row: int, end: int) -> None:
    """A fault at its NIC's row and time, in words, and from there on."""
    at = min(change.at_ps, end)
    axis.plot([at, end], [row, row], color=FAULT, linewidth=0.8, linestyle=":")
    axis.plot([at], [row], color=FAULT, marker="X", markersize=6, clip_on=False)
    late = at > 0.6 * end
    axis.annotate(
        f"node {change.node} rail {change.rail} {change.words}",
        (at, row),
        (-6 if late else 6, 3 if row else -3),
        textcoords="offset points",
        ha="right" if late else "left",
        va="bottom" if row else "top",
        color=FAULT,
        bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.8},
    )


def _shares(timeline: Timeline) -> Floats:
    """float64 [tracks, BINS]: throughput over the rail's transmit rate, over the rate of all
    scale-up ports for what is staged and passed on, or over its own largest where flows have no
    fabric.
    """
    rates, fabric = timeline.throughput(BINS), timeline.fabric
    full = rates.max(axis=1)
    if fabric is not None:
        scaleup = float(fabric.nodes * fabric.gpus * fabric.scaleup)
        full = np.array([*fabric.tx.sum(axis=0).tolist(), scaleup, scaleup])[: len(rates)]
    out = np.zeros_like(rates)
    np.divide(rates, full[:, None], out=out, where=full[:, None] > 0)
    return out.clip(0, 1)


def _title(timeline: Timeline, what: str) -> str:
    stuck = f", {len(timeline.stuck)} chunks stuck" if len(timeline.stuck) else ""
    rails = timeline.fabric.rails if timeline.fabric else None
    moved = float(timeline.track_bytes[:rails].sum()) / 1e6
    return f"{moved:.1f} MB in {format_time(timeline.completion)}{stuck}:\n{what}"
