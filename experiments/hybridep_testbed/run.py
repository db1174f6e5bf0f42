"""HybridEP's testbed rows (arXiv 2510.19470): speed-up against data size and expert size, and what
migration adds.

    python -m experiments.hybridep_testbed.run

Three parameters that the paper does not give are fitted to three of its figures (the iteration
times of both systems on Cluster-L at 192 MB, and the speed-up at 6 MB): MoE layers, compute a byte
of data, and the constant that the paper adds for the backward pass of migrated experts.  Every
other row is then a prediction of the stream model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common import arguments, claim, figure, finish
from railopt.base.tables import table
from railopt.base.units import parse_rate
from railopt.moe.hybrid.stream import Level, Stream, latency, optimum, plain_domains

MB = 10**6


class Fit(NamedTuple):
    """What the paper does not tell: MoE layers (effective), compute seconds a byte and layer,
    seconds an iteration of the hybrid.
    """

    layers: Fraction
    compute: Fraction
    constant: Fraction


def stream(
    spec: dict[str, Any],
    cluster: str,
    data_mb: float,
    expert_mb: float,
    compression: int = 1,
    compute: Fraction = Fraction(0),
) -> Stream:
    """One MoE block's forward pass on data centres of GPUs; Cluster-S is one data centre."""
    levels = (
        [Level("dc", spec["clusters"][cluster], parse_rate(spec["link"]))]
        if spec["clusters"][cluster] > 1
        else []
    )
    data = int(data_mb * MB)
    return Stream(
        (*levels, Level("gpu", spec["gpus"], parse_rate(spec["inside"]))),
        data,
        int(expert_mb * MB),
        data * compute / 3,
        compression=Fraction(compression),
    )


def iteration(fit: Fit, block: Stream, *, plain: bool) -> Fraction:
    """Seconds of one iteration: forward (the gather hides under a third of the compute), backward
    with two more exchanges.

    A planner that knows the constant stays with plain expert parallelism where that is faster.
    """
    found = latency(block, plain_domains(block))
    took = fit.layers * (found.total + 2 * block.pre + found.exchange)
    if plain:
        return took
    best = optimum(block).latency
    return min(took, fit.layers * (best.total + 2 * block.pre + best.exchange) + fit.constant)


def fitted(
    spec: dict[str, Any], plain_s: Fraction, hybrid_s: Fraction, small_speedup: Fraction
) -> Fit:
    """The parameters with which Cluster-L takes these times at 192 MB and has this speed-up at 6
    MB.
    """
    size, large = spec["data_expert_mb"], 192
    constant = Fraction(0)
    for _ in range(30):
        compute_all = hybrid_s - constant  # at 192 MB everything else is hidden
        per_layer = (
            latency(
                stream(spec, "L", large, size), plain_domains(stream(spec, "L", large, size))
            ).exchange
            * 2
        )
        layers = (plain_s - compute_all) / per_layer
        fit = Fit(layers, compute_all / layers / (large * MB), Fraction(0))
        small = stream(spec, "L", 6, size, compute=fit.compute)
        constant = (
            iteration(fit, small, plain=True) / small_speedup - iteration(fit, small, plain=False)
        ).limit_denominator(10**9)  # fit has none
    return fit._replace(constant=constant)


def row(kind: str, case: tuple[str, float, float], times: list[Fraction]) -> dict[str, Any]:
    """A (cluster, data MB, expert MB), seconds before and after."""
    cluster, data, expert = case
    before, after = times
    return {
        "kind": kind,
        "cluster": cluster,
        "data_mb": data,
        "expert_mb": expert,
        "before_s": float(before),
        "after_s": float(after),
        "speedup": float(before / after),
    }


