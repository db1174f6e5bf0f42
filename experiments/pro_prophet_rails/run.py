"""How much of the direct all-to-all's time is left with rails, with placement, and with both, on
the shipped traces.

python -m experiments.pro_prophet_rails.run [--full]

Direct: every GPU sends over its own NIC to the target's own NIC, experts contiguous.  Placement is
planned on the iteration
before the one that is measured.  Time is the dispatch's NIC-load time, summed over layers.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, claim, figure, finish
from experiments.pro_prophet_common import trace
from railopt.cli.common import table
from railopt.fabric import Fabric
from railopt.moe.assess import dimensions, place, rail_plan
from railopt.moe.placement.prophet import evaluate
from railopt.moe.routing.dispatch import dispatch
from railopt.moe.routing.predict import consecutive
from railopt.traffic import Traffic

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


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    fabric = Fabric.uniform(spec["nodes"], spec["gpus"], spec["link"])
    rows: list[dict[str, Any]] = []
    for name in spec["traces"]:
        routed = trace(name)
        sized = dimensions(routed, spec["models"][name.split("-")[0]])
        model = sized.model(fabric, routed.tokens_per_rank, gpu_flops=spec["gpu_tflops"] * 1e12)
        home = place(routed, fabric, model, "contiguous")
        candidates = consecutive(routed)
        for row in [
            candidates[i] for i in np.linspace(0, len(candidates) - 1, spec["rows"]).astype(int)
        ]:
            when = int(routed.iterations[row])
            slots = -(-routed.experts // routed.ranks) + spec["spare"]
            planned = place(
                routed,
                fabric,
                model,
                "pro-prophet",
                iteration=int(routed.iterations[row - 1]),
                slots=slots,
            )
            layered = [
                evaluate(model, c, h)
                for c, h in zip(routed.counts[row].astype(np.int64), planned.holds, strict=True)
            ]
            exposed = sum(t.total - 4 * t.a2a - 3 * t.fec for t in layered) / 1e9
            times = dict.fromkeys(WAYS, Fraction(0))
            for layer in routed.layers.tolist():
                for placement, plain, railed in (
                    (home, "direct", "rails"),
                    (planned, "placement", "both"),
                ):
                    traffic = dispatch(
                        routed, placement, when, layer, token_bytes=sized.token_bytes()
                    )
                    made = rail_plan(fabric, traffic, spec["policy"], spec["chunk"])
                    times[plain] += direct_time(traffic, fabric)
                    times[railed] += Fraction(0) if made is None else made.makespan
            rows.append(
                {
                    "trace": name,
                    "model": sized.name,
                    "iteration": when,
                    "copies": int(planned.copies.sum()) - planned.home.size,
                    "direct_ms": float(times["direct"]) * 1e3,
                    "exposed_transfer_ms": exposed,
                    **{w: float(times[w] / times["direct"]) for w in WAYS[1:]},
                }
            )
    table(
        [
            "trace",
            "as",
            "iteration",
            "copies",
            "direct, ms",
            *(f"left with {w}" for w in WAYS[1:]),
            "exposed transfer, ms",
        ],
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
    claims = [claim(expected, "left with both", [r["both"] for r in rows])]

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

    figure(Path(args.out) / "left.svg", draw, 9, 4)
    finish(folder, args, rows, claims)
    return 0


if __name__ == "__main__":
    sys.exit(main())
