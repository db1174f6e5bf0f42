"""Servers in the place of their GPUs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.solver.epochs.exchange import ChunkExchange, lengths
from railopt.solver.epochs.lists import in_epochs
from railopt.solver.epochs.servers import between_gpus, between_servers


@pytest.mark.parametrize(("scaleup", "servers"), [("450GB/s", 3), ("100GB/s", 6)])
def test_servers_stand_for_gpus_where_scale_up_is_never_full(scaleup: str, servers: int) -> None:
    fabric = Fabric.uniform(3, 2, scaleup=scaleup)
    matrix = np.random.default_rng(44).integers(0, 5, (6, 6)) * 50_000
    traffic = Traffic.from_matrix(matrix, fabric)
    asked = ChunkExchange.of(fabric, traffic, 50_000, Fraction(1, 10**6), stages=False)
    smaller = between_servers(asked, 10)
    assert len(smaller.demand) == servers
    load = np.zeros((len(smaller.pairs), 2), np.int64)
    load[:, 0] = smaller.demand[tuple(smaller.pairs.T)] // 2
    load[:, 1] = smaller.demand[tuple(smaller.pairs.T)] - load[:, 0]
    made = in_epochs(smaller, load)
    assert lengths(asked, between_gpus(asked, smaller, made)) == lengths(smaller, made)
    near = replace(asked, demand=np.eye(6, k=1, dtype=np.int64) * [0, 1, 0, 1, 0, 1])
    assert between_servers(near, 10) is near
