"""T10b to T10e: the time bound of FAST (arXiv 2505.09764), in its own model, exact.

n servers of m GPUs, scale-up rate B1 a GPU, scale-out rate B2 a NIC.  T[i][j] bytes between
servers, L the largest row or column sum, S_i <= row_i / n bytes inside server i.  Phases, each a
barrier:

    balance | stage 1 beside the traffic inside servers | stage i beside redistribution of i-1 | ...
    | last redistribution

A stage of w bytes lasts w/(m B2); its redistribution at most (m-1) w/(m B1), when all its bytes are
for one GPU. In units of 1/(m B2) and with rho = (m-1) B2/B1, the stages cost w_1 + sum of
max(w_{i+1}, rho w_i) + rho w_last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import sympy as sp

from railopt.symbolic.algebra import is_nonnegative, is_zero
from railopt.symbolic.result import Result, verdict

Tile = Sequence[Sequence[int]]
"""[m][m] bytes from GPU to GPU"""


@dataclass(frozen=True)
class Hot:
    """Servers that send through stages of given lengths; in every tile all bytes go from GPU 0 to
    GPU 0.

    `stages` are lengths w in order; server 0 sends in every stage, so its row is their sum, which
    is L. `local` bytes stay inside each server, all from GPU 0 to GPU 1; FAST assumes local <= row
    / n.
    """

    servers: int
    gpus: int
    scale_up: int
    scale_out: int
    stages: tuple[int, ...]
    local: int = 0

    @property
    def best(self) -> Fraction:
        """L/(m B2): no schedule is faster."""
        return Fraction(sum(self.stages), self.gpus * self.scale_out)

    @property
    def time(self) -> Fraction:
        """The exact time of FAST's phases."""
        wire = [Fraction(w, self.gpus * self.scale_out) for w in self.stages]
        after = [Fraction(self.gpus - 1, self.gpus) * w / self.scale_up for w in self.stages]
        beside = [Fraction(self.local, self.scale_up), *after[:-1]]
        return self._balance + sum(map(max, wire, beside), Fraction(0)) + after[-1]

    @property
    def hidden(self) -> Fraction:
        """The same, were every redistribution but the last hidden behind the next stage."""
        last = Fraction(self.gpus - 1, self.gpus) * self.stages[-1] / self.scale_up
        return self._balance + self.best + last

    @property
    def _balance(self) -> Fraction:
        return Fraction(self.gpus - 1, self.gpus) * sum(self.stages) / self.scale_up

    @property
    def hides(self) -> bool:
        """B1 >= (m-1) B2, what FAST's proof uses, and local <= row / n."""
        return self.scale_up >= (
            self.gpus - 1
        ) * self.scale_out and self.servers * self.local <= sum(self.stages)

    def printed(self) -> Fraction:
        """FAST's Theorem 3 as printed: 1 + (B2/B1)(m + m/n)."""
        return 1 + Fraction(self.scale_out, self.scale_up) * (
            self.gpus + Fraction(self.gpus, self.servers)
        )

    def corrected(self) -> Fraction:
        """With (m-1) kept in the last term: 1 + (B2/B1)(2(m-1) + m/n)."""
        return 1 + Fraction(self.scale_out, self.scale_up) * (
            2 * (self.gpus - 1) + Fraction(self.gpus, self.servers)
        )


def phase_bounds(quick: bool = False, *, one_target: bool = True) -> Result:
    """What a phase costs at most, over every tile: balance (m-1)/m of its bytes, redistribution
    (m-1)/m of them, and both attained.

    FAST's last term charges 1/m of them instead (`one_target=False`): attained only if every target
    gets an equal share.
    """
    failures, worst = [], {2: Fraction(0), 3: Fraction(0)}
    for m, most in ((2, 2), (3, 1)):
        limit = Fraction(m - 1 if one_target else 1, m)
        for entries in product(range(most + 1), repeat=m * m):
            tile = [entries[g * m : (g + 1) * m] for g in range(m)]
            total = sum(entries)
            balance, after = balance_bytes(tile), redistribution_bytes(tile)
            worst[m] = max(worst[m], after / total) if total else worst[m]
            if balance > Fraction(m - 1, m) * total or after > limit * total:
                failures.append(f"{tile}: balance {balance}, redistribution {after} of {total}")
        if worst[m] != Fraction(m - 1, m):
            failures.append(f"m = {m}: the worst redistribution is {worst[m]}")
    return verdict(
        "exhaustive",
        "m = 2, entries 0..2; m = 3, entries 0..1: every tile",
        failures,
        ("full duplex scale-up",),
    )


