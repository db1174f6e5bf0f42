"""T13: a matrix of bytes between servers as stages in which each server has one peer (Birkhoff
1946), as FAST uses it.

Fill up to equal line sums L with virtual bytes, then take perfect matchings off the support until
nothing is left: the stages' lengths add up to L exactly.  Each stage empties an entry, so there are
at most n^2 - 2n + 2 of them (Marcus and Ree 1959).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product

from railopt.symbolic.result import Result, verdict

Matrix = tuple[tuple[int, ...], ...]


def line_sums(matrix: Matrix) -> tuple[list[int], list[int]]:
    """(row sums, column sums)."""
    return [sum(row) for row in matrix], [sum(column) for column in zip(*matrix, strict=True)]


def filled(matrix: Matrix) -> Matrix:
    """FAST's step: entry by entry as many virtual bytes as its row and its column can still
    take.
    """
    rows, columns = line_sums(matrix)
    longest, out = max(*rows, *columns), [list(row) for row in matrix]
    for r in range(len(out)):
        for c in range(len(out)):
            added = min(longest - rows[r], longest - columns[c])
            out[r][c] += added
            rows[r] += added
            columns[c] += added
    return tuple(map(tuple, out))


def matchings(matrix: Matrix) -> Iterator[tuple[int, ...]]:
    """Every perfect matching on the support."""
    n = len(matrix)
    return (p for p in permutations(range(n)) if all(matrix[i][p[i]] for i in range(n)))


@lru_cache(maxsize=1 << 16)
def most_stages(matrix: Matrix) -> int | None:
    """The most stages that any choice of matchings, each taken as far as it lasts, can need; None
    if one gets stuck.
    """
    if not any(map(any, matrix)):
        return 0
    longest: int | None = None
    for p in matchings(matrix):
        least = min(matrix[i][p[i]] for i in range(len(matrix)))
        rest = most_stages(
            tuple(
                tuple(v - least * (p[i] == j) for j, v in enumerate(row))
                for i, row in enumerate(matrix)
            )
        )
        if rest is None:
            return None
        longest = max(longest or 0, rest + 1)
    return longest


def birkhoff(quick: bool = False, *, fill: bool = True) -> Result:
    """Every small matrix, every choice of matchings: never stuck, total L, at most n^2 - 2n + 2
    stages.

    `fill=False` leaves the line sums unequal.
    """
    failures, count = [], 0
    for n, most in ((2, 3), (3, 2)) if quick else ((2, 5), (3, 3), (4, 1)):
        places = [(i, j) for i in range(n) for j in range(n) if i != j]
        for entries in product(range(most + 1), repeat=len(places)):
            given = dict(zip(places, entries, strict=True))
            matrix = tuple(tuple(given.get((i, j), 0) for j in range(n)) for i in range(n))
            whole, count = filled(matrix) if fill else matrix, count + 1
            rows, columns = line_sums(whole)
            longest = max(max(sums) for sums in line_sums(matrix))
            stages = most_stages(whole)
            if {*rows, *columns} != {longest} or stages is None or stages > n * n - 2 * n + 2:
                failures.append(f"{matrix}: lines {rows}, {columns}, stages {stages}")
    sizes = "n = 2, 3, entries up to 3 and 2" if quick else "n = 2, 3, 4, entries up to 5, 3 and 1"
    return verdict(
        "exhaustive",
        f"{sizes}: {count} matrices, every choice of matchings",
        failures,
        ("a stage lasts as long as its smallest matched entry, virtual bytes included",),
    )
