"""The fluid problem: divisible traffic on NICs of any rates, dead ones included; its exact optimum
with a dual certificate.

    minimise T    sum over n of y[k, f, n] = demand[k, f]
                  sum over f of y[k, f, n] <= T tx[k, n]       sum over k of y[k, f, n] <= T rx[f,
                  n]       y >= 0

Rails whose NICs have equal rates at every node carry equal shares, so the program has one rail a
class of them.  HiGHS
finds an optimal vertex in floats; which variables and rows are tight there is all that is taken
from it.  The vertex and its dual prices are then solved for in fractions, and the kernel's own
          argument (prices a[k, n], b[f, n] of a byte: all
bytes pay at least `demand . min(a + b)`, all NICs earn at most `T * (a . tx + b . rx)`) must give
exactly the vertex's T.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.arrays import Ints, frozen
from railopt.certificate import Certificate
from railopt.errors import InputError, NotProved
from railopt.fabric import Fabric
from railopt.solver.rational import solve_rational

Cell = tuple[int, int, int]  # side (0 sends), node, class of rails
Flow = dict[tuple[int, int, int], Fraction]
TINY = 1e-9


class Fluid(NamedTuple):
    """value: exact seconds; split: bytes of (sender, receiver, rail); certificate: a rational dual
    proof that is optimal.
    """

    value: Fraction
    split: Flow
    certificate: Certificate


def uniform_split(fabric: Fabric, demand: npt.ArrayLike) -> Fraction:
    """Seconds when every pair spreads its bytes evenly over all N rails, whatever their rates; no
    rail may be dead.
    """
    matrix = _demand(fabric, demand)
    worst = Fraction(0)
    for totals, rates in ((matrix.sum(axis=1), fabric.tx), (matrix.sum(axis=0), fabric.rx)):
        for total, rate in zip(totals.tolist(), rates.min(axis=1).tolist(), strict=True):
            if total and not rate:
                raise InputError("an even split would send over a dead rail")
            worst = max(worst, Fraction(total, fabric.rails * rate)) if total else worst
    return worst


def solve_fluid(fabric: Fabric, demand: npt.ArrayLike) -> Fluid:
    """The exact optimum for `demand` int64 [nodes, nodes], bytes from node to node (the diagonal is
    ignored).
    """
    matrix = _demand(fabric, demand)
    problem = _Classes.of(fabric, matrix)
    if not problem.pairs:
        return _certified(fabric, matrix, {}, {})
    support, tight, priced, free = _vertex(problem)
    flow = _primal(problem, support, tight)
    prices = _dual(problem, priced, free)
    if flow is None or prices is None:
        raise NotProved(
            "the floating-point optimum of the fluid problem has no exact counterpart: please "
            "report this traffic"
        )
    split = {
        (k, f, n): amount / len(problem.rails[q])
        for (k, f, q), amount in flow.items()
        for n in problem.rails[q]
        if amount
    }
    spread = {(s, k, n): price for (s, k, q), price in prices.items() for n in problem.rails[q]}
    return _certified(fabric, matrix, split, spread)


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
                raise InputError(f"no living rail from node {k} to node {f}")
            columns += alive
        return cls(rails, rates, pairs, columns)

    def cells(self, column: tuple[int, int]) -> tuple[Cell, Cell]:
        """The sender's and the receiver's cell of a column."""
        (k, f, _), q = self.pairs[column[0]], column[1]
        return (0, k, q), (1, f, q)

    def rate(self, cell: Cell) -> int:
        return self.rates[cell[0]][cell[1]][cell[2]]


def _vertex(
    problem: _Classes,
) -> tuple[list[tuple[int, int]], list[Cell], list[Cell], list[tuple[int, int]]]:
    """(columns that carry, cells that are full, cells that have a price, columns that cost no more
    than their pair pays).

    In floats, scaled: bytes by the mean demand, rates by the fastest class.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    cells = sorted({cell for column in problem.columns for cell in problem.cells(column)})
    row_of = {cell: i for i, cell in enumerate(cells)}
    columns, t = problem.columns, len(problem.columns)
    fastest = max(problem.rate(cell) for cell in cells)
    mean = sum(d for *_, d in problem.pairs) / len(problem.pairs)
    entries = [
        (row_of[cell], j) for j, column in enumerate(columns) for cell in problem.cells(column)
    ]
    rows, places = map(list, zip(*entries, *((i, t) for i in range(len(cells))), strict=True))
    values = [1.0] * len(entries) + [-problem.rate(cell) / fastest for cell in cells]
    full = csr_array((values, (rows, places)), shape=(len(cells), t + 1))
    served = csr_array(
        (np.ones(t), ([p for p, _ in columns], range(t))), shape=(len(problem.pairs), t + 1)
    )
    result = linprog(
        np.append(np.zeros(t), 1.0),
        A_ub=full,
        b_ub=np.zeros(len(cells)),
        A_eq=served,
        b_eq=[d / mean for *_, d in problem.pairs],
        method="highs-ds",
    )
    if result.status != 0:
        raise NotProved(f"HiGHS did not solve the fluid problem: {result.message}")
    price = -result.ineqlin.marginals
    pays = result.eqlin.marginals
    scale = max(price.max(), TINY)
    carrying = [column for j, column in enumerate(columns) if result.x[j] > TINY]
    tight = [cell for i, cell in enumerate(cells) if result.slack[i] < TINY * max(1.0, result.x[t])]
    priced = [cell for i, cell in enumerate(cells) if price[i] > TINY * scale]
    free = [
        column
        for column in columns
        if sum(price[row_of[cell]] for cell in problem.cells(column)) - pays[column[0]]
        < 10 * TINY * scale
    ]
    return carrying, tight, priced, free


