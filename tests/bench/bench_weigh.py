"""What `railopt weigh` takes on a long trace, warm."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from railopt.model.fabric import Fabric
from railopt.moe.routing.trace import Trace
from railopt.moe.weigh import WeighQuestion, weigh
from tests.bench import Row, judged_once

STEPS, LAYERS, RANKS, EXPERTS, TOKENS, TOP_K = 100, 8, 64, 64, 1024, 6
KEPT = 0.95  # of an expert's log popularity, from step to step
SEED = 4711


def drifting() -> Trace:
    """Popularities are lognormal and drift."""
    rng = np.random.default_rng(SEED)
    popularity, counts = rng.normal(0, 1, (LAYERS, EXPERTS)), []
    for _ in range(STEPS):
        new = rng.normal(0, 1, popularity.shape)
        popularity = KEPT * popularity + np.sqrt(1 - KEPT**2) * new
        shares = np.exp(popularity) / np.exp(popularity).sum(axis=1, keepdims=True)
        counts.append([rng.multinomial(TOKENS * TOP_K, each, RANKS) for each in shares])
    return Trace(np.array(counts, np.int32), TOP_K, TOKENS)


def rows() -> Iterator[Row]:
    trace, fabric = drifting(), Fabric.uniform(8, 8)
    asked = WeighQuestion(model="deepseek-v2-lite")
    weigh(trace, fabric, asked)
    begun = time.process_time()
    weigh(trace, fabric, asked)
    name = f"weigh, {STEPS} steps x {LAYERS} layers x {EXPERTS} experts, 8 x 8"
    yield from judged_once(name, time.process_time() - begun, "s", 20)
