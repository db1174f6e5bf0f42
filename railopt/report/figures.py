"""The report's figures, each with the table of what it shows: drawn from result rows, nothing is
computed twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Floats, check_targets
from railopt.base.errors import InputError, printable
from railopt.base.units import parse_bytes
from railopt.policies import POLICIES
from railopt.report.heatmap import load_maps, of_row
from railopt.report.rows import problem
from railopt.report.saving import save_figure
from railopt.report.style import (
    INK,
    PAGE,
    blank,
    grid_of,
    legend_above,
    line,
    look,
    number,
    printed,
    rc,
)
from railopt.sweep.results import Row


class Figure(NamedTuple):
    """A figure for the page: what it shows, its picture, and its data as a table."""

    name: str
    title: str
    caption: str
    drawing: Any
    columns: list[str]
    rows: list[list[Any]]


def svg(figure: Figure) -> str:
    """The drawing as an inline `<svg>` that takes the page's text colour; its ids are its own."""
    import matplotlib

    drawing, text = figure.drawing, StringIO()
    salt = f"{figure.name} {drawing.get_figwidth()}"
    options = {**rc(drawing.get_figwidth()), "svg.fonttype": "none", "svg.hashsalt": salt}
    with matplotlib.rc_context(options):
        drawing.savefig(
            text, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL).replace(
        INK, "currentColor"
    )


def order(rows: Sequence[Row], column: str) -> list[Any]:
    """The values of an instance column in their natural order: chunks by size, policies as railopt
    lists them, numbers rising.
    """
    values = list(dict.fromkeys(row["instance"][column] for row in rows))
    if column == "chunk":
        return sorted(
            values, key=lambda text: float("inf") if text == "flow" else parse_bytes(text)
        )
    if column == "policy":
        return sorted(values, key=lambda name: ([*POLICIES, name].index(name), name))
    return sorted(values)


def _percent(row: Row) -> float:
    return float(Fraction(row["gap"])) * 100


def _gap_axis(axis: Any, largest: float) -> None:
    """Gaps in %, logarithmic above 0.01, with 0 at the bottom."""
    axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylim(0, max(0.01, 2 * largest))
    axis.yaxis.set_major_formatter(number)
    axis.grid(True, axis="y")


@printed
def gap_by_policy(rows: Sequence[Row], *, width: float = PAGE) -> Figure:
    """Boxes of the gap, a group a chunk size, a box a policy."""
    policies, chunks = order(rows, "policy"), order(rows, "chunk")
    made, axes = blank(width, max(2.8, 0.5 * width))
    axis, table = axes[0, 0], []
    for place, policy in enumerate(policies):
        for group, chunk in enumerate(chunks):
            gaps = [
                _percent(row)
                for row in rows
                if row["instance"]["policy"] == policy and row["instance"]["chunk"] == chunk
            ]
            if gaps:
                quartiles = np.percentile(gaps, (0, 25, 50, 75, 100)).tolist()
                table.append([policy, chunk, len(gaps), *quartiles])
                x = group + (place + 1) / (len(policies) + 1) - 0.5
                _box(axis, x, 0.7 / (len(policies) + 1), quartiles, policy)
    axis.set_xticks(range(len(chunks)), chunks)
    axis.set(xlabel="largest chunk", ylabel="gap above the certified bound, %")
    _gap_axis(axis, max(entry[-1] for entry in table))
    legend_above(made, policies)
    return Figure(
        "gap-by-policy",
        "Gap by policy and chunk size",
        "Gap of each plan above a lower bound whose witness checks; box: quartiles, marker: "
        "median, whiskers: extremes.",
        made,
        ["policy", "chunk", "instances", "min %", "q1 %", "median %", "q3 %", "max %"],
        table,
    )


