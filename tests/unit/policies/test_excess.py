"""`even-excess`: its rule, word for word, and what it stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railopt import Chunks, Fabric, Planner, Traffic, plan
from tests.unit.policies.test_spilling import FABRIC, nodes_bound, tokens


def test_the_excess_and_nothing_else_is_staged() -> None:
    """Traffic that divides: every (node, destination) is even, by moving only the excess."""
    counts = np.random.default_rng(1).integers(0, 50, (4, 4, 4))
    counts -= counts.sum(axis=1, keepdims=True) % 4 * (np.arange(4) == 0)[None, :, None]
    counts = np.maximum(counts, 0)
    counts[:, 0] += (-counts.sum(axis=1)) % 4
    src_gpu, dst = np.nonzero(counts.reshape(16, 4) * (np.arange(16)[:, None] // 4 != np.arange(4)))
    repeats = counts.reshape(16, 4)[src_gpu, dst]
    src_gpu, dst = np.repeat(src_gpu, repeats), np.repeat(dst, repeats)
    chunks = Chunks.from_units(FABRIC, src_gpu=src_gpu, dst=dst, size=np.full(len(dst), 7))
    made = plan(FABRIC, chunks, "even-excess")
    own = np.zeros((4, 4, 4), np.int64)
    np.add.at(own, (chunks.src, chunks.src_gpu % 4, chunks.dst), chunks.size)
    assert made.staged == np.maximum(own - own.sum(axis=1, keepdims=True) // 4, 0).sum()
    carried = np.zeros((4, 4, 4), np.int64)
    np.add.at(carried, (chunks.src, made.rail, chunks.dst), chunks.size)
    assert np.array_equal(carried, np.broadcast_to(carried[:, :1], carried.shape))
    assert made.makespan == nodes_bound(chunks, FABRIC)


def plain_even_excess(fabric: Fabric, chunks: Chunks) -> list[int]:
    """The rule of `even-excess` on a healthy fabric with a NIC a GPU, word for word."""
    rails, rail = fabric.rails, [-1] * len(chunks)
    for k in range(fabric.nodes):
        debt = [0] * rails
        due = [chunks.node_matrix[k, f] // rails for f in range(fabric.nodes)]
        over = {(f, n): -int(due[f]) for f in range(fabric.nodes) for n in range(rails)}

        def put(c: int, n: int, over: dict = over, debt: list = debt) -> None:  # type: ignore[type-arg]
            f, size = int(chunks.dst[c]), int(chunks.size[c])
            debt[n] += max(over[f, n] + size, 0) - max(over[f, n], 0)
            over[f, n] += size
            rail[c] = n

        rows = np.flatnonzero(chunks.src == k).tolist()
        for c in rows:
            own = int(chunks.src_gpu[c]) % rails
            if over[int(chunks.dst[c]), own] + int(chunks.size[c]) // 2 <= 0:
                put(c, own)
        largest = max((int(chunks.size[c]) for c in rows), default=0)
        for c in sorted(rows, key=lambda c: int(chunks.size[c]) < largest):
            f = int(chunks.dst[c])
            lowest = min(((i + k + f) % rails for i in range(rails)), key=lambda n: over[f, n])
            if rail[c] < 0 and over[f, lowest] + int(chunks.size[c]) // 2 <= 0:
                put(c, lowest)
        for c in rows:
            if rail[c] < 0:
                f, own = int(chunks.dst[c]), int(chunks.src_gpu[c]) % rails
                order = [own, *((i + k + f) % rails for i in range(rails))]
                put(c, min(order, key=lambda n: over[f, n] + debt[n] // 4))
    return rail


def test_even_excess_is_its_rule() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chunks = tokens(FABRIC, seed)
        chunks = replace(chunks, size=rng.integers(1, 1000 if seed % 2 else 4, len(chunks)))
        assert plan(FABRIC, chunks, "even-excess").rail.tolist() == plain_even_excess(
            FABRIC, chunks
        )


def test_one_node_breaks_ties_as_the_whole_plan_does() -> None:
    """Equal sizes, so many ties: they go round from rail (src + dst) mod N, whoever plans."""
    fabric = Fabric.uniform(nodes=4, rails=4)
    matrix = np.random.default_rng(0).integers(0, 6, (16, 16)) * 50
    whole = plan(fabric, Traffic(matrix, 4), "even-excess", chunk=100)
    for node in range(4):
        own = Planner(fabric, node, 100, "even-excess").plan(matrix[4 * node : 4 * node + 4])
        assert np.array_equal(own.rail, whole.rail[whole.chunks.src == node])
