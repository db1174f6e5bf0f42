"""Sparse linear equations over the rationals."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from fractions import Fraction

Row = dict[int, Fraction]


def solve_rational(
    rows: Sequence[Mapping[int, Fraction | int]], right: Sequence[Fraction | int], unknowns: int
) -> list[Fraction] | None:
    """One exact solution of `rows[i] . x == right[i]` (rows map column -> coefficient); unknowns
    left free are 0; None if there is no solution.

    Gaussian elimination: the shortest row goes first, on its rarest column, so that nearly
    triangular systems, as bases of network-like programs are, cost little more than reading them.
    """
    active: list[Row] = [{j: Fraction(v) for j, v in row.items() if v} for row in rows]
    value = [Fraction(v) for v in right]
    holders: dict[int, set[int]] = {}
    for i, row in enumerate(active):
        for j in row:
            holders.setdefault(j, set()).add(i)
    queue = [(len(row), i) for i, row in enumerate(active)]
    heapq.heapify(queue)
    pivots: list[tuple[int, int]] = []
    done = [False] * len(active)
    while queue:
        length, i = heapq.heappop(queue)
        row = active[i]
        if done[i] or length != len(row):
            continue  # an outdated entry: the row was shortened or used since
        done[i] = True
        if not row:
            if value[i]:
                return None
            continue
        pivot = min(row, key=lambda j: len(holders[j]))
        pivots.append((i, pivot))
        for j in row:
            holders[j].discard(i)
        for other in tuple(holders[pivot]):
            factor = active[other][pivot] / row[pivot]
            _subtract(active[other], row, factor, other, holders)
            value[other] -= factor * value[i]
            heapq.heappush(queue, (len(active[other]), other))
    result = [Fraction(0)] * unknowns
    for i, pivot in reversed(pivots):
        rest = sum((v * result[j] for j, v in active[i].items() if j != pivot), Fraction(0))
        result[pivot] = (value[i] - rest) / active[i][pivot]
    return result


def _subtract(
    row: Row, other: Row, factor: Fraction, index: int, holders: dict[int, set[int]]
) -> None:
    """row -= factor * other, zeros dropped."""
    for j, v in other.items():
        left = row.get(j, Fraction(0)) - factor * v
        if left:
            row[j] = left
            holders[j].add(index)
        else:
            del row[j]
            holders[j].discard(index)
