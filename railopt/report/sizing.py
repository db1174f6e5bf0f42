"""Candidates to buy: time against price, or against the rate of all NICs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railopt.answers.candidates import KINDS
from railopt.answers.size import Sized
from railopt.report.style import INK, PAGE, blank, legend_above, number, printed, set_title

LOOKS = dict(zip(KINDS, (("#0072b2", "o"), ("#009e73", "s"), ("#d55e00", "^")), strict=True))
DODGE = 0.02
TERABIT = 10**12 / 8  # bytes per second


@printed
def sizing_figure(found: Sequence[Sized], title: str = "", *, width: float = PAGE) -> Any:
    """A figure: each candidate's time with the best policy, hollow as it is done today, a stroke
    for the bound; a line along those that no other beats, which are named.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullFormatter

    priced = all(one.candidate.price is not None for one in found)
    figure, axes = blank(width, max(2.6, 0.55 * width))
    axis = axes[0, 0]

    def place(one: Sized) -> float:
        if priced:
            return float(one.cost)
        beside = 1 + DODGE * (KINDS.index(one.candidate.kind) - 1)  # kinds of one rate
        return float(one.cost) / TERABIT * beside

    for one in found:
        colour, marker = LOOKS[one.candidate.kind]
        x, ends = place(one), [float(time) * 1e6 for time in (one.bound, one.time, one.today)]
        axis.plot([x, x], [ends[0], ends[2]], color=colour, linewidth=0.6, alpha=0.5)
        axis.plot([x], [ends[0]], marker="_", color=INK, linestyle="none")
        axis.plot([x], [ends[1]], marker=marker, color=colour, linestyle="none")
        axis.plot([x], [ends[2]], marker=marker, mec=colour, mfc="none", linestyle="none")
    front = sorted((one for one in found if one.front), key=lambda one: (one.cost, one.time))
    axis.step(
        [place(one) for one in front],
        [float(one.time) * 1e6 for one in front],
        where="post",
        color="0.5",
        linewidth=0.8,
        zorder=0,
    )
    for spot, one in {(one.cost, one.time): one for one in reversed(front)}.items():
        there = place(one), float(spot[1]) * 1e6
        axis.annotate(one.candidate.name, there, (6, 6), textcoords="offset points")
    axis.set_xlabel("price" if priced else "rate of all NICs, Tb/s")
    axis.set_ylabel("time of the workload, us")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(number)
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.margins(x=0.2)
    axis.grid(True)
    kinds = [kind for kind in KINDS if any(one.candidate.kind == kind for one in found)]
    entries = {
        **{
            kind: Line2D([], [], color=LOOKS[kind][0], marker=LOOKS[kind][1], linestyle="")
            for kind in kinds
        },
        "today": Line2D([], [], mec="0.4", mfc="none", marker="o", linestyle=""),
        "bound": Line2D([], [], color=INK, marker="_", linestyle=""),
        "front": Line2D([], [], color="0.5", linewidth=0.8),
    }
    legend_above(figure, list(entries), list(entries.values()))
    set_title(axis, title, width)
    return figure
