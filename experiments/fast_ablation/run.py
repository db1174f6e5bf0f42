"""FAST's released ablation, simulated: what balance gives, what stages cost, what hiding
redistribution gives.

python experiments/fast_ablation/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish
from experiments.fast_common import algbw, run_phases, seconds, synthesised, workload
from experiments.fast_phases import phases
from railopt import Fabric
from railopt.base.tables import table
from railopt.sim.assumptions import ROCE_INCAST

KINDS = {"FAST": "fast", "ablation": "fast-nostage", "compact": "compact"}
METHODS = {
    "pipelined": "pipelined",
    "SpreadOut": "spreadout",
    "SpreadOut, barrier": "spreadout-barrier",
}


def measure(
    labels: Sequence[str],
    fabric: Fabric,
    name: str,
    size_mb: float,
    seed: int,
    alpha_ps: int,
    incast: bool = False,
) -> dict[str, float]:
    """GB/s a GPU of each scheme, and the milliseconds from its first to its last byte on the
    wire.
    """
    traffic = workload(name, fabric, size_mb, seed)
    row: dict[str, float] = {}
    for label in labels:
        if label in METHODS:
            row[label] = algbw(traffic, seconds(METHODS[label], fabric, traffic, alpha_ps, incast))
            continue
        made = synthesised(KINDS[label], fabric, traffic, alpha_ps)
        found = phases(made, alpha_out_ps=alpha_ps)
        run = run_phases(found, fabric, ROCE_INCAST if incast else Fraction(0))
        wire = found.path[::2] < fabric.nodes * fabric.rails
        row[label] = algbw(traffic, float(run.completion))
        row[f"{label} wire"] = float(run.finish_ps[wire].max() - run.begun_ps[wire].min()) / 1e9
    return row


def mean(fabric: Fabric, name: str, size_mb: float, seeds: int, alpha_ps: int) -> dict[str, float]:
    """The mean of `measure` over seeds."""
    rows = [
        measure([*KINDS, *METHODS], fabric, name, size_mb, seed, alpha_ps) for seed in range(seeds)
    ]
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def crossing(sizes: list[float], rows: dict[float, dict[str, float]]) -> float:
    """The size at which FAST catches up with its ablation, log-linear between the two sizes around
    it.
    """
    lead = [np.log(rows[size]["FAST"] / rows[size]["ablation"]) for size in sizes]
    for k in range(1, len(sizes)):
        if lead[k - 1] < 0 <= lead[k]:
            share = -lead[k - 1] / (lead[k] - lead[k - 1])
            return float(sizes[k - 1] * (sizes[k] / sizes[k - 1]) ** share)
    return float(sizes[0] if lead[0] >= 0 else sizes[-1])


def draw(
    made: Any, sizes: list[float], rows: dict[float, dict[str, float]], expected: dict[str, Any]
) -> None:
    axes = made.subplots()
    for label in ("FAST", "ablation", "compact", "pipelined", "SpreadOut"):
        axes.plot(sizes, [rows[size][label] for size in sizes], marker="o", ms=3, label=label)
        key = "{} GB/s, random, {} MB"
        known = [size for size in sizes if key.format(label, size) in expected["figures"]]
        axes.plot(
            known,
            [expected["figures"][key.format(label, size)]["paper"] for size in known],
            "x",
            color=axes.lines[-1].get_color(),
        )
    axes.set(
        xscale="log",
        xlabel="MB a GPU",
        ylabel="GB/s a GPU",
        title="4 x 8 MI300X-like, random; crosses: measured (FAST's raw data)",
    )
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.grid(alpha=0.3)


COLUMNS = [*KINDS, *METHODS, "FAST wire", "ablation wire"]


def print_sweeps(
    by_size: dict[float, dict[str, float]], by_skew: dict[float, dict[str, float]], whose: str
) -> None:
    """GB/s per GPU by size, and by skew of the pair sizes."""
    table(
        [f"random, {whose}, MB per GPU", *COLUMNS],
        [[size, *(f"{row[c]:.2f}" for c in COLUMNS)] for size, row in by_size.items()],
        title=f"GB/s per GPU on {whose} workloads; wire in ms",
    )
    print()
    table(
        [f"Zipf, {whose}, 520 MB", *COLUMNS],
        [[skew, *(f"{row[c]:.2f}" for c in COLUMNS)] for skew, row in by_skew.items()],
    )
    print()


def incast_rows(spec: dict[str, Any], alpha_ps: int) -> list[dict[str, Any]]:
    """Each scheme on more servers, the incast penalty off and on."""
    rows: list[dict[str, Any]] = []
    for servers in spec["incast_servers"]:
        wide = Fabric.uniform(servers, spec["gpus"], spec["link"], scaleup=spec["scaleup"])
        # FAST has n**2 stages to simulate
        labels = list(KINDS) if servers <= 16 else ["ablation", "compact"]
        for incast in (False, True):
            setting = {"workload": "fast-random", "mb": spec["incast_mb"]}
            row = measure(labels, wide, "fast-random", spec["incast_mb"], 0, alpha_ps, incast)
            rows.append({**setting, "servers": servers, "incast": incast, **row})
    return rows


def print_incast(rows: list[dict[str, Any]], size_mb: float) -> None:
    shown = [
        [
            row["servers"],
            "on" if row["incast"] else "off",
            *(f"{row[c]:.2f}" if c in row else "-" for c in KINDS),
        ]
        for row in rows
    ]
    title = f"fast-random, {size_mb} MB per GPU, GB/s per GPU"
    table(["servers", "incast penalty", *KINDS], shown, title=title)


def bandwidth_claims(
    expected: dict[str, Any],
    by_size: dict[float, dict[str, float]],
    by_skew: dict[float, dict[str, float]],
) -> list[dict[str, Any]]:
    """The figures of single runs."""
    claims = [
        claim(expected, f"{label} GB/s, random, {size} MB", by_size[size][label])
        for label in ("FAST", "ablation", "SpreadOut")
        for size in (8, 33, 130, 520, 2080)
    ]
    claims += [
        claim(expected, f"{label} wire ms, random, {size} MB", by_size[size][f"{label} wire"])
        for label in ("FAST", "ablation")
        for size in (8, 33, 130, 520, 2080)
    ]
    claims += [
        claim(expected, f"{label} GB/s, 520 MB, skew {skew}", by_skew[skew][label])
        for label in ("FAST", "ablation", "SpreadOut")
        for skew in (0.1, 0.5, 0.9)
    ]
    return claims


def ablation_claims(
    expected: dict[str, Any],
    sizes_mb: list[float],
    by_size: dict[float, dict[str, float]],
    by_skew: dict[float, dict[str, float]],
) -> list[dict[str, Any]]:
    """What each part of FAST gives."""
    big = [by_size[520], by_size[2080]]
    gain = (big[0]["ablation"] - big[0]["SpreadOut"]) / (big[0]["FAST"] - big[0]["SpreadOut"])
    large = [*big, *by_skew.values()]
    longer = [100 * (row["FAST wire"] / row["ablation wire"] - 1) for row in large]
    hidden = [row["FAST"] / row["ablation"] for row in [big[0], *by_skew.values()]]
    found: dict[str, Any] = {
        "share of the gain over SpreadOut that balance alone gives, 520 MB": gain,
        "stages lose below, MB a GPU": crossing(sizes_mb, by_size),
        "stages lengthen the wire phase by, %, 520 MB and more": longer,
        "hiding redistribution gives, FAST over ablation, 520 MB": hidden,
    }
    return [claim(expected, name, ours) for name, ours in found.items()]


def sweep(
    fabric: Fabric, spec: dict[str, Any], random: str, zipf: str, whose: str
) -> tuple[dict[float, dict[str, float]], dict[float, dict[str, float]], list[dict[str, Any]]]:
    """(by size, by skew, both as rows) of one pair of workloads, printed."""
    alpha_ps, seeds = spec["alpha_us"] * 10**6, spec["seeds"]
    by_size = {size: mean(fabric, random, size, seeds, alpha_ps) for size in spec["sizes_mb"]}
    by_skew = {skew: mean(fabric, f"{zipf}{skew}", 520, seeds, alpha_ps) for skew in spec["skews"]}
    print_sweeps(by_size, by_skew, whose)
    rows: list[dict[str, Any]] = [
        {"workload": random, "mb": size, **row} for size, row in by_size.items()
    ]
    rows += [{"workload": f"{zipf}{skew}", "mb": 520, **row} for skew, row in by_skew.items()]
    return by_size, by_skew, rows


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    fabric = Fabric.uniform(spec["servers"], spec["gpus"], spec["link"], scaleup=spec["scaleup"])
    by_size, by_skew, rows = sweep(fabric, spec, "fast-random", "fast-zipf:s=", "published")
    *_, ours = sweep(fabric, spec, "random", "pairs-", "our own")
    wide = incast_rows(spec, spec["alpha_us"] * 10**6)
    print_incast(wide, spec["incast_mb"])
    claims = bandwidth_claims(expected, by_size, by_skew)
    claims += ablation_claims(expected, spec["sizes_mb"], by_size, by_skew)
    figure(
        Path(args.out) / "ablation.svg",
        lambda made: draw(made, spec["sizes_mb"], by_size, expected),
    )
    return finish(folder, args, [*rows, *ours, *wide], claims)


if __name__ == "__main__":
    sys.exit(main())
