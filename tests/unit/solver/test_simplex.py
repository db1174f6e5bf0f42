"""The exact simplex method against every vertex, from good guesses and bad ones."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from railopt.base.errors import NotProved
from railopt.solver.rational import Factors, Number
from railopt.solver.simplex import LinearProgram, Vertex, guess, optimum

Matrix = list[list[Fraction]]


def inverse_times(matrix: Matrix, right: list[Fraction]) -> list[Fraction] | None:
    """Plain Gauss-Jordan; None if the matrix is singular."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for c in range(size):
        pivot = next((r for r in range(c, size) if rows[r][c]), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [value / rows[c][c] for value in rows[c]]
        for r in range(size):
            if r != c and rows[r][c]:
                rows[r] = [a - rows[r][c] * b for a, b in zip(rows[r], rows[c], strict=True)]
    return [row[-1] for row in rows]


def best_vertex(program: LinearProgram) -> Fraction | None:
    """The least cost over every basis, tried out; None if none is feasible."""
    height, width = len(program.right), len(program.columns)
    column = [*program.columns, *({i: 1} for i in range(height))]
    zero = {width + i for i in range(height) if program.equation[i]}
    best = None
    for basis in itertools.combinations(range(width + height), height):
        matrix = [[Fraction(column[j].get(i, 0)) for j in basis] for i in range(height)]
        x = inverse_times(matrix, [Fraction(value) for value in program.right])
        if (
            x is not None
            and min(x) >= 0
            and not any(v for j, v in zip(basis, x, strict=True) if j in zero)
        ):
            cost = sum(program.cost[j] * v for j, v in zip(basis, x, strict=True) if j < width)
            best = cost if best is None else min(best, cost)
    return best


def random_program(rng: np.random.Generator) -> LinearProgram:
    """Bounded, as no cost is below 0; degenerate and infeasible ones among them."""
    height, width = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    matrix = rng.integers(-3, 4, (height, width)) * (rng.random((height, width)) < 0.7)
    columns = [{i: int(v) for i, v in enumerate(matrix[:, j]) if v} for j in range(width)]
    return LinearProgram(
        columns,
        rng.integers(0, 4, width).tolist(),
        rng.integers(-4, 5, height).tolist(),
        (rng.random(height) < 0.5).tolist(),
    )


def assert_optimal(program: LinearProgram, found: Vertex) -> None:
    """Feasible, priced fairly, and both of one value: what makes it optimal."""
    load: list[Number] = [0] * len(program.right)
    for x, column in zip(found.x, program.columns, strict=True):
        assert x >= 0
        for i, value in column.items():
            load[i] += value * x
    for i, (held, right) in enumerate(zip(load, program.right, strict=True)):
        assert held == right if program.equation[i] else held <= right
        assert program.equation[i] or found.price[i] <= 0
    for cost, column in zip(program.cost, program.columns, strict=True):
        assert sum(found.price[i] * value for i, value in column.items()) <= cost
    assert value_of(program, found) == sum(
        price * right for price, right in zip(found.price, program.right, strict=True)
    )


def value_of(program: LinearProgram, found: Vertex) -> Number:
    return sum(cost * x for cost, x in zip(program.cost, found.x, strict=True))


@pytest.mark.slow
def test_every_guess_leads_to_the_best_vertex() -> None:
    solved = infeasible = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        program = random_program(rng)
        size = len(program.columns) + len(program.right)
        wanted = best_vertex(program)
        for basic in ([], rng.permutation(size)[: len(program.right)].tolist(), list(range(size))):
            if wanted is None:
                with pytest.raises(NotProved, match="contradict"):
                    optimum(program, basic)
                infeasible += 1
                continue
            found = optimum(program, basic)
            assert_optimal(program, found)
            assert value_of(program, found) == wanted
            solved += 1
    assert min(solved, infeasible) > 50


def test_beales_example_does_not_go_round_in_circles() -> None:
    """Degenerate: choosing the best-looking variable and the first row cycles for ever."""
    program = LinearProgram(
        [{0: 25, 1: 50}, {0: -6000, 1: -9000, 2: 0}, {0: -4, 1: -2, 2: 100}, {0: 900, 1: 300}],
        [-75, 15000, -2, 600],
        [0, 0, 100],
        [False] * 3,
    )
    found = optimum(program)
    assert_optimal(program, found)
    assert value_of(program, found) == -5


def test_an_unbounded_program_is_refused() -> None:
    with pytest.raises(NotProved, match="unbounded"):
        optimum(LinearProgram([{0: -1}], [-1], [0], [False]))


def test_time_is_limited() -> None:
    program = LinearProgram([{0: 1}], [-1], [1], [False])
    assert optimum(program).x == [1]
    with pytest.raises(NotProved, match="time was up"):
        optimum(program, limit_s=-1)


def test_highs_guesses_the_basis() -> None:
    """20 machines share 100 jobs: a guess saves all pivots."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 1000, 100).tolist()
    columns = [{j: 1, 100 + m: sizes[j]} for j in range(100) for m in range(20)]
    columns.append({100 + m: -int(rng.integers(1, 9)) for m in range(20)})
    program = LinearProgram(
        columns, [0] * 2000 + [1], [1] * 100 + [0] * 20, [True] * 100 + [False] * 20
    )
    found = optimum(program, guess(program, [1.0] * 2001, [1.0] * 120).basic)
    assert_optimal(program, found)
    assert found.pivots <= 3


def test_factors_solve_both_ways() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 8))
        matrix = rng.integers(-3, 4, (size, size)) * (rng.random((size, size)) < 0.6)
        columns = {j: {i: int(v) for i, v in enumerate(matrix[:, j]) if v} for j in range(size)}
        own = [i for i in range(size) if rng.random() < 0.2]
        factors = Factors(size, columns, own)
        assert all(factors.holds[i] is None for i in own)
        basis = [{i: 1} if j is None else columns[j] for i, j in enumerate(factors.holds)]
        right = rng.integers(-5, 6, size).tolist()
        x = factors.solve(right)
        y = factors.solve_transposed(right)
        for i in range(size):
            assert sum(column.get(i, 0) * x[j] for j, column in enumerate(basis)) == right[i]
            assert sum(value * y[r] for r, value in basis[i].items()) == right[i]
