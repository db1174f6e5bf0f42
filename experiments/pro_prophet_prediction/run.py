"""Planning ahead (arXiv 2411.10003): prediction error, the worth of plans made on predictions, and
how fast they grow stale.

python -m experiments.pro_prophet_prediction.run [--full]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, figure, finish, goal
from experiments.pro_prophet_common import Cluster, trace
from experiments.pro_prophet_prediction.forecast import (
    Age,
    average,
    forecasts,
    last,
    replan_interval,
    staleness,
)
from railopt.base.tables import table
from railopt.model.fabric import Fabric
from railopt.moe.assess import dimensions
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.routing.trace import Trace

PHASES = (("iterations 1-9", 1, 10), ("10-99", 10, 100), ("from 100", 100, 10**9))


def time_model(name: str, routed: Trace, spec: dict[str, Any]) -> TimeModel:
    """The published cluster for traces of the published training; ours for the others."""
    kind = name.split("-")[0]
    if kind not in spec["models"]:
        return Cluster.published(routed.ranks, routed.tokens_per_rank).fastest
    fabric = Fabric.uniform(spec["nodes"], spec["gpus"], spec["link"])
    sized = dimensions(routed, spec["models"][kind])
    return sized.model(fabric, routed.tokens_per_rank, gpu_flops=spec["gpu_tflops"] * 1e12)


def predicted(
    name: str, routed: Trace, model: TimeModel, spec: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row for each predictor and phase of the training: how wrong, and what its plans are
    worth.
    """
    rows = []
    window = spec["window"]
    for label, predictor, need in (
        ("last", last, 1),
        (f"mean of {window}", average(window), window),
    ):
        made = forecasts(routed, model, predictor, need=need, layers=spec["layers"])
        for phase, low, high in PHASES:
            mine = [f for f in made if low <= f.iteration < high]
            if not mine:
                continue  # the published training ends after 100 iterations
            gain = sum(f.none - f.actual for f in mine)
            rows.append(
                {
                    "trace": name,
                    "predictor": label,
                    "phase": phase,
                    "cases": len(mine),
                    "error": float(np.mean([f.error for f in mine])),
                    "expert_error": float(np.mean([f.expert for f in mine])),
                    "gain_kept": sum(f.none - f.predicted for f in mine) / gain if gain else 1.0,
                    "speedup": sum(f.none for f in mine) / sum(f.predicted for f in mine),
                }
            )
    return rows


def show(rows: list[dict[str, Any]], aged: dict[str, list[Age]]) -> None:
    shares = {
        "tokens misplaced": "error",
        "expert load misplaced": "expert_error",
        "gain kept": "gain_kept",
    }
    table(
        ["trace", "predictor", "phase", "cases", *shares, "layer speed-up"],
        [
            [
                *(r[key] for key in ("trace", "predictor", "phase", "cases")),
                *(f"{r[key]:.1%}" for key in shares.values()),
                f"{r['speedup']:.2f}x",
            ]
            for r in rows
        ],
    )
    print()
    kept = sorted({a.age for ages in aged.values() for a in ages})
    table(
        ["trace", *(f"age {age}+" for age in kept)],
        [
            [name, *(f"{mine[age]:.0%}" if age in mine else "-" for age in kept)]
            for name, ages in aged.items()
            for mine in [{a.age: a.kept for a in ages}]
        ],
        title="share of a fresh plan's gain that an old plan keeps",
    )
    for name, ages in aged.items():
        gain = ages[0].none - ages[0].fresh
        intervals = [replan_interval(ages, share * gain) for share in (0.1, 1.0, 10.0)]
        print(
            f"{name}: when a re-plan costs 0.1, 1 and 10 times what a fresh plan gains in one "
            f"iteration, re-plan every "
            f"{', '.join('never' if i is None else str(i) for i in intervals)} iterations"
        )


def drawing(aged: dict[str, list[Age]]) -> Callable[[Any], None]:
    """The share of the gain that a plan keeps, against its age."""

    def draw(made: Any) -> None:
        axis = made.subplots()
        for name, ages in aged.items():
            axis.plot([a.age for a in ages], [a.kept for a in ages], marker="o", label=name)
        axis.set(
            xscale="log",
            xlabel="age of the plan, iterations",
            ylabel="share of a fresh plan's gain kept",
        )
        axis.legend(fontsize=8)

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows: list[dict[str, Any]] = []
    aged: dict[str, list[Age]] = {}
    for name in spec["traces"]:
        routed = trace(name)
        model = time_model(name, routed, spec)
        rows += predicted(name, routed, model, spec)
        some = list(range(0, len(routed.iterations), spec["stride"]))
        aged[name] = staleness(routed, model, layers=spec["layers"], rows=some)
    show(rows, aged)
    figure(Path(args.out) / "staleness.svg", drawing(aged), 7, 4)
    kept = [r["gain_kept"] for r in rows if r["predictor"] == "last"]
    claim = "share of the gain kept by planning on the last iteration"
    ages = [{"trace": name, **a._asdict()} for name, all_ages in aged.items() for a in all_ages]
    return finish(folder, args, [*rows, *ages], [], [goal(expected, claim, kept)])


if __name__ == "__main__":
    sys.exit(main())
