"""A timeline as a picture: one row a rail, time to the right, height the share of the rail's
transmit rate in use.
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


@printed
def timeline_figure(timeline: Timeline, *, width: float = PAGE) -> Any:
    """A figure: each rail a stepped area of BINS equal slices of the run, its mean at the right."""
    shares = _shares(timeline)
    end = int(timeline.curve.till.max(initial=0))
    rails = len(shares)
    figure, axes = blank(width, 0.9 + 0.3 * rails, rails, sharex=True)
    edges = np.linspace(0, max(end, 1), BINS + 1)
    for rail, axis in enumerate(axes[:, 0]):
        axis.stairs(shares[rail], edges, fill=True, color="#0072b2")
        axis.set(xlim=(0, max(end, 1)), ylim=(0, 1), yticks=[], facecolor="#f2f4f8")
        axis.tick_params(bottom=rail == rails - 1)
        axis.set_ylabel(f"rail {rail}", rotation=0, ha="right", va="center")
        axis.text(1.005, 0.5, f"{np.mean(shares[rail]):.0%}", transform=axis.transAxes, va="center")
        for side in axis.spines.values():
            side.set_visible(False)
    count = TICKS if width >= PAGE else TICKS // 2
    ticks = [end * tick // (count - 1) for tick in range(count)]
    axes[-1, 0].set_xticks(ticks, [format_time(seconds(tick)) for tick in ticks])
    figure.suptitle(_title(timeline))
    return figure


def _shares(timeline: Timeline) -> Floats:
    """float64 [rails, BINS]: throughput over the rail's transmit rate, or over its own largest
    where flows have no fabric.
    """
    rates = timeline.throughput(BINS)
    full = (
        timeline.fabric.tx.sum(axis=0).astype(np.float64) if timeline.fabric else rates.max(axis=1)
    )
    out = np.zeros_like(rates)
    np.divide(rates, full[:, None], out=out, where=full[:, None] > 0)
    return out.clip(0, 1)


def _title(timeline: Timeline) -> str:
    stuck = f", {len(timeline.stuck)} chunks stuck" if len(timeline.stuck) else ""
    moved = float(timeline.curve.bytes.sum()) / 1e6
    return (
        f"{moved:.1f} MB in {format_time(timeline.completion)}{stuck}:\nshare of each rail's "
        "transmit rate in use, and its mean"
    )
