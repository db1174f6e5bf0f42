"""The report's figures: drawn from result rows, nothing is computed twice."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.arrays import Floats
from railopt.report.captioned import Figure
from railopt.report.gaps import gap_against, gap_by_policy, percent
from railopt.report.heatmap import load_maps, of_row
from railopt.report.rows import problem
from railopt.report.style import (
    INK,
    PAGE,
    blank,
    grid_of,
    line,
    printed,
    wrapped_name,
    wrapped_title,
)
from railopt.report.swept import order, swept
from railopt.sweep.results import Row


def rail_loads(rows: Sequence[Row], *, width: float = PAGE, title: str = "") -> Figure | None:
    """Heat maps of what every NIC sends and receives, for one instance under each policy."""
    with_loads = [row for row in rows if "loads" in row and Fraction(row["bound"])]
    if not with_loads:
        return None
    by_lpt = [row for row in with_loads if row["instance"]["policy"] == "lpt"]
    first = max(by_lpt or with_loads, key=percent)
    same = first["instance"]
    found = {row["instance"]["policy"]: row for row in with_loads if problem(row) == problem(first)}
    chosen = [found[policy] for policy in order(list(found.values()), "policy")]
    table = [
        [row["instance"]["policy"], side, node, *values]
        for row in chosen
        for side in ("send", "recv")
        for node, values in enumerate(row["loads"][side])
    ]
    worst = "lpt" if by_lpt else "a policy"
    return Figure(
        "rail-loads",
        "Rail loads",
        "Time of every NIC as a multiple of the lower bound: red is above it; the slowest NIC is "
        f"framed. The instance where {worst} does worst: {same['nodes']} nodes, "
        f"{same['traffic']}, chunks of {same['chunk']}, seed {same['seed']}.",
        load_maps([of_row(row) for row in chosen], title, width=width),
        ["policy", "side", "node", *(f"rail {n}, bytes" for n in range(same["rails"]))],
        table,
    )


@printed
def completion_times(rows: Sequence[Row], *, width: float = PAGE, title: str = "") -> Figure | None:
    """When chunks were delivered in the simulator, as distributions over the bound: a panel a
    policy, the others grey behind it, since curves of good policies lie on each other.
    """
    done = [
        row
        for row in rows
        if row.get("simulated", {}).get("delivered_ps") and Fraction(row["bound"])
    ]
    if not done:
        return None
    policies = order(done, "policy")
    mine = {name: [r for r in done if r["instance"]["policy"] == name] for name in policies}
    curves = {name: np.mean([_delivered(row) for row in mine[name]], axis=0) for name in policies}
    lines, columns = grid_of(len(policies), width, 1.7)
    made, axes = blank(width, 1.6 * lines + 0.3, lines, columns, sharex=True, sharey=True)
    for place, axis in enumerate(axes.flat):
        axis.set_visible(place < len(policies))
        axis.tick_params(labelbottom=place + columns >= len(policies))
    table = []
    for axis, policy in zip(axes.flat, policies, strict=False):
        last = [_completion(row) for row in mine[policy]]
        middle = float(curves[policy][len(curves[policy]) // 2])
        table.append([policy, len(last), middle, float(np.median(last)), max(last)])
        _curve(axis, policy, curves)
        name = wrapped_name(policy, width / columns)
        axis.set_title(f"{name}\nlast at {curves[policy][-1]:.3f}")
    if title:
        made.suptitle(wrapped_title(title, width))
    made.supxlabel("time of delivery / lower bound", fontsize="medium")
    made.supylabel("share of chunks", fontsize="medium")
    return Figure(
        "completion-times",
        "Completion times",
        "Simulated delivery of chunks over the lower bound on NIC time (the simulator adds "
        "headers and latency), mean over instances; grey: the other policies; dotted: the bound; "
        "in the title when the last chunk arrived.",
        made,
        ["policy", "instances", "median chunk", "median completion", "slowest completion"],
        table,
    )


def _delivered(row: Row) -> Floats:
    """Times of delivery over the bound, rising."""
    times = np.array(row["simulated"]["delivered_ps"], dtype=np.float64)
    return times / 1e12 / float(Fraction(row["bound"]))


def _completion(row: Row) -> float:
    return float(Fraction(row["simulated"]["completion"]) / Fraction(row["bound"]))


def _curve(axis: Any, policy: str, curves: dict[str, Floats]) -> None:
    """One policy's curve before all others."""
    for other, times in curves.items():
        if other != policy:
            axis.plot(times, np.linspace(0, 1, len(times)), color="#a9a9a9", linewidth=0.6)
    mine = curves[policy]
    every = max(1, len(mine) // 4)
    axis.plot(mine, np.linspace(0, 1, len(mine)), **line(policy), markevery=every, clip_on=False)
    axis.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axis.set_xlim(left=0)


def all_figures(rows: Sequence[Row], *, width: float = PAGE, title: str = "") -> list[Figure]:
    """Every figure that the rows can fill, so many inches wide: the gap against each parameter that
    varies, and no figure of one point.
    """
    if not rows:
        return []
    options: Any = {"width": width, "title": title}
    found = [
        *(gap_against(rows, parameter, **options) for parameter in swept(rows)),
        *(make(rows, **options) for make in (gap_by_policy, rail_loads, completion_times)),
    ]
    return [figure for figure in found if figure is not None]
