"""How much of the direct all-to-all's time is left with rails, with placement, and with both, on
the shipped traces.

python -m experiments.pro_prophet_rails.run [--full]

Direct: every GPU sends over its own NIC to the target's own NIC, experts contiguous.  Placement is
planned on the iteration before the one that is measured.  Time is the dispatch's NIC-load time,
summed over layers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, figure, finish, goal
from experiments.pro_prophet_common import consecutive, trace
from railopt.base.tables import table
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.aim import rail_plan
from railopt.moe.assess import dimensions
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import PlacementProblem, place
from railopt.moe.placement.prophet import evaluate
from railopt.moe.presets import Preset
from railopt.moe.routing.dispatch import dispatch
from railopt.moe.routing.trace import Trace

WAYS = ("direct", "rails", "placement", "both")


def direct_time(traffic: Traffic, fabric: Fabric) -> Fraction:
    """Own NIC to the target's own NIC: the busiest GPU's bytes between nodes over its NIC's
    rate.
    """
    node = np.arange(len(traffic.bytes)) // traffic.gpus
    across = np.where(node[:, None] == node[None, :], 0, traffic.bytes)
    return Fraction(
        int(max(across.sum(axis=0).max(), across.sum(axis=1).max())), int(fabric.tx[0, 0])
    )


def measured(name: str, fabric: Fabric, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each of some iterations of a trace."""
    routed = trace(name)
    sized = dimensions(routed, spec["models"][name.split("-")[0]])
    model = sized.model(fabric, routed.tokens_per_rank, gpu_flops=spec["gpu_tflops"] * 1e12)
    home = place(PlacementProblem(model, routed.counts[-1]), "contiguous").placement
    candidates, slots = consecutive(routed), -(-routed.experts // routed.ranks) + spec["spare"]
    rows = []
    for row in [
        candidates[i] for i in np.linspace(0, len(candidates) - 1, spec["rows"]).astype(int)
    ]:
        problem = PlacementProblem(model, routed.counts[row - 1], slots=slots)
        planned = place(problem, "pro-prophet").placement
        layered = [
            evaluate(model, c, h)
            for c, h in zip(routed.counts[row].astype(np.int64), planned.holds, strict=True)
        ]
        times = times_of(routed, row, {"contiguous": home, "planned": planned}, fabric, spec, sized)
        rows.append(
            {
                "trace": name,
                "model": sized.name,
                "iteration": int(routed.iterations[row]),
                "copies": int(planned.copies.sum()) - planned.home.size,
                "direct_ms": float(times["direct"]) * 1e3,
                "exposed_transfer_ms": sum(t.total - 4 * t.a2a - 3 * t.fec for t in layered) / 1e9,
                **{w: float(times[w] / times["direct"]) for w in WAYS[1:]},
            }
        )
    return rows


def times_of(
    routed: Trace,
    row: int,
    placements: dict[str, Placement],
    fabric: Fabric,
    spec: dict[str, Any],
    sized: Preset,
) -> dict[str, Fraction]:
    """Seconds of one iteration's dispatches, all layers, each way."""
    when, times = int(routed.iterations[row]), dict.fromkeys(WAYS, Fraction(0))
    for layer in routed.layers.tolist():
        for name, plain, railed in (
            ("contiguous", "direct", "rails"),
            ("planned", "placement", "both"),
        ):
            traffic = dispatch(
                routed, placements[name], when, layer, token_bytes=sized.token_bytes()
            )
            made = rail_plan(fabric, traffic, spec["policy"], spec["chunk"])
            times[plain] += direct_time(traffic, fabric)
            times[railed] += Fraction(0) if made is None else made.makespan
    return times


def show(rows: list[dict[str, Any]]) -> None:
    left = [f"left with {w}" for w in WAYS[1:]]
    table(
        ["trace", "as", "iteration", "copies", "direct, ms", *left, "exposed transfer, ms"],
        [
            [
                r["trace"],
                r["model"],
                r["iteration"],
                r["copies"],
                f"{r['direct_ms']:.2f}",
                *(f"{r[w]:.0%}" for w in WAYS[1:]),
                f"{r['exposed_transfer_ms']:.2f}",
            ]
            for r in rows
        ],
    )


def drawing(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """What is left of the direct time, three bars an iteration."""

    def draw(made: Any) -> None:
        axis = made.subplots()
        for i, way in enumerate(WAYS[1:]):
            axis.bar(np.arange(len(rows)) + 0.27 * i, [r[way] for r in rows], 0.27, label=way)
        axis.axhline(1, color="black", linewidth=0.6)
        axis.set_xticks(
            np.arange(len(rows)) + 0.27,
            [f"{r['trace']}\n{r['iteration']}" for r in rows],
            fontsize=6,
            rotation=45,
        )
        axis.set_ylabel("share of the direct time left")
        axis.legend(fontsize=8)

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    fabric = Fabric.uniform(spec["nodes"], spec["gpus"], spec["link"])
    rows = [row for name in spec["traces"] for row in measured(name, fabric, spec)]
    show(rows)
    figure(Path(args.out) / "left.svg", drawing(rows), 9, 4)
    own = [goal(expected, "left with both", [r["both"] for r in rows])]
    return finish(folder, args, rows, [], own)


if __name__ == "__main__":
    sys.exit(main())
