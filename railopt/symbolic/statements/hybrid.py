"""T11: HybridEP's optimum (arXiv 2510.19470), with the max(0, .) that the paper leaves out.

One level of G workers, bandwidth B, D bytes of data and P_E bytes of expert per worker, Lat_PE of
compute to hide under. With a = P_E (G-1)/B, b = 2 D (G-1)/(G B) and L = Lat_PE, sending the share p
of the leaving data as data takes

    Lat(p) = max(L, a (1 - p)) + b p,     0 <= p <= 1

and is least at p* = 0 if b >= a, else at p* = max(0, 1 - L/a).  Each case is an identity between
polynomials whose right-hand side has no negative coefficient, in symbols that are non-negative by
the case's own assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from railopt.symbolic.algebra import is_nonnegative, is_zero
from railopt.symbolic.result import Result, verdict

Expr = Any
G, B, D, P, L = sp.symbols("G B D P L", positive=True)
a, b = sp.symbols("a b", positive=True)
u, v, w, p = sp.symbols("u v w p", nonnegative=True)


def cases() -> Iterator[tuple[str, Expr, Expr]]:
    """(case, Lat(p) - Lat(p*), the same as a sum of non-negative terms times a positive
    denominator).
    """
    yield "L >= a: everything is hidden at p = 0", (a + u + b * p) - (a + u), b * p
    kink = u / (L + u)  # L < a: a = L + u, and p* or the kink is 1 - L/a
    rise = L + u + v  # b >= a
    yield "b >= a > L, exposed: p below the kink", (L + u) * (1 - p) + rise * p - (L + u), v * p
    yield (
        "b >= a > L, hidden: p = kink + w",
        L + rise * (kink + w) - (L + u),
        (v * u + (L + u) * rise * w) / (L + u),
    )
    wide = {u: b + v - L}  # a >= b: a = b + v, so u = a - L
    slope = b + v
    yield (
        "a > b, a > L, exposed: p = kink - w",
        (slope * (1 - (kink - w)) + b * (kink - w) - (L + b * kink)).subs(wide),
        v * w,
    )
    yield (
        "a > b, a > L, hidden: p = kink + w",
        (L + b * (kink + w) - (L + b * kink)).subs(wide),
        b * w,
    )


def closed_form(quick: bool = False, *, capped: bool = True) -> Result:
    """p* is in [0, 1] and no p is better, for all sizes and rates; and S* - 1 = B Lat_PE / P_E.

    `capped=False` takes 1 - L/a as it stands in the paper: negative, hence no share at all, where L
    > a.
    """
    failures = []
    for name, difference, terms in cases():
        if not is_zero(difference - terms):
            failures.append(f"{name}: Lat(p) - Lat(p*) is not {terms}")
        elif not is_nonnegative(sp.numer(sp.together(terms))):
            failures.append(f"{name}: {terms} may be negative")
    best = sp.Integer(0) if capped else (1 - L / a).subs(L, a + u)
    if not (is_nonnegative(sp.numer(sp.together(best))) or is_zero(best)):
        failures.append(f"L = a + u: p* = {sp.together(best)} is negative")
    gather, exchange = P * (G - 1) / B, 2 * D * (G - 1) / (G * B)
    facts = {
        "b >= a iff 2 D >= G P_E": exchange - gather - (G - 1) * (2 * D - G * P) / (G * B),
        "S* - 1 = B Lat_PE / P_E": (G - 1) * (L / gather) - B * L / P,
        "p = (G - S)/(G - 1) iff 1 - p = (S - 1)/(G - 1)": 1
        - (G - p) / (G - 1)
        - (p - 1) / (G - 1),
    }
    failures += [name for name, zero in facts.items() if not is_zero(zero)]
    return verdict(
        "symbolic",
        "all G, B, D, P_E, Lat_PE, p",
        failures,
        (
            "one level, even gating",
            "p is continuous",
            "expert compute hidden, no latency a message",
        ),
    )
