"""The decision procedures: right on what they decide, silent on the rest, no floats anywhere."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import pytest
import sympy as sp

import railopt.symbolic
from railopt.symbolic import algebra
from railopt.symbolic.algebra import (
    Undecided,
    is_nonnegative,
    is_zero,
    null_space,
    rank,
    sums_agree,
)
from railopt.symbolic.search import topology
from railopt.symbolic.statements import balance, chance

x, y, z = sp.symbols("x y z")
M, N = sp.symbols("M N", positive=True, integer=True)
i, j, k = sp.symbols("i j k", integer=True)
a, b = sp.IndexedBase("a"), sp.IndexedBase("b")


def test_rational_identities() -> None:
    assert is_zero((x + y) ** 3 - x**3 - 3 * x**2 * y - 3 * x * y**2 - y**3)
    assert is_zero(1 / x - 1 / (x + 1) - 1 / (x * (x + 1)))
    assert not is_zero((x + y) ** 2 - x**2 - y**2)
    assert is_zero(sp.Integer(0))
    assert not is_zero(sp.Rational(1, 10**40))
    assert is_zero(a[i] * 3 - a[i] * 2 - a[i])
    assert not is_zero(a[i] - a[j])


@pytest.mark.parametrize(
    "expr",
    [
        sp.sin(x) ** 2 + sp.cos(x) ** 2 - 1,
        sp.sqrt(x**2) - x,
        sp.Abs(x) - x,
        0.5 * x - y,
        2**x - 2**x * y,
    ],
)
def test_what_is_not_a_rational_function_over_the_rationals_is_undecided(expr: sp.Expr) -> None:
    with pytest.raises(Undecided):
        is_zero(expr)


def test_nonnegative_is_yes_or_unknown() -> None:
    assert is_nonnegative(x * y + 3 * z) is True
    assert (
        is_nonnegative(x**2 - 2 * x * y + y**2) is None
    )  # true, but not shown by its coefficients
    assert is_nonnegative(x - y) is None
    with pytest.raises(Undecided):
        is_nonnegative(1 / x)


def test_sums_with_symbolic_limits() -> None:
    total = sp.Sum(a[i], (i, 0, M - 1))
    assert sums_agree(sp.Sum(3 * a[i] / N + 1, (i, 0, M - 1)), 3 * total / N + M)
    assert sums_agree(total, sp.Sum(a[j], (j, 0, M - 1)))
    assert not sums_agree(total, sp.Sum(a[i], (i, 0, M)))
    assert not sums_agree(total, sp.Sum(b[i], (i, 0, M - 1)))
    assert not sums_agree(sp.Sum(a[i] ** 2, (i, 0, M - 1)), total**2)


def test_the_order_of_sums_does_not_matter_but_their_ranges_do() -> None:
    rows = sp.Sum(sp.Sum(a[i, j], (i, 0, M - 1)), (j, 0, N - 1))
    assert sums_agree(rows, sp.Sum(sp.Sum(a[i, j], (j, 0, N - 1)), (i, 0, M - 1)))
    assert not sums_agree(rows, sp.Sum(sp.Sum(a[i, j], (j, 0, M - 1)), (i, 0, N - 1)))
    assert not sums_agree(
        sp.Sum(a[i, j], (i, 0, M - 1), (j, 0, M - 1)), sp.Sum(a[i, i], (i, 0, M - 1), (j, 0, M - 1))
    )
    assert sums_agree(
        sp.Sum(b[j] * sp.Sum(a[i, j], (i, 0, M - 1)), (j, 0, N - 1)),
        sp.Sum(a[i, j] * b[j], (j, 0, N - 1), (i, 0, M - 1)),
    )


def test_deltas_pick_a_term() -> None:
    delta = sp.KroneckerDelta
    assert sums_agree(sp.Sum(delta(i, k) * a[i], (i, 0, M - 1)), a[k])
    assert sums_agree(sp.Sum(delta(i, 0) - delta(i, 1), (i, 0, M - 1)), 0)
    assert sums_agree(delta(i, j), 0, distinct=(i, j))
    assert not sums_agree(delta(i, j), 0)


def test_sums_agree_with_every_instance() -> None:
    """The procedure says yes exactly where the sums agree written out, for a few sizes."""
    left, right = sp.Sum(a[i] * N - 2, (i, 0, M - 1)), N * sp.Sum(a[i], (i, 0, M - 1)) - 2 * M
    assert sums_agree(left, right)
    for size in (1, 2, 5):
        assert sp.expand((left - right).subs(M, size).doit()) == 0


def test_rank_and_null_space() -> None:
    rows = [[1, 2, 3], [2, 4, 6], [1, 0, 1]]
    assert rank(rows, 3) == 2
    basis = null_space(rows, 3)
    assert len(basis) == 1
    assert all(sum(r * v for r, v in zip(row, basis[0], strict=True)) == 0 for row in rows)
    assert rank([], 4) == 0


def test_the_null_space_holds_every_counterexample_of_3_x_2() -> None:
    shape = topology.healthy(3, 2)
    basis = balance.aggregate_uniform(shape)
    assert len(basis) == 3 * 1 * 1
    for vector in basis:
        for s in range(3):
            for rail in range(2):
                assert (
                    sum(value for (src, _, n), value in vector.items() if (src, n) == (s, rail))
                    == 0
                )
        for pair in shape.pairs:
            assert sum(value for (src, dst, _), value in vector.items() if (src, dst) == pair) == 0
    known = {
        (0, 1, 0): 1,
        (0, 1, 1): -1,
        (0, 2, 0): -1,
        (0, 2, 1): 1,
    }  # 0 -> 1 on rail 0, 0 -> 2 on rail 1, doubled
    places = [(*pair, n) for pair in shape.pairs for n in range(2)]
    rows = [[vector.get(place, 0) for place in places] for vector in basis]
    assert rank(rows, 12) == rank([*rows, [known.get(place, 0) for place in places]], 12)


@pytest.mark.parametrize("value", ["0", "1/7", "1", "5/2", "20", "1/1000000"])
def test_exp_is_enclosed(value: str) -> None:
    low, high = chance.exp_bounds(Fraction(value))
    exact = sp.exp(sp.Rational(value)).evalf(60)
    assert sp.Rational(low.numerator, low.denominator) <= sp.Rational(str(exact)) + sp.Rational(
        1, 10**50
    )
    assert sp.Rational(high.numerator, high.denominator) >= sp.Rational(str(exact)) - sp.Rational(
        1, 10**50
    )
    assert 0 <= high - low <= high * Fraction(1, 10**20)


def test_tails_are_exact() -> None:
    assert chance.tail([Fraction(1, 2)] * 3, 2) == Fraction(1, 2)
    assert chance.tail([Fraction(1, 3), Fraction(1, 2)], 1) == 1 - Fraction(2, 3) * Fraction(1, 2)
    assert chance.tail([Fraction(1, 3)], 0) == 1


def test_no_float_is_written_in_the_checkers() -> None:
    folder = Path(railopt.symbolic.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if (
            path.name.startswith("coq") or path.name == "run.py"
        ):  # seconds of a process are not part of a proof
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        numbers = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, float)
        ]
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        assert not numbers, path.name
        assert "float" not in names, path.name
        assert "simplify" not in path.read_text(encoding="utf-8").replace("`simplify`", ""), (
            path.name
        )


def test_undecided_is_an_exception_not_a_value() -> None:
    assert issubclass(algebra.Undecided, Exception)
