"""The report's figures, each with the table of what it shows: drawn from result rows, nothing is
computed twice.

Text, axes and grid use one marker colour that the page replaces by the text colour, so that figures
follow the theme.  A policy has one colour, whichever others are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from railopt.arrays import check_targets
from railopt.errors import InputError, printable
from railopt.policies import POLICIES
from railopt.report.saving import save_figure
from railopt.sweep.results import Row
from railopt.units import parse_bytes, parse_rate

INK = "#010203"
COLOURS = (
    "#3b7dd8",
    "#d9822b",
    "#3a9d5d",
    "#c0474f",
    "#8a63c9",
    "#8c6d53",
    "#d070b0",
    "#7a7a7a",
    "#a5a52e",
    "#2ba5b5",
)
GREYS = ("#5a5a5a", "#8f8f8f", "#b5b5b5")


class Figure(NamedTuple):
    """A figure for the page: what it shows, its picture, and its data as a table."""

    name: str
    title: str
    caption: str
    drawing: Any
    columns: list[str]
    rows: list[list[Any]]


def svg(drawing: Any) -> str:
    """A matplotlib figure as an inline `<svg>` that takes the page's text colour."""
    import matplotlib

    text = StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "railopt"}):
        drawing.savefig(
            text, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL).replace(
        INK, "currentColor"
    )


STYLE = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "axes.titlesize": 10,
    "font.size": 9,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def styled(
    make: Callable[[Sequence[Row]], Figure | None],
) -> Callable[[Sequence[Row]], Figure | None]:
    """Draw with the page's style."""

    @wraps(make)
    def draw(rows: Sequence[Row]) -> Figure | None:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return make(rows)

    return draw


def _blank(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure as Drawing

    made = Drawing(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False)


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


def colour(policy: str) -> str:
    """The same for a policy in every figure; those that railopt does not know share the greys."""
    known = list(POLICIES)
    if policy in known:
        return COLOURS[known.index(policy) % len(COLOURS)]
    return GREYS[sum(policy.encode()) % len(GREYS)]


def _percent(row: Row) -> float:
    return float(Fraction(row["gap"])) * 100


@styled
def gap_by_policy(rows: Sequence[Row]) -> Figure:
    """Boxes of the gap, a group a chunk size, a box a policy."""
    policies, chunks = order(rows, "policy"), order(rows, "chunk")
    made, axes = _blank(min(max(6.0, 0.5 * len(policies) * len(chunks) + 2), 9.0), 4.5)
    axis, table = axes[0, 0], []
    for number, policy in enumerate(policies):
        for place, chunk in enumerate(chunks):
            gaps = [
                _percent(row)
                for row in rows
                if row["instance"]["policy"] == policy and row["instance"]["chunk"] == chunk
            ]
            if not gaps:
                continue
            quartiles = np.percentile(gaps, (0, 25, 50, 75, 100)).tolist()
            table.append([policy, chunk, len(gaps), *quartiles])
            x = place + (number + 0.5) / (len(policies) + 1) - 0.5
            width, ink = 0.8 / (len(policies) + 1), colour(policy)
            axis.bxp(
                [
                    {
                        "med": quartiles[2],
                        "q1": quartiles[1],
                        "q3": quartiles[3],
                        "whislo": quartiles[0],
                        "whishi": quartiles[4],
                    }
                ],
                [x],
                widths=width,
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": ink, "alpha": 0.55, "edgecolor": ink},
                medianprops={"color": INK},
                whiskerprops={"color": ink},
                capprops={"color": ink},
            )
            axis.plot(
                [], [], color=ink, linewidth=6, alpha=0.55, label=policy if place == 0 else None
            )
    axis.set_xticks(range(len(chunks)), chunks)
    axis.set(xlabel="largest chunk", ylabel="gap above the certified bound, %")
    axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylim(bottom=0)
    axis.legend(ncols=5, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.18))
    return Figure(
        "gap-by-policy",
        "Gap by policy and chunk size",
        "Gap of each plan above a lower bound whose witness checks; box: quartiles, whiskers: "
        "extremes.",
        made,
        ["policy", "chunk", "instances", "min %", "q1 %", "median %", "q3 %", "max %"],
        table,
    )


@styled
def gap_by_nodes(rows: Sequence[Row]) -> Figure:
    """Median gap against the number of nodes, a line a policy."""
    policies, sizes = order(rows, "policy"), order(rows, "nodes")
    made, axes = _blank(6.5, 4)
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
        axis.plot(
            *zip(*points, strict=True),
            marker="o",
            color=colour(policy),
            label=policy,
        )
    axis.set(xlabel="nodes", ylabel="median gap, %")
    axis.set_yscale("symlog", linthresh=0.01)
    axis.set_ylim(bottom=0)
    axis.set_xticks(sizes)
    axis.legend(fontsize=8, ncols=2)
    return Figure(
        "gap-by-nodes",
        "Gap against nodes",
        "Median over traffic, chunk sizes and seeds.",
        made,
        ["policy", "nodes", "instances", "median %"],
        table,
    )


