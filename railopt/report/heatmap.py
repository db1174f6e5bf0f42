"""Heat maps of rail loads: node by rail, send and receive, one pair a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from railopt.gaps import GapReport


def rail_loads(reports: Sequence[GapReport], title: str = "") -> Any:
    """A figure: for each plan its send and receive time per NIC over the bound; dark is slow, 1 is
    the bound.
    """
    from matplotlib.figure import Figure

    columns = min(5, len(reports))
    rows = -(-len(reports) // columns)
    figure = Figure(figsize=(2.5 * columns + 0.8, 3.6 * rows + 0.5), layout="constrained")
    figure.suptitle(title)
    ceiling = 2.0
    grid = figure.subplots(2 * rows, columns, squeeze=False)
    for axis in grid.flat:
        axis.set_axis_off()
    for number, report in enumerate(reports):
        row, column = divmod(number, columns)
        for side in ("send", "recv"):
            axis = grid[2 * row + (side == "recv"), column]
            axis.set_axis_on()
            rates = report.plan.fabric.rates(side)
            over = [
                [
                    float(load / rate / report.bound) if rate else float("nan")
                    for load, rate in zip(*line, strict=True)
                ]
                for line in zip(report.plan.loads(side).tolist(), rates.tolist(), strict=True)
            ]
            image = axis.imshow(
                over, cmap="viridis_r", vmin=0, vmax=ceiling, aspect="auto", interpolation="nearest"
            )
            axis.set_title(
                f"{report.plan.policy}: {side} "
                f"{float(report.plan.side_time(side) / report.bound):.2f}",
                fontsize=9,
            )
            axis.tick_params(labelsize=7)
            if column == 0:
                axis.set_ylabel("node", fontsize=8)
            if side == "recv":
                axis.set_xlabel("rail", fontsize=8)
    bar = figure.colorbar(image, ax=grid, shrink=0.6, extend="max")
    bar.set_label("NIC time / lower bound", fontsize=8)
    return figure
