"""1,000 data centres (HybridEP, arXiv 2510.19470): fixed domain size, fixed ratio and the optimum,
modelled and simulated.

python -m experiments.hybridep_scale.run [--full]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from experiments.common import arguments, claim, figure, finish, goal
from railopt.base.tables import table
from railopt.base.units import PS_PER_S, parse_bytes, parse_rate, parse_time
from railopt.moe.hybrid.simulated import block_time
from railopt.moe.hybrid.stream import Domain, Level, Stream, latency, optimum, plain_domains


def stream(spec: dict[str, Any], centres: int, gbps: int) -> Stream:
    return Stream(
        (
            Level("dc", centres, gbps * 10**9 // 8),
            Level("gpu", spec["gpus"], parse_rate(spec["inside"])),
        ),
        parse_bytes(spec["data"]),
        parse_bytes(spec["expert"]),
        Fraction(parse_time(spec["pre_expert"]), PS_PER_S),
        compression=Fraction(spec["compression"]),
    )


def speedup(block: Stream, size: Fraction | int) -> float | None:
    """Over plain expert parallelism, of equal domains of `size` data centres, every GPU on its own
    inside; None where the data centres have no such domains.
    """
    centres, gpus = (level.count for level in block.levels)
    if size.denominator != 1 or centres % size:
        return None
    domains = Domain(centres, int(centres // size)), Domain(gpus, gpus)
    return float(latency(block, plain_domains(block)).total / latency(block, domains).total)


def row(spec: dict[str, Any], centres: int, gbps: int) -> dict[str, Any]:
    """One number of data centres at one bandwidth: speed-ups over plain expert parallelism."""
    block = stream(spec, centres, gbps)
    plain = latency(block, plain_domains(block)).total
    begun = time.perf_counter()
    best = optimum(block)
    searched = time.perf_counter() - begun
    ratios = [(1 - Fraction(ratio)) * centres for ratio in spec["ratio"]]
    fixed, shared = ([speedup(block, size) for size in sizes] for sizes in (spec["domain"], ratios))
    begun = time.perf_counter()
    simulated = block_time(block, best.domains)
    return {
        "centres": centres,
        "gbps": gbps,
        "plain_s": float(plain),
        "fixed_size": fixed,
        "fixed_ratio": shared,
        "optimum": float(best.speedup),
        "domains": [str(d) for d in best.domains],
        "model_over_simulated": float(best.latency.total / simulated),
        "search_s": searched,
        "simulate_s": time.perf_counter() - begun,
    }


def show(rows: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    table(
        [
            "data centres",
            "Gb/s",
            "plain",
            *(f"S = {size}" for size in spec["domain"]),
            *(f"p = {p}" for p in spec["ratio"]),
            "optimum",
            "domains",
            "model / simulated",
            "search",
            "simulate",
        ],
        [
            [
                r["centres"],
                r["gbps"],
                f"{r['plain_s'] * 1e3:.1f}ms",
                *("-" if x is None else f"{x:.3f}x" for x in r["fixed_size"] + r["fixed_ratio"]),
                f"{r['optimum']:.3f}x",
                ",".join(r["domains"]),
                f"{r['model_over_simulated']:.6f}",
                f"{r['search_s'] * 1e3:.1f}ms",
                f"{r['simulate_s'] * 1e3:.1f}ms",
            ]
            for r in rows
        ],
    )


def drawing(rows: list[dict[str, Any]], spec: dict[str, Any]) -> Callable[[Any], None]:
    """Speed-up against data centres, a colour a bandwidth; nothing where no equal domains are."""

    def draw(made: Any) -> None:
        axis = made.subplots()
        for gbps in spec["gbps"]:
            mine = [r for r in rows if r["gbps"] == gbps]
            centres, best = [r["centres"] for r in mine], [r["optimum"] for r in mine]
            line = axis.plot(centres, best, marker="o", label=f"{gbps} Gb/s, optimum")[0]
            for key, style in (("fixed_size", "--"), ("fixed_ratio", ":")):
                chosen = [float("nan") if r[key][1] is None else r[key][1] for r in mine]
                axis.plot(centres, chosen, linestyle=style, color=line.get_color())
        axis.set(
            xscale="log",
            xlabel="data centres",
            ylabel="speed-up over plain expert parallelism",
            title=f"dashed: S = {spec['domain'][1]}, dotted: p = {spec['ratio'][1]}",
        )
        axis.legend(fontsize=8)

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = [row(spec, centres, gbps) for centres in spec["centres"] for gbps in spec["gbps"]]
    show(rows, spec)
    last = [r for r in rows if r["centres"] == 1000]
    claims = [
        claim(expected, f"speed-up at 1000 data centres, {name}", [x for r in last for x in r[key]])
        for name, key in (("fixed domain size", "fixed_size"), ("fixed ratio", "fixed_ratio"))
    ]
    agree = [r["model_over_simulated"] for r in rows]
    figure(Path(args.out) / "scale.svg", drawing(rows, spec), 6, 4)
    own = [goal(expected, "model over simulated time", agree)]
    return finish(folder, args, rows, claims, own)


if __name__ == "__main__":
    sys.exit(main())