def _box(axis: Any, x: float, width: float, quartiles: Sequence[float], policy: str) -> None:
    """One box with its policy's marker at the median."""
    colour = look(policy).colour
    names = ("whislo", "q1", "med", "q3", "whishi")
    axis.bxp(
        [dict(zip(names, quartiles, strict=True))],
        [x],
        widths=width,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.5},
        medianprops={"color": INK, "linewidth": 0.6},
        whiskerprops={"color": colour},
        capprops={"color": colour},
        manage_ticks=False,
    )
    axis.plot(
        [x], [quartiles[2]], **line(policy), markeredgecolor=INK, markeredgewidth=0.5, clip_on=False
    )


@printed
def gap_by_nodes(rows: Sequence[Row], *, width: float = PAGE) -> Figure:
    """Median gap against the number of nodes, one line per policy."""
    policies, sizes = order(rows, "policy"), order(rows, "nodes")
    made, axes = blank(width, max(2.8, 0.45 * width))
    axis, table = axes[0, 0], []
    for policy in policies:
        points = []
        for nodes in sizes:
            gaps = [
                _percent(row)
                for row in rows
                if row["instance"]["policy"] == policy and row["instance"]["nodes"] == nodes
            ]
            if gaps:
                points.append((nodes, float(np.median(gaps))))
                table.append([policy, nodes, len(gaps), points[-1][1]])
        axis.plot(*zip(*points, strict=True), **line(policy), clip_on=False)
    axis.set(xlabel="nodes", ylabel="median gap, %")
    _gap_axis(axis, max(entry[-1] for entry in table))
    axis.set_xticks(sizes)
    legend_above(made, policies)
    return Figure(
        "gap-by-nodes",
        "Gap against nodes",
        "Median over traffic, chunk sizes and seeds.",
        made,
        ["policy", "nodes", "instances", "median %"],
        table,
    )


def rail_loads(rows: Sequence[Row], *, width: float = PAGE) -> Figure | None:
    """Heat maps of what every NIC sends and receives, for one instance under each policy."""
    with_loads = [row for row in rows if "loads" in row and Fraction(row["bound"])]
    if not with_loads:
        return None
    by_lpt = [row for row in with_loads if row["instance"]["policy"] == "lpt"]
    first = max(by_lpt or with_loads, key=_percent)
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
        load_maps([of_row(row) for row in chosen], width=width),
        ["policy", "side", "node", *(f"rail {n}, bytes" for n in range(same["rails"]))],
        table,
    )


@printed
def completion_times(rows: Sequence[Row], *, width: float = PAGE) -> Figure | None:
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
    made, axes = blank(width, 1.5 * lines + 0.3, lines, columns, sharex=True, sharey=True)
    for place, axis in enumerate(axes.flat):
        axis.set_visible(place < len(policies))
        axis.tick_params(labelbottom=place + columns >= len(policies))
    table = []
    for axis, policy in zip(axes.flat, policies, strict=False):
        last = [_completion(row) for row in mine[policy]]
        middle = float(curves[policy][len(curves[policy]) // 2])
        table.append([policy, len(last), middle, float(np.median(last)), max(last)])
        _curve(axis, policy, curves)
        axis.set_title(f"{policy}: last at {curves[policy][-1]:.3f}")
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


FIGURES: tuple[Callable[..., Figure | None], ...] = (
    gap_by_policy,
    gap_by_nodes,
    rail_loads,
    completion_times,
)


def all_figures(rows: Sequence[Row], *, width: float = PAGE) -> list[Figure]:
    """Every figure that the rows can fill, so many inches wide."""
    found = (make(rows, width=width) for make in FIGURES) if rows else ()
    return [figure for figure in found if figure is not None]


def files_of(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """The files of `save_all`."""
    return [folder / f"{figure.name}{kind}" for figure in figures for kind in (".svg", ".pdf")]


def save_all(figures: Sequence[Figure], folder: Path, *, force: bool = False) -> list[Path]:
    """Each figure as SVG and PDF in a folder, which is made; the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{printable(folder)}: can't be made: {error.strerror}") from error
    names = files_of(figures, folder)
    check_targets(*names, force=force)
    for path, figure in zip(names, (f for f in figures for _ in range(2)), strict=True):
        save_figure(figure.drawing, path, force=force)
    return names
