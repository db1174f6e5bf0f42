"""What the claims to which there are counterexamples would allow, computed from the instance: the
word of a file on it would refute anything.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from railopt.check import integer, integers, need
from railopt.symbolic.search.oracle import best_unequal
from railopt.symbolic.statements.fast import Hot

__all__ = ["ALLOWED", "hot_of"]

Record = dict[str, Any]
MOST_TRIED = 100_000  # assignments of one node's chunks


def hot_of(record: Record) -> Hot:
    """The servers of a counterexample by FAST's phases."""
    best = record["best"]
    return Hot(
        **{
            **best,
            "servers": integer(best["servers"], "servers", 1),
            "gpus": integer(best["gpus"], "gpus", 1),
            "scale_up": integer(best["scale_up"], "scale_up", 1),
            "scale_out": integer(best["scale_out"], "scale_out", 1),
            "stages": tuple(integers(best["stages"], "stages")),
            "local": integer(best.get("local", 0), "local"),
        }
    )


def _optimum(_: Record, optimum: Fraction) -> Fraction:
    return optimum


def _graham(record: Record, optimum: Fraction) -> Fraction:
    """LPT's ratio, 4/3 - 1/(3N)."""
    rails = record["best"]["problem"]["rails"]
    return Fraction(4 * rails - 1, 3 * rails) * optimum


def _below_graham(record: Record, optimum: Fraction) -> Fraction:
    rails = record["best"]["problem"]["rails"]
    return Fraction(4 * rails - 2, 3 * rails) * optimum


def _nodes(record: Record) -> tuple[int, int, list[list[int]]]:
    """Rails, the rate of every NIC, and the sizes of what each node sends and of what it gets."""
    problem = record["best"]["problem"]
    rates = {rate for side in ("tx", "rx") for row in problem[side] for rate in row}
    need(len(rates) == 1, "rates that differ: expected those of the claim, all equal")
    chunks = problem["chunks"]
    sizes = [
        [size for node, size in zip(chunks[end], chunks["size"], strict=True) if node == k]
        for end in ("src", "dst")
        for k in range(problem["nodes"])
    ]
    return problem["rails"], rates.pop(), sizes


def _granular(record: Record, _: Fraction) -> Fraction:
    """T4's bound: (r + (N - 1) p_max) / N, of the fullest node and the largest chunk."""
    rails, rate, sizes = _nodes(record)
    largest = max(max(each, default=0) for each in sizes)
    return Fraction(max(map(sum, sizes)) + (rails - 1) * largest, rails * rate)


def _every_node_alone(record: Record, _: Fraction) -> Fraction:
    rails, rate, sizes = _nodes(record)
    need(
        all(rails ** len(each) <= MOST_TRIED for each in sizes),
        f"a node of more than {MOST_TRIED} assignments: expected a smaller instance",
    )
    return max(best_unequal(each, [rate] * rails) for each in sizes)


def _printed(record: Record, optimum: Fraction) -> Fraction:
    return hot_of(record).printed() * optimum


def _hidden(record: Record, _: Fraction) -> Fraction:
    hot = hot_of(record)
    need(list(hot.stages) == sorted(hot.stages, reverse=True), "stages: not in descending order")
    return hot.hidden


ALLOWED: dict[str, Callable[[Record, Fraction], Fraction]] = {
    "a sender that balances its rails with LPT leaves its receivers balanced": _optimum,
    "aggregate-uniform sending makes receiving uniform": _optimum,
    "round robin keeps T4's bound for chunks of different sizes": _granular,
    "list scheduling keeps LPT's ratio in any order": _graham,
    "LPT is within (4N - 2)/(3N) of the optimum": _below_graham,
    "some plan attains the optimum of every node alone, whatever the sizes": _every_node_alone,
    "uniform over the rails alive at both ends is optimal": _optimum,
    "nodes with different numbers of rails: spreading each pair evenly keeps the sender uniform "
    "and optimal": _optimum,
    "the uniform split stays optimal when one NIC runs at half speed": _optimum,
    "R1 > R2 gives a node N channels of R2 to another, also from one GPU": _optimum,
    "FAST is within 1 + (B2/B1)(m + m/n) of the optimum": _printed,
    "in descending order every redistribution but the last is hidden": _hidden,
}
