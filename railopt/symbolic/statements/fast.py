"""T10b to T10e: the time bound of FAST (arXiv 2505.09764), in its own model, exact.

n servers of m GPUs, scale-up rate B1 a GPU, scale-out rate B2 a NIC.  T[i][j] bytes between
servers, L the largest row or column sum, S_i <= row_i / n bytes inside server i.  Phases, each a
barrier:

    balance | stage 1 beside the traffic inside servers | stage i beside redistribution of i-1 | ...
    | last redistribution

A stage of w bytes lasts w/(m B2); its redistribution at most (m-1) w/(m B1), when all its bytes are
for one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import sympy as sp

from railopt.symbolic.algebra import is_zero
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
