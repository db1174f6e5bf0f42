"""Algorithmic bandwidth of FAST, SpreadOut, direct, PXN, LPT, equitable and ours, against size and
skew.

python experiments/fast_bandwidth/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish
from experiments.fast_common import METHODS, algbw, seconds, workload
from railopt import Fabric
from railopt.base.tables import table
from railopt.schedule.decompose import longest_line

SKEWED = ("pairs", "receivers")
PUBLISHED = "fast-"


def measure(
    fabric: Fabric, name: str, size_mb: float, spec: dict[str, Any], incast: bool
) -> dict[str, float]:
    """GB/s per GPU of each method and of the NIC bound, means over seeds."""
    found: dict[str, list[float]] = {}
    for seed in range(1 if name == "balanced" else spec["seeds"]):
        traffic = workload(name, fabric, size_mb, seed)
        bound = longest_line(traffic.node_matrix) / (fabric.rails * int(fabric.tx[0, 0]))
        found.setdefault("bound", []).append(algbw(traffic, bound))
        for method in METHODS:
            took = seconds(method, fabric, traffic, int(spec["alpha_us"] * 1e6), incast)
            found.setdefault(method, []).append(algbw(traffic, took))
    return {method: float(np.mean(values)) for method, values in found.items()}


def draw(made: Any, rows: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    panels = made.subplots(2, 2)
    for line, fabric in enumerate(spec["fabrics"]):
        mine = [row for row in rows if row["fabric"] == fabric and not row["incast"]]
        by_size = [row for row in mine if row["workload"] == "fast-random"]
        largest = max(spec["sizes_mb"])
        by_skew = [
            row for row in mine if row["workload"].startswith("fast-zipf") and row["mb"] == largest
        ]
        for axes, chosen, x, text in (
            (panels[line][0], by_size, [row["mb"] for row in by_size], "MB per GPU, fast-random"),
            (
                panels[line][1],
                by_skew,
                spec["skews"],
                f"s of fast-zipf, {largest} MB per GPU",
            ),
        ):
            for method in ("bound", *METHODS):
                style = (
                    {"color": "black", "ls": ":"} if method == "bound" else {"marker": "o", "ms": 3}
                )
                axes.plot(x, [row[method] for row in chosen], label=method, **style)
            axes.set(xlabel=text, ylabel="GB/s per GPU", title=fabric)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        panels[line][0].set_xscale("log")
    panels[0][1].legend(fontsize=7, ncols=2)


def claims_of(rows: list[dict[str, Any]], expected: dict[str, Any]) -> list[dict[str, Any]]:
    def ratio(fabric: str, names: tuple[str, ...], other: str, top: str = "fast") -> list[float]:
        return [
            row[top] / row[other]
            for row in rows
            if row["fabric"] == fabric
            and row["workload"] in names
            and not row["incast"]
            and row["mb"] >= 100
        ]

    random, zipf = ("fast-random",), ("fast-zipf:s=0.8",)
    every = tuple({row["workload"] for row in rows if row["workload"].startswith(PUBLISHED)})
    flat = next(
        row
        for row in reversed(rows)
        if row["fabric"] == "h200" and row["workload"] == "balanced" and not row["incast"]
    )
    return [
        claim(expected, "h200 random: FAST over PXN (NCCL)", ratio("h200", random, "pxn")),
        claim(expected, "h200 zipf 0.8: FAST over PXN (NCCL)", ratio("h200", zipf, "pxn")),
        claim(expected, "h200 balanced: FAST, GB/s", flat["fast"]),
        claim(expected, "h200 balanced: PXN (NCCL), GB/s", flat["pxn"]),
        claim(
            expected,
            "mi300x random: FAST over SpreadOut",
            ratio("mi300x", random, "spreadout"),
        ),
        claim(expected, "mi300x zipf 0.8: FAST over SpreadOut", ratio("mi300x", zipf, "spreadout")),
        claim(
            expected,
            "mi300x random: FAST over direct, ECMP (RCCL)",
            ratio("mi300x", random, "direct-ecmp"),
        ),
        claim(
            expected,
            "mi300x zipf 0.8: FAST over direct, ECMP (RCCL)",
            ratio("mi300x", zipf, "direct-ecmp"),
        ),
        claim(
            expected,
            "mi300x, every workload: FAST time over the bound",
            ratio("mi300x", every, "fast", "bound"),
        ),
    ]


def workloads_of(spec: dict[str, Any]) -> dict[str, list[str]]:
    """By whose they are."""
    skews = spec["skews"]
    return {
        "published": ["balanced", "fast-random", *(f"fast-zipf:s={skew}" for skew in skews)],
        "our own": ["random", *(f"{kind}-{skew}" for kind in SKEWED for skew in skews)],
    }


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    largest, rows = max(spec["sizes_mb"]), []
    for label, made in spec["fabrics"].items():
        fabric = Fabric.uniform(
            spec["servers"], spec["gpus"], made["link"], scaleup=made["scaleup"]
        )
        for incast in spec["incast"]:
            for whose, names in workloads_of(spec).items():
                mine: list[dict[str, Any]] = [
                    {
                        "fabric": label,
                        "workload": name,
                        "mb": size,
                        "incast": incast,
                        **measure(fabric, name, size, spec, incast),
                    }
                    for name in names
                    for size in spec["sizes_mb"]
                    if "random" in name or name == "balanced" or size in (largest, 130)
                ]
                rows += mine
                head = f"{label}, {whose}, GB/s per GPU{', incast' if incast else ''}"
                shown = [
                    [row["workload"], row["mb"], *(f"{row[m]:.1f}" for m in ("bound", *METHODS))]
                    for row in mine
                ]
                table([head, "MB", "bound", *METHODS], shown)
                print()
    figure(Path(args.out) / "bandwidth.svg", lambda made: draw(made, rows, spec), 11, 8)
    return finish(folder, args, rows, claims_of(rows, expected))


if __name__ == "__main__":
    sys.exit(main())
