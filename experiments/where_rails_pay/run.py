"""Where a planned rail pays, and where it gains nothing: plans of routed tokens with the node
inside.

python -m experiments.where_rails_pay.run [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, figure, finish, goal
from railopt import POLICIES, Chunks, Fabric, Plan, demand_from, plan
from railopt.base.tables import lines, table
from railopt.base.units import PS_PER_S, parse_rate
from railopt.evidence.bounds import lower_bound
from railopt.report.style import look
from railopt.sim import Assumptions, simulate

OWN = "own-nic"
PLANNED = ("lpt", "even-excess", "spill")  # what chooses rails by loads
WAYS = ("pipelined", "before")
KEY = ("nodes", "batch", "dedup", "nic")


def fabric_with(nodes: int, rails: int, chunks: Chunks, fraction: str) -> Fabric:
    """All NICs well, but the first of the busiest node at a fraction of its rate."""
    fabric = Fabric.uniform(nodes, rails)
    if fraction == "1":
        return fabric
    matrix = chunks.node_matrix
    busiest = int(np.maximum(matrix.sum(axis=0), matrix.sum(axis=1)).argmax())
    return fabric.degraded({(busiest, 0): fraction})


def measured(made: Plan, scaleups: dict[str, str]) -> dict[str, float]:
    """Bytes moved as shares of all bytes between nodes, and milliseconds by scale-up and way."""
    found = {
        "staged": made.staged / made.chunks.total,
        "passed_on": made.passed_on / made.chunks.total,
    }
    for name, rate in scaleups.items():
        on = Plan(replace(made.fabric, scaleup=parse_rate(rate)), made.chunks, made.rail)
        for way in WAYS:
            run = simulate(on, assumptions=Assumptions(scale_up=way))
            found[f"{name}, {way}"] = run.completion_ps / PS_PER_S * 1e3
    return found


def cases(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a setting and policy: medians over the seeds."""
    policies = [name for name in spec["policies"] if name in POLICIES]
    for nodes, batch, dedup in product(spec["nodes"], spec["batches"], spec["dedup"]):
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for seed in spec["seeds"]:
            healthy = Fabric.uniform(nodes, spec["rails"])
            text = f"routing:{spec['batches'][batch]},dedup={dedup},tokens={spec['tokens']}"
            chunks = demand_from(f"{text},seed={seed}", healthy).chunks(spec["chunk"])
            for nic, fraction in spec["nics"].items():
                fabric = fabric_with(nodes, spec["rails"], chunks, fraction)
                bound = lower_bound(fabric, chunks).value
                for name in policies:
                    made = plan(fabric, chunks, name)
                    over = {"over_bound": float(made.makespan / bound - 1)}
                    row = over | measured(made, spec["scaleup"])
                    found.setdefault((nic, name), []).append(row)
        for (nic, name), rows in found.items():
            setting = {"nodes": nodes, "batch": batch, "dedup": dedup, "nic": nic}
            medians = {key: float(np.median([row[key] for row in rows])) for key in rows[0]}
            yield {**setting, "policy": name, **medians}


def columns_of(rows: list[dict[str, Any]]) -> list[str]:
    """The columns of simulated times."""
    return [name for name in rows[0] if name.endswith(WAYS)]


def setting(row: dict[str, Any]) -> tuple[Any, ...]:
    """What rows that are compared have in common."""
    return tuple(row[name] for name in KEY)


def show(rows: list[dict[str, Any]]) -> None:
    """Everything that was measured."""
    times = columns_of(rows)
    head = [*KEY, "policy", "NIC over bound %", "staged %", "passed on %"]
    cells = [
        [
            *setting(row),
            row["policy"],
            *(f"{100 * row[name]:.2f}" for name in ("over_bound", "staged", "passed_on")),
            *(f"{row[name]:.3f}" for name in times),
        ]
        for row in rows
    ]
    print("\n".join(lines([*head, *(f"{name} ms" for name in times)], cells, left=5)))


