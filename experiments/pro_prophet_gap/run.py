"""How far each planner is from the optimum of the same time model, on small layers whose optimum is
certified.

python -m experiments.pro_prophet_gap.run [--full]
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, figure, finish, goal
from experiments.pro_prophet_common import Cluster, algorithm1, trace
from railopt.base.dice import Dice, falling
from railopt.base.tables import table
from railopt.evidence.bracket import gap_between
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.optimum import optimal
from railopt.moe.placement.prophet import evaluate, pro_prophet, shadow

PLANNERS = ("contiguous", "shadow", "algorithm 1, best n", "pro-prophet")


def model(nodes: int, gpus: int, dice: Dice, spec: dict[str, Any]) -> TimeModel:
    """The paper's flat model with the published constants (one GPU per node), or nodes with rails
    and drawn sizes.
    """
    overlap = bool(_one(dice, [False, True]))
    if gpus == 1:
        cluster = Cluster.published(nodes, spec["tokens"])
        return cluster.fastest if overlap else cluster.eager
    size = {
        "token_bytes": spec["token_bytes"],
        "expert_bytes": _one(dice, spec["expert_kib"]) * 1024,
        "tokens_per_s": float(_one(dice, spec["tokens_per_s"])),
        "fnec_ps": _one(dice, spec["fnec_us"]) * 10**6,
        "overlap": overlap,
    }
    return TimeModel.rails(
        Fabric.uniform(nodes, 2, spec["link"], gpus=gpus, scaleup=spec["scaleup"]), **size
    )


def counts(devices: int, experts: int, dice: Dice, spec: dict[str, Any]) -> np.ndarray:
    """Half from the shipped 16-rank traces (ranks and experts joined or left out), half Zipf with
    differing ranks.
    """
    if _one(dice, [True, False]):
        name = _one(dice, ["gpt16-top1", "gpt16-top2", "gpt16-top1-aux", "gpt16-top2-aux"])
        routed = trace(name).counts
        one = _one(dice, _one(dice, routed)).astype(np.int64)
        return one[dice.permutation(16)[:devices]][:, dice.permutation(16)[:experts]]
    popular = falling(experts, _one(dice, spec["skews"]))[dice.permutation(experts)]
    seen = [dice.dirichlet(20 * popular / popular.sum() + 1e-3) for _ in range(devices)]
    return dice.counts(np.rint(np.stack(seen) * 2.0**30).astype(np.int64) + 1, spec["tokens"])


def _one(dice: Dice, choices: Any) -> Any:
    """One of several, each as likely."""
    return choices[int(dice.below(len(choices))[0])]


def gaps(nodes: int, gpus: int, experts: int, dice: Dice, spec: dict[str, Any]) -> dict[str, Any]:
    """One case: each planner's gap against the certified bound."""
    timed, devices = model(nodes, gpus, dice, spec), nodes * gpus
    tokens = counts(devices, experts, dice, spec)
    best = optimal(timed, tokens, limit_s=spec["program_s"]).bracket
    paper = min(evaluate(timed, tokens, algorithm1(timed, tokens, n)).total for n in range(devices))
    found = dict(
        zip(
            PLANNERS,
            (
                evaluate(timed, tokens).total,
                evaluate(timed, tokens, shadow(timed, tokens)).total,
                paper,
                evaluate(timed, tokens, pro_prophet(timed, tokens)).total,
            ),
            strict=True,
        )
    )
    return {
        "layer": f"{f'{nodes} x {gpus}' if gpus > 1 else nodes} GPUs, {experts} experts",
        "optimum": str(best.status),
        "by": best.by,
        "value_ps": int(best.value or 0),
        "bound_ps": int(best.bound),
        "gap": {
            name: float(gap_between(Fraction(value), best.bound)) for name, value in found.items()
        },
    }


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    sizes = [tuple(size[:3]) for size in spec["layers"] for _ in range(size[3])]
    rows = []
    for seed in spec["seeds"]:
        dice = Dice(seed, "pro_prophet_gap")
        rows += [{"seed": seed, **gaps(*size, dice, spec)} for size in sizes]
    lines = []
    for layer in dict.fromkeys(r["layer"] for r in rows):
        mine = [r for r in rows if r["layer"] == layer]
        words = [r["optimum"] for r in mine]
        proof = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        for name in PLANNERS:
            values = [100 * r["gap"][name] for r in mine]
            above = sum(v > 1e-6 for v in values)
            lines.append(
                [
                    layer,
                    len(mine),
                    proof,
                    name,
                    f"{np.median(values):.2f}",
                    f"{max(values):.2f}",
                    above,
                ]
            )
    table(
        ["layer", "cases", "optimum", "planner", "median gap %", "largest gap %", "cases above 0"],
        lines,
    )
    for seed in spec["seeds"]:
        mine = [100 * r["gap"]["pro-prophet"] for r in rows if r["seed"] == seed]
        print(
            f"seed {seed}: pro-prophet's largest gap {max(mine):.2f} %, median "
            f"{np.median(mine):.2f} %, {len(mine)} cases"
        )
    ours = [r["gap"]["pro-prophet"] for r in rows]
    own = [
        goal(expected, "largest gap of pro-prophet", max(ours)),
        goal(expected, "median gap of pro-prophet", float(np.median(ours))),
    ]

    def draw(made: Any) -> None:
        axis = made.subplots()
        axis.boxplot(
            [[100 * r["gap"][name] for r in rows] for name in PLANNERS], tick_labels=list(PLANNERS)
        )
        axis.set_ylabel("gap to the optimum, %")
        axis.set_yscale("symlog", linthresh=1)

    figure(Path(args.out) / "gap.svg", draw, 7, 4)
    return finish(folder, args, rows, [], own)


if __name__ == "__main__":
    sys.exit(main())
