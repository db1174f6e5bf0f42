"""The coupled problem as an integer program, in plain integer arrays that any solver understands.

    minimise t
    sum over n of x[j, n] = 1                         every chunk j on some rail
    a * sum over j of size[j] * x[j, n] <= r * t      every cell (side, node, rail)
    x[j, n] 0 or 1; x[j, n] = 0 where rail n is dead at either end

Sizes are in their common divisor, rates too; `second` is how many t are one second.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric

MAX_VARIABLES = 2_000_000
MAX_SCALE = 1 << 20


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """See the module's docstring for the program.

    src, dst, size   int64 [chunks]
    allowed          bool [chunks, rails]
    a, r             int64 [2, nodes, rails], side 0 sends; r = 0 on a dead cell
    exact            0 or 1: whether every plan's time is a whole t
    """

    src: Ints
    dst: Ints
    size: Ints
    allowed: Bools
    a: Ints
    r: Ints
    exact: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """As a plain `.npz`, for the process that solves it."""
        arrays: dict[str, Any] = {
            part.name: np.asarray(getattr(self, part.name)) for part in fields(self)
        }
        # no keyword of savez's own: to numpy before 2.2 allow_pickle was an array's name
        np.savez(path, **arrays)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IntegerProgram:
        with np.load(path, allow_pickle=False) as data:
            values: dict[str, Any] = {
                name: array if array.ndim else int(array) for name, array in data.items()
            }
        return cls(**values)


def build(fabric: Fabric, chunks: Chunks) -> tuple[IntegerProgram, Fraction]:
    """The program, and `second`."""
    src, dst = chunks.src.astype(np.int64), chunks.dst.astype(np.int64)
    unit = int(np.gcd.reduce(chunks.size)) or 1
    a, r, scale, common, exact = _scaled(fabric, chunks.total // unit)
    allowed = (fabric.tx[src] > 0) & (fabric.rx[dst] > 0)
    if allowed.sum() > MAX_VARIABLES:
        raise InputError(
            f"{allowed.sum()} variables ({len(src)} chunks x {fabric.rails} rails): too large for "
            f"an integer program, at most {MAX_VARIABLES}; use larger chunks, or the native "
            "back-end"
        )
    program = IntegerProgram(src, dst, chunks.size // unit, allowed, a, r, int(exact))
    return program, Fraction(scale * common, unit)


def _scaled(fabric: Fabric, bytes_: int) -> tuple[Ints, Ints, int, int, bool]:
    """(a, r, t a unit of size at rate 1, common divisor of the rates, exact): a = scale / rate
    where that is whole.
    """
    rates = np.stack([fabric.tx, fabric.rx])
    common = gcd(*np.unique(rates).tolist()) or 1
    reduced = rates // common
    live = [int(rate) for rate in np.unique(reduced) if rate]
    scale = lcm(*live)
    exact = scale <= MAX_SCALE and scale * max(bytes_, 1) < 2**62
    if exact:
        a = np.divide(scale, reduced, out=np.zeros(rates.shape), where=reduced > 0).astype(np.int64)
        return a, (reduced > 0).astype(np.int64), scale, common, True
    # no common multiple is small: t in steps of at most 1/64 of a unit on the fastest NIC, both
    # sides of a row below 2**60
    scale = max(1, min(64 * live[-1], 2**60 // (max(bytes_, 1) * -(-live[-1] // live[0]))))
    return np.where(reduced > 0, scale, 0), reduced, scale, common, False


class Linear(NamedTuple):
    """min t, row_lower <= A (x, t) <= row_upper: one column per allowed (chunk, rail), then t.

    place int64 [columns - 1, 2]: (chunk, rail) of each column; rows, columns, values: the matrix by
    entry.
    """

    place: Ints
    rows: Ints
    columns: Ints
    values: Floats
    row_lower: Floats
    row_upper: Floats

    def by_row(self) -> Iterator[list[tuple[int, float]]]:
        """(column, value) of the entries, row by row."""
        return _grouped(self.rows, self.columns, self.values, len(self.row_lower))

    def by_column(self) -> Iterator[list[tuple[int, float]]]:
        """(row, value) of the entries, column by column."""
        return _grouped(self.columns, self.rows, self.values, len(self.place) + 1)


def _grouped(
    of: Ints, other: Ints, values: Floats, groups: int
) -> Iterator[list[tuple[int, float]]]:
    """(other, value) of the entries of each group, in their order."""
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], np.arange(groups + 1)).tolist()
    columns, entries = other[order].tolist(), values[order].tolist()
    for begin, end in itertools.pairwise(begins):
        yield list(zip(columns[begin:end], entries[begin:end], strict=True))


def linear(program: IntegerProgram) -> Linear:
    """The program as a matrix."""
    place = np.argwhere(program.allowed)
    chunk, rail = place.T
    t = len(place)
    cells = np.arange(program.r.size).reshape(program.r.shape)
    used = np.flatnonzero(program.r.ravel() > 0)
    row_of = np.full(program.r.size, -1)
    row_of[used] = len(program.src) + np.arange(len(used))
    sent, got = cells[0, program.src[chunk], rail], cells[1, program.dst[chunk], rail]
    rows = np.concatenate([chunk, row_of[sent], row_of[got], row_of[used]])
    columns = np.concatenate([np.arange(t), np.arange(t), np.arange(t), np.full(len(used), t)])
    a = np.zeros(program.r.size)
    a[used] = program.a.ravel()[used] / program.r.ravel()[used]  # r = 1 where the program is exact
    values = np.concatenate(
        [
            np.ones(t),
            a[sent] * program.size[chunk],
            a[got] * program.size[chunk],
            np.full(len(used), -1.0),
        ]
    )
    ones = np.ones(len(program.src))
    low = np.concatenate([ones, np.full(len(used), -np.inf)])
    high = np.concatenate([ones, np.zeros(len(used))])
    return Linear(place, rows, columns, values, low, high)