@styled
def rail_loads(rows: Sequence[Row]) -> Figure | None:
    """Heat maps of what every NIC sends and receives, for one instance under each policy."""
    with_loads = [row for row in rows if "loads" in row and Fraction(row["bound"])]
    if not with_loads:
        return None
    candidates = [row for row in with_loads if row["instance"]["policy"] == "lpt"] or with_loads
    first = max(candidates, key=_percent)
    same = {name: value for name, value in first["instance"].items() if name != "policy"}
    found = {
        row["instance"]["policy"]: row
        for row in with_loads
        if {**row["instance"], "policy": ""} == {**same, "policy": ""}
    }
    chosen = [found[policy] for policy in order(list(found.values()), "policy")]
    made, axes = _blank(1.5 * len(chosen) + 1, 3.8, 2, len(chosen))
    table = []
    for column, row in enumerate(chosen):
        full = float(
            Fraction(row["bound"]) * parse_rate(row["instance"]["link"])
        )  # bytes of a healthy NIC within the bound
        for line, side in enumerate(("send", "recv")):
            loads, axis = row["loads"][side], axes[line, column]
            axis.pcolormesh(
                np.array(loads) / full, cmap="viridis_r", vmin=0, vmax=2, edgecolors="none"
            )
            axis.invert_yaxis()
            axis.set_title(
                f"{row['instance']['policy']}\n{'sent' if side == 'send' else 'received'}",
                fontsize=8,
            )
            axis.tick_params(labelsize=6)
            axis.set(xlabel="rail" if line else "", ylabel="" if column else "node")
            table += [
                [row["instance"]["policy"], side, node, *values]
                for node, values in enumerate(loads)
            ]
    rails = first["instance"]["rails"]
    where = (
        f"{same['nodes']} nodes, {same['traffic']}, chunks of {same['chunk']}, seed {same['seed']}"
    )
    return Figure(
        "rail-loads",
        "Rail loads",
        f"Bytes on every NIC; darkest: twice what the bound allows. The instance where lpt does "
        f"worst: {where}.",
        made,
        ["policy", "side", "node", *(f"rail {n}" for n in range(rails))],
        table,
    )


@styled
def completion_times(rows: Sequence[Row]) -> Figure | None:
    """When chunks were delivered in the simulator, as distributions, a line a policy, over the
    bound.
    """
    done = [
        row
        for row in rows
        if row.get("simulated", {}).get("delivered_ps") and Fraction(row["bound"])
    ]
    if not done:
        return None
    made, axes = _blank(6.5, 4)
    axis, table = axes[0, 0], []
    for policy in order(done, "policy"):
        mine = [row for row in done if row["instance"]["policy"] == policy]
        times = np.mean(
            [
                np.array(row["simulated"]["delivered_ps"]) / 1e12 / float(Fraction(row["bound"]))
                for row in mine
            ],
            axis=0,
        )
        shares = np.linspace(0, 1, len(times))
        axis.plot(times, shares, color=colour(policy), label=policy)
        last = [
            float(Fraction(row["simulated"]["completion"]) / Fraction(row["bound"])) for row in mine
        ]
        table.append(
            [policy, len(mine), float(times[len(times) // 2]), float(np.median(last)), max(last)]
        )
    axis.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axis.set(xlabel="time of delivery / lower bound", ylabel="share of chunks")
    axis.legend(fontsize=8)
    return Figure(
        "completion-times",
        "Completion times",
        "Simulated delivery of chunks over the lower bound on NIC time (the simulator adds "
        "headers and latency), mean over instances.",
        made,
        ["policy", "instances", "median chunk", "median completion", "slowest completion"],
        table,
    )


FIGURES: tuple[Callable[[Sequence[Row]], Figure | None], ...] = (
    gap_by_policy,
    gap_by_nodes,
    rail_loads,
    completion_times,
)


def all_figures(rows: Sequence[Row]) -> list[Figure]:
    """Every figure that the rows can fill."""
    found = (make(rows) for make in FIGURES) if rows else ()
    return [figure for figure in found if figure is not None]


def save_all(figures: Sequence[Figure], folder: Path, *, force: bool = False) -> list[Path]:
    """Each figure as SVG and PDF in a folder, which is made; the paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{printable(folder)}: can't be made: {error.strerror}") from error
    names = [folder / f"{figure.name}{kind}" for figure in figures for kind in (".svg", ".pdf")]
    check_targets(*names, force=force)
    for path, figure in zip(names, (f for f in figures for _ in range(2)), strict=True):
        save_figure(figure.drawing, path, force=force)
    return names
