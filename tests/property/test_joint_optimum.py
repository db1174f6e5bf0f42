"""The joint optimum of placement and split by OR-Tools, against every placement and every split."""

from __future__ import annotations

import os

import numpy as np

from experiments.joint_gap.run import optimum
from railopt.moe.joint import Demand
from railopt.symbolic.statements.layer import SmallLayer, least

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300"))


def test_no_placement_and_split_is_faster() -> None:
    several = 0
    for seed in range(INSTANCES):
        rng = np.random.default_rng([16, seed])
        nodes, experts = int(rng.integers(2, 4)), int(rng.integers(1, 4))
        tokens = rng.integers(0, 4 if nodes == 2 else 3, (nodes, experts))
        slots = np.full(nodes, -(-experts // nodes)) + rng.integers(0, 2, nodes)
        tx, rx = rng.integers(1, 4, (2, nodes))
        made = optimum(Demand(tokens, slots, tx, rx, 1))
        given = map(tuple, (map(tuple, tokens.T.tolist()), slots, tx, rx))
        layer = SmallLayer(*given, there=(frozenset(),) * nodes)
        assert made.claimed
        assert made.time == least(layer), f"seed {seed}"
        assert (made.holds.sum(axis=1) <= slots).all()
        assert made.holds.any(axis=0).all()
        assert (made.flow.sum(axis=2) == tokens).all()
        assert not made.flow.sum(axis=0).T[~made.holds].any(), "a token where its expert is not"
        several += made.time > 0
    assert several > INSTANCES // 3
