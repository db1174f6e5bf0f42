"""Parameter-efficient migration: an expert as a sparse difference from a shared one (HybridEP,
section on SR encoding).

The shared expert is the mean of all experts, known everywhere.  An expert travels as the k largest
differences from it, value and index; what is dropped is the error, and it is known exactly:

    relative error = sqrt(sum of the dropped differences^2 / sum of the expert's parameters^2)
    compression    = dense bytes / (k x (value bytes + index bytes))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array
from railopt.base.errors import InputError
from railopt.moe.hybrid.spec import HybridQuestion
from railopt.moe.hybrid.stream import Domain, optimum


class Migrated(NamedTuple):
    """A sparse difference: `values` at `indices` (flat, rising) of a parameter array of `shape`."""

    values: Array
    indices: npt.NDArray[np.uint32]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.values.nbytes + self.indices.nbytes


def shared_expert(experts: Array) -> Array:
    """The mean over the first axis: [experts, ...] -> [...], in float32."""
    return np.asarray(np.mean(experts, axis=0, dtype=np.float32))


def kept(parameters: int, compression: float, width: int = 4) -> int:
    """How many differences of parameters `width` bytes wide to send for this compression, which is
    at least 1: one at least.
    """
    return max(1, min(parameters, int(parameters * width / compression / (width + 4))))


def encode(expert: Array, shared: Array, keep: int) -> Migrated:
    """The `keep` largest differences of an expert of at most 2**32 parameters from the shared one;
    ties by index.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        difference = (expert.astype(np.float32) - shared.astype(np.float32)).ravel()
    if not np.isfinite(difference).all():
        raise InputError("differences from the shared expert that are no finite float32 numbers")
    size = np.abs(difference)
    least = np.partition(size, -keep)[-keep]
    larger = np.flatnonzero(size > least)
    equal = np.flatnonzero(size == least)[: keep - len(larger)]
    chosen = np.sort(np.concatenate([larger, equal]))
    return Migrated(difference[chosen].astype(expert.dtype), chosen.astype(np.uint32), expert.shape)


def decode(shared: Array, migrated: Migrated) -> Array:
    """The expert as its receiver rebuilds it, in the dtype of the values."""
    flat = shared.astype(np.float32).ravel()
    flat[migrated.indices] += migrated.values
    return flat.reshape(migrated.shape).astype(migrated.values.dtype)


def relative_error(expert: Array, shared: Array, migrated: Migrated) -> float:
    """What migration lost, over the expert (Euclidean norms)."""
    lost = expert.astype(np.float64) - decode(shared, migrated).astype(np.float64)
    whole = float(np.linalg.norm(expert.astype(np.float64)))
    return float(np.linalg.norm(lost)) / whole if whole else 0.0


class MigrationRow(NamedTuple):
    """One compression ratio: bytes sent per expert, the mean error of experts as differences from
    the shared one and without it, and the best domains of a block with their time.
    """

    compression: Fraction
    sent_bytes: int
    error: float
    error_alone: float
    domains: tuple[Domain, ...]
    block: Fraction

    def as_dict(self) -> dict[str, Any]:
        """JSON values; exact numbers as "p/q"."""
        exact = {"compression": str(self.compression), "block": str(self.block)}
        return {**self._asdict(), **exact, "domains": [one.as_dict() for one in self.domains]}


def curve(
    experts: Array, ratios: Sequence[Fraction], question: HybridQuestion
) -> list[MigrationRow]:
    """Error, bytes and time by compression ratio.

    experts   float [experts, ...]

        >>> import numpy as np
        >>> from fractions import Fraction
        >>> from railopt.moe.hybrid import migrate, spec
        >>> experts = np.random.default_rng(0).normal(size=(8, 64, 64)).astype(np.float32)
        >>> rows = migrate.curve(experts, [Fraction(2), Fraction(50)], spec.read(None))
        >>> rows[0].error < rows[1].error, rows[0].block > rows[1].block
        (True, True)
    """
    if experts.ndim < 2 or experts.dtype.kind != "f" or not experts.size:
        raise InputError(
            f"weights of shape {experts.shape} and type {experts.dtype}: expected floating-point "
            f"numbers [experts, ...]"
        )
    shared, rows = shared_expert(experts), []
    width, parameters = experts.dtype.itemsize, experts[0].size

    def error(base: Array, keep: int) -> float:
        each = [relative_error(one, base, encode(one, base, keep)) for one in experts]
        return float(np.mean(each))

    for ratio in ratios:
        best = optimum(replace(question.stream, compression=ratio), unequal=question.unequal)
        time = best.domains, best.latency.total
        if ratio == 1:  # whole experts, without indices
            rows.append(MigrationRow(ratio, parameters * width, 0.0, 0.0, *time))
            continue
        keep = kept(parameters, float(ratio), width)
        errors = error(shared, keep), error(np.zeros_like(shared), keep)
        rows.append(MigrationRow(ratio, keep * (width + 4), *errors, *time))
    return rows
