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
from railopt import Fabric
from railopt.schedule.phases import phases
from railopt.sim.assumptions import ROCE_INCAST
from railopt.tables import table

KINDS = {"FAST": "fast", "ablation": "fast-nostage", "compact": "compact"}
METHODS = {"pipelined": "pipelined", "SpreadOut": "spreadout"}


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


def main() -> None:
    folder, spec, expected, args = arguments(__file__, __doc__)
    alpha_ps = spec["alpha_us"] * 10**6
    fabric = Fabric.uniform(spec["servers"], spec["gpus"], spec["link"], scaleup=spec["scaleup"])
    by_size = {
        size: mean(fabric, "random", size, spec["seeds"], alpha_ps) for size in spec["sizes_mb"]
    }
    by_skew = {
        skew: mean(fabric, f"pairs-{skew}", 520, spec["seeds"], alpha_ps) for skew in spec["skews"]
    }
    columns = [
        "FAST",
        "ablation",
        "compact",
        "pipelined",
        "SpreadOut",
        "FAST wire",
        "ablation wire",
    ]
    table(
        ["random, MB a GPU", *columns],
        [[size, *(f"{row[c]:.2f}" for c in columns)] for size, row in by_size.items()],
        title="GB/s a GPU; wire in ms",
    )
    print()
    table(
        ["pair sizes Zipf, 520 MB", *columns],
        [[skew, *(f"{row[c]:.2f}" for c in columns)] for skew, row in by_skew.items()],
    )
    rows: list[dict[str, Any]] = [
        {"workload": "random", "mb": size, **row} for size, row in by_size.items()
    ]
    rows += [{"workload": f"pairs-{skew}", "mb": 520, **row} for skew, row in by_skew.items()]
    print()
    shown = []
    for servers in spec["incast_servers"]:
        wide = Fabric.uniform(servers, spec["gpus"], spec["link"], scaleup=spec["scaleup"])
        for incast in (False, True):
            labels = (
                list(KINDS) if servers <= 16 else ["ablation", "compact"]
            )  # FAST has n**2 stages to simulate
            row = measure(labels, wide, "random", spec["incast_mb"], 0, alpha_ps, incast)
            rows.append(
                {
                    "workload": "random",
                    "mb": spec["incast_mb"],
                    "servers": servers,
                    "incast": incast,
                    **row,
                }
            )
            shown.append(
                [
                    servers,
                    "on" if incast else "off",
                    *(f"{row[c]:.2f}" if c in row else "-" for c in KINDS),
                ]
            )
    table(
        ["servers", "incast penalty", *KINDS],
        shown,
        title=f"random, {spec['incast_mb']} MB a GPU, GB/s a GPU",
    )
    claims = [
        claim(expected, f"{label} GB/s, random, {size} MB", by_size[size][label])
        for label in ("FAST", "ablation", "SpreadOut")
        for size in (8, 33, 130, 520, 2080)
    ]
    claims += [
        claim(expected, f"FAST wire ms, random, {size} MB", by_size[size]["FAST wire"])
        for size in (33, 130, 520, 2080)
    ]
    claims += [
        claim(expected, f"ablation wire ms, random, {size} MB", by_size[size]["ablation wire"])
        for size in (520, 2080)
    ]
    claims += [
        claim(expected, f"FAST GB/s, 520 MB, skew {skew}", by_skew[skew]["FAST"])
        for skew in (0.1, 0.5, 0.9)
    ]
    big = [by_size[520], by_size[2080]]
    claims.append(
        claim(
            expected,
            "share of the gain over SpreadOut that balance alone gives, 520 MB",
            (big[0]["ablation"] - big[0]["SpreadOut"]) / (big[0]["FAST"] - big[0]["SpreadOut"]),
        )
    )
    claims.append(
        claim(expected, "stages lose below, MB a GPU", crossing(spec["sizes_mb"], by_size))
    )
    claims.append(
        claim(
            expected,
            "stages lengthen the wire phase by, %, 520 MB and more",
            [100 * (row["FAST wire"] / row["ablation wire"] - 1) for row in big],
        )
    )
    claims.append(
        claim(
            expected,
            "hiding redistribution gives, FAST over ablation, 520 MB",
            [row["FAST"] / row["ablation"] for row in [big[0], *by_skew.values()]],
        )
    )
    figure(
        Path(args.out) / "ablation.svg",
        lambda made: draw(made, spec["sizes_mb"], by_size, expected),
    )
    finish(folder, args, rows, claims)


if __name__ == "__main__":
    main()
