"""HybridEP's Table IV (arXiv 2510.19470): its p fits only if 128 Gb/s is read as 128 GB/s.  Both
readings, side by side.

python -m experiments.hybridep_table4.run
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from experiments.common import arguments, claim, figure, finish
from railopt.base.tables import table
from railopt.base.units import PS_PER_S, parse_bytes, parse_rate, parse_time
from railopt.moe.hybrid.stream import Level, Stream, closed_form, latency_of_ratio


def nearest(workers: int, p: Fraction) -> Fraction:
    """The paper's label, 1 - S/G, of the domain size (a divisor of G) whose label is nearest to
    p.
    """
    labels = [1 - Fraction(size, workers) for size in range(1, workers + 1) if workers % size == 0]
    return min(labels, key=lambda label: (abs(label - p), label))


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows: list[dict[str, Any]] = []
    curves = []
    for kb in spec["expert_kb"]:
        for reading in spec["readings"]:
            stream = Stream(
                (Level("worker", spec["workers"], parse_rate(reading)),),
                parse_bytes(spec["data"]),
                kb * 1000,
                Fraction(parse_time(spec["pre_expert"]), PS_PER_S),
            )
            p, size = closed_form(stream)
            rows.append(
                {
                    "expert_mb": kb / 1000,
                    "bandwidth": reading,
                    "p": float(p),
                    "size": float(size),
                    "label": float(nearest(spec["workers"], p)),
                }
            )
            curves.append(
                (
                    f"{kb / 1000:g} MB, {reading}",
                    [
                        (i / 100, float(latency_of_ratio(stream, Fraction(i, 100))) * 1e3)
                        for i in range(101)
                    ],
                )
            )
    table(
        ["expert", "bandwidth", "p*", "S*", "nearest label 1 - S/G"],
        [
            [
                f"{r['expert_mb']:g}MB",
                r["bandwidth"],
                f"{r['p']:.3f}",
                f"{r['size']:.2f}",
                f"{r['label']:g}",
            ]
            for r in rows
        ],
    )
    printed = spec["readings"][0]
    claims = []
    for r in rows:
        read = printed if r["bandwidth"] == printed else f"{printed} read as {r['bandwidth']}"
        claims.append(claim(expected, f"p, {r['expert_mb']:g} MB, {read}", r["label"]))

    def draw(made: Any) -> None:
        axis = made.subplots()
        for name, points in curves:
            axis.plot(*zip(*points, strict=True), label=name)
        axis.set(xlabel="p", ylabel="latency, ms", yscale="log")
        axis.legend(fontsize=8)

    figure(Path(args.out) / "latency.svg", draw, 6, 4)
    return finish(folder, args, rows, claims)


if __name__ == "__main__":
    sys.exit(main())
