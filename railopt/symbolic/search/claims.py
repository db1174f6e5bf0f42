"""What the claims to which there are counterexamples would allow, computed from the instance: the
word of a file on it would refute anything.  An instance that a claim is not about is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from railopt.checker import integer, integers, need
from railopt.symbolic.search.oracle import best_unequal
from railopt.symbolic.statements.fast import Hot

__all__ = ["ALLOWED", "hot_of"]

Record = dict[str, Any]
Allowed = Callable[[Record, Fraction], Fraction]
"""(counterexample, its optimum) -> what the claim would allow"""
MOST_TRIED = 100_000  # assignments of all nodes' chunks


def hot_of(record: Record) -> Hot:
    """The servers of a counterexample by FAST's phases."""
    best = record["best"]
    return Hot(
        **{
            **best,
            "servers": integer(best["servers"], "servers", 2),
            "gpus": integer(best["gpus"], "gpus", 1),
            "scale_up": integer(best["scale_up"], "scale_up", 1),
            "scale_out": integer(best["scale_out"], "scale_out", 1),
            "stages": tuple(integers(best["stages"], "stages")),
            "local": integer(best.get("local", 0), "local"),
        }
    )


def _optimum(_: Record, optimum: Fraction) -> Fraction:
    return optimum


def _rails(record: Record) -> int:
    """The rails of one list of sizes: LPT's ratio says nothing of receivers on other nodes."""
    problem = record["best"]["problem"]
    need(problem["kind"] == "local", "several nodes: expected one list of sizes on equal rails")
    return int(problem["rails"])


def _graham(record: Record, optimum: Fraction) -> Fraction:
    """LPT's ratio, 4/3 - 1/(3N)."""
    rails = _rails(record)
    return Fraction(4 * rails - 1, 3 * rails) * optimum


def _below_graham(record: Record, optimum: Fraction) -> Fraction:
    rails = _rails(record)
    return Fraction(4 * rails - 2, 3 * rails) * optimum


def _rate(record: Record) -> int:
    """The rate of every NIC, where all are equal."""
    problem = record["best"]["problem"]
    rates = {rate for side in ("tx", "rx") for row in problem[side] for rate in row}
    need(len(rates) == 1, "rates that differ: expected those of the claim, all equal")
    return int(rates.pop())


def _balanced(record: Record, optimum: Fraction) -> Fraction:
    """On equal rates, uniform sending and receiving together are the optimum."""
    _rate(record)
    return optimum


def _sides(record: Record) -> list[list[tuple[int, int]]]:
    """(peer, size) of every chunk that a node sends, and of those that it gets; of nodes that send
    or get any.
    """
    problem = record["best"]["problem"]
    src, dst, size = (problem["chunks"][name] for name in ("src", "dst", "size"))
    sides: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for k, f, p in zip(src, dst, size, strict=True):
        sides.setdefault((True, k), []).append((f, p))
        sides.setdefault((False, f), []).append((k, p))
    return list(sides.values())


def _below_rails(record: Record, optimum: Fraction) -> Fraction:
    """N - 1 times the optimum, of nodes as many as T18a needs."""
    rails, nodes = (record["best"]["problem"][name] for name in ("rails", "nodes"))
    _rate(record)
    need(nodes == rails * (rails - 1) + 2, "nodes: expected N(N-1) + 2, the fewest of the claim")
    return (rails - 1) * optimum


def _granular(record: Record, _: Fraction) -> Fraction:
    """T4's bound, (c + (N - 1) s q) / N, of the node and side where it is largest, q the largest
    chunk.
    """
    rails, rate, sides = record["best"]["problem"]["rails"], _rate(record), _sides(record)
    q = max(size for side in sides for _, size in side)
    bounds = [
        sum(size for _, size in side) + (rails - 1) * len({peer for peer, _ in side}) * q
        for side in sides
    ]
    return Fraction(max(bounds), rails * rate)