def _primal(problem: _Classes, support: list[tuple[int, int]], tight: list[Cell]) -> Flow | None:
    """Exact bytes of (sender, receiver, class) at the vertex with these columns and full cells;
    None if there are none.
    """
    index = {column: i for i, column in enumerate(support)}
    t = len(support)
    rows: list[dict[int, Fraction | int]] = [{} for _ in problem.pairs]
    full: dict[Cell, dict[int, Fraction | int]] = {cell: {t: -problem.rate(cell)} for cell in tight}
    for column, i in index.items():
        rows[column[0]][i] = 1
        for cell in problem.cells(column):
            if cell in full:
                full[cell][i] = 1
    values = solve_rational(
        [*rows, *full.values()], [*(d for *_, d in problem.pairs), *(0 for _ in full)], t + 1
    )
    if values is None or min(values) < 0:
        return None
    return {(problem.pairs[p][0], problem.pairs[p][1], q): values[i] for (p, q), i in index.items()}


def _dual(
    problem: _Classes, priced: list[Cell], free: list[tuple[int, int]]
) -> dict[Cell, Fraction] | None:
    """Exact prices of the cells, at which each of these columns costs just what its pair pays; None
    if there are none.
    """
    index = {cell: i for i, cell in enumerate(priced)}
    pays = {p: len(priced) + i for i, p in enumerate(sorted({p for p, _ in free}))}
    rows: list[dict[int, Fraction | int]] = [
        {**{index[cell]: 1 for cell in problem.cells(column) if cell in index}, pays[column[0]]: -1}
        for column in free
    ]
    rows.append({i: problem.rate(cell) for cell, i in index.items()})
    values = solve_rational(rows, [*(0 for _ in free), 1], len(priced) + len(pays))
    if values is None or min(values[: len(priced)], default=Fraction(-1)) < 0:
        return None
    return {cell: values[i] for cell, i in index.items()}


def _certified(fabric: Fabric, demand: Ints, split: Flow, prices: dict[Cell, Fraction]) -> Fluid:
    """The certificate, if the kernel finds value and bound equal."""
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
    problem: dict[str, Any] = {
        "kind": "fluid",
        "tx": fabric.tx.tolist(),
        "rx": fabric.rx.tolist(),
        "demand": demand.tolist(),
    }
    witness = {"kind": "fluid", "send": price[0], "recv": price[1]}
    certificate = Certificate(problem, value, witness, value, {"flow": flow})
    verdict = certificate.check()
    if not verdict.proved:
        raise NotProved(f"the fluid optimum could not be proved: {verdict.message}")
    return Fluid(value, split, certificate)


def _completion(fabric: Fabric, split: Flow) -> Fraction:
    load: dict[Cell, Fraction] = {}
    for (k, f, n), amount in split.items():
        for cell in ((0, k, n), (1, f, n)):
            load[cell] = load.get(cell, Fraction(0)) + amount
    rates = (fabric.tx, fabric.rx)
    return max(
        (amount / int(rates[s][k, n]) for (s, k, n), amount in load.items()), default=Fraction(0)
    )
