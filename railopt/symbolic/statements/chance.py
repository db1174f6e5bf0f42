"""T4d: random start rails.  Exact tail probabilities against Hoeffding's bound, with a rational
enclosure of exp.

A flow of m equal chunks from a random start rail puts floor(m/N) q on every rail and q more on e =
m mod N of them: on one rail, a Bernoulli variable of probability e/N.  R[f,n] is a sum of s
independent ones, and its deviation from c_f/N, in units of q, is at least t with probability at
most exp(-2 t^2 / s) (Hoeffding 1963).  With t^2 = s ln(M N / eta) / 2 and a union over the M N
NICs, all receives obey R <= c/N + q sqrt(s ln(M N / eta) / 2) with probability at least 1 - eta.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, permutations, product

from railopt.symbolic.result import Result, verdict


@lru_cache(maxsize=1 << 12)
def exp_bounds(x: Fraction, terms: int = 24) -> tuple[Fraction, Fraction]:
    """Rationals (low, high) with low <= e**x <= high, for x >= 0.

    The series of e**y for y = x / 2**j <= 1/2 has a remainder of at most twice its first omitted
    term; squaring j times.
    """
    if x < 0:
        raise ValueError("x must not be negative: take the reciprocal of the bounds of e**-x")
    halvings = 0
    while x / 2**halvings > Fraction(1, 2):
        halvings += 1
    y, total, term = x / 2**halvings, Fraction(0), Fraction(1)
    for i in range(1, terms + 1):
        total += term
        term = term * y / i
    low, high = total, total + 2 * term
    for _ in range(halvings):
        low, high = _coarse(low * low, up=False), _coarse(high * high, up=True)
    return low, high


def _coarse(value: Fraction, *, up: bool, bits: int = 128) -> Fraction:
    """Outward rounding to a short denominator, so that squaring stays cheap."""
    scaled = value * 2**bits
    return Fraction(
        -(-scaled.numerator // scaled.denominator)
        if up
        else scaled.numerator // scaled.denominator,
        2**bits,
    )


def tail(chances: Sequence[Fraction], at_least: int) -> Fraction:
    """P(at least so many of these independent events), exact."""
    law = [Fraction(1)]
    for p in chances:
        law = [
            (law[i] * (1 - p) if i < len(law) else Fraction(0)) + (law[i - 1] * p if i else 0)
            for i in range(len(law) + 1)
        ]
    return sum(law[max(0, at_least) :], Fraction(0))


def hoeffding_tails(
    quick: bool = False, *, independent: bool = True, constant: Fraction = Fraction(2)
) -> Result:
    """P(R - c/N >= t q) <= exp(-2 t^2 / s) for every rail count, every number of senders and all
    their remainders.

    `independent=False` starts every flow at the same random rail.
    """
    most_rails, most_senders = (3, 6) if quick else (5, 9)
    failures, count = [], 0
    for rails in range(2, most_rails + 1):
        for senders in range(1, most_senders + 1):
            for remainders in combinations_with_replacement(range(1, rails), senders):
                mean = Fraction(sum(remainders), rails)
                for reached in range(mean.numerator // mean.denominator + 1, senders + 1):
                    t = reached - mean
                    chance = (
                        tail([Fraction(e, rails) for e in remainders], reached)
                        if independent
                        else Fraction(
                            sum(
                                sum(start < e for e in remainders) >= reached
                                for start in range(rails)
                            ),
                            rails,
                        )
                    )
                    count += 1
                    if chance * exp_bounds(constant * t * t / senders)[1] > 1:
                        failures.append(
                            f"N = {rails}, remainders {remainders}: P(at least {reached} of mean "
                            f"{mean}) = {chance}"
                        )
    assumed = (
        "start rails independent and uniform",
        "equal chunks",
        "remainders 1..N-1; a flow without one has no deviation",
    )
    return verdict(
        "exhaustive",
        f"N <= {most_rails}, s <= {most_senders}, all remainders ({count} tails)",
        failures,
        assumed,
    )


def all_nics(quick: bool = False, *, slack: Fraction = Fraction(1)) -> Result:
    """The whole statement by counting start rails: P(some NIC above c/N + q sqrt(s ln(M N / eta) /
    2)) <= eta.

    "Above" is decided from the upper end of exp, so that the counted event contains the real one.
    `slack` < 1 shrinks the union bound's factor M N, which it can't spare.
    """
    failures, count = [], 0
    nodes = 3
    pairs = list(permutations(range(nodes), 2))
    for rails in (2,) if quick else (2, 3):
        starts = list(product(range(rails), repeat=len(pairs)))
        for remainders in combinations_with_replacement(range(rails), 3):
            extra = {pair: remainders[i % 3] for i, pair in enumerate(pairs)}
            worst = [
                max(_excess(extra, dict(zip(pairs, chosen, strict=True)), nodes, rails))
                for chosen in starts
            ]
            for eta in (Fraction(1, 2), Fraction(1, 4), Fraction(1, 10), Fraction(1, 50)):
                above = sum(high >= slack * nodes * rails / eta for high in worst)
                count += 1
                if Fraction(above, len(starts)) > eta:
                    failures.append(
                        f"N = {rails}, remainders {remainders}, eta = {eta}: {above} of "
                        f"{len(starts)} starts"
                    )
    return verdict(
        "exhaustive",
        f"M = 3, N = {'2' if quick else '2, 3'}, every choice of start rails ({count} cases)",
        failures,
        ("start rails independent and uniform", "equal chunks"),
    )


def _excess(
    extra: dict[tuple[int, int], int], start: dict[tuple[int, int], int], nodes: int, rails: int
) -> list[Fraction]:
    """For each NIC an upper bound of exp(2 d^2 / s), d its deviation above the mean in chunks; 0
    where it is not above.
    """
    found = []
    for f in range(nodes):
        senders = [k for k in range(nodes) if k != f and extra[k, f]]
        mean = Fraction(sum(extra[k, f] for k in senders), rails)
        for rail in range(rails):
            d = sum((rail - start[k, f]) % rails < extra[k, f] for k in senders) - mean
            found.append(exp_bounds(2 * d * d / len(senders))[1] if d > 0 else Fraction(0))
    return found