def balance_bytes(tile: Tile) -> Fraction:
    """The most that one GPU sends or receives until each of m GPUs holds 1/m of the tile."""
    share = Fraction(sum(map(sum, tile)), len(tile))
    return max(max(abs(sum(row) - share) for row in tile), Fraction(0))


def redistribution_bytes(tile: Tile) -> Fraction:
    """The most that one GPU sends or receives when each of m proxies holds 1/m of every target's
    bytes.
    """
    m, targets = len(tile), [sum(column) for column in zip(*tile, strict=True)]
    return max(max(Fraction(m - 1, m) * t, Fraction(sum(targets) - t, m)) for t in targets)


def printed_bound_refuted(quick: bool = False, *, last_term: int | None = None) -> Result:
    """T10b for all n, m, in units of L/(m B2): one tile of L bytes from one GPU to one GPU takes
    1 + 2(m-1) B2/B1, which exceeds the printed bound exactly if m - 2 > m/n.

    Two stages, the first of e L bytes, exceed it for every m > 2 as e goes to 0 (T10c's family).
    `last_term` replaces (m-1) in the redistribution, and then neither does.
    """
    n, m, beta, e = sp.symbols("n m beta e", positive=True)  # beta = B2/B1
    redistribution = (m - 1) if last_term is None else last_term
    printed = 1 + beta * (m + m / n)
    excess = 1 + beta * ((m - 1) + redistribution) - printed
    family = beta * (m - 1) + beta * m / n + (1 - e) * (1 + redistribution * beta) - printed
    failures = [
        f"{name}: the excess is {sp.factor(found)}"
        for name, found, expected in (
            ("one tile", excess, beta * (m - 2 - m / n)),
            ("two stages", family, beta * (m - 2) - e * (1 + (m - 1) * beta)),
        )
        if not is_zero(found - expected)
    ]
    found = [
        (a, b) for a in range(2, 9) for b in range(2, 9) if excess.subs({n: a, m: b, beta: 1}) > 0
    ]
    for a, b in ((2, 5), (3, 4), (4, 3), (4, 8)):
        if (a, b) not in found:
            failures.append(f"n = {a}, m = {b} does not exceed the printed bound")
    return verdict(
        "symbolic",
        "all n, m, B1, B2",
        failures,
        (
            "all bytes of a stage are for one GPU",
            "two stages: S_i = row_i/n, and the first is over before the traffic inside servers",
        ),
        "exceeded by one tile exactly if m - 2 > m/n, by two stages for every m > 2",
    )


def stage_cost(weights: Sequence[Any], rho: Any) -> Any:
    """w_1 + sum of max(w_{i+1}, rho w_i) + rho w_last."""
    return (
        weights[0]
        + sum(max(after, rho * before) for before, after in pairwise(weights))
        + rho * weights[-1]
    )


def corrected_bound(quick: bool = False, *, keep: bool = True) -> Result:
    """T10c for all n, m, rates and stages in any order: at most 1 + (B2/B1)(2(m-1) + m/n).

    max(a, b) <= a + b turns the stages' cost into at most (1 + rho) L; balance <= (m-1) L/(m B1),
    local <= L/(n B1). The family of two stages (e, 1-e) with the traffic inside exposed tends to
    it, so no smaller constant will do.
    """
    n, m, B1, B2, L, e = sp.symbols("n m B1 B2 L e", positive=True)
    best, beta = L / (m * B2), B2 / B1
    time = (
        (m - 1) * L / (m * B1) + L / (n * B1) + (1 + ((m - 1) if keep else 1) * beta) * L / (m * B2)
    )
    bound = 1 + beta * (2 * (m - 1) + m / n)
    a, b = sp.symbols("a b", nonnegative=True)
    failures = (
        []
        if is_nonnegative((a + b) - a) and is_nonnegative((a + b) - b)
        else ["a maximum is not below the sum"]
    )
    if not is_zero(time / best - bound):
        failures.append(f"the ratio is {sp.expand(time / best)}")
    family = (m - 1) * beta + m / n * beta + (1 - e) * (1 + (m - 1) * beta)
    if not is_zero(family.subs(e, 0) - bound):
        failures.append("the family does not tend to the bound")
    return verdict(
        "symbolic",
        "all n, m, B1, B2, any number and order of stages",
        failures,
        ("S_i <= row_i/n", "the stages' lengths add up to L"),
    )


