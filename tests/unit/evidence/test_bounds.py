"""Bounds by sums and counts on rails of different speeds."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

import railopt
from railopt.base.errors import Infeasible
from railopt.evidence import bounds
from railopt.evidence.bounds import average, count, local_bound, lower_bound, node_sizes
from railopt.model.fabric import SIDES


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_promising_counts_hold_the_best(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        speeds = [rng.randint(1, 60) for _ in range(rng.randint(2, 8))] + [61]
        largest = rng.choice([10, 1000, 10**6])
        drawn = [rng.randint(1, largest) for _ in range(rng.randint(1, 40))]
        sizes = np.array(sorted(drawn, reverse=True))
        counts = range(1, min(len(sizes), 4 * len(speeds)) + 1)
        every = [average(sizes, speeds)[0], *(count(sizes, speeds, n)[0] for n in counts)]
        assert local_bound(sizes, speeds)[0] == max(every)


@pytest.mark.parametrize("seed", range(6))
def test_no_node_that_decides_is_skipped(seed: int) -> None:
    rng = random.Random(seed)
    fabric = railopt.Fabric.uniform(5, 4)
    rates = {(k, n): Fraction(rng.randint(1, 100), 100) for k in range(5) for n in range(4)}
    fabric = fabric.degraded(rates)
    chunks = railopt.workloads.moe(fabric, tokens=64, skew=1.0, seed=seed).chunks("4MiB")
    every = [
        local_bound(node_sizes(chunks, side, node), fabric.rates(side)[node].tolist())[0]
        for side in SIDES
        for node in range(5)
    ]
    assert lower_bound(fabric, chunks).value == max(every)


def test_many_nodes_are_not_looked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over all chunks per node would take minutes with thousands of nodes."""
    passes = []
    monkeypatch.setattr(
        bounds, "node_sizes", lambda *given: passes.append(given) or node_sizes(*given)
    )
    fabric = railopt.Fabric.uniform(40, 2, gpus=1)
    chunks = railopt.workloads.permutation(fabric, size="5MiB").chunks("1MiB")
    assert lower_bound(fabric, chunks).value == Fraction(3 << 20, int(fabric.tx[0, 0]))
    assert len(passes) == 1


def test_a_node_without_a_living_nic() -> None:
    fabric = railopt.Fabric.uniform(3, 2).degraded({(0, 0): "0", (0, 1): "0"})
    with pytest.raises(Infeasible, match="all dead"):
        lower_bound(fabric, railopt.workloads.uniform(fabric).chunks("1MiB"))
