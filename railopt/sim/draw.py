"""A timeline as a picture: one row a rail, time to the right, height the share of the rail's
transmit rate in use.
"""

from __future__ import annotations

import numpy as np

from railopt.sim.timeline import Timeline
from railopt.units import format_time, seconds

BINS, WIDTH, ROW, LEFT, TOP = 240, 960, 36, 84, 34


def timeline_svg(timeline: Timeline) -> str:
    """The SVG text; it opens in any browser and holds every bin's value as a title."""
    rates = timeline.throughput(BINS)
    rails = len(rates)
    full = (
        timeline.fabric.tx.sum(axis=0).astype(np.float64) if timeline.fabric else rates.max(axis=1)
    )
    shares = np.divide(
        rates, full[:, None], out=np.zeros_like(rates), where=full[:, None] > 0
    ).clip(0, 1)
    end = int(timeline.curve.till.max(initial=0))
    height = TOP + rails * ROW + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{_title(timeline)}</title>",
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18">{_title(timeline)}</text>',
    ]
    parts += [_row(rail, shares[rail], float(np.mean(shares[rail]))) for rail in range(rails)]
    for tick in range(6):
        x, time = LEFT + WIDTH * tick / 5, format_time(seconds(end * tick // 5))
        parts.append(
            f'<line x1="{x:g}" x2="{x:g}" y1="{TOP}" y2="{TOP + rails * ROW}" '
            'stroke="#999" stroke-dasharray="2 4"/>'
            f'<text x="{x:g}" y="{TOP + rails * ROW + 18}" text-anchor="middle">{time}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(timeline: Timeline) -> str:
    stuck = f", {len(timeline.stuck)} chunks stuck" if len(timeline.stuck) else ""
    moved = float(timeline.curve.bytes.sum()) / 1e6
    return (
        f"{moved:.1f} MB in {format_time(timeline.completion)}{stuck}: share of each rail's "
        f"transmit rate in use"
    )


def _row(rail: int, shares: np.ndarray[tuple[int], np.dtype[np.float64]], mean: float) -> str:
    """One rail: a stepped area over a faint frame."""
    bottom, room, step = TOP + (rail + 1) * ROW - 4, ROW - 8, WIDTH / len(shares)
    points = [f"{LEFT},{bottom}"]
    for i, share in enumerate(shares.tolist()):
        y = bottom - room * share
        points += [f"{LEFT + i * step:.1f},{y:.1f}", f"{LEFT + (i + 1) * step:.1f},{y:.1f}"]
    points.append(f"{LEFT + WIDTH},{bottom}")
    return (
        f'<rect x="{LEFT}" y="{bottom - room}" width="{WIDTH}" height="{room}" fill="#f2f4f8"/>'
        f'<polygon points="{" ".join(points)}" fill="#2f6fb2">'
        f"<title>rail {rail}: {mean:.1%} in use</title></polygon>"
        f'<text x="{LEFT - 8}" y="{bottom - room / 2 + 4:g}" text-anchor="end">rail {rail}</text>'
        f'<text x="{LEFT + WIDTH + 6}" y="{bottom - room / 2 + 4:g}">{mean:.0%}</text>'
    )
