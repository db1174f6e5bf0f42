"""The coupled problem as an integer program, in plain integer arrays that any solver understands.

    minimise t
    sum over n of x[j, n] = count[j]                  every chunk of type j on some rail
    a * sum over j of size[j] * x[j, n] <= r * t      every cell (side, node, rail)
    0 <= x[j, n] <= count[j], integer; x[j, n] = 0 where rail n is dead at either end

A type is a set of chunks with one sender, receiver and size.  The plain program has one chunk a
type and nothing else; the strengthened one merges equal chunks, breaks the symmetry of rails with
equal rates and carries bounds and a hint.  Sizes are in their common divisor, rates too; `second`
is how many t are one second.
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

from railopt.base.arrays import Array, Bools, Floats, Ints, Rails
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric

MAX_VARIABLES = 2_000_000
MAX_SCALE = 1 << 20


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """See the module's docstring for the program.

    src, dst, size, count   int64 [types]
    allowed                 bool [types, rails]
    a, r                    int64 [2, nodes, rails], side 0 sends; r = 0 on a dead cell
    lower, upper            what t is known to be at least and, by the hint, at most (-1: unknown)
    hint                    int64 [types, rails], a known plan, or all zero
    exact                   0 or 1: whether every plan's time is a whole t
    """

    src: Ints
    dst: Ints
    size: Ints
    count: Ints
    allowed: Bools
    a: Ints
    r: Ints
    hint: Ints
    lower: int
    upper: int
    exact: int

    @property
    def variables(self) -> int:
        return int(self.allowed.sum())

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


class BuiltProgram(NamedTuple):
    """A program and the way back: the type of each chunk, and how many t are one second."""

    program: IntegerProgram
    kind: Ints
    second: Fraction

    def counts(self, found: list[list[int]]) -> Ints | None:
        """What a back-end says, as an array if it is a plan, else None."""
        count, allowed = self.program.count, self.program.allowed
        try:
            counts = np.array(found, dtype=np.int64)
        except (ValueError, TypeError, OverflowError):
            return None
        # symmetry forbids nothing for good: only dead rails and wrong numbers make a plan
        # infeasible
        if (
            counts.shape != allowed.shape
            or counts.min() < 0
            or np.any(counts.sum(axis=1) != count)
            or np.any(counts[~allowed] > 0)
        ):
            return None
        return counts

    def rails(self, counts: Ints) -> Rails:
        """The rail of each chunk, from how many of each type go on each rail; int64 [types,
        rails].
        """
        order = np.argsort(self.kind, kind="stable")
        types, rails = counts.shape
        rail = np.empty(len(self.kind), np.int16)
        rail[order] = np.repeat(np.tile(np.arange(rails), types), counts.ravel()).astype(np.int16)
        return rail


def build(
    fabric: Fabric, chunks: Chunks, *, bound: Fraction | None = None, hint: Rails | None = None
) -> BuiltProgram:
    """The program: plain without a bound and a hint, strengthened with them."""
    plain = bound is None and hint is None
    columns = np.stack([chunks.src.astype(np.int64), chunks.dst.astype(np.int64), -chunks.size])
    if plain:
        kind = np.arange(len(chunks))
    else:
        columns, kind = np.unique(columns, axis=1, return_inverse=True)
        kind = kind.ravel()
    unit = int(np.gcd.reduce(chunks.size)) or 1
    a, r, scale, common, exact = _scaled(fabric, chunks.total // unit)
    src, dst, size = columns[0], columns[1], -columns[2] // unit
    count = np.bincount(kind, minlength=len(src)).astype(np.int64)
    allowed = (fabric.tx[src] > 0) & (fabric.rx[dst] > 0)
    if allowed.sum() > MAX_VARIABLES:
        raise InputError(
            f"{allowed.sum()} variables ({len(src)} kinds of chunk x {fabric.rails} rails): too "
            f"large for an integer "
            f"program, at most {MAX_VARIABLES}; use larger chunks, or the native back-end"
        )
    second = Fraction(scale * common, unit)
    counts = np.zeros((len(src), fabric.rails), np.int64)
    upper = -1
    if hint is not None:
        order, forbidden = _symmetry(fabric, src, dst, size, count)
        np.add.at(counts, (kind, _relabelled(fabric, kind, hint, order)), 1)
        allowed &= ~forbidden
        upper = _worst(counts, src, dst, size, a, r)
    lower = 0 if bound is None else -(-bound * second // 1)
    return BuiltProgram(
        IntegerProgram(src, dst, size, count, allowed, a, r, counts, int(lower), upper, int(exact)),
        kind,
        second,
    )


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


def _worst(counts: Ints, src: Ints, dst: Ints, size: Ints, a: Ints, r: Ints) -> int:
    """The least whole t that a plan needs."""
    worst = 0
    for side, ends in enumerate((src, dst)):
        load = np.zeros(r.shape[1:], np.int64)
        np.add.at(load, ends, counts * size[:, None])
        for cell in np.flatnonzero(load).tolist():
            worst = max(
                worst, -(-int(load.flat[cell]) * int(a[side].flat[cell]) // int(r[side].flat[cell]))
            )
    return worst


def _classes(fabric: Fabric) -> list[list[int]]:
    """Rails whose NICs have the same rates at every node: interchangeable."""
    found: dict[bytes, list[int]] = {}
    for n in range(fabric.rails):
        found.setdefault(fabric.tx[:, n].tobytes() + fabric.rx[:, n].tobytes(), []).append(n)
    return list(found.values())


def _symmetry(fabric: Fabric, src: Ints, dst: Ints, size: Ints, count: Ints) -> tuple[Array, Array]:
    """(types in the order that names the rails, bool [types, rails] what is then forbidden).

    The i-th chunk of the most loaded node, largest first, may be on the first i + 1 rails of each
    class of interchangeable ones: rails can be renamed by when they are first used.
    """
    loads = [np.bincount(ends, minlength=fabric.nodes) * 0 for ends in (src, dst)]
    for load, ends in zip(loads, (src, dst), strict=True):
        np.add.at(load, ends, size * count)
    side = int(loads[1].max() > loads[0].max())
    rows = np.flatnonzero((src, dst)[side] == loads[side].argmax())
    order = rows[np.argsort(-size[rows], kind="stable")]
    forbidden = np.zeros((len(src), fabric.rails), np.bool_)
    for rails in _classes(fabric):
        seen = 0
        for kind in order.tolist():
            seen += int(count[kind])
            if seen >= len(rails):
                break
            forbidden[kind, rails[seen:]] = True
    return order, forbidden


def _relabelled(fabric: Fabric, kind: Ints, rail: Rails, order: Array) -> Array:
    """The plan with each class of rails renamed by first use along `order`."""
    name = np.full(fabric.rails, -1, np.int64)
    left = {n: iter(rails) for rails in _classes(fabric) for n in rails}
    shared = {n: left[rails[0]] for rails in _classes(fabric) for n in rails}
    rank = np.full(int(kind.max()) + 1, len(order))
    rank[order] = np.arange(len(order))
    for n in rail[np.argsort(rank[kind], kind="stable")].tolist():
        if name[n] < 0:
            name[n] = next(shared[n])
    for n in range(fabric.rails):
        if name[n] < 0:
            name[n] = next(shared[n])
    return name[rail]


class Linear(NamedTuple):
    """min objective . (x, t), row_lower <= A (x, t) <= row_upper, 0 <= x <= upper: one column an
    allowed (type, rail), then t.

    place int64 [columns - 1, 2]: (type, rail) of each column; rows, columns, values: the matrix by
    entry.
    """

    place: Ints
    objective: Floats
    upper: Floats
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
        return _grouped(self.columns, self.rows, self.values, len(self.upper))


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
    kind, rail = place.T
    types, t = len(program.src), len(place)
    cells = np.arange(program.r.size).reshape(program.r.shape)
    used = np.flatnonzero(program.r.ravel() > 0)
    row_of = np.full(program.r.size, -1)
    row_of[used] = types + np.arange(len(used))
    sent, got = cells[0, program.src[kind], rail], cells[1, program.dst[kind], rail]
    rows = np.concatenate([kind, row_of[sent], row_of[got], row_of[used]])
    columns = np.concatenate([np.arange(t), np.arange(t), np.arange(t), np.full(len(used), t)])
    a = np.zeros(program.r.size)
    a[used] = program.a.ravel()[used] / program.r.ravel()[used]  # r = 1 where the program is exact
    values = np.concatenate(
        [
            np.ones(t),
            a[sent] * program.size[kind],
            a[got] * program.size[kind],
            np.full(len(used), -1.0),
        ]
    )
    low = np.concatenate([program.count, np.full(len(used), -np.inf)]).astype(float)
    high = np.concatenate([program.count, np.zeros(len(used))]).astype(float)
    upper = np.append(
        program.count[kind].astype(float), program.upper if program.upper >= 0 else np.inf
    )
    objective = np.append(np.zeros(t), 1.0)
    return Linear(place, objective, upper, rows, columns, values, low, high)
