"""Completion time against chunk size, with the per-message cost in, beside the size that theorem
T4b guarantees for equal chunks of a pair.

python experiments/rails_chunk_size/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, figure, finish, goal
from railopt import Fabric, Traffic, plan, workloads
from railopt.base.tables import table
from railopt.base.units import PS_PER_S, format_bytes, parse_bytes, parse_time
from railopt.model.plan import node_bound
from railopt.report.style import line
from railopt.sim import Assumptions, simulate


def promised(traffic: Traffic, rails: int, epsilon: float) -> int:
    """T4b's chunk of each side, the smaller: q <= epsilon L / ((N - 1) s), L the busiest node's
    bytes, s the most peers of any node.
    """
    matrix = traffic.node_matrix
    sides = [(matrix.sum(axis=axis), np.count_nonzero(matrix, axis=axis)) for axis in (0, 1)]
    return min(
        int(epsilon * loads.max() / ((rails - 1) * degrees.max())) for loads, degrees in sides
    )


def measure(
    spec: dict[str, Any], traffic: Traffic, fabric: Fabric, chunk: str | int, assumed: Assumptions
) -> dict[str, float]:
    """Completion over the bound of any plan, by policy."""
    between = traffic.node_matrix
    bound = float(node_bound(fabric, between.sum(axis=1), between.sum(axis=0))) * PS_PER_S
    return {
        policy: simulate(
            plan(fabric, traffic.chunks(chunk), policy), assumptions=assumed
        ).completion_ps
        / bound
        for policy in spec["policies"]
    }


def draw(made: Any, spec: dict[str, Any], rows: list[dict[str, Any]], guaranteed: int) -> None:
    axes = made.subplots()
    sizes = [parse_bytes(row["chunk"]) if row["chunk"] != "flow" else 64 * 2**20 for row in rows]
    for policy in spec["policies"]:
        axes.plot(sizes, [row[policy] for row in rows], **line(policy), ms=3, label=policy)
    axes.axvline(
        guaranteed,
        color="k",
        ls=":",
        label=f"T4, {spec['epsilon']:.0%}: {format_bytes(guaranteed)}",
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="chunk, bytes (last point: whole flows)",
        ylabel="completion / bound of any plan",
        title=f"{spec['nodes']} x {spec['rails']}, skew {spec['skew']}, {spec['alpha']} a message",
    )
    axes.grid(alpha=0.3)
    axes.legend()


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    fabric = Fabric.uniform(spec["nodes"], spec["rails"])
    traffics = [
        workloads.moe(fabric, skew=spec["skew"], seed=seed) for seed in range(spec["seeds"])
    ]
    assumed = Assumptions(alpha_ps=parse_time(spec["alpha"]))
    rows: list[dict[str, Any]] = []
    for chunk in spec["chunks"]:
        runs = [measure(spec, traffic, fabric, chunk, assumed) for traffic in traffics]
        rows.append(
            {
                "chunk": chunk,
                **{
                    policy: float(np.mean([run[policy] for run in runs]))
                    for policy in spec["policies"]
                },
            }
        )
    guaranteed = min(promised(traffic, spec["rails"], spec["epsilon"]) for traffic in traffics)
    ideal = max(
        measure(
            {**spec, "policies": ["rotate"]},
            traffic,
            fabric,
            promised(traffic, spec["rails"], spec["epsilon"]),
            replace(assumed, alpha_ps=0),
        )["rotate"]
        for traffic in traffics
    )
    table(
        ["chunk", *spec["policies"]],
        [[row["chunk"], *(f"{row[policy]:.3f}" for policy in spec["policies"])] for row in rows],
        title=f"completion over the bound of any plan, {spec['alpha']} a message; for equal chunks "
        f"of a pair T4b promises 5 % at {format_bytes(guaranteed)}",
    )
    best = {
        policy: min(rows, key=lambda row, policy=policy: row[policy]) for policy in spec["policies"]
    }
    print(
        "best chunk: "
        + ", ".join(f"{policy} {row['chunk']} ({row[policy]:.3f})" for policy, row in best.items())
    )
    own = [
        goal(expected, "lpt, finest chunk over best", rows[0]["lpt"] / best["lpt"]["lpt"]),
        goal(expected, "lpt, whole flows over best", rows[-1]["lpt"] / best["lpt"]["lpt"]),
        goal(expected, "rotate at T4's chunk over the bound, no message cost", ideal),
    ]
    figure(Path(args.out) / "chunk_size.svg", lambda made: draw(made, spec, rows, guaranteed))
    return finish(folder, args, [*rows, {"T4": guaranteed}], [], own)


if __name__ == "__main__":
    sys.exit(main())
