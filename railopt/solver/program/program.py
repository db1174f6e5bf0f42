"""The coupled problem as an integer program, in plain integer arrays that any solver understands.

    minimise t
    sum over n of x[j, n] = 1                         every chunk j on some rail
    a * sum over j of size[j] * x[j, n] <= r * t      every living cell (side, node, rail)
    x[j, n] 0 or 1                                    where rail n lives at both ends

Sizes are in their common divisor, rates too; `second` is how many t are one second.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints, Rails
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.solver.program.mip import FREE, MixedProgram

MAX_VARIABLES = 2_000_000
MAX_SCALE = 1 << 20


class PlanProgram(NamedTuple):
    """The program and what its columns are: x[j, n], then t; rows: the chunks, then the cells.

    chunks   how many there are
    place    int64 [columns - 1, 2]: chunk and rail of each x, by chunk
    second   how many t are one second
    exact    whether every plan's time is a whole t
    """

    program: MixedProgram
    chunks: int
    place: Ints
    second: Fraction
    exact: bool

    def rails(self, values: Any) -> Rails | None:
        """The plan that values of the columns stand for, int16 [chunks], if they are one: each
        chunk on one rail.
        """
        try:
            chunk, rail = self.place[np.array(values, np.float64)[:-1] > 0.5].T
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        return rail.astype(np.int16) if np.array_equal(chunk, np.arange(self.chunks)) else None


def build(fabric: Fabric, chunks: Chunks) -> PlanProgram:
    """The program of some chunks."""
    src, dst = chunks.src.astype(np.int64), chunks.dst.astype(np.int64)
    unit = int(np.gcd.reduce(chunks.size)) or 1
    size = chunks.size // unit
    a, r, scale, common, exact = _scaled(fabric, chunks.total // unit)
    allowed = (fabric.tx[src] > 0) & (fabric.rx[dst] > 0)
    if allowed.sum() > MAX_VARIABLES:
        raise InputError(
            f"{allowed.sum()} variables ({len(src)} chunks x {fabric.rails} rails): too large for "
            f"an integer program, at most {MAX_VARIABLES}; use larger chunks, or the native "
            "back-end"
        )
    place = np.argwhere(allowed)
    (chunk, rail), t = place.T, len(place)
    living = np.flatnonzero(r)
    row_of = np.empty(r.shape, np.int64)
    row_of.flat[living] = len(src) + np.arange(len(living))
    x, ones = np.arange(t), np.ones(len(src), np.int64)
    sent, got = (0, src[chunk], rail), (1, dst[chunk], rail)
    slowest = int(r[r > 0].min())
    longest = int(size.sum()) * int(a.max()) // slowest + 1
    program = MixedProgram(
        cost=np.append(np.zeros(t, np.int64), 1),
        low=np.zeros(t + 1, np.int64),
        high=np.append(np.ones(t, np.int64), longest),
        whole=np.append(np.ones(t, np.bool_), exact),
        rows=np.concatenate([chunk, row_of[sent], row_of[got], row_of.flat[living]]),
        columns=np.concatenate([x, x, x, np.full(len(living), t)]),
        values=np.concatenate(
            [ones[chunk], -a[sent] * size[chunk], -a[got] * size[chunk], r.flat[living]]
        ),
        row_low=np.concatenate([ones, np.zeros(len(living), np.int64)]),
        row_high=np.concatenate([ones, np.full(len(living), FREE)]),
    )
    return PlanProgram(program, len(src), place, Fraction(scale * common, unit), exact)


def _scaled(fabric: Fabric, bytes_: int) -> tuple[Ints, Ints, int, int, bool]:
    """(a and r, int64 [2, nodes, rails], side 0 sends, r = 0 on a dead cell; t a unit of size at
    rate 1, common divisor of the rates, exact): a = scale / rate where that is whole.
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
