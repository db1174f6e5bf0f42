"""The fluid problem: divisible traffic on NICs of any rates, dead ones included; its exact optimum
with a dual certificate.

    minimise T    sum over n of y[k, f, n] = demand[k, f]
                  sum over f of y[k, f, n] <= T tx[k, n]
                  sum over k of y[k, f, n] <= T rx[f, n]       y >= 0

Rails whose NICs have equal rates at every node carry equal shares, so the program has one rail a
class of them.  GLOP guesses an optimal basis in floats; the simplex method goes on from there in
fractions (`simplex.py`), until vertex and prices are exact.  The checker's own argument (prices
a[k, n], b[f, n] of a byte: all bytes pay at least `demand . min(a + b)`, all NICs earn at most
`T * (a . tx + b . rx)`) must then give exactly the vertex's T.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints, frozen
from railopt.base.errors import Infeasible, InputError, NotProved
from railopt.base.extras import need
from railopt.base.kernels import added_up
from railopt.base.units import time_limit
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.solver.simplex import LinearProgram, guess, optimum

Cell = tuple[int, int, int]  # side (0 sends), node, class of rails
Flow = dict[tuple[int, int, int], Fraction]
MOST_NODES = 1 << 13  # of whose bytes there is a matrix, 512 MiB


@dataclass(frozen=True)
class Fluid:
    """The optimum of divisible traffic, in exact seconds, always known.

    split        bytes of (sender, receiver, rail)
    certificate  the split, and prices that prove that nothing is faster
    """

    bracket: Bracket
    split: Flow = field(repr=False)
    certificate: Certificate = field(repr=False)

    @property
    def value(self) -> Fraction:
        """The optimum, seconds."""
        return self.bracket.bound


def least_time(fabric: Fabric, chunks: Chunks) -> Fraction:
    """The optimum for the bytes of chunks, without its split: where all rails have equal rates at
    every node an even split is optimal, and no program has to be solved.
    """
    rates = np.stack([fabric.tx, fabric.rx])
    if not (rates.min() > 0 and (rates == rates[:, :, :1]).all()):
        return solve_fluid(*among(fabric, chunks)[1:]).value
    ends = chunks.src, chunks.dst
    loads = np.concatenate([added_up(end, chunks.size, fabric.nodes) for end in ends])
    together = (rates[:, :, 0] * fabric.rails).ravel().tolist()
    return max(map(Fraction, loads.tolist(), together))


def solve_fluid(fabric: Fabric, demand: npt.ArrayLike, *, limit_s: float | None = None) -> Fluid:
    """The exact optimum for `demand` int64 [nodes, nodes], bytes from node to node (the diagonal is
    ignored); NotProved if it takes more than `limit_s` seconds.
    """
    limit_s = None if limit_s is None else time_limit(limit_s)
    matrix = _demand(fabric, demand)
    problem = _Classes.of(fabric, matrix)
    if not problem.pairs:
        return _certified(fabric, matrix, {}, {})
    need("ortools", "the fluid optimum")  # without a guess it takes minutes
    program = _program(problem)
    began = time.monotonic()
    basis = _guess(problem, program, limit_s)
    left_s = None if limit_s is None else limit_s - (time.monotonic() - began)
    best = optimum(program, basis, limit_s=left_s)
    split = {
        (*problem.pairs[p][:2], n): Fraction(amount) / len(problem.rails[q])
        for (p, q), amount in zip(problem.columns, best.x, strict=False)
        for n in problem.rails[q]
        if amount
    }
    spread = {
        (s, k, n): -Fraction(price)
        for (s, k, q), price in zip(problem.cells, best.price[len(problem.pairs) :], strict=True)
        for n in problem.rails[q]
    }
    return _certified(fabric, matrix, split, spread)


def among(fabric: Fabric, chunks: Chunks) -> tuple[Ints, Fabric, Ints]:
    """(nodes int64 [U] that send or receive chunks, their fabric, int64 [U, U]: bytes from one to
    another).  Programs are as large as what occurs; NotProved beyond `MOST_NODES`.
    """
    both = np.stack([chunks.src, chunks.dst]).astype(np.int64)
    nodes = np.unique(both) if len(chunks) else np.arange(min(2, fabric.nodes))
    if len(nodes) > MOST_NODES:
        raise NotProved(f"divisible traffic between {len(nodes)} nodes: at most {MOST_NODES}")
    demand: Ints = np.zeros((len(nodes), len(nodes)), np.int64)
    np.add.at(demand, tuple(np.searchsorted(nodes, both)), chunks.size)
    return nodes, Fabric(len(nodes), fabric.rails, 1, fabric.tx[nodes], fabric.rx[nodes]), demand


def fluid_bound(
    fabric: Fabric, chunks: Chunks, *, limit_s: float | None = None
) -> tuple[Fraction, dict[str, Any]]:
    """The fluid optimum of chunks, in seconds, and the witness that nothing is faster, with prices
    of all nodes; as `solve_fluid` otherwise.
    """
    nodes, inner, demand = among(fabric, chunks)
    fluid = solve_fluid(inner, demand, limit_s=limit_s)
    prices = {}
    for side in ("send", "recv"):
        rows = [[0] * fabric.rails for _ in range(fabric.nodes)]
        for node, row in zip(nodes.tolist(), fluid.certificate.witness[side], strict=True):
            rows[node] = row
        prices[side] = rows
    return fluid.value, {"kind": "fluid", **prices}


def _demand(fabric: Fabric, demand: npt.ArrayLike) -> Ints:
    matrix = frozen(demand, np.int64, "demand", 2).copy()
    if matrix.shape != (fabric.nodes, fabric.nodes) or matrix.min() < 0:
        raise InputError(
            f"demand of shape {matrix.shape}: expected bytes, 0 or more, {fabric.nodes} x "
            f"{fabric.nodes}"
        )
    np.fill_diagonal(matrix, 0)
    return matrix


@dataclass(frozen=True)
class _Classes:
    """The program over classes of rails.

    rails    the rails of each class;  rates int [2, nodes][class]: what a class carries together
    pairs    (sender, receiver, bytes);  columns (pair, class) where both ends live
    """

    rails: list[list[int]]
    rates: list[list[list[int]]]
    pairs: list[tuple[int, int, int]]
    columns: list[tuple[int, int]]

    @classmethod
    def of(cls, fabric: Fabric, demand: Ints) -> _Classes:
        found: dict[bytes, list[int]] = {}
        for n in range(fabric.rails):
            found.setdefault(fabric.tx[:, n].tobytes() + fabric.rx[:, n].tobytes(), []).append(n)
        rails = list(found.values())
        rates = [
            [
                [int(rate[k, members[0]]) * len(members) for members in rails]
                for k in range(fabric.nodes)
            ]
            for rate in (fabric.tx, fabric.rx)
        ]
        pairs = [(k, f, int(demand[k, f])) for k, f in np.argwhere(demand > 0).tolist()]
        columns = []
        for p, (k, f, _) in enumerate(pairs):
            alive = [(p, q) for q in range(len(rails)) if rates[0][k][q] and rates[1][f][q]]
            if not alive:
                raise Infeasible(f"no living rail from node {k} to node {f}")
            columns += alive
        return cls(rails, rates, pairs, columns)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells that columns use."""
        return sorted({cell for column in self.columns for cell in self.ends(column)})

    def ends(self, column: tuple[int, int]) -> tuple[Cell, Cell]:
        """The sender's and the receiver's cell of a column."""
        (k, f, _), q = self.pairs[column[0]], column[1]
        return (0, k, q), (1, f, q)

    def rate(self, cell: Cell) -> int:
        return self.rates[cell[0]][cell[1]][cell[2]]


