"""RailS against ECMP, PLB, MinRTT, spraying, REPS, PXN and own NIC: bus bandwidth and completion
time.

python experiments/rails_bandwidth/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish
from railopt import Fabric, Traffic, plan, workloads
from railopt.base.tables import table
from railopt.sim import Assumptions, simulate

PACKETS = Assumptions.packets()
DIRECT = ("ecmp", "plb", "minrtt", "spray", "reps")
HASHED = ("ecmp", "plb", "minrtt")
RAILS = ("lpt", "lpt-local", "lpt-global", "equitable")
BASELINES = (*DIRECT, "pxn", "own-nic")


def micros(fabric: Fabric, traffic: Traffic, scheme: str, chunk: str, hash_seeds: int) -> float:
    """Completion of a scheme; the median over hash seeds where it hashes."""
    if scheme not in DIRECT:
        return (
            simulate(plan(fabric, traffic.chunks(chunk), scheme), assumptions=PACKETS).completion_ps
            / 1e6
        )
    seeds = range(hash_seeds if scheme in HASHED else 1)
    runs = [
        simulate(
            traffic, fabric=fabric, balancer=scheme, assumptions=PACKETS, seed=seed
        ).completion_ps
        for seed in seeds
    ]
    return float(np.median(runs)) / 1e6


def setting(
    spec: dict[str, Any], nodes: int, sparsity: float, skew: float, seed: int
) -> dict[str, Any]:
    """Microseconds of every scheme, chunked finely and coarsely where it chunks, and its bus
    bandwidth in GB/s.
    """
    fabric = Fabric.uniform(nodes, spec["rails"])
    count = nodes * spec["rails"]
    traffic = workloads.rails_sparse(
        fabric, sparsity=sparsity, skew=skew, per_gpu=spec["bytes_per_gpu"], seed=seed
    )
    row: dict[str, Any] = {"nodes": nodes, "sparsity": sparsity, "skew": skew, "seed": seed}
    for scheme in (*DIRECT, "pxn", "own-nic", *RAILS):
        row[scheme] = micros(fabric, traffic, scheme, spec["fine"], spec["hash_seeds"])
    for scheme in RAILS:
        row[f"{scheme} coarse"] = micros(fabric, traffic, scheme, spec["coarse"], 1)
    src, dst, size = traffic.flows()
    busiest = max(
        int(np.bincount(ends, size.astype(np.float64), count).max()) for ends in (src, dst)
    )
    row["busbw"] = {
        name: busiest / row[name] * 1e-3 * (count - 1) / count for name in (*BASELINES, *RAILS)
    }
    return row


def where(rows: list[dict[str, Any]], gains: list[float], index: int) -> str:
    row = rows[index]
    return (
        f"{gains[index]:+.0f} % at {row['nodes']} nodes, sparsity {row['sparsity']:g}, skew "
        f"{row['skew']:g}"
    )


def ends(rows: list[dict[str, Any]], baseline: str) -> list[str]:
    """Where RailS gains least and most over a baseline, and where 20 % and 78 % appear."""
    gains = [100 * (row[baseline] / row["lpt"] - 1) for row in rows]
    near = [int(np.argmin(np.abs(np.array(gains) - target))) for target in (20, 78)]
    return [
        baseline,
        where(rows, gains, int(np.argmin(gains))),
        where(rows, gains, int(np.argmax(gains))),
        where(rows, gains, near[0]),
        where(rows, gains, near[1]),
    ]


def losses(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Coarse chunks: how much slower than the best baseline, by policy."""
    found = []
    for scheme in RAILS:
        ratio = np.array(
            [row[f"{scheme} coarse"] / min(row[name] for name in BASELINES) for row in rows]
        )
        worst = rows[int(ratio.argmax())]
        found.append(
            [
                scheme,
                f"{np.mean(ratio > 1.0):.0%}",
                f"{np.median(ratio):.2f}",
                f"{ratio.max():.2f}",
                f"{worst['nodes']} nodes, sparsity {worst['sparsity']:g}, skew {worst['skew']:g}",
            ]
        )
    return found


def draw(made: Any, rows: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    panels = made.subplots(1, len(spec["sparsity"]), sharey=True)
    nodes = spec["nodes"][-1]
    for axes, sparsity in zip(np.atleast_1d(panels), spec["sparsity"], strict=True):
        chosen = [
            row
            for row in rows
            if row["nodes"] == nodes and row["sparsity"] == sparsity and row["seed"] == 0
        ]
        for name in (*BASELINES, "lpt", "lpt coarse"):
            times = [row[name] / row["equitable"] for row in chosen]
            label = "RailS" + name[3:] if name.startswith("lpt") else name
            axes.plot([row["skew"] for row in chosen], times, marker="o", ms=3, label=label)
        axes.set(title=f"sparsity {sparsity:g}", xlabel="skew")
        axes.grid(alpha=0.3)
    np.atleast_1d(panels)[0].set_ylabel(f"completion over `equitable`, {nodes} nodes")
    np.atleast_1d(panels)[-1].legend(fontsize=7)


def compared(rows: list[dict[str, Any]], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The published figures: gains and cuts that are reached, and that are never missed."""
    gains = {name: [100 * (row[name] / row["lpt"] - 1) for row in rows] for name in BASELINES}
    cuts = {name: [100 * (1 - row["lpt"] / row[name]) for row in rows] for name in ("ecmp", "pxn")}
    best = [100 * (1 - row["lpt"] / min(row[name] for name in BASELINES)) for row in rows]
    sparsest = max(row["sparsity"] for row in rows)
    sparse = [row["ecmp"] / row["lpt"] for row in rows if row["sparsity"] == sparsest]
    found = {f"bus bandwidth gain over {name}": gains[name] for name in BASELINES}
    found |= {f"completion time cut against {name}": cut for name, cut in cuts.items()}
    return [
        *(
            claim(expected, f"{name}, {end}", values)
            for end in ("up to", "at least")
            for name, values in found.items()
        ),
        claim(expected, "completion time cut against the best other scheme, up to", best),
        claim(expected, "bus bandwidth over ecmp under sparse traffic", sparse),
    ]


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    grid = itertools.product(spec["nodes"], spec["sparsity"], spec["skew"], range(spec["seeds"]))
    rows = [setting(spec, *point) for point in grid]
    table(
        ["over", "least", "most", "nearest to +20 %", "nearest to +78 %"],
        [ends(rows, name) for name in BASELINES],
        title="RailS's gain in bus bandwidth",
    )
    print()
    table(
        ["policy", "slower than the best baseline", "median", "worst", "at"],
        losses(rows),
        title="whole flows instead of chunks",
    )
    claims = compared(rows, expected)
    figure(Path(args.out) / "bandwidth.svg", lambda made: draw(made, rows, spec), width=11)
    return finish(folder, args, rows, claims)


if __name__ == "__main__":
    sys.exit(main())
