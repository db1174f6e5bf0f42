"""The NICs that are slower than the others."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric
from railopt.answers.outliers import NOTICED, outlier_lines, outliers


def test_a_healthy_fabric_and_a_dead_one() -> None:
    fabric = Fabric.uniform(2, 2)
    assert outliers(fabric) == []
    dead = fabric.degraded({(k, n): 0 for k in range(2) for n in range(2)})
    assert str(outliers(dead)[0]) == "node 0 rail 0: dead"
    assert len(outliers(dead)) == 4


@pytest.mark.parametrize("seed", range(5))
def test_every_nic_below_the_limit_is_there_once_the_slowest_first(seed: int) -> None:
    rng = random.Random(seed)
    rates = [rng.choice((0, 60, 94, 95, 96, 100, 100, 130)) for _ in range(90)]
    tx, rx = np.array(rates).reshape(2, 9, 5)
    fabric = Fabric(9, 5, 5, tx, rx)
    alive = sorted([*tx[tx > 0], *rx[rx > 0]])
    limit = (1 - NOTICED) * int(alive[len(alive) // 2])
    found = outliers(fabric)
    sides = {
        (nic.node, nic.rail, side)
        for nic in found
        for side in ([nic.side] if nic.side else ("send", "recv"))
    }
    assert sides == {
        (node, rail, side)
        for side, rates in (("send", tx), ("recv", rx))
        for node in range(9)
        for rail in range(5)
        if rates[node, rail] <= limit
    }
    assert [nic.rate for nic in found] == sorted(nic.rate for nic in found)


def test_one_side_is_said_and_what_is_left_out_is_counted() -> None:
    healthy = Fabric.uniform(3, 4)
    slow = healthy.degraded({(1, 2): "0.5", (2, 0): "0.25", (0, 3): "0.96"})
    found = outliers(Fabric(3, 4, 4, slow.tx, healthy.rx))
    assert outlier_lines(found, 1) == [
        "node 2 rail 0 (send): 100 Gb/s, 75 % below the median",
        "and 1 more, all faster than these",
    ]
    assert found[1].below == Fraction(1, 2)
