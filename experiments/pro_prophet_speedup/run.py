"""Pro-Prophet's main table (arXiv 2411.10003): iteration time without balancing, as FasterMoE, as
Pro-Prophet (as printed and as released), and ours; and its ablation.

python -m experiments.pro_prophet_speedup.run [--full]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, claim, figure, finish
from experiments.pro_prophet_common import Cluster, algorithm1, consecutive, loads, trace
from railopt.base.arrays import Bools, Ints
from railopt.base.tables import table
from railopt.moe.iteration.timeline import IterationTimeline, timeline
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.prophet import evaluate, pro_prophet, shadow
from railopt.report.gantt import gantt
from railopt.report.saving import save_figure

WAYS = {  # name -> (whose placement, how transfers run)
    "no balancing": ("none", "deepspeed"),
    "FasterMoE": ("FasterMoE", "fastermoe"),
    "Pro-Prophet": ("Pro-Prophet", "pro-prophet"),
    "as released": ("as released", "pro-prophet"),
    "ours": ("ours", "ours"),
    "planner": ("planner", "fastermoe"),
    "planner + scheduler": ("planner", "pro-prophet"),
}
PAIRS = (
    ("Pro-Prophet", "no balancing"),
    ("Pro-Prophet", "FasterMoE"),
    ("as released", "no balancing"),
    ("as released", "FasterMoE"),
    ("ours", "Pro-Prophet"),
)
ABLATION = {
    "planner": ("planner", "FasterMoE"),
    "scheduler": ("planner + scheduler", "planner"),
    "both planned together": ("Pro-Prophet", "planner + scheduler"),
}


def placements(
    cluster: Cluster, now: Ints, before: Ints, shares: list[float]
) -> dict[str, Bools | None]:
    """Of one layer: counts int64 [GPU, expert] of the iteration and of the one before, on which
    all but FasterMoE plan.
    """
    return {
        "none": None,
        "FasterMoE": shadow(cluster.eager, now),
        "Pro-Prophet": paper_plan(cluster.fastest, before, shares),
        "as released": cluster.released(before),
        "ours": pro_prophet(cluster.fastest, before),
        "planner": paper_plan(cluster.eager, before, shares),
    }


def case(
    name: str, size: str, alpha: float, spec: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[IterationTimeline]]:
    """One trace, model size and expert width: a row for each iteration, and the last iteration's
    timelines.
    """
    routed = trace(name)
    counts = routed.counts.astype(np.int64)
    cluster = Cluster.published(routed.ranks, routed.tokens_per_rank, size, alpha)
    preset = cluster.preset
    rows, lines = [], []
    candidates = consecutive(routed)
    layers = [i % len(routed.layers) for i in range(preset.layers)]
    for row in [
        candidates[i] for i in np.linspace(0, len(candidates) - 1, spec["rows"]).astype(int)
    ]:
        now, before = counts[row], counts[row - 1]
        placed = [
            placements(cluster, now[i], before[i], spec["n_shares"])
            for i in range(len(routed.layers))
        ]
        lines = [
            timeline(
                cluster.fastest, [cluster.terms(now[i], placed[i][whose]) for i in layers], how
            )
            for whose, how in WAYS.values()
        ]
        spread = [
            [
                loads(cluster.fastest, now[i], copies).std()
                for whose in ("FasterMoE", "Pro-Prophet")
                if (copies := each[whose]) is not None
            ]
            for i, each in enumerate(placed)
        ]
        rows.append(
            {
                "trace": name,
                "model": f"{preset.name}, alpha {alpha:g}",
                "iteration": int(routed.iterations[row]),
                "top_k": routed.top_k,
                "gpus": routed.ranks,
                "ms": {way: line.total_ps / 1e9 for way, line in zip(WAYS, lines, strict=True)},
                "spread": spread,
                "skew": float(np.mean([c.sum(axis=0).max() / c.sum(axis=0).mean() for c in now])),
            }
        )
    return rows, lines


def paper_plan(model: TimeModel, counts: Ints, shares: list[float]) -> Bools:
    """Algorithm 1 with the best of a few n, under the paper's model."""
    plans = [algorithm1(model, counts, round(share * (model.devices - 1))) for share in shares]
    return plans[int(np.argmin([evaluate(model, counts, p).total for p in plans]))]


