"""Latency against the ratio of data still sent (the model's curve) and against the domain size (its
feasible points).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from railopt.moe.hybrid import stream as model


def latency_figure(stream: model.Stream, best: model.BestDomains) -> Any:
    """Left: latency against p at the outermost level, the others at their optimum.  Right: the same
    points against S.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    outer = stream.levels[0]
    sizes = model.choices(outer, unequal=False)
    points = [
        (domain.largest, model.latency(stream, (domain, *best.domains[1:]))) for domain in sizes
    ]
    members = outer.count
    ratios = [float(Fraction(members - size, max(1, members - 1))) for size, _ in points]
    for axis, xs, label in (
        (left, ratios, f"p: share of data still sent between {outer.name}s"),
        (right, [size for size, _ in points], f"domain size S at level {outer.name}"),
    ):
        axis.plot(xs, [float(found.total) * 1e3 for _, found in points], marker="o", label="block")
        axis.plot(
            xs,
            [float(found.exchange) * 1e3 for _, found in points],
            linestyle="--",
            label="data exchange",
        )
        axis.plot(
            xs,
            [float(found.gather) * 1e3 for _, found in points],
            linestyle=":",
            label="expert gather",
        )
        axis.axhline(
            float(stream.pre) * 1e3, color="grey", linewidth=0.8, label="pre-expert compute"
        )
        axis.set_xlabel(label)
        axis.set_ylabel("ms")
        axis.set_ylim(bottom=0)
    right.set_xscale("log", base=2)
    left.legend(fontsize=8)
    return figure