def gains(rows: list[dict[str, Any]], nothing: float) -> list[dict[str, Any]]:
    """For each setting and way: which planned policy is fastest, and what it saves of the own NIC's
    time, in per cent; "nothing" below the limit.
    """
    found = []
    for key in dict.fromkeys(map(setting, rows)):
        by_policy = {row["policy"]: row for row in rows if setting(row) == key}
        row: dict[str, Any] = dict(zip(KEY, key, strict=True))
        for column in columns_of(rows):
            own = by_policy[OWN][column]
            best = min((p for p in PLANNED if p in by_policy), key=lambda p: by_policy[p][column])
            saved = 100 * (1 - by_policy[best][column] / own)
            row[column] = saved
            row[f"{column}, by"] = best if saved >= nothing else "nothing"
        found.append(row)
    return found


def show_gains(found: list[dict[str, Any]], nothing: float) -> None:
    """Where planning gains nothing is said, not left out."""
    columns = [name.removesuffix(", by") for name in found[0] if name.endswith(", by")]
    cells = [
        [
            *(row[name] for name in KEY),
            *(
                "nothing"
                if row[f"{column}, by"] == "nothing"
                else f"{row[f'{column}, by']} {row[column]:.1f} %"
                for column in columns
            ),
        ]
        for row in found
    ]
    print(f"\nwhat the fastest planned policy saves of own-nic's time ({nothing:g} % or more)")
    print("\n".join(lines([*KEY, *columns], cells, left=4)))
    table(
        ["scale-up and way", "settings", "of them nothing"],
        [
            [column, len(found), sum(row[f"{column}, by"] == "nothing" for row in found)]
            for column in columns
        ],
        title="\nwhere planning gains nothing",
    )


def draw(made: Any, rows: list[dict[str, Any]]) -> None:
    """Time over the least of any policy, by batch, one panel a state of the NIC."""
    column, nodes = columns_of(rows)[0], rows[0]["nodes"]
    shown = [row for row in rows if row["nodes"] == nodes and row["dedup"] == "node"]
    batches = list(dict.fromkeys(row["batch"] for row in shown))
    policies = list(dict.fromkeys(row["policy"] for row in shown))
    nics = list(dict.fromkeys(row["nic"] for row in shown))
    panels = made.subplots(1, len(nics), sharey=True)
    for axes, nic in zip(panels, nics, strict=True):
        least = [
            min(row[column] for row in shown if (row["nic"], row["batch"]) == (nic, batch))
            for batch in batches
        ]
        for place, policy in enumerate(policies):
            heights = [
                next(
                    row[column] / lowest
                    for row in shown
                    if (row["nic"], row["batch"], row["policy"]) == (nic, batch, policy)
                )
                for batch, lowest in zip(batches, least, strict=True)
            ]
            where = np.arange(len(batches)) + (place - len(policies) / 2) * 0.8 / len(policies)
            axes.bar(
                where,
                heights,
                0.8 / len(policies),
                label=policy,
                color=look(policy).colour,
                align="edge",
            )
        axes.set_xticks(range(len(batches)), batches, rotation=30, ha="right", fontsize=8)
        axes.set(title=f"one NIC: {nic}" if nic != "healthy" else "all NICs healthy")
        axes.axhline(1.0, color="k", lw=0.5)
    panels[0].set_ylabel("simulated time over the fastest")
    panels[0].legend(fontsize=8)
    made.suptitle(f"{nodes} nodes, {column}, once a node", fontsize=10)


def again(rows: list[dict[str, Any]], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """Figures of an earlier run, and goals, beside this run's: "BATCH, NIC, DEDUP: POLICY WHAT" in
    per cent, the worst over node counts; those of policies that are not there are left out.
    """
    ours: dict[str, list[float]] = {}
    for row in rows:
        for what in ("over_bound", "staged", "passed_on"):
            name = f"{row['batch']}, {row['nic']}, {row['dedup']}: {row['policy']} {what}"
            ours.setdefault(name, []).append(100 * row[what])
    return [goal(expected, name, ours[name]) for name in expected["own"] if name in ours]


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = list(cases(spec))
    show(rows)
    found = gains(rows, spec["nothing"])
    show_gains(found, spec["nothing"])
    missing = [name for name in spec["policies"] if name not in POLICIES]
    if missing:
        print(f"\nnot there, so not measured: {', '.join(missing)}")
    figure(Path(args.out) / "times.svg", lambda made: draw(made, rows), width=13)
    compared = again(rows, expected["full" if args.full else "small"])
    return finish(folder, args, [{"gains": found}, *rows], [], compared)


if __name__ == "__main__":
    sys.exit(main())
