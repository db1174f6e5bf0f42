"""How far FAST, SpreadOut, compact and the pipeline are from the best schedule, and how long each
takes to find.

python experiments/fast_optimum/run.py [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, claim, finish, goal
from railopt import Fabric, Traffic
from railopt.answers.optimum import best_schedule, startup_of
from railopt.base.dice import Dice
from railopt.base.tables import table
from railopt.schedule import synthesise
from railopt.schedule.report import timed
from railopt.solver.epochs.exchange import ChunkExchange


def drawn(servers: int, gpus: int, most: int, seed: int) -> tuple[Fabric, Any]:
    """A fabric, and chunks of every pair of GPUs: 0 to `most`, all as likely."""
    fabric, count = Fabric.uniform(servers, gpus), servers * gpus
    matrix = Dice(servers, gpus, seed, "fast_optimum").below(most + 1, (count, count))
    np.fill_diagonal(matrix, 0)
    return fabric, matrix


def measure(shape: list[int], seed: int, spec: dict[str, Any], stages: bool) -> dict[str, Any]:
    """The optimum of one draw, the kinds' distances from it in per cent, and times in seconds: of
    the solver processor time, for wall time has others in it, without the start of its processes.
    """
    name = "stages" if stages else "epochs"
    servers, gpus = shape
    fabric, matrix = drawn(servers, gpus, spec[f"most_{name}"], seed)
    chunk, startup = spec[f"chunk_{name}"], Fraction(spec[f"startup_{name}"])
    traffic = Traffic.from_matrix(matrix * chunk, fabric)
    exchange = ChunkExchange.of(fabric, traffic, chunk, startup, stages=stages)
    found = best_schedule(fabric, exchange, limit_s=spec["limit_s"])
    value = found.found.bracket.value
    units = Traffic.from_matrix(matrix, fabric)
    made = {
        kind: partial(synthesise, fabric, units, kind, startup=startup_of(exchange, kind))
        for kind in found.kinds
    }
    return {
        "shape": f"{servers} x {gpus}",
        "rule": name,
        "seed": seed,
        "optimum": str(found.found.bracket.status),
        "us": float(value or 0) * 1e6,
        "stages": found.stages,
        "solver s": found.found.solver_s,
        **{f"{kind} %": 100 * float(found.distance(kind)) for kind in found.kinds},
        **{f"{kind} s": timed(made[kind])[1] / 1e6 for kind in found.kinds},
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A line per draw."""
    head = ["shape", "rule", "seed", "optimum", "us", "stages", "solver s"]
    kinds = ("compact", "fast", "spreadout", "pipelined")
    shown = [
        [
            *(row[name] for name in head[:4]),
            f"{row['us']:.1f}",
            row["stages"] or "-",
            f"{row['solver s']:.3f}",
            *(f"{row[f'{kind} %']:.2f}" if f"{kind} %" in row else "-" for kind in kinds),
            *(f"{row[f'{k} s'] * 1e6:.0f}" if f"{k} s" in row else "-" for k in kinds[:2]),
        ]
        for row in rows
    ]
    table([*head, *(f"{kind} +%" for kind in kinds), "compact us", "fast us"], shown)


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = [
        measure(shape, seed, spec, stages)
        for stages in (True, False)
        for shape in spec["shapes"]
        for seed in spec["seeds"]
    ]
    show(rows)
    staged = [row for row in rows if row["rule"] == "stages" and row["optimum"] != "open"]
    closed = [row["optimum"] != "open" and row["solver s"] <= spec["processor_s"] for row in rows]
    ratios = [row["solver s"] / row["fast s"] for row in staged if row["solver s"]]
    claims = [claim(expected, "solver's time over FAST's synthesis", ratios)]
    own = [
        goal(expected, "optimum found within the limit, share of the draws", np.mean(closed)),
        goal(expected, "compact over the optimum, %", [row["compact %"] for row in staged]),
        goal(expected, "FAST over the optimum, %", [row["fast %"] for row in staged]),
    ]
    return finish(folder, args, rows, claims, own)


if __name__ == "__main__":
    sys.exit(main())
