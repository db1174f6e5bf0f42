"""Seeded instances of the local problem: the families that `make bench-solver` measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
RAILS, RATIOS = (4, 8, 16), (2.0, 2.5, 3.0, 5.0, 10.0, 50.0)
FAMILIES = ("u2", "u4", "u6", "lognormal", "moe", "moe-cut")
LAWRINENKO = range(20, 221, 20)  # jobs
TOKEN = 8192  # bytes


def instance(rails: int, ratio: float, family: str, seed: int) -> Ints:
    """About ratio * rails sizes, descending.

    u2, u4, u6: uniform in [1, 10**k]; lognormal: bytes around 1 MiB; moe: tokens of experts with
    Dirichlet(2) popularity; moe-cut: messages of experts with Zipf(0.9) popularity, cut at 4 MiB.
    """
    n, rng = (
        round(rails * ratio),
        np.random.default_rng([rails, int(ratio * 10), FAMILIES.index(family), seed]),
    )
    if family[0] == "u":
        sizes = rng.integers(1, 10 ** int(family[1]) + 1, n)
    elif family == "lognormal":
        sizes = np.maximum(1, np.exp(rng.normal(np.log(2**20), 1.0, n)).astype(np.int64))
    elif family == "moe":
        sizes = np.maximum(1, rng.multinomial(1024 * n, rng.dirichlet(np.full(n, 2.0)))) * TOKEN
    else:
        sizes = rng.permutation(_cut(n, rng))[:n] * TOKEN
    return np.ascontiguousarray(np.sort(sizes)[::-1], dtype=np.int64)


def _cut(n: int, rng: np.random.Generator, cap: int = 512) -> Ints:
    """At least n messages in tokens, none above `cap`."""
    popularity = 1 / np.arange(1, max(8, n // 3) + 1) ** 0.9
    pieces: list[int] = []
    while len(pieces) < n:
        for tokens in rng.multinomial(
            512 * n, rng.permutation(popularity / popularity.sum())
        ).tolist():
            pieces += [cap] * ((tokens - 1) // cap) + [(tokens - 1) % cap + 1] if tokens else []
    return np.array(pieces)


def grid(seeds: Sequence[int]) -> Iterator[tuple[str, int, Ints]]:
    """(name, rails, sizes) of every cell and seed."""
    for seed in seeds:
        for rails in RAILS:
            for ratio in RATIOS:
                for family in FAMILIES:
                    yield (
                        f"{rails}x{ratio:g} {family} #{seed}",
                        rails,
                        instance(rails, ratio, family, seed),
                    )


def unequal(seeds: Sequence[int]) -> Iterator[tuple[str, list[int], Ints]]:
    """(name, speed of each rail, sizes): one rail at half speed, every other at three quarters,
    four speeds.
    """
    for seed in seeds:
        for rails in RAILS:
            speeds = {
                "one half": [4] * (rails - 1) + [2],
                "two speeds": [4, 3] * (rails // 2),
                "mixed": [4, 4, 2, 4, 1, 4, 3, 4, 4, 4, 2, 4, 1, 4, 3, 4][-rails:],
            }
            for ratio in (2.5, 5.0, 10.0):
                for family in ("u2", "u4", "lognormal", "moe-cut"):
                    for kind, chosen in speeds.items():
                        yield (
                            f"{rails}x{ratio:g} {family} {kind} #{seed}",
                            chosen,
                            instance(rails, ratio, family, seed),
                        )


def franca_frangioni(seeds: Sequence[int]) -> Iterator[tuple[str, int, Ints]]:
    """Classes U (França et al. 1994) and NU (Frangioni et al. 2004), self-generated.

    m in 5, 10, 25 and n in 10, 50, 100, 500, 1000 with n > m; sizes up to 100, 1000, 10000.  U is
    uniform in [1, b]; in NU 98 % are uniform in [0.9 (b - 1), b], the others in [1, 0.2 (b - 1)].
    """
    for kind in ("U", "NU"):
        for top in (100, 1000, 10_000):
            for rails in (5, 10, 25):
                for n in (10, 50, 100, 500, 1000):
                    for seed in seeds if n > rails else ():
                        rng = np.random.default_rng([kind == "NU", top, rails, n, seed])
                        large = n if kind == "U" else round(0.98 * n)
                        low = 1 if kind == "U" else int(0.9 * (top - 1))
                        sizes = np.concatenate(
                            [
                                rng.integers(low, top + 1, large),
                                rng.integers(1, int(0.2 * (top - 1)) + 1, n - large),
                            ]
                        )
                        yield (
                            f"{kind}{top} m={rails} n={n} #{seed}",
                            rails,
                            np.sort(sizes)[::-1].astype(np.int64),
                        )


def lawrinenko(seeds: Sequence[int]) -> Iterator[tuple[str, int, Ints]]:
    """Two of Lawrinenko's classes (2017), self-generated: n = 20 to 220 jobs, two to three a rail.

    Sizes are uniform in [n, 4 n], or normal with mean 4 n and standard deviation n, at least 1.
    """
    for kind, ratio, n in product(("uniform", "normal"), (2.0, 2.25, 2.5, 2.75, 3.0), LAWRINENKO):
        for seed in seeds:
            rng = np.random.default_rng([kind == "normal", int(100 * ratio), n, seed])
            if kind == "uniform":
                sizes = rng.integers(n, 4 * n + 1, n)
            else:
                sizes = np.maximum(1, np.rint(rng.normal(4 * n, n, n)))
            name = f"L-{kind} n/m={ratio:g} n={n} #{seed}"
            yield name, round(n / ratio), np.sort(sizes)[::-1].astype(np.int64)
