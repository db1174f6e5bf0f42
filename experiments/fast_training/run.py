"""FAST's released end-to-end throughputs over RCCL's: how much of them an all-to-all that does not
collapse can explain.

python -m experiments.fast_training.run [--full] [--out DIR]

A training step is compute and all-to-alls, so the speed-up of the step is at most the ratio of the
all-to-alls' times, which it nears as compute nears nothing.  That limit is computed twice: from the
simulator, where RCCL's direct flows share links fairly, and from the bandwidths that FAST's authors
measured for both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import arguments, claim, figure, finish
from experiments.fast_common import seconds, workload
from railopt import Fabric
from railopt.base.tables import table

WAYS = ("simulated", "simulated, incast", "measured")


def simulated(spec: dict[str, Any], servers: int, top_k: int, incast: bool) -> list[float]:
    """Time of direct flows under ECMP over FAST's, for each workload and seed."""
    fabric = Fabric.uniform(servers, spec["gpus"], spec["link"], scaleup=spec["scaleup"])
    alpha_ps, found = spec["alpha_us"] * 10**6, []
    for name in spec["workloads"]:
        for seed in range(spec["seeds"]):
            traffic = workload(name, fabric, spec["mb_per_expert"] * top_k, seed)
            direct, fast = (
                seconds(method, fabric, traffic, alpha_ps, incast)
                for method in ("direct-ecmp", "fast")
            )
            found.append(direct / fast)
    return found


def measured(expected: dict[str, Any], servers: int) -> list[float]:
    """FAST's bandwidth over RCCL's as released, by size; there are such runs of 4 servers alone."""
    return [fast / rccl for fast, rccl in expected["measured_gbs"].values()] if servers == 4 else []


def share(speedup: float, limit: float) -> float | None:
    """The share of a step of RCCL's that its all-to-alls take, if their being `limit` times as fast
    makes the step `speedup` times as fast; None where no share does.
    """
    found = (1 - 1 / speedup) / (1 - 1 / limit) if limit > 1 else np.inf
    return float(found) if found <= 1 else None


def row(spec: dict[str, Any], expected: dict[str, Any], servers: int, top_k: int) -> dict[str, Any]:
    """The limits of one case, beside what was measured end to end."""
    limits = {
        "simulated": simulated(spec, servers, top_k, False),
        "simulated, incast": simulated(spec, servers, top_k, True),
        "measured": measured(expected, servers),
    }
    paper = expected["figures"][label(servers, top_k)]["paper"][0]
    shares = {way: share(paper, max(found)) for way, found in limits.items() if found}
    return {"servers": servers, "top_k": top_k, "paper": paper, "limits": limits, "share": shares}


def label(servers: int, top_k: int) -> str:
    """The name of a figure."""
    return f"simulated limit of the step over RCCL's, {servers} servers, top {top_k}"


def show(rows: list[dict[str, Any]]) -> None:
    def cell(each: dict[str, Any], way: str) -> str:
        found = each["limits"][way]
        if not found:
            return "-"
        part = each["share"][way]
        return f"{max(found):.2f} ({'none' if part is None else f'{part:.0%}'})"

    table(
        ["servers", "top k", "measured step", *WAYS],
        [
            [each["servers"], each["top_k"], f"{each['paper']:.2f}", *(cell(each, w) for w in WAYS)]
            for each in rows
        ],
        title="largest limit of the speed-up (and the share of RCCL's step that its all-to-alls "
        "would have to take)",
    )


def draw(made: Any, rows: list[dict[str, Any]]) -> None:
    axes = made.subplots()
    places = np.arange(len(rows))
    axes.bar(places - 0.2, [each["paper"] for each in rows], 0.4, label="measured, whole step")
    axes.bar(
        places + 0.2,
        [max(each["limits"]["simulated"]) for each in rows],
        0.4,
        label="simulated limit",
    )
    axes.set_xticks(places, [f"{each['servers']} servers, top {each['top_k']}" for each in rows])
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel("FAST over RCCL")
    axes.legend()


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = [row(spec, expected, servers, top_k) for servers, top_k in spec["cases"]]
    show(rows)
    claims = [
        claim(expected, label(each["servers"], each["top_k"]), max(each["limits"]["simulated"]))
        for each in rows
    ]
    figure(Path(args.out) / "training.svg", lambda made: draw(made, rows))
    return finish(folder, args, rows, claims)


if __name__ == "__main__":
    sys.exit(main())
