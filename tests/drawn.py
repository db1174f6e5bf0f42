"""Small exchanges and chunks that tests of several rooms share."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.solver.epochs.exchange import ChunkExchange


def exchange(
    startup: Fraction | float | str = Fraction(1, 10**6), **more: Any
) -> tuple[Fabric, ChunkExchange]:
    """Three servers x 1 GPU; server 0 sends 5 chunks to 1 and 3 to 2, of 50 kB: 1 us each.  In two
    stages they take 9 us or more, in three 8.
    """
    fabric = Fabric.uniform(3, 1)
    matrix = np.array([[0, 5, 3], [4, 0, 2], [1, 3, 0]]) * 50_000
    traffic = Traffic.from_matrix(matrix, fabric)
    return fabric, ChunkExchange.of(fabric, traffic, 50_000, startup, **more)


def random_units(fabric: Fabric, count: int, seed: int) -> Chunks:
    rng = np.random.default_rng(seed)
    src_gpu = rng.integers(0, fabric.nodes * fabric.gpus, count)
    dst = (src_gpu // fabric.gpus + rng.integers(1, fabric.nodes, count)) % fabric.nodes
    targets = rng.random((count, fabric.gpus)) < 0.4
    size = rng.integers(1, 1000, count)
    return Chunks.from_units(fabric, src_gpu=src_gpu, dst=dst, size=size, targets=targets)
