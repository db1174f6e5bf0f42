"""A timeline as a picture: one row a rail, time to the right, height the share of the rail's
transmit rate in use; two more rows where bytes are staged and passed on in phases of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.arrays import Floats
from railopt.report.style import PAGE, blank, printed
from railopt.sim import Timeline
from railopt.units import format_time, seconds

BINS = 240
TICKS = 6
RAIL, SCALE_UP = "#0072b2", "#d55e00"


@printed
def timeline_figure(timeline: Timeline, *, width: float = PAGE) -> Any:
    """A figure: each track a stepped area of BINS equal slices of the run, its mean at the
    right.
    """
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
    count = TICKS if width >= PAGE else TICKS // 2
    ticks = [end * tick // (count - 1) for tick in range(count)]
    axes[-1, 0].set_xticks(ticks, [format_time(seconds(tick)) for tick in ticks])
    figure.suptitle(_title(timeline))
    return figure


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


def _title(timeline: Timeline) -> str:
    stuck = f", {len(timeline.stuck)} chunks stuck" if len(timeline.stuck) else ""
    rails = timeline.fabric.rails if timeline.fabric else None
    moved = float(timeline.track_bytes[:rails].sum()) / 1e6
    inside = " and of scale-up" if len(timeline.track_bytes[rails:]) and rails else ""
    return (
        f"{moved:.1f} MB in {format_time(timeline.completion)}{stuck}:\nshare of each rail's "
        f"transmit rate{inside} in use, and its mean"
    )
