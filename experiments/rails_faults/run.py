"""Faults: one NIC at half speed, one dead, one that dies half-way; times over the same policy's
healthy optimum.

python experiments/rails_faults/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, figure, finish, goal
from railopt import Chunks, Fabric, Plan, plan, workloads
from railopt.base.tables import table
from railopt.base.units import PS_PER_S
from railopt.evidence.bounds import lower_bound
from railopt.sim import Fault, simulate


def time(made: Plan) -> float:
    """Simulated seconds."""
    return simulate(made).completion_ps / PS_PER_S


def half_speed(fabric: Fabric, chunks: Chunks, nic: tuple[int, int]) -> dict[str, float]:
    """Plans that know nothing of the slow NIC, and plans that do."""
    slow = fabric.degraded({nic: "0.5"})
    return {
        "even split, unaware": time(Plan(slow, chunks, plan(fabric, chunks, "round-robin").rail)),
        "LPT, unaware": time(Plan(slow, chunks, plan(fabric, chunks, "lpt").rail)),
        "LPT re-planned": time(plan(slow, chunks, "lpt")),
        "lpt-global re-planned": time(plan(slow, chunks, "lpt-global")),
        "optimum": float(lower_bound(slow, chunks).value),
    }


def dead(fabric: Fabric, chunks: Chunks, nic: tuple[int, int]) -> dict[str, float]:
    """Dead before the start: everybody knows."""
    without = fabric.degraded({nic: "0"})
    return {
        "even split over living rails": time(plan(without, chunks, "round-robin")),
        "LPT, next rail takes over": time(
            Plan(without, chunks, take_over(plan(fabric, chunks, "lpt"), nic))
        ),
        "LPT re-planned": time(plan(without, chunks, "lpt")),
        "lpt-global re-planned": time(plan(without, chunks, "lpt-global")),
        "optimum": float(lower_bound(without, chunks).value),
    }


def take_over(made: Plan, nic: tuple[int, int]) -> np.ndarray[Any, Any]:
    """The plan's rails, but what would cross the dead NIC goes by the next rail."""
    node, rail = nic
    crosses = (made.rail == rail) & ((made.chunks.src == node) | (made.chunks.dst == node))
    return np.where(crosses, (rail + 1) % made.fabric.rails, made.rail).astype(np.int16)


def dying(fabric: Fabric, chunks: Chunks, nic: tuple[int, int], healthy: float) -> dict[str, float]:
    """At half of the healthy time the NIC dies; what has not arrived is sent again, by a new plan,
    at once.
    """
    without, moment = fabric.degraded({nic: "0"}), int(healthy * PS_PER_S / 2)
    found: dict[str, float] = {}
    for name, policy in (
        ("even split over living rails", "round-robin"),
        ("LPT, next rail takes over", "lpt"),
        ("LPT re-planned", "lpt"),
        ("lpt-global re-planned", "lpt-global"),
    ):
        first = plan(fabric, chunks, policy)
        rest = simulate(first, faults=[Fault(moment, *nic, Fraction(0))], until_ps=moment).stuck
        left = chunks.take(rest)
        again = (
            Plan(without, left, take_over(Plan(fabric, left, first.rail[rest]), nic))
            if "next" in name
            else plan(without, left, policy)
        )
        found[name] = moment / PS_PER_S + time(again)
    best = plan(fabric, chunks, "lpt-global")
    rest = simulate(best, until_ps=moment).stuck
    found["optimum"] = moment / PS_PER_S + float(lower_bound(without, chunks.take(rest)).value)
    stuck = simulate(
        plan(fabric, chunks, "lpt"), faults=[Fault(moment, *nic, Fraction(0))], partial=True
    )
    found["LPT, nobody acts: share of chunks stuck"] = len(stuck.stuck) / len(chunks)
    return found


def measure(spec: dict[str, Any], nodes: int) -> dict[str, dict[str, float]]:
    """Times over the healthy bound, by case and policy; the faulty node is made the busiest, as the
    closed forms assume.
    """
    fabric = Fabric.uniform(nodes, spec["rails"])
    chunks = workloads.hot_node(fabric, size="1MiB", node=spec["node"], factor=1.2).chunks(
        spec["chunk"]
    )
    healthy, nic = float(lower_bound(fabric, chunks).value), (spec["node"], spec["rail"])
    cases = {
        "half speed": half_speed(fabric, chunks, nic),
        "dead": dead(fabric, chunks, nic),
        "dies half-way": dying(fabric, chunks, nic, healthy),
    }
    return {
        case: {name: value if "share" in name else value / healthy for name, value in found.items()}
        for case, found in cases.items()
    }


def draw(made: Any, rows: list[dict[str, Any]]) -> None:
    panels = made.subplots(1, 3)
    for axes, case in zip(panels, ("half speed", "dead", "dies half-way"), strict=True):
        chosen = [row for row in rows if row["case"] == case and "share" not in row["policy"]]
        axes.bar(range(len(chosen)), [row["times"] for row in chosen], color="#2f6fb2")
        axes.set_xticks(
            range(len(chosen)),
            [row["policy"] for row in chosen],
            rotation=60,
            ha="right",
            fontsize=7,
        )
        axes.axhline(1.0, color="k", lw=0.5)
        axes.set(title=f"one NIC: {case}", ylabel="time over the healthy optimum")


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    runs = [measure(spec, nodes) for nodes in spec["nodes"]]
    rows = [
        {
            "case": case,
            "policy": name,
            "times": float(np.mean([run[case][name] for run in runs])),
            "worst": float(max(run[case][name] for run in runs)),
        }
        for case, found in runs[0].items()
        for name in found
    ]
    table(
        ["case", "policy", "over the healthy optimum", "worst"],
        [
            [row["case"], row["policy"], f"{row['times']:.3f}", f"{row['worst']:.3f}"]
            for row in rows
        ],
    )
    values = {f"{row['case']}, {row['policy']}": row["times"] for row in rows}
    own = [goal(expected, name, values[name]) for name in expected["own"]]
    figure(Path(args.out) / "faults.svg", lambda made: draw(made, rows), width=11)
    return finish(folder, args, rows, [], own)


if __name__ == "__main__":
    sys.exit(main())
