"""Linear equations over the rationals, for the bases of sparse linear programs.

A number is an int where it is whole, else a Fraction: most are, and ints are many times faster.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

Number = int | Fraction
Sparse = dict[int, Number]


def divide(a: Number, b: Number) -> Number:
    """a / b, an int where that is whole."""
    if b == 1:
        return a
    if b == -1:
        return -a
    quotient = Fraction(a) / b
    return quotient.numerator if quotient.denominator == 1 else quotient


class _Pivot(NamedTuple):
    """One step of the elimination: equation `row` gives the unknown that `row` stands for.

    value   its coefficient
    later   coefficients of unknowns that later pivots give, by the row that stands for each
    from_   (row, factor): this equation was taken from that one, so many times
    """

    row: int
    value: Number
    later: Sparse
    from_: list[tuple[int, Number]]


class Factors:
    """A basis: as many independent columns as there are rows.

    holds    for each row, the column that stands for it; None if that is its unit column
    """

    def __init__(
        self, rows: int, columns: Mapping[int, Mapping[int, int]], own: Sequence[int]
    ) -> None:
        """The basis of these columns (row -> coefficient), of the unit columns of the rows `own`,
        and of further unit columns where they are dependent; columns that depend on others are
        left out.

        Gaussian elimination: the shortest equation goes first, for its rarest unknown, so that
        nearly triangular systems, as those of network-like programs are, cost little more than
        reading them.
        """
        self.holds: list[int | None] = [None] * rows
        active: list[Sparse] = [{} for _ in range(rows)]
        for j, column in columns.items():
            for i, value in column.items():
                active[i][j] = value
        free = set(range(rows)) - set(own)
        steps = self._eliminate(active, free)
        slot = {j: i for i, j in enumerate(self.holds) if j is not None}
        units = sorted(set(range(rows)) - set(slot.values()))
        self._pivots = [_Pivot(i, 1, _renamed(active[i], slot), []) for i in units if i not in free]
        self._pivots += [
            _Pivot(i, row.pop(j), _renamed(row, slot), taken) for i, j, row, taken in steps
        ]
        self._pivots += [_Pivot(i, 1, {}, []) for i in units if i in free]

    def _eliminate(
        self, active: list[Sparse], free: set[int]
    ) -> list[tuple[int, int, Sparse, list[tuple[int, Number]]]]:
        """(row, column, equation, what it was taken from), pivot by pivot."""
        holders: dict[int, set[int]] = {}
        for i in free:
            for j in active[i]:
                holders.setdefault(j, set()).add(i)
        queue = [(len(active[i]), i) for i in free]
        heapq.heapify(queue)
        steps, done = [], set()
        while queue:
            length, i = heapq.heappop(queue)
            row = active[i]
            if i in done or length != len(row) or not row:
                continue  # an outdated entry: the row was changed or used since
            done.add(i)
            j = min(row, key=lambda column: len(holders[column]))
            self.holds[i] = j
            for column in row:
                holders[column].discard(i)
            taken: list[tuple[int, Number]] = []
            for other in tuple(holders[j]):
                factor = divide(active[other][j], row[j])
                _subtract(active[other], row, factor, other, holders)
                taken.append((other, factor))
                heapq.heappush(queue, (len(active[other]), other))
            steps.append((i, j, row, taken))
        return steps

    def solve(self, right: Sequence[Number]) -> list[Number]:
        """What each row's unknown is, so that the columns times the unknowns are `right`."""
        result = list(right)
        for pivot in self._pivots:
            if value := result[pivot.row]:
                for other, factor in pivot.from_:
                    result[other] -= factor * value
        for pivot in reversed(self._pivots):
            value = result[pivot.row]
            for other, coefficient in pivot.later.items():
                if result[other]:
                    value -= coefficient * result[other]
            result[pivot.row] = divide(value, pivot.value) if value else 0
        return result

    def solve_transposed(self, right: Sequence[Number]) -> list[Number]:
        """A number for each row, so that the numbers times the column of row i are right[i]."""
        result = list(right)
        for pivot in self._pivots:
            if result[pivot.row]:
                value = result[pivot.row] = divide(result[pivot.row], pivot.value)
                for other, coefficient in pivot.later.items():
                    result[other] -= coefficient * value
        for pivot in reversed(self._pivots):
            for other, factor in pivot.from_:
                if result[other]:
                    result[pivot.row] -= factor * result[other]
        return result


def _renamed(row: Sparse, slot: Mapping[int, int]) -> Sparse:
    """A row by the rows that stand for its columns; columns left out of the basis are dropped."""
    return {slot[j]: value for j, value in row.items() if j in slot}


def _subtract(
    row: Sparse, other: Sparse, factor: Number, index: int, holders: dict[int, set[int]]
) -> None:
    """row -= factor * other, zeros dropped."""
    for j, value in other.items():
        left = row.get(j, 0) - factor * value
        if left:
            row[j] = left
            holders[j].add(index)
        elif j in row:
            del row[j]
            holders[j].discard(index)
