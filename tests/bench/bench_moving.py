"""Least bytes moved inside nodes: the exact optimum of divisible traffic, and its bound at sizes
where that is what is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from railopt import Chunks, Fabric
from railopt.solver.moving.bound import least_moved
from tests.bench import Row

TOP, TOKENS, BYTES = 8, 2048, 7168


def routed(fabric: Fabric, seed: int, tokens: int = TOKENS, ragged: float = 0.3) -> Chunks:
    """Tokens, each once a node with the GPUs that need it: lognormal popularity of 256 experts or
    one a GPU, top-8, batches that differ by +-`ragged`.
    """
    rng = np.random.default_rng(seed)
    ranks, gpus = fabric.nodes * fabric.gpus, fabric.gpus
    experts = max(256, ranks)
    popularity = rng.normal(size=experts)
    columns = []
    for rank in range(ranks):
        count = int(tokens * (1 + ragged * rng.uniform(-1, 1)))
        scores = popularity + rng.gumbel(size=(count, experts))
        chosen = np.argpartition(-scores, TOP, axis=1)[:, :TOP] // (experts // ranks)
        hit = np.zeros((count, ranks), np.bool_)
        hit[np.arange(count)[:, None], chosen] = True
        needs = hit.reshape(count, fabric.nodes, gpus)
        needs[:, rank // gpus] = False
        token, node = np.nonzero(needs.any(axis=2))
        columns.append((np.full(len(node), rank), node, needs[token, node]))
    src_gpu, dst, targets = (np.concatenate(part) for part in zip(*columns, strict=True))
    return Chunks.from_units(
        fabric, src_gpu=src_gpu, dst=dst, size=np.full(len(dst), BYTES), targets=targets
    )


def rows() -> Iterator[Row]:
    healthy = Fabric.uniform(16, 8)
    hurt = healthy.degraded({(0, 3): "0", (1, 5): "0.5", (2, 2): "0.25"})
    for name, fabric in (("healthy", healthy), ("one NIC dead, two slow", hurt)):
        for seed in (0, 1):
            chunks = routed(fabric, seed)
            began = time.process_time()
            found = least_moved(fabric, chunks)
            took_s = time.process_time() - began
            what = "exact" if found.exact else "NOT exact"
            note = f"{what}, {len(chunks)} units, {float(found.bound) / chunks.total:.4f} moved"
            yield Row(
                f"exact optimum, 16 x 8, {name}, seed {seed}", took_s, "s", at_most=2, note=note
            )
    large = Fabric.uniform(128, 8)
    chunks = routed(large, 0, tokens=256)
    began = time.process_time()
    found = least_moved(large, chunks, limit_s=10)
    took_s = time.process_time() - began
    what = "exact" if found.exact else "a bound"
    yield Row("bound, 128 x 8, within 10 s", took_s, "s", note=f"{what}, {len(chunks)} units")
