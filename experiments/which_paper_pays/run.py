"""Which of four papers pays where: each mechanism by itself on every trace and fabric.

python -m experiments.which_paper_pays.run [--traces | --full] [--out DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, figure, finish, goal
from experiments.pro_prophet_common import trace
from railopt.base.tables import table
from railopt.base.units import parse_rate
from railopt.model.fabric import Fabric
from railopt.moe.weigh import MECHANISMS, Weighed, WeighQuestion, weigh

PAPERS = {
    "rails": "RailS",
    "stages": "FAST",
    "placement": "Pro-Prophet",
    "split": "ours",
    "experts": "HybridEP",
}


def weighed(
    name: str, link: str, scaleup: str, spec: dict[str, Any]
) -> tuple[dict[str, Any], Weighed]:
    """A trace on its fabric: what is left of the exchange and of the iteration by mechanism."""
    kind = name.split("-")[0]
    nodes, gpus = spec["shapes"][kind]
    fabric = replace(Fabric.uniform(nodes, gpus, link, gpus=gpus), scaleup=parse_rate(scaleup))
    question = WeighQuestion(
        each_alone=True, steps=spec["steps"], model=spec["models"].get(kind), spare=spec["spare"]
    )
    found = weigh(trace(name), fabric, question)
    first = found.rows[0]
    left = {
        row.added: {
            "exchange": row.exchange_ps / first.exchange_ps,
            "iteration": row.iteration_ps / first.iteration_ps,
        }
        for row in found.rows[1:]
    }
    row = {
        "trace": name,
        "link": link,
        "scaleup": scaleup,
        "left": left,
        "found": found.found_ps / first.exchange_ps,
        "weakness": found.weakness,
        "bound": {
            "exchange": found.exchange_bound_ps / first.exchange_ps,
            "iteration": found.iteration_bound_ps / first.iteration_ps,
        },
    }
    return row, found


def best(row: dict[str, Any]) -> str:
    """Whose mechanism leaves least of the iteration, and "none" where all leave 99 % or more."""
    name = min(MECHANISMS, key=lambda each: row["left"][each]["iteration"])
    return PAPERS[name] if row["left"][name]["iteration"] < 0.99 else "none"


def show(rows: list[dict[str, Any]]) -> None:
    table(
        ["trace", "link", "scale-up", *PAPERS, "nothing beats", "most", "bound of found"],
        [
            [
                row["trace"],
                row["link"],
                row["scaleup"],
                *(f"{row['left'][name]['iteration']:.0%}" for name in PAPERS),
                f"{row['bound']['iteration']:.0%}",
                best(row),
                f"{row['bound']['exchange'] / row['found']:.0%}" if row["found"] else "both 0",
            ]
            for row in rows
        ],
        title="share of an iteration's time that is left with each mechanism alone",
    )


def drawing(rows: list[dict[str, Any]]) -> Callable[[Any], None]:
    """A point per setting and mechanism."""

    def draw(made: Any) -> None:
        axis = made.subplots()
        for place, name in enumerate(PAPERS):
            values = [row["left"][name]["iteration"] for row in rows]
            spread = place + np.linspace(-0.25, 0.25, len(values))
            axis.plot(spread, values, marker="o", linestyle="none", markersize=3)
        axis.set_xticks(range(len(PAPERS)), [f"{name}\n{paper}" for name, paper in PAPERS.items()])
        axis.set_ylabel("share of an iteration left")
        axis.axhline(1, color="black", linewidth=0.6)

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(
        __file__,
        __doc__,
        traces="all traces at two rates instead of a small run",
        sites="all traces on two sites",
    )
    rows = []
    for name, link, scaleup in product(spec["traces"], spec["links"], spec["scaleups"]):
        row, found = weighed(name, link, scaleup, spec)
        assert all(each.bound_ps <= each.exchange_ps for each in found.rows)
        rows.append(row)
    show(rows)
    figure(Path(args.out) / "left.svg", drawing(rows), 7, 4)
    own = [
        goal(
            expected,
            f"share of the exchange left with {name}",
            [row["left"][name]["exchange"] for row in rows],
        )
        for name in ("rails", "stages")
    ]
    return finish(folder, args, rows, [], own)


if __name__ == "__main__":
    sys.exit(main())
