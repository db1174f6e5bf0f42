"""Exact decisions with SymPy: rational functions, sums with symbolic limits, linear algebra over
the rationals.

Nothing here samples, rounds or calls `simplify`.  What a procedure can't decide raises `Undecided`.

    is_zero(expr)        rational functions over QQ: the numerator as a polynomial
    is_nonnegative(expr) polynomials whose coefficients are all non-negative, for symbols that are
    non-negative
    sums_agree(a, b)     sums with symbolic limits: linearity and Kronecker deltas, then `is_zero` a
                         coefficient
    rank, null_space     exact, over QQ
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import sympy as sp
from sympy.polys.matrices import DomainMatrix

Expr = Any


class Undecided(Exception):
    """The expression is outside what the procedure decides."""


def polynomial(expr: Expr) -> Any:
    """The numerator of a rational expression as a `Poly` over QQ in its free symbols and indexed
    variables.
    """
    if sp.sympify(expr).atoms(sp.Float):
        raise Undecided(f"{expr} holds a float")
    numerator, _ = sp.fraction(sp.together(sp.sympify(expr)))
    atoms = sorted(numerator.free_symbols | numerator.atoms(sp.Indexed), key=sp.default_sort_key)
    generators = [
        atom
        for atom in atoms
        if not (isinstance(atom, sp.Symbol | sp.IndexedBase) and _inside(atom, numerator))
    ]
    try:
        return sp.Poly(numerator, *(generators or [sp.Symbol("unit")]), domain="QQ")
    except sp.PolynomialError as error:
        raise Undecided(f"{expr} is not a rational function over QQ") from error
    except (sp.CoercionFailed, ValueError) as error:
        raise Undecided(f"{expr} has coefficients outside QQ") from error


def _inside(symbol: Expr, expr: Expr) -> bool:
    """The symbol occurs only as the base, label or index of indexed variables."""
    indexed = expr.atoms(sp.Indexed)
    return bool(indexed) and not expr.xreplace({atom: sp.Dummy() for atom in indexed}).has(symbol)


def is_zero(expr: Expr) -> bool:
    """Whether a rational function with rational coefficients is identically zero."""
    return bool(polynomial(expr).is_zero)


def is_nonnegative(expr: Expr) -> bool | None:
    """True if a polynomial has no negative coefficient, so that it is >= 0 for symbols >= 0; None
    if that does not show it.
    """
    expr = sp.sympify(expr)
    if sp.fraction(sp.together(expr))[1].free_symbols:
        raise Undecided(f"{expr} is not a polynomial")
    generators = sorted(expr.free_symbols, key=str) or [sp.Symbol("unit")]
    return True if all(c >= 0 for c in sp.Poly(expr, *generators, domain="QQ").coeffs()) else None


# ---------------------------------------------------------------- sums with symbolic limits
def normal_form(expr: Expr, *, distinct: Sequence[Expr] = ()) -> dict[Expr, Expr]:
    """A linear combination of sums as {atom: coefficient}; atoms are 1, indexed variables, deltas
    and irreducible sums.

    Rules: linearity; constants leave a sum; sum of 1 over a..b is b - a + 1; sum over i of delta(i,
    c) g(i) is g(c), which assumes that c lies in the range; deltas of two members of `distinct` are
    0.
    """
    result: dict[Expr, Expr] = {}
    for term in sp.Add.make_args(sp.expand(_no_sums(sp.sympify(expr), distinct))):
        coefficient, atom = _split(term)
        result[atom] = result.get(atom, 0) + coefficient
    return result


def sums_agree(left: Expr, right: Expr, *, distinct: Sequence[Expr] = ()) -> bool:
    """Whether two expressions have the same normal form; False means not shown."""
    form = normal_form(sp.sympify(left) - right, distinct=distinct)
    return all(is_zero(coefficient) for coefficient in form.values())


def _split(term: Expr) -> tuple[Expr, Expr]:
    """(coefficient: a rational function of plain symbols, atom: everything else)."""
    opaque = [f for f in sp.Mul.make_args(term) if f.has(sp.Sum, sp.Indexed, sp.KroneckerDelta)]
    atom = sp.Mul(*opaque)
    return term / atom, atom


def _no_sums(expr: Expr, distinct: Sequence[Expr]) -> Expr:
    """Innermost sums first; every sum replaced by its normal form."""
    if isinstance(expr, sp.Sum):
        body, limits = _no_sums(expr.function, distinct), expr.limits
        for index, low, high in limits:
            body = _sum(body, index, low, high, distinct)
        return body
    if isinstance(expr, sp.KroneckerDelta):
        return _delta(expr.args[0], expr.args[1], distinct)
    if not expr.args or isinstance(expr, sp.Indexed):
        return expr
    return expr.func(*(_no_sums(arg, distinct) for arg in expr.args))


def _delta(a: Expr, b: Expr, distinct: Sequence[Expr]) -> Expr:
    if a == b:
        return sp.Integer(1)
    if (a in distinct and b in distinct) or sp.sympify(a - b).is_nonzero:
        return sp.Integer(0)
    return sp.KroneckerDelta(a, b)


def _sum(body: Expr, index: Expr, low: Expr, high: Expr, distinct: Sequence[Expr]) -> Expr:
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(body)):
        outside, inside = term.as_independent(index, as_Add=False)
        delta = next(
            (f for f in sp.Mul.make_args(inside) if isinstance(f, sp.KroneckerDelta)), None
        )
        if delta is not None:
            point = next(arg for arg in delta.args[:2] if arg != index)
            if point.has(index):
                raise Undecided(f"{delta} does not fix {index}")
            total += outside * _no_sums((inside / delta).subs(index, point), distinct)
        elif inside == 1:
            total += outside * (high - low + 1)
        else:
            total += outside * _canonical(inside, (index, low, high))
    return total


def _canonical(body: Expr, limit: tuple[Expr, Expr, Expr]) -> Expr:
    """An irreducible sum in which neither the names of the indices nor the order of nested sums
    matter.
    """
    limits = [limit]
    inner = [factor for factor in sp.Mul.make_args(body) if isinstance(factor, sp.Sum)]
    if len(inner) > 1:
        raise Undecided("a sum of products of sums")
    if inner:  # finite sums: factors move in, the order is free
        fresh = {index: sp.Dummy(integer=True) for index, *_ in inner[0].limits}
        limits += [(fresh[index], *bounds) for index, *bounds in inner[0].limits]
        body = body / inner[0] * inner[0].function.xreplace(fresh)
    if any(bound.has(index) for index, *_ in limits for _, *bounds in limits for bound in bounds):
        raise Undecided("a sum whose limits depend on another index")
    names = [sp.Symbol(f"bound{i}", integer=True) for i in range(len(limits))]
    versions = []
    for order in permutations(limits):
        renamed = body.xreplace(
            {index: name for (index, *_), name in zip(order, names, strict=True)}
        )
        versions.append(
            sp.Sum(
                renamed, *((name, *bounds) for (_, *bounds), name in zip(order, names, strict=True))
            )
        )
    return min(versions, key=sp.default_sort_key)


# ---------------------------------------------------------------- linear algebra over QQ
def matrix(rows: Sequence[Sequence[int]], columns: int) -> Any:
    """Rows of integers as an exact matrix."""
    return DomainMatrix(
        [[sp.QQ(int(entry)) for entry in row] for row in rows], (len(rows), columns), sp.QQ
    )


def rank(rows: Sequence[Sequence[int]], columns: int) -> int:
    """Exact rank."""
    return int(matrix(rows, columns).to_sparse().rank()) if rows else 0


def null_space(rows: Sequence[Sequence[int]], columns: int) -> list[list[Any]]:
    """A basis of {v: rows v = 0}, exact rationals."""
    basis: list[list[Any]] = matrix(rows, columns).to_sparse().nullspace().to_Matrix().tolist()
    return basis