def balance_ratios(rows: list[dict[str, Any]]) -> list[float]:
    """For each layer: (std of the load before / after) of Pro-Prophet over the same of FasterMoE,
    stds averaged over iterations.
    """
    fastermoe, prophet = np.mean([r["spread"] for r in rows], axis=0).T
    return [float(r) for r in fastermoe / prophet]


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One trace, model size and expert width, its iterations together."""
    total = {way: sum(r["ms"][way] for r in rows) for way in WAYS}
    return {
        "trace": rows[0]["trace"],
        "model": rows[0]["model"],
        "top_k": rows[0]["top_k"],
        "skew": float(np.mean([r["skew"] for r in rows])),
        "ms": total["no balancing"] / len(rows),
        "balance_ratios": balance_ratios(rows),
        **{f"{s} over {b}": total[b] / total[s] for s, b in PAIRS},
        **{name: total[b] / total[s] for name, (s, b) in ABLATION.items()},
    }


def show(summary: list[dict[str, Any]], gate: str) -> None:
    keys = [*(f"{s} over {b}" for s, b in PAIRS), *ABLATION]
    table(
        [f"gate {gate}", "model", "max/mean", "no balancing, ms", *keys],
        [
            [
                s["trace"],
                s["model"],
                f"{s['skew']:.2f}",
                f"{s['ms']:.1f}",
                *(f"{s[k]:.2f}x" for k in keys),
            ]
            for s in summary
        ],
    )
    print()


def compared(
    rows: list[dict[str, Any]], summary: list[dict[str, Any]], expected: dict[str, Any]
) -> list[dict[str, Any]]:
    """The paper's figures against ours."""
    claims = []
    for k in (1, 2):
        mine = [s for s in summary if s["top_k"] == k]
        for base in ("no balancing", "FasterMoE"):
            for variant in ("Pro-Prophet", "as released"):
                found = [float(s[f"{variant} over {base}"]) for s in mine]
                claims.append(claim(expected, f"{variant} over {base}, top-{k}", found))
        for name in ABLATION:
            mean = float(np.mean([s[name] for s in mine]))
            claims.append(claim(expected, f"ablation: {name}, top-{k}, mean", mean))
    for base in ("no balancing", "FasterMoE"):
        found = [float(s[f"Pro-Prophet over {base}"]) for s in summary]
        claims.append(claim(expected, f"Pro-Prophet over {base}, largest", found))
    largest = max(v for s in summary for v in s["balance_ratios"])
    single = max(fastermoe / prophet for r in rows for fastermoe, prophet in r["spread"] if prophet)
    return [*claims, claim(expected, "largest ratio of balance", [largest, single])]


def drawing(summary: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Speed-ups, a group of bars for each trace and model."""

    def draw(made: Any) -> None:
        axis = made.subplots()
        for i, (style, base) in enumerate(PAIRS[:4]):
            key = f"{style} over {base}"
            axis.bar(np.arange(len(summary)) + 0.2 * i, [s[key] for s in summary], 0.2, label=key)
        axis.axhline(1, color="black", linewidth=0.6)
        axis.set_xticks(
            np.arange(len(summary)) + 0.3,
            [f"{s['trace']}\n{s['model']}" for s in summary],
            fontsize=5,
            rotation=60,
        )
        axis.set_ylabel("speed-up of the iteration")
        axis.legend(fontsize=7)

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows: list[dict[str, Any]] = []
    summary: dict[str, list[dict[str, Any]]] = {}
    shown: list[IterationTimeline] = []
    for gate, names in spec["traces"].items():
        for name, size, alpha in product(names, spec["sizes"], spec["alphas"]):
            made, lines = case(name, size, alpha, spec)
            rows += made if gate == "naive" else []
            summary.setdefault(gate, []).append(summed(made))
            shown = shown or lines[:5]
        show(summary[gate], gate)
    title = f"{spec['traces']['naive'][0]}, MoE-GPT-{spec['sizes'][0]}"
    Path(args.out).mkdir(parents=True, exist_ok=True)
    save_figure(gantt(shown, title=title), Path(args.out) / "timeline.svg", force=True)
    figure(Path(args.out) / "speedup.svg", drawing(summary["naive"]), 11, 4)
    claims = compared(rows, summary["naive"], expected)
    return finish(folder, args, [s for each in summary.values() for s in each], claims)


if __name__ == "__main__":
    sys.exit(main())
