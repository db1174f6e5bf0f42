"""Pro-Prophet's main table (arXiv 2411.10003): iteration time without balancing, as FasterMoE, as
Pro-Prophet, and ours.

python -m experiments.pro_prophet_speedup.run [--full]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, claim, figure, finish
from experiments.pro_prophet_common import cluster, consecutive, flat, trace
from railopt.base.tables import table
from railopt.moe.iteration.timeline import STYLES, IterationTimeline, timeline
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.placement.prophet import algorithm1, evaluate, loads, pro_prophet, shadow
from railopt.moe.presets import moe_gpt
from railopt.report.gantt import gantt
from railopt.report.saving import save_figure

PAIRS = (
    ("pro-prophet", "deepspeed"),
    ("pro-prophet", "fastermoe"),
    ("ours", "deepspeed"),
    ("ours", "fastermoe"),
    ("ours", "pro-prophet"),
)


def case(
    name: str, size: str, spec: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[IterationTimeline]]:
    """One trace and model size: a row for each iteration, and the last iteration's timelines."""
    routed = trace(name)
    preset = moe_gpt(size, routed.experts, routed.top_k)
    fabric = cluster(routed.ranks, spec)
    width, flops = spec["value_bytes"], spec["gpu_tflops"] * 1e12
    model = preset.model(fabric, routed.tokens_per_rank, gpu_flops=flops, width=width)
    simple = flat(fabric, preset, routed.tokens_per_rank, spec, overlap=True)
    eager = flat(fabric, preset, routed.tokens_per_rank, spec, overlap=False)
    rows, lines = [], []
    candidates = consecutive(routed)
    for row in [
        candidates[i] for i in np.linspace(0, len(candidates) - 1, spec["rows"]).astype(int)
    ]:
        layers = [i % len(routed.layers) for i in range(preset.layers)]
        now, before = routed.counts[row].astype(np.int64), routed.counts[row - 1].astype(np.int64)
        placements = {
            "deepspeed": dict.fromkeys(set(layers)),
            "fastermoe": {i: shadow(eager, now[i]) for i in set(layers)},
            "pro-prophet": {
                i: paper_plan(simple, before[i], spec["n_shares"]) for i in set(layers)
            },
            "ours": {i: pro_prophet(model, before[i]) for i in set(layers)},
        }
        lines = [
            timeline(model, [evaluate(model, now[i], placements[s][i]) for i in layers], s)
            for s in STYLES
        ]
        times = {line.style: line.total_ps / 1e9 for line in lines}
        spread = [
            [loads(model, now[i], placements[s][i]).std() for s in ("fastermoe", "pro-prophet")]
            for i in sorted(set(layers))
        ]
        rows.append(
            {
                "trace": name,
                "model": preset.name,
                "iteration": int(routed.iterations[row]),
                "top_k": routed.top_k,
                "gpus": routed.ranks,
                "ms": times,
                "spread": spread,
                "skew": float(np.mean([c.sum(axis=0).max() / c.sum(axis=0).mean() for c in now])),
            }
        )
    return rows, lines


def paper_plan(model: TimeModel, counts: np.ndarray, shares: list[float]) -> np.ndarray:
    """Algorithm 1 with the best of a few n, under the paper's model."""
    plans = [algorithm1(model, counts, round(share * (model.devices - 1))) for share in shares]
    totals: list[Terms] = [evaluate(model, counts, p) for p in plans]
    return plans[int(np.argmin([t.total for t in totals]))]


def balance_ratios(rows: list[dict[str, Any]]) -> list[float]:
    """For each layer: (std of the load before / after) of Pro-Prophet over the same of FasterMoE,
    stds averaged over iterations.
    """
    fastermoe, prophet = np.mean([r["spread"] for r in rows], axis=0).T
    return [float(r) for r in fastermoe / prophet]


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One trace and model size, its iterations together."""
    total = {s: sum(r["ms"][s] for r in rows) for s in STYLES}
    return {
        "trace": rows[0]["trace"],
        "model": rows[0]["model"],
        "top_k": rows[0]["top_k"],
        "skew": float(np.mean([r["skew"] for r in rows])),
        "ms": total["deepspeed"] / len(rows),
        "balance_ratios": balance_ratios(rows),
        **{f"{s} over {b}": total[b] / total[s] for s, b in PAIRS},
    }


def show(summary: list[dict[str, Any]]) -> None:
    keys = [f"{s} over {b}" for s, b in PAIRS]
    table(
        ["trace", "model", "max/mean", "no balancing, ms", *keys],
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
    ratios = np.array([v for s in summary for v in s["balance_ratios"]])
    print(
        f"balance ratio over FasterMoE: median {np.median(ratios):.2f}, below 1 in "
        f"{np.mean(ratios < 1):.0%} of layers"
    )


def compared(
    rows: list[dict[str, Any]], summary: list[dict[str, Any]], expected: dict[str, Any]
) -> list[dict[str, Any]]:
    """The paper's figures against ours."""
    claims = [
        claim(
            expected,
            f"over {label}, top-{k}",
            [float(s[f"pro-prophet over {base}"]) for s in summary if s["top_k"] == k],
        )
        for k in (1, 2)
        for label, base in (("no balancing", "deepspeed"), ("FasterMoE", "fastermoe"))
    ]
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
    summary: list[dict[str, Any]] = []
    shown: list[IterationTimeline] = []
    for name in spec["traces"]:
        for size in spec["sizes"]:
            made, lines = case(name, size, spec)
            rows += made
            summary.append(summed(made))
            shown = shown or lines
    show(summary)
    title = f"{spec['traces'][0]}, MoE-GPT-{spec['sizes'][0]}"
    Path(args.out).mkdir(parents=True, exist_ok=True)
    save_figure(gantt(shown, title=title), Path(args.out) / "timeline.svg", force=True)
    figure(Path(args.out) / "speedup.svg", drawing(summary), 11, 4)
    finish(folder, args, summary, compared(rows, summary, expected))
    return 0


if __name__ == "__main__":
    sys.exit(main())
