"""Instances and witnesses as terms of `proofs/coq`, for tests that have Coq compute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, gcd
from typing import Any

Record = Mapping[str, Any]


def numbers(values: Iterable[int]) -> str:
    """A list of whole numbers."""
    return "[" + "; ".join(map(str, values)) + "]"


def table(rows: Iterable[Iterable[int]]) -> str:
    """A list of lists of whole numbers."""
    return "[" + "; ".join(map(numbers, rows)) + "]"


def pairs(rows: Iterable[tuple[int, int]]) -> str:
    """A list of pairs of whole numbers."""
    return "[" + "; ".join(f"({a}, {b})" for a, b in rows) + "]"


def grouped(columns: Sequence[Sequence[int]], rail: Sequence[int]) -> tuple[str, str]:
    """Chunks (src, dst, size) for `chunks_of`, by pair and size, and their rails for `runs_of` in
    that order.  Chunks of one pair and one size are alike: which takes which rail is no matter.
    """
    rails = rail or [0] * len(columns[0])
    by_pair: dict[tuple[int, int], dict[int, list[int]]] = {}
    for s, d, size, n in zip(*columns, rails, strict=True):
        by_pair.setdefault((s, d), {}).setdefault(size, []).append(n)
    groups, order = [], []
    for (s, d), sizes in sorted(by_pair.items()):
        counts = pairs((size, len(used)) for size, used in sizes.items())
        groups.append(f"({s}, {d}, {counts}, [])")
        order += [n for used in sizes.values() for n in used]
    return "[" + "; ".join(groups) + "]", pairs((n, 1) for n in order)


def rooms_before(bound: Fraction, speeds: Iterable[int]) -> list[int]:
    """The bytes that fit on rails of these speeds in any time short of `bound`."""
    return [max(0, ceil(bound * speed) - 1) for speed in speeds]


def witness_term(witness: Record, sizes: Sequence[int], rooms: Sequence[int]) -> str:
    """A local witness about `sizes` on rails that have these rooms (bytes)."""
    unit, kind = gcd(*sizes) or 1, str(witness["kind"])
    if not any(room // unit for room in rooms):
        return "Average"  # no rail has room for a single job, whatever the witness
    if kind == "pigeonhole":
        return f"(Pigeonhole {witness['jobs']} {witness['rails']})"
    if kind == "count":
        return f"(Count {witness['jobs']})"
    if kind == "dual":
        weights = sorted(((z // unit, weight) for z, weight in witness["weights"]), reverse=True)
        return f"(Dual {pairs(weights)}%N)"
    return {"average": "Average", "cover": "Cover"}[kind]


def sides(record: Record) -> str:
    """The sides that a joint witness names, the one with the least room to spare first: the order
    decides how soon ways end, not what is found.
    """
    problem, bound = record["problem"], Fraction(record["claim"]["bound"])
    spare = []
    for name, ends, rates, term in (
        ("send", "src", "tx", "Send"),
        ("recv", "dst", "rx", "Receive"),
    ):
        chunks = list(zip(problem["chunks"][ends], problem["chunks"]["size"], strict=True))
        for node in record["witness"][name]:
            needed = sum(size for end, size in chunks if end == node)
            rooms = rooms_before(bound, problem[rates][node])
            spare.append((sum(min(room, needed) for room in rooms) - needed, f"({term}, {node})"))
    return "[" + "; ".join(side for _, side in sorted(spare, key=lambda side: side[0])) + "]"
