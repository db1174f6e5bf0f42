"""The least bytes moved of chunks, for tests and benches."""

from __future__ import annotations

from fractions import Fraction

from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.solver.fluid import least_time
from railopt.solver.moving.bound import MovedBound, moved_within
from railopt.solver.moving.classes import classes_of


def least_moved(
    fabric: Fabric,
    chunks: Chunks,
    time: Fraction | int | None = None,
    *,
    limit_s: float | None = None,
) -> MovedBound:
    """Of plans of at most `time` seconds, None: of the least time that divisible traffic takes."""
    within = least_time(fabric, chunks) if time is None else Fraction(time)
    return moved_within(fabric, classes_of(fabric, chunks), within, limit_s=limit_s)
