"""Synthesis time, number of stages and modelled time over the bound, against the number of servers.

python experiments/fast_synthesis/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish
from experiments.fast_common import MB
from railopt import Fabric, Traffic
from railopt.base.dice import Dice
from railopt.base.tables import table
from railopt.model.workloads import traffic_from
from railopt.schedule import modelled, synthesise
from railopt.schedule.report import timed

KINDS = ("compact", "pipelined", "fast", "spreadout")


def drawn(name: str, fabric: Fabric, spec: dict[str, Any], seed: int) -> Traffic:
    """FAST's random workload, or ours: every pair from 0 to twice the mean, not scaled."""
    if name == "published":
        return traffic_from(f"fast-random:mean={spec['pair_mb'] * MB},seed={seed}", fabric)
    count = fabric.nodes * fabric.gpus
    matrix = Dice(fabric.nodes, seed, "fast_synthesis").below(
        2 * spec["pair_mb"] * MB, (count, count)
    )
    return Traffic.from_matrix(matrix, fabric)


def measure(servers: int, spec: dict[str, Any], name: str) -> dict[str, Any]:
    """Means over seeds; times are the least of several hot calls."""
    fabric = Fabric.uniform(servers, spec["gpus"])
    found: dict[str, list[float]] = {}
    for seed in range(spec["seeds"]):
        traffic = drawn(name, fabric, spec, seed)
        for kind in KINDS:
            made, spent = timed(partial(synthesise, fabric, traffic, kind))
            for key, value in (
                ("us", spent),
                ("stages", made.stages),
                ("total", 1 + float(made.excess)),
                ("ratio", modelled(made).ratio),
            ):
                found.setdefault(f"{kind} {key}", []).append(value)
        built = synthesise(fabric, traffic, "fast", order="built")
        found.setdefault("fast as built ratio", []).append(modelled(built).ratio)
    return {
        "workload": name,
        "servers": servers,
        **{key: float(np.mean(values)) for key, values in found.items()},
    }


def draw(made: Any, rows: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    time, ratio = made.subplots(1, 2)
    servers = [row["servers"] for row in rows]
    for kind in KINDS:
        time.plot(
            servers,
            [row[f"{kind} us"] for row in rows],
            marker="o",
            ms=3,
            label=f"{kind} (ours)" if kind == "fast" else kind,
        )
        ratio.plot(servers, [row[f"{kind} ratio"] for row in rows], marker="o", ms=3, label=kind)
    released, published = expected["released"], expected["published_us"]
    time.plot(
        [int(n) for n in released],
        [us for us, _, _ in released.values()],
        "x-",
        color="grey",
        label="FAST as released",
    )
    time.plot(
        [int(n) for n in published],
        list(published.values()),
        "+:",
        color="grey",
        label="FAST, paper",
    )
    ratio.plot(
        [int(n) for n in released],
        [r for _, _, r in released.values()],
        "x-",
        color="grey",
        label="FAST as released",
    )
    time.set(xscale="log", yscale="log", xlabel="servers x 8 GPUs", ylabel="synthesis, us")
    ratio.set(xscale="log", xlabel="servers x 8 GPUs", ylabel="modelled time over the bound")
    for axes in (time, ratio):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)


def compared(rows: list[dict[str, Any]], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The paper's figures against the rows: of every number of servers that was released, and of
    all of them together.
    """
    claims = []
    for row in rows:
        servers = row["servers"]
        if str(servers) in expected["released"]:
            claims.append(claim(expected, f"stages of FAST, {servers} servers", row["fast stages"]))
            claims.append(
                claim(
                    expected,
                    f"FAST over the bound, stages as built, {servers} servers",
                    row["fast as built ratio"],
                )
            )
    claims += [
        claim(expected, f"synthesis of FAST, us, {row['servers']} servers", row["fast us"])
        for row in rows
        if str(row["servers"]) in expected["published_us"]
    ]
    claims.append(
        claim(
            expected,
            "FAST over the bound, largest stage first",
            [row["fast ratio"] for row in rows],
        )
    )
    return claims


def show(rows: list[dict[str, Any]], expected: dict[str, Any], whose: str) -> None:
    """Times, stages and distances from the bound, the released ones beside them."""
    shown = []
    for row in rows:
        us, stages, ratio = expected["released"].get(str(row["servers"]), (None, None, None))
        shown.append(
            [
                row["servers"],
                *(f"{row[f'{k} us']:.0f}" for k in KINDS),
                "-" if us is None else us,
                f"{row['compact stages']:.0f}",
                f"{row['fast stages']:.0f}",
                stages or "-",
                f"{row['compact total']:.4f}",
                *(f"{row[f'{k} ratio']:.3f}" for k in KINDS),
                f"{row['fast as built ratio']:.3f}",
                ratio or "-",
            ]
        )
    head = ["servers", *(f"{k} us" for k in KINDS), "FAST released", "stages", "fast", "released"]
    head += ["total/L", *(f"{k} /bound" for k in KINDS), "fast as built", "released"]
    table(head, shown, title=f"{whose} workload")
    print()


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    published = [measure(servers, spec, "published") for servers in spec["servers"]]
    show(published, expected, "published")
    ours = [measure(servers, spec, "our own") for servers in spec["servers"] if servers <= 32]
    show(ours, expected, "our own")
    figure(Path(args.out) / "synthesis.svg", lambda made: draw(made, published, expected), 10, 4)
    return finish(folder, args, [*published, *ours], compared(published, expected))


if __name__ == "__main__":
    sys.exit(main())
