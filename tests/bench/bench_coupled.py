"""The coupled solver, a short selection: `make bench-solver` runs the whole (solver_coupled.py)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import Row
from tests.bench.solver_coupled import moe_rows, small_rows


def rows() -> Iterator[Row]:
    yield from small_rows(seeds=[0])
    yield from moe_rows(nodes=(4, 8, 32, 128), seeds=[0])
