"""Mixtral 8x7B and 8x22B: iteration time with RailS, ECMP, spraying, PXN and own NIC.

python experiments/rails_mixtral/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish
from railopt import Fabric, Traffic, plan
from railopt.base.dice import Dice, falling
from railopt.base.tables import table
from railopt.moe.routing.trace import Trace
from railopt.report.style import look
from railopt.sim import Assumptions, simulate

EXPERTS, TOP_K, BF16 = 8, 2, 2
PACKETS = Assumptions.packets()
BASELINES = ("ecmp", "spray", "pxn", "own-nic")
SCHEMES = (*BASELINES, "lpt", "equitable")
LOADS = ("busiest", "mean")


def popularity(kind: str, ranks: int, layers: int) -> list[np.ndarray[Any, Any]]:
    """float64 [ranks, experts] for some layers: each rank's share of pairs for each expert,
    recorded or rank^-skew.
    """
    if kind.startswith("trace"):
        counts = (
            Trace.read(Path(__file__).resolve().parents[1] / "traces" / f"mixtral-{kind[6:]}.npz")
            .counts[-1]
            .astype(np.float64)
        )
        picked = np.linspace(0, len(counts) - 1, min(layers, len(counts))).astype(int)
        return [counts[layer] / counts[layer].sum(axis=1, keepdims=True) for layer in picked]
    shares = []
    for layer in range(layers):
        dice = Dice(layer, "rails_mixtral")
        popular = falling(EXPERTS, float(kind))[dice.permutation(EXPERTS)]
        seen = popular * dice.gamma(16, (ranks, EXPERTS)) / 16
        shares.append(seen / seen.sum(axis=1, keepdims=True))
    return shares


def dispatch(
    spec: dict[str, Any], fabric: Fabric, shares: np.ndarray[Any, Any], tokens: int, hidden: int
) -> Traffic:
    """Expert e on `expert_shards` GPUs of node e * nodes / 8; rank r sends to the shard of its own
    index modulo the shards.
    """
    ranks, shards = fabric.nodes * fabric.gpus, spec["expert_shards"]
    home = np.arange(EXPERTS) * shards
    matrix = np.zeros((ranks, ranks), np.int64)
    pairs = np.rint(shares * tokens * TOP_K).astype(np.int64) * hidden * BF16
    for expert in range(EXPERTS):
        np.add.at(
            matrix, (np.arange(ranks), home[expert] + np.arange(ranks) % shards), pairs[:, expert]
        )
    return Traffic(matrix, fabric.nodes)


def seconds(spec: dict[str, Any], fabric: Fabric, traffic: Traffic, scheme: str) -> float:
    """Completion of one all-to-all."""
    if scheme in ("ecmp", "spray"):
        seeds = range(spec["hash_seeds"] if scheme == "ecmp" else 1)
        runs = [
            simulate(
                traffic, fabric=fabric, balancer=scheme, assumptions=PACKETS, seed=seed
            ).completion_ps
            for seed in seeds
        ]
        return float(np.median(runs)) / 1e12
    return (
        simulate(
            plan(fabric, traffic.chunks(spec["chunk"]), scheme), assumptions=PACKETS
        ).completion_ps
        / 1e12
    )


def compute(
    spec: dict[str, Any],
    shape: dict[str, int],
    shares: np.ndarray[Any, Any],
    tokens: int,
    context: int = 4096,
) -> list[float]:
    """Forward and backward of one layer: attention of a GPU's tokens and FFN, of the busiest
    expert's shard and of the mean.
    """
    h, kv = shape["hidden"], shape["hidden"] * shape["kv_heads"] // shape["heads"]
    attention = tokens * (2 * h * (2 * h + 2 * kv) + 2 * context * h)
    loads = [shares.sum(axis=0).max() * tokens * TOP_K / spec["expert_shards"], tokens * TOP_K]
    return [
        3 * (attention + load * 3 * 2 * h * shape["ffn"]) / (spec["flops"] * spec["utilisation"])
        for load in loads
    ]


def iteration(spec: dict[str, Any], name: str, kind: str, tokens: int, link: str) -> dict[str, Any]:
    """Milliseconds of compute and of the all-to-alls of one iteration, by scheme: dispatch,
    combine, and both backward.
    """
    shape, fabric = spec["models"][name], Fabric.uniform(spec["nodes"], spec["rails"], link)
    layers = popularity(kind, spec["nodes"] * spec["rails"], spec["sampled_layers"])
    busy, wire = [], {scheme: [] for scheme in SCHEMES}
    for shares in layers:
        there = dispatch(spec, fabric, shares, tokens, shape["hidden"])
        back = Traffic(np.ascontiguousarray(there.bytes.T), there.nodes)
        busy.append(compute(spec, shape, shares, tokens))
        for scheme in SCHEMES:
            wire[scheme].append(
                2 * (seconds(spec, fabric, there, scheme) + seconds(spec, fabric, back, scheme))
            )
    scale = shape["layers"] * 1e3
    busiest, mean = np.mean(busy, axis=0) * scale
    return {
        "model": name,
        "routing": kind,
        "tokens": tokens,
        "link": link,
        "busiest": float(busiest),
        "mean": float(mean),
        **{scheme: float(np.mean(times)) * scale for scheme, times in wire.items()},
    }


def cut(row: dict[str, Any], baseline: str, overlap: float, load: str) -> float:
    """How much shorter the iteration is with RailS, in %; a share `overlap` of the all-to-alls is
    hidden under compute.
    """
    with_rails, without = (
        row[load] + max(row[s] * (1 - overlap), row[s] - row[load]) for s in ("lpt", baseline)
    )
    return 100 * (1 - with_rails / without)


def draw(made: Any, rows: list[dict[str, Any]]) -> None:
    axes = made.subplots()
    labels = [f"{row['model']}\n{row['routing']}" for row in rows]
    for i, scheme in enumerate(("ecmp", "pxn", "own-nic", "lpt")):
        at = np.arange(len(rows)) + 0.2 * i - 0.3
        axes.bar(
            at,
            [row["busiest"] for row in rows],
            0.18,
            color="#ddd",
            label="compute" if i == 0 else None,
        )
        axes.bar(
            at,
            [row[scheme] for row in rows],
            0.18,
            bottom=[row["busiest"] for row in rows],
            color=look(scheme).colour,
            label="RailS" if scheme == "lpt" else scheme,
        )
    axes.set_xticks(range(len(rows)), labels, fontsize=7)
    axes.set(ylabel="iteration, ms (no overlap)")
    axes.legend()


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    kinds = ["trace-mixed", "trace-kinds", *map(str, spec["skew"])]
    rows = [
        iteration(spec, *point)
        for point in itertools.product(spec["models"], kinds, spec["tokens"], spec["links"])
    ]
    table(
        [
            "model",
            "routing",
            "tokens",
            "link",
            *(f"{key} ms" for key in (*LOADS, *SCHEMES)),
            *(f"cut vs {name}, {load}" for name in ("ecmp", "pxn") for load in LOADS),
        ],
        [
            [
                row["model"],
                row["routing"],
                row["tokens"],
                row["link"],
                *(f"{row[key]:.0f}" for key in (*LOADS, *SCHEMES)),
                *(
                    f"{cut(row, name, 0.0, load):.1f} %"
                    for name in ("ecmp", "pxn")
                    for load in LOADS
                ),
            ]
            for row in rows
        ],
        title="one iteration: compute (busiest expert, mean), all-to-alls, and RailS's cut "
        "without overlap",
    )
    claims = [
        claim(
            expected,
            f"iteration time cut against {name}, {end}",
            [
                cut(row, name, overlap, load)
                for row in rows
                for overlap in spec["overlap"]
                for load in LOADS
            ],
        )
        for name in BASELINES
        for end in ("up to", "at least")
    ]
    shown = [row for row in rows if row["tokens"] == 4096 and row["link"] == "400Gb/s"]
    figure(Path(args.out) / "mixtral.svg", lambda made: draw(made, shown), width=12)
    return finish(folder, args, rows, claims)


if __name__ == "__main__":
    sys.exit(main())
