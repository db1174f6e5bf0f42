"""HybridEP: 1,000 data centres optimised and simulated; the per-expert choice proved."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from railopt.moe.hybrid.gating import Gating, check_tree, choose
from railopt.moe.hybrid.simulated import block_time
from railopt.moe.hybrid.stream import Level, Stream, optimum
from tests.bench import Row, in_turns, judged, judged_once, ratio

MB = 10**6


def centres(count: int) -> Stream:
    levels = (Level("dc", count, 10**10 // 8), Level("gpu", 8, 16 * 10**9))
    return Stream(levels, 48 * MB, 2 * MB, Fraction(1, 25), compression=Fraction(50))


def gating(seed: int, skew: float, equal: bool) -> Gating:
    """64 experts on 8 data centres, 65,536 tokens of 16 KiB each, experts of 8 MB."""
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(np.arange(1, 65) ** -skew) * rng.gamma(4, 0.25, (8, 64))
    tokens = np.stack([rng.multinomial(65536, row / row.sum()) for row in popularity])
    rate = np.full(8, 10**9) if equal else 10**9 + 10**8 * np.arange(8)
    return Gating(
        tokens * 16384, np.arange(64) // 8, np.full(64, 500 * 16384), rate, Fraction(1, 20)
    )


def rows() -> Iterator[Row]:
    large, small = centres(1000), centres(100)
    yield from judged("1,000 data centres x 8 GPUs: optimum", [lambda: optimum(large)], "s", 1)
    domains, fewer = optimum(large).domains, optimum(small).domains
    whole, tenth = in_turns(
        [lambda: block_time(large, domains), lambda: block_time(small, fewer)]
    ).T
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield from judged_once("the same: simulated", whole.min(), "s", 60)
    yield Row("the same: memory of this process", memory, "GiB", at_most=2)
    yield Row(
        "simulated, 1,000 over 100 data centres",
        ratio(whole, tenth),
        "x",
        note="linear would be 10",
    )
    slowest, proved, count = 0.0, 0, 0
    for seed in range(4):
        for skew in (0.5, 1.0, 1.5):
            for equal in (True, False):
                instance = gating(seed, skew, equal)
                begun = time.process_time()  # others may want the processor
                choice = choose(instance, limit_s=10, clock=time.process_time)
                slowest = max(slowest, time.process_time() - begun)
                proved += choice.bracket.optimum_known and check_tree(instance, choice)
                count += 1
    name = "per-expert choice, 64 experts x 8 data centres: slowest"
    yield from judged_once(name, slowest, "s", 10)
    yield Row(
        "per-expert choice: proved, tree checked",
        100 * proved / count,
        "%",
        at_least=100,
        note=f"{count} instances",
    )
