"""Heat maps of rail loads: node by rail, sent and received, one pair per policy."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.answers.blame import Blame
from railopt.base.arrays import Floats, Ints
from railopt.model.fabric import SIDES
from railopt.report.style import PAGE, blank, grid_of, printed, wrapped_name, wrapped_title
from railopt.sweep.results import Row
from railopt.sweep.spec import fabric_of

LIMIT = 2
"""Where the colours end: a NIC at so many times the bound is as dark as any that is slower."""
MAX_TICKS = 5  # of an axis


class NicLoads(NamedTuple):
    """What a plan makes of each NIC, as a multiple of the lower bound: float64 [nodes, rails], nan
    where a NIC is dead.
    """

    policy: str
    sent: Floats
    received: Floats


def of_row(row: Row) -> NicLoads:
    """Time of every NIC over the bound, from a row with loads."""
    fabric, bound = fabric_of(row["instance"]), Fraction(row["bound"])
    loads = {side: np.array(row["loads"][side], dtype=np.int64) for side in SIDES}
    sides = (over(loads[side], fabric.rates(side), bound) for side in SIDES)
    return NicLoads(row["instance"]["policy"], *sides)


def over(loads: Ints, rates: Ints, bound: Fraction) -> Floats:
    """loads / rates / bound, all [nodes, rails]; nan where the rate is 0."""
    over = np.full(loads.shape, np.nan)
    np.divide(loads, rates * float(bound or 1), out=over, where=rates > 0)
    return over


def blame_figure(found: Blame, title: str | None = None, *, width: float = PAGE) -> Any:
    """A figure: each NIC's time over the bound of any plan, as planned and as counted."""
    fabric, bound = found.fabric, found.bound
    planned = (over(found.planned(side), fabric.rates(side), bound) for side in SIDES)
    counted = (found.times(side) / float(bound) for side in SIDES)
    maps = [NicLoads("planned", *planned), NicLoads("counted", *counted)]
    return load_maps(maps, found.verdict if title is None else title, width=width)


@printed
def load_maps(plans: Sequence[NicLoads], title: str = "", *, width: float = PAGE) -> Any:
    """A figure: red is above the bound, blue below it, on one linear scale; a frame marks the
    slowest NIC, whose multiple of the bound stands in the title.
    """
    from matplotlib.colors import Normalize

    title = wrapped_title(title, width)
    rows, columns = grid_of(len(plans), width, 1.35)
    figure, grid = blank(width, 2.1 * rows + 0.8 + 0.15 * title.count("\n"), 2 * rows, columns)
    if title:
        figure.suptitle(title)
    for axis in grid.flat:
        axis.set_axis_off()
    norm = Normalize(0, LIMIT)
    image = None
    for place, plan in enumerate(plans):
        row, column = divmod(place, columns)
        for line, side in enumerate(("sent", "received")):
            axis = grid[2 * row + line, column]
            image = _map(axis, getattr(plan, side), norm)
            # ticks that have no labels are left out: drawing them takes longer than the maps
            if column > 0:
                axis.set_yticks([])
            if line == 0:
                axis.set_xticks([])
            slowest = np.nanmax(getattr(plan, side), initial=0)
            name = f"{wrapped_name(plan.policy, width / columns)}\n" if line == 0 else ""
            axis.set_title(f"{name}{side}: max {slowest:.2f}")
            axis.tick_params(pad=1)
            axis.set(ylabel="node" if column == 0 else "", xlabel="rail" if line else "")
    if image is not None:
        bar = figure.colorbar(
            image, ax=grid[-1], location="bottom", extend="max", aspect=75, shrink=0.9, pad=0.04,
            ticks=[0, 0.5, 1, 1.5, 2],
        )  # fmt: skip
        bar.set_label("time of the NIC / lower bound (framed: the slowest NIC)")
        bar.ax.xaxis.set_major_formatter("{x:g}")
    return figure


def _map(axis: Any, over: Floats, norm: Any) -> Any:
    """One map, its slowest NIC framed, ticks at whole nodes and rails."""
    from matplotlib.patches import Rectangle

    axis.set_axis_on()
    axis.set_facecolor("0.5")  # a dead NIC
    image = axis.imshow(over, cmap="RdBu_r", norm=norm, aspect="auto", interpolation="nearest")
    for count, ticks in zip(over.shape, (axis.set_yticks, axis.set_xticks), strict=True):
        ticks(range(0, count, -(-count // MAX_TICKS)))
    if np.isfinite(over).any():
        node, rail = np.unravel_index(np.nanargmax(over), over.shape)
        corner = (float(rail) - 0.5, float(node) - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1))
    return image
