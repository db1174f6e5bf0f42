"""A new map after an old one: what can stay stays, slot by slot."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.moe.placement.repair import least_change
from railopt.moe.placement.replicate import rebalance


def held(row: np.ndarray, gpus: int) -> list[list[int]]:
    return [sorted(part.tolist()) for part in row.reshape(gpus, -1)]


def test_the_same_plan_under_other_names_moves_nothing() -> None:
    weight = np.random.default_rng(0).pareto(1.5, (3, 16))
    plan, _, _ = rebalance(weight, 24, 1, 2, 4)
    shuffled = plan.reshape(3, 4, 6)[:, [2, 0, 3, 1], ::-1].reshape(3, 24)
    np.testing.assert_array_equal(least_change(plan, shuffled, 4, 4), shuffled)


@pytest.mark.parametrize("together", [2, 4])
def test_what_stays_keeps_its_slot_and_nothing_is_lost(together: int) -> None:
    rng = np.random.default_rng(1)
    weight = rng.pareto(1.5, (4, 16))
    before, _, _ = rebalance(weight, 24, 1, 2, 4)
    plan, _, _ = rebalance(weight * rng.uniform(0.5, 2, weight.shape), 24, 1, 2, 4)
    after = least_change(plan, before, 4, together)
    for layer in range(4):
        assert sorted(held(after[layer], 4)) == sorted(held(plan[layer], 4))
        pairs = zip(after[layer].reshape(4, 6), before[layer].reshape(4, 6), strict=True)
        for new, old in pairs:
            for expert in set(new.tolist()) & set(old.tolist()):
                assert new.tolist().index(expert) == old.tolist().index(expert)
    if together == 2:  # GPUs that shared a node still do
        nodes = [{tuple(g) for g in held(part, 2)} for part in plan[0].reshape(2, 12)]
        assert {tuple(g) for g in held(after[0, :12], 2)} in nodes


def test_old_slots_may_be_empty_or_hold_twins() -> None:
    plan = np.array([[0, 1, 2, 3]], np.int32)
    assert least_change(plan, np.array([[2, -1, 0, 0]]), 2, 2).tolist() == [[2, 3, 0, 1]]