def hybrid_rows(fit: Fit, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Plain expert parallelism against the hybrid, by data size and by expert size."""
    by_data = [
        (cluster, data, spec["data_expert_mb"])
        for cluster in ("M", "L")
        for data in spec["data_mb"]
    ]
    by_expert = [("L", spec["expert_data_mb"], expert) for expert in spec["expert_mb"]]
    rows = []
    for kind, cases in (("data", by_data), ("expert", by_expert)):
        for case in cases:
            block = stream(spec, *case, compute=fit.compute)
            times = [iteration(fit, block, plain=plain) for plain in (True, False)]
            rows.append(row(kind, case, times))
    return rows


def migration_rows(fit: Fit, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The hybrid without compression against the hybrid with it."""
    rows = []
    for data, expert in ((24, 8), (48, 2)):
        for cluster in ("S", "M", "L"):
            case = (cluster, data, expert)
            times = [
                iteration(fit, stream(spec, *case, ratio, fit.compute), plain=False)
                for ratio in (1, spec["compression"])
            ]
            rows.append(row("migration", case, times))
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    table(
        ["row", "cluster", "data MB", "expert MB", "before s", "after s", "speed-up"],
        [
            [
                r["kind"],
                r["cluster"],
                r["data_mb"],
                r["expert_mb"],
                f"{r['before_s']:.3f}",
                f"{r['after_s']:.3f}",
                f"{r['speedup']:.2f}",
            ]
            for r in rows
        ],
    )


def compared(
    rows: list[dict[str, Any]], spec: dict[str, Any], expected: dict[str, Any]
) -> list[dict[str, Any]]:
    """The paper's figures against the rows."""
    by = {(r["cluster"], r["data_mb"]): r for r in rows if r["kind"] == "data"}
    claims = [claim(expected, "plain EP, Cluster-L, 192 MB, s", by["L", 192]["before_s"])]
    claims += [
        claim(expected, f"speed-up {cluster}, {data} MB", by[cluster, data]["speedup"])
        for cluster in ("M", "L")
        for data in spec["data_mb"]
    ]
    names = {
        "expert": "speed-up by expert size, 32 to 2 MB",
        "migration": "migration over partition",
    }
    return claims + [
        claim(expected, name, [r["speedup"] for r in rows if r["kind"] == kind])
        for kind, name in names.items()
    ]


def drawing(
    rows: list[dict[str, Any]], spec: dict[str, Any], expected: dict[str, Any]
) -> Callable[[Any], None]:
    """Speed-up against data size: ours solid, the paper's dashed."""
    sizes, figures = spec["data_mb"], expected["figures"]

    def draw(made: Any) -> None:
        axis = made.subplots()
        for cluster in ("M", "L"):
            mine = [r for r in rows if (r["kind"], r["cluster"]) == ("data", cluster)]
            axis.plot(sizes, [r["speedup"] for r in mine], marker="o", label=f"{cluster}, ours")
            theirs = [figures[f"speed-up {cluster}, {size} MB"]["paper"] for size in sizes]
            axis.plot(sizes, theirs, marker="x", linestyle="--", label=f"{cluster}, HybridEP")
        axis.set(
            xscale="log",
            xlabel="data a GPU and all-to-all, MB",
            ylabel="speed-up over plain expert parallelism",
        )
        axis.legend()

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    small = Fraction(str(expected["figures"]["speed-up L, 6 MB"]["paper"]))
    fit = fitted(spec, Fraction("29.0"), Fraction("5.20"), small)
    print(
        f"fitted: {float(fit.layers):.2f} MoE layers, {float(fit.compute * MB * 1e3):.3f} ms of "
        f"compute a MB and layer, "
        f"{float(fit.constant):.3f} s an iteration for migrated experts' backward\n"
    )
    rows = hybrid_rows(fit, spec) + migration_rows(fit, spec)
    show(rows)
    figure(Path(args.out) / "speedup.svg", drawing(rows, spec, expected), 6, 4)
    return finish(folder, args, rows, compared(rows, spec, expected))


if __name__ == "__main__":
    sys.exit(main())
