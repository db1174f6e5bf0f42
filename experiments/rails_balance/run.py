"""Load balance: the distribution of max / mean over the rails of a node, send and receive side, by
policy and chunk size.

python experiments/rails_balance/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, figure, finish, goal
from railopt import Fabric, plan, workloads
from railopt.base.tables import table

SIDES = ("send", "receive")


def ratios(spec: dict[str, Any], policy: str, chunk: str) -> dict[str, np.ndarray[Any, Any]]:
    """max / mean over the rails, one value a node and instance, by side."""
    found: dict[str, list[Any]] = {side: [] for side in SIDES}
    for nodes, skew, seed in itertools.product(spec["nodes"], spec["skew"], range(spec["seeds"])):
        fabric = Fabric.uniform(nodes, spec["rails"])
        made = plan(fabric, workloads.moe(fabric, skew=skew, seed=seed).chunks(chunk), policy)
        for side, loads in (("send", made.send), ("receive", made.recv)):
            found[side].append(loads.max(axis=1) / loads.mean(axis=1))
    return {side: np.concatenate(values) for side, values in found.items()}


def summary(values: np.ndarray[Any, Any]) -> list[float]:
    return [float(v) for v in (np.median(values), np.percentile(values, 90), values.max())]


def draw(
    made: Any, spec: dict[str, Any], found: dict[tuple[str, str], dict[str, np.ndarray[Any, Any]]]
) -> None:
    panels = made.subplots(len(SIDES), len(spec["chunks"]), sharey=True, sharex=True)
    for i, side in enumerate(SIDES):
        for j, chunk in enumerate(spec["chunks"]):
            panels[i][j].boxplot(
                [found[policy, chunk][side] for policy in spec["policies"]],
                showfliers=True,
                whis=(5, 95),
                flierprops={"markersize": 2},
            )
            panels[i][j].set_xticks(
                range(1, len(spec["policies"]) + 1), spec["policies"], rotation=70, fontsize=7
            )
            panels[i][j].set(
                title=f"{side}, chunks of {chunk}" if chunk != "flow" else f"{side}, whole flows",
                yscale="log",
            )
    for row in panels:
        row[0].set_ylabel("max / mean over rails")


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    found = {
        (policy, chunk): ratios(spec, policy, chunk)
        for chunk in spec["chunks"]
        for policy in spec["policies"]
    }
    rows = [
        {"policy": policy, "chunk": chunk, **{side: summary(values[side]) for side in SIDES}}
        for (policy, chunk), values in found.items()
    ]
    table(
        [
            "policy",
            "chunk",
            *(f"{side} {what}" for side in SIDES for what in ("median", "90 %", "max")),
        ],
        [
            [
                row["policy"],
                row["chunk"],
                *(f"{value:.3f}" for side in SIDES for value in row[side]),
            ]
            for row in rows
        ],
        title="max / mean over the rails of a node",
    )

    def worst(name: str) -> float:
        (policy, chunk), side = name.split(",")[0].split(), name.split(", ")[1]
        return float(found[policy, chunk][side].max())

    claims = [claim(expected, name, worst(name)) for name in expected["figures"]]
    own = [goal(expected, name, worst(name)) for name in expected["own"]]
    figure(Path(args.out) / "balance.svg", lambda made: draw(made, spec, found), width=12, height=7)
    return finish(folder, args, rows, claims, own)


if __name__ == "__main__":
    sys.exit(main())