def _program(problem: _Classes) -> LinearProgram:
    """Variables: the bytes of each column, then T.  Rows: the bytes of each pair, then what each
    cell carries, less what it can in T.
    """
    row_of = {cell: len(problem.pairs) + i for i, cell in enumerate(problem.cells)}
    columns = [
        {column[0]: 1, **{row_of[cell]: 1 for cell in problem.ends(column)}}
        for column in problem.columns
    ]
    columns.append({row: -problem.rate(cell) for cell, row in row_of.items()})
    return LinearProgram(
        columns,
        [0] * len(problem.columns) + [1],
        [size for *_, size in problem.pairs] + [0] * len(row_of),
        [True] * len(problem.pairs) + [False] * len(row_of),
    )


def _guess(problem: _Classes, program: LinearProgram, limit_s: float | None) -> list[int]:
    """A basis by GLOP, which counts a column's bytes in those of its pair, and cells in what they
    carry while the mean cell is busy.
    """
    sizes = [float(size) for *_, size in problem.pairs]
    rates = [float(problem.rate(cell)) for cell in problem.cells]
    unit = 2 * sum(sizes) / sum(rates)
    x_unit = [sizes[p] for p, _ in problem.columns] + [unit]
    row_unit = sizes + [rate * unit for rate in rates]
    return guess(program, x_unit, row_unit, limit_s=limit_s).basic


def _certified(fabric: Fabric, demand: Ints, split: Flow, prices: dict[Cell, Fraction]) -> Fluid:
    """The certificate, if the checker finds value and bound equal."""
    unit = lcm(*(amount.denominator for amount in split.values()))
    whole = lcm(*(price.denominator for price in prices.values()))
    price = [[[0] * fabric.rails for _ in range(fabric.nodes)] for _ in range(2)]
    for (side, node, n), amount in prices.items():
        price[side][node][n] = int(amount * whole)
    entries = sorted((k, f, n, int(amount * unit)) for (k, f, n), amount in split.items())
    flow = {
        "unit": unit,
        **{
            name: [entry[i] for entry in entries]
            for i, name in enumerate(("src", "dst", "rail", "amount"))
        },
    }
    value = _completion(fabric, split)
    witness = {"kind": "fluid", "send": price[0], "recv": price[1]}
    bracket = Bracket(value, value, Status.KNOWN, witness, "fluid")
    certificate = Certificate.fluid(fabric, demand, bracket, flow)
    verdict = certificate.check()
    if not verdict.optimal:
        raise NotProved(f"the fluid optimum could not be proved: {verdict.message}")
    return Fluid(bracket, split, certificate)


def _completion(fabric: Fabric, split: Flow) -> Fraction:
    load: dict[Cell, Fraction] = {}
    for (k, f, n), amount in split.items():
        for cell in ((0, k, n), (1, f, n)):
            load[cell] = load.get(cell, Fraction(0)) + amount
    rates = (fabric.tx, fabric.rx)
    return max(
        (amount / int(rates[s][k, n]) for (s, k, n), amount in load.items()), default=Fraction(0)
    )