def corrected_bound_run(quick: bool = False, *, corrected: bool = True) -> Result:
    """T10c by running the phases: every sequence of stages up to a size, several n, m and rates,
    the traffic inside at its most.
    """
    length, failures, count = 3 if quick else 4, [], 0
    for weights in (w for k in range(1, length + 1) for w in product((1, 2, 3, 8), repeat=k)):
        for n, m, up in ((2, 2, 1), (2, 5, 4), (3, 4, 3), (4, 8, 9), (4, 8, 7)):
            hot = Hot(n, m, up, 1, tuple(n * w for w in weights), sum(weights))
            count += 1
            if hot.time > (hot.corrected() if corrected else hot.printed()) * hot.best:
                failures.append(f"{hot}: {hot.time / hot.best}")
    return verdict(
        "exhaustive",
        f"{count} runs, up to {length} stages in every order",
        failures,
        ("B1 >= (m-1) B2",),
    )


def hiding_by_order(
    quick: bool = False, *, ascending: bool = True, rho_at_most: Fraction = Fraction(1)
) -> Result:
    """T10d: in ascending order every redistribution but the last is hidden behind the next stage,
    if B1 >= (m-1) B2.

    In descending order it is not (`ascending=False`), e.g. stages 4, 1.
    """
    failures = []
    for weights in (w for k in range(2, 4 if quick else 6) for w in product(range(1, 5), repeat=k)):
        ordered = sorted(weights, reverse=not ascending)
        failures += [
            f"stages {ordered}, rho = {rho}: a redistribution outlasts the next stage"
            for rho in (rho_at_most / 4, rho_at_most / 2, rho_at_most)
            if any(rho * before > after for before, after in pairwise(ordered))
        ]
    w, d, slack = sp.symbols("w d slack", nonnegative=True)  # next = w + d, rho = 1 - slack
    if ascending and not is_zero((w + d) - (1 - slack) * w - (d + slack * w)):
        failures.append("the margin is not d + slack w")
    return verdict(
        "symbolic",
        "all stages; run for lengths 1..4",
        failures,
        ("ascending stages", "rho = (m-1) B2/B1 <= 1"),
    )


def descending_no_worse(quick: bool = False, *, rho_at_most: Fraction = Fraction(1)) -> Result:
    """T10e: descending stages never cost more than ascending ones, if B1 >= (m-1) B2, whatever the
    number of stages.

    Ascending costs L + rho w_max.  Descending: max(w', rho w) <= w' + rho (w - w') for w' <= w,
    because the difference is rho (w - w') >= 0 or (1 - rho) w' >= 0; these add up to L + rho w_max,
    by induction over the stages.
    """
    failures, count = [], 0
    for weights in (w for k in range(1, 4 if quick else 6) for w in product(range(1, 5), repeat=k)):
        up = sorted(weights)
        for rho in (rho_at_most / 4, rho_at_most / 2, rho_at_most):
            count += 1
            if stage_cost(up[::-1], rho) > stage_cost(up, rho):
                failures.append(f"stages {up}, rho = {rho}")
    w, after, drop, rho, slack, total = sp.symbols("w after drop rho slack total", nonnegative=True)
    before = after + drop
    facts = [
        ("the next stage is within the estimate", (after + rho * drop) - after - rho * drop),
        (
            "the redistribution is within the estimate",
            ((after + rho * drop) - rho * before).subs(rho, 1 - slack) - slack * after,
        ),
        ("one stage: w + rho w", stage_cost([w], rho) - (w + rho * w)),
        (
            "one stage more adds its own length",
            (total + after + rho * (before - after) + rho * after) - (total + rho * before) - after,
        ),
    ]
    failures += [name for name, zero in facts if not is_zero(zero)]
    return verdict(
        "symbolic",
        f"all stages by induction; run for {count} cases",
        failures,
        ("rho = (m-1) B2/B1 <= 1",),
    )
