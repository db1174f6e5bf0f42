"""What the fast twins of policies and the exchanges of `spill` gain, each left out in turn, on
traffic whose seeds were drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, gap, plan, workloads
from railopt.policies import by_size, spilling
from tests.bench import best, drawn_seeds
from tests.bench.ablations import Ablation


@contextmanager
def without(module: ModuleType, **names: Any) -> Iterator[None]:
    """Other values for names of a module."""
    kept = {name: getattr(module, name) for name in names}
    for name, value in names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


def _million(seed: int) -> tuple[Fabric, Chunks]:
    """128 senders with 8,192 chunks each of uniform sizes."""
    rng, count = np.random.default_rng(seed), 128 * 8192
    src = np.repeat(np.arange(128), 8192)
    dst = (src + 1 + rng.integers(0, 127, count)) % 128
    size = rng.integers(1, 1 << 20, count)
    return Fabric.uniform(128, 8), Chunks.from_arrays(src=src, dst=dst, size=size)


def rows(seed: int) -> Iterator[Ablation]:
    seeds = drawn_seeds(seed, 12)
    command = f"python -m tests.bench ablations policies --seed {seed}"
    fabric, chunks = _million(seeds[0])
    for policy, fits in (("lpt", "fits"), ("lpt-local", "pairs_fit")):
        call = partial(plan, fabric, chunks, policy)
        with_it = best(call, 3, cpu=True)
        with without(by_size, **{fits: lambda *_: False}):
            left_out = best(call, 3, cpu=True)
        gain = f"{policy} of a million chunks: {1e3 * with_it:.0f} ms, {1e3 * left_out:.0f} without"
        name = f"{policy} on sorted words where rails are equal"
        yield Ablation(name, 155, gain, command)
    for name, gain in _swaps(seeds):
        yield Ablation(name, 98, gain, command)


def _swaps(seeds: list[int]) -> Iterator[tuple[str, str]]:
    """`spill` on whole flows and large chunks, healthy and beside a slow NIC, with and without its
    exchanges: gap, and bytes moved over all bytes; (name, gain).
    """
    left_out: dict[str, dict[str, Any]] = {
        "": {},
        "relieve": {"relieve": lambda *_: None},
        "trade_home": {"trade_home": lambda *_: 0},
    }
    cases = list(product((3, 4, 8), (4, 8), ("flow", "4MiB", "1MiB"), ("1", "0.5"), seeds[:6]))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in left_out}
    for (nodes, rails, cap, speed, seed), (name, changes) in product(cases, left_out.items()):
        fabric = Fabric.uniform(nodes, rails).degraded({(1, 2): speed})
        chunks = workloads.moe(fabric, tokens=1024, skew=0.7, seed=seed).chunks(cap)
        with without(spilling, **changes):
            made = plan(fabric, chunks, "spill")
        found[name].append((float(gap(made, limit_s=0).gap), made.moved / chunks.total))
    means = {name: 100 * np.mean(values, axis=0) for name, values in found.items()}
    for name in ("relieve", "trade_home"):
        gain = (
            f"mean gap of {len(cases)} plans {means[''][0]:.3f} %, {means[name][0]:.3f} % without; "
            f"moved {means[''][1]:.1f} %, {means[name][1]:.1f} % without"
        )
        yield f"`{name}` of `spill`", gain