def _every_node_alone(record: Record, optimum: Fraction) -> Fraction:
    """What the node needs that needs most; a claim about some plan is refuted by the best only."""
    rails, rate = record["best"]["problem"]["rails"], _rate(record)
    need(
        Fraction(record["value"]) == optimum,
        "value: expected the optimum: the claim is about the best plan",
    )
    sizes = [[size for _, size in side] for side in _sides(record)]
    need(
        sum(rails ** min(len(each), 64) for each in sizes) <= MOST_TRIED,
        f"nodes of more than {MOST_TRIED} assignments: expected a smaller instance",
    )
    return max(best_unequal(each, [rate] * rails) for each in sizes)


def _fractions(record: Record) -> list[list[Fraction]]:
    """Every NIC's rate over the fastest one's, [node][rail], where it is the same both ways."""
    tx, rx = (record["best"]["problem"][side] for side in ("tx", "rx"))
    need(tx == rx, "rates that differ between the ways: expected those of the claim, the same")
    fastest = max(map(max, tx))
    return [[Fraction(rate, fastest) for rate in row] for row in tx]


def _one_nic(fraction: Fraction) -> Allowed:
    """The optimum, where exactly one NIC is at this fraction of all others."""

    def allowed(record: Record, optimum: Fraction) -> Fraction:
        odd = [rate for row in _fractions(record) for rate in row if rate != 1]
        need(odd == [fraction], f"rates: expected one NIC at {fraction} of all others")
        return optimum

    return allowed


def _different_rails(record: Record, optimum: Fraction) -> Fraction:
    rates = _fractions(record)
    need({rate for row in rates for rate in row} == {0, 1}, "rates: expected one, or dead NICs")
    need(len(set(map(sum, rates))) > 1, "rails: expected nodes with different numbers of them")
    return optimum


def _wide(record: Record, optimum: Fraction) -> Fraction:
    """The optimum, where a leaf has as many links as NICs below it, and as fast."""
    leaf, rate = record["best"]["problem"]["leaf"], _rate(record)
    wide = (leaf["uplinks"], leaf["rate"]) == (leaf["nodes"] * leaf["rails"], rate)
    need(wide, "links: expected as many as NICs below a leaf, and as fast")
    return optimum


def _sprayed(record: Record, optimum: Fraction) -> Fraction:
    """The optimum, where packets are spread over all links of a leaf of one rail."""
    _rate(record)
    need(record["best"]["problem"]["leaf"]["rails"] == 1, "leaves: expected one rail each")
    flat = not any(isinstance(place, list) for place in record["bad"]["assignment"])
    need(flat, "assignment: expected rails, whose links are shared by all")
    return optimum


def _printed(record: Record, optimum: Fraction) -> Fraction:
    return hot_of(record).printed() * optimum


def _hidden(record: Record, _: Fraction) -> Fraction:
    hot = hot_of(record)
    need(list(hot.stages) == sorted(hot.stages, reverse=True), "stages: not in descending order")
    return hot.hidden


ALLOWED: dict[str, Allowed] = {
    "a sender that balances its rails with LPT leaves its receivers balanced": _balanced,
    "aggregate-uniform sending makes receiving uniform": _balanced,
    "round robin keeps T4's bound for chunks of different sizes": _granular,
    "list scheduling keeps LPT's ratio in any order": _graham,
    "a policy that sees its own row stays within N - 1 of the optimum": _below_rails,
    "LPT is within (4N - 2)/(3N) of the optimum": _below_graham,
    "some plan attains the optimum of every node alone, whatever the sizes": _every_node_alone,
    "uniform over the rails alive at both ends is optimal": _one_nic(Fraction(0)),
    "nodes with different numbers of rails: spreading each pair evenly keeps the sender uniform "
    "and optimal": _different_rails,
    "the uniform split stays optimal when one NIC runs at half speed": _one_nic(Fraction(1, 2)),
    "with as many uplinks as NICs and as fast, hashed flows wait for NICs alone": _wide,
    "uniform sending and receiving make the uplinks of a group even": _sprayed,
    "R1 > R2 gives a node N channels of R2 to another, also from one GPU": _optimum,
    "FAST is within 1 + (B2/B1)(m + m/n) of the optimum": _printed,
    "in descending order every redistribution but the last is hidden": _hidden,
}
