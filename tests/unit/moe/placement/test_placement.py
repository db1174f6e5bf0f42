"""Placements, replication, and what leaves railopt for other programs."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.packing import balance
from railopt.moe.placement.placement import Placement, contiguous_home, slot_gpus
from railopt.moe.placement.repair import resized, stepped
from railopt.moe.placement.replicate import rebalance
from railopt.moe.placement.vllm import sizes_of
from railopt.moe.presets import PRESETS, preset
from tests.twins import twins


def zipf(layers: int, experts: int, seed: int = 0, skew: float = 0.8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(np.arange(1, experts + 1) ** -skew) for _ in range(layers)])


def replicated(
    weight: np.ndarray, replicas: int, nodes: int, gpus: int, groups: int = 1
) -> Placement:
    phy2log = rebalance(weight, replicas, groups, nodes, nodes * gpus)[0]
    return Placement.from_phy2log(phy2log, nodes, gpus, weight.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [4, 9, 18])
def test_replicate_is_no_worse_than_plain_eplb_and_places_no_twins(nodes: int) -> None:
    weight = zipf(6, 256, seed=nodes)
    phy2log, log2phy, logcnt = rebalance(weight, 288, 8, nodes, nodes * 8)
    assert phy2log.shape == (6, 288)
    assert twins(phy2log, nodes * 8) == 0
    plain = balance(weight, eplb(weight, 288, 8, nodes, nodes * 8), nodes * 8)
    assert balance(weight, phy2log, nodes * 8).mean() <= plain.mean() + 1e-12
    np.testing.assert_array_equal(logcnt.sum(axis=1), 288)
    for layer, expert in ((0, 0), (5, 200)):
        slots = log2phy[layer, expert]
        np.testing.assert_array_equal(np.flatnonzero(phy2log[layer] == expert), slots[slots >= 0])


def test_gpus_are_as_even_as_the_groups_on_nodes_allow() -> None:
    weight = zipf(20, 256, seed=3)
    groups = np.sort(
        weight.reshape(20, 8, 32).sum(axis=2), axis=1
    )  # two a node: the heaviest with the lightest is best
    least = (groups[:, :4] + groups[:, :3:-1]).max(axis=1) / weight.sum(axis=1) * 4
    reached = balance(weight, rebalance(weight, 288, 8, 4, 32)[0], 32)
    assert np.all(reached >= least * (1 - 1e-12))
    assert np.median(reached / least) < 1.001


def test_hierarchical_keeps_groups_on_one_node() -> None:
    phy2log, _, _ = rebalance(zipf(3, 64, seed=5), 80, 8, 4, 16)
    for row in phy2log:
        node_of_slot = slot_gpus(80, 16) // 4
        for group in range(8):
            assert len(set(node_of_slot[row // 8 == group].tolist())) == 1


def test_replica_counts_that_gpus_do_not_divide() -> None:
    for replicas in (10, 11, 13, 29, 39, 40):
        phy2log, _, logcnt = rebalance(zipf(4, 10, skew=2.0), replicas, 1, 1, 4)
        assert twins(phy2log, 4) == 0
        assert logcnt.min() >= 1
        assert logcnt.max() <= 4
        assert logcnt.sum(axis=1).tolist() == [replicas] * 4


@pytest.mark.parametrize("replicas", [10, 14, 18, 24])
def test_groups_stay_where_gpus_divide_the_replicas(replicas: int) -> None:
    placed = replicated(zipf(4, 8, skew=2.0), replicas, 2, 4, 2)
    assert placed.copies.sum(axis=1).tolist() == [replicas] * 4  # none shares a GPU with its twin
    assert placed.layers_keeping(2) == (4 if replicas % 8 == 0 else 0)
    held = placed.holds.sum(axis=2)
    assert held.max() - held.min() <= 1


def test_plain_eplb_on_its_published_example() -> None:
    weight = [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
    plain = eplb(weight, 16, 4, 2, 8)
    assert np.bincount(plain[0], minlength=12).tolist() == [1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1]
    assert np.bincount(plain[1], minlength=12).tolist() == [1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1]
    for row in plain:  # groups of three experts stay on one of two nodes
        assert not set((row[:8] // 3).tolist()) & set((row[8:] // 3).tolist())
    assert twins(eplb([[100, 1, 1, 1]], 6, 1, 1, 2), 2) == 1
    assert eplb(np.ones((1, 2)), 9, 1, 1, 3).shape == (1, 9)  # more than one a GPU of each expert
    with pytest.raises(InputError, match="the same number on each"):
        eplb(np.ones((1, 8)), 9, 1, 1, 4)


@pytest.mark.parametrize("groups", [3, 7])
def test_groups_that_do_not_fit_fall_back_to_the_global_policy(groups: int) -> None:
    weight = zipf(2, 12)
    for plan in (rebalance(weight, 16, groups, 2, 4)[0], eplb(weight, 16, groups, 2, 4)):
        assert plan.shape == (2, 16)
    np.testing.assert_array_equal(
        rebalance(weight, 16, groups, 2, 4)[0], rebalance(weight, 16, 1, 2, 4)[0]
    )


def test_replicate_says_the_smallest_feasible_number() -> None:
    with pytest.raises(InputError, match="smallest feasible number is 64"):
        rebalance(np.ones((1, 64)), 60, 1, 1, 8)
    with pytest.raises(InputError, match="at most 512"):
        rebalance(np.ones((1, 64)), 513, 1, 1, 8)
    with pytest.raises(InputError, match="same number of GPUs on every node"):
        rebalance(np.ones((1, 64)), 64, 1, 3, 8)
    with pytest.raises(InputError, match="negative"):
        rebalance(-np.ones((1, 4)), 8, 1, 1, 8)
    with pytest.raises(InputError, match="NaN"):
        rebalance(np.full((1, 4), np.nan), 8, 1, 1, 8)


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ((4, 0, 1, 2), "groups = 0"),
        ((4, -1, 1, 2), "groups = -1"),
        ((4.0, 1, 1, 2), "replicas = 4.0"),
        ((4, 1, 1.0, 2), "nodes = 1.0"),
        ((4, 1, 1, 0), "gpus = 0"),
    ],
)
def test_sizes_are_whole_numbers(sizes: tuple[int, int, int, int], complaint: str) -> None:
    for planner in (rebalance, eplb):
        with pytest.raises(InputError, match=f"{complaint}: expected a whole number"):
            planner(np.ones((1, 4)), *sizes)


def test_placement_refuses_what_can_not_be() -> None:
    holds = np.zeros((1, 4, 3), bool)
    holds[0, 0, 0] = holds[0, 1, 1] = True
    with pytest.raises(InputError, match="no GPU holds expert 2"):
        Placement(2, 2, holds, np.array([[0, 1, 0]]))
    holds[0, 3, 2] = True
    with pytest.raises(InputError, match="GPU 0 is the home of expert 2 but does not hold it"):
        Placement(2, 2, holds, np.array([[0, 1, 0]]))
    with pytest.raises(InputError, match="expected GPUs 0 to 3"):
        Placement(2, 2, holds, np.array([[0, 1, 4]]))
    with pytest.raises(InputError, match="expected \\[layers"):
        Placement(1, 2, holds, np.array([[0, 1, 3]]))
    with pytest.raises(InputError, match="holds expert 1 2 times"):
        Placement.from_phy2log([[0, 1, 1, 1]], 1, 2, 2)
    with pytest.raises(InputError, match="entries outside 0 to 1"):
        Placement.from_phy2log([[0, 2]], 1, 2, 2)


def test_contiguous_is_what_training_stacks_do() -> None:
    assert contiguous_home(8, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert contiguous_home(4, 8).tolist() == [0, 2, 4, 6]
    placed = Placement.contiguous(2, 8, 2, 2)
    assert placed.copies.tolist() == [[1] * 8] * 2


def test_sglang_map_round_trips_and_fills_uneven_gpus() -> None:
    placed = replicated(zipf(2, 12), 16, 2, 2)
    again = Placement.from_phy2log(placed.phy2log(), 2, 2, 12)
    np.testing.assert_array_equal(again.holds, placed.holds)
    # three experts of 12 have their home on each of 4 GPUs, as holders allow
    assert [np.bincount(row, minlength=4).tolist() for row in again.home] == [[3] * 4] * 2
    uneven = Placement.from_home([[0, 0, 1]], 1, 3)
    slots = np.array(uneven.phy2log(2)).reshape(3, 2)
    assert slots[0].tolist() == [0, 1]
    assert all(len(set(row)) == 2 for row in slots.tolist())
    assert 2 in slots[1]
    with pytest.raises(InputError, match="smallest feasible number is 2"):
        uneven.phy2log(1)


def test_movement_prefers_the_own_node_and_counts_new_copies_only() -> None:
    before = Placement.contiguous(1, 4, 2, 2)
    holds = before.holds.copy()
    holds[0, 1, 0] = holds[0, 3, 0] = True
    after = Placement(2, 2, holds, before.home)
    moved = after.movement(before, 100)
    expected = np.zeros((4, 4), int)
    expected[0, 1] = expected[0, 3] = 100
    np.testing.assert_array_equal(moved.bytes, expected)
    assert before.movement(after, 100).bytes.sum() == 0
    back = after.movement(after, 100)
    assert back.bytes.sum() == 0
    with pytest.raises(InputError, match="previous placement has shape"):
        after.moved(Placement.contiguous(2, 4, 2, 2))


def test_steps_move_less_and_balance_nearly_as_well() -> None:
    weight, on = zipf(6, 32, seed=4), np.arange(8)
    before = replicated(weight, 48, 2, 4)
    drifted = weight * np.random.default_rng(5).uniform(0.7, 1.4, weight.shape)
    fixed, fresh = stepped(drifted, before, before, on), replicated(drifted, 48, 2, 4)
    assert fixed.moved(before).sum() < fresh.moved(before).sum() / 3
    np.testing.assert_array_equal(fixed.holds.sum(axis=2), before.holds.sum(axis=2))
    stale, after = (balance(drifted, p.phy2log(), 8).max() for p in (before, fixed))
    assert after <= 1.02 < stale
    assert stepped(weight, before, before, on).moved(before).sum() == 0


@pytest.mark.parametrize("seed", range(4))
def test_only_experts_of_lost_gpus_move_where_the_rest_stays(seed: int) -> None:
    weight = np.random.default_rng(seed).pareto(1.5, size=(3, 16)) + 0.1
    before, on = replicated(weight, 24, 2, 4), np.arange(1, 8)
    after = resized(weight, before, 21, on)
    assert not after.holds[:, 0].any()
    assert after.holds.any(axis=1).all()
    np.testing.assert_array_equal(after.holds[:, on].sum(axis=2), before.holds[:, on].sum(axis=2))
    orphans = (~before.holds[:, on].any(axis=1)).sum()
    assert (after.holds & ~before.holds).sum() == orphans


def test_presets_have_their_public_dimensions() -> None:
    v3 = preset("deepseek-v3")
    assert (v3.layers, v3.experts, v3.top_k, v3.hidden) == (58, 256, 8, 7168)
    assert v3.expert_params == 44_040_192
    assert preset("mixtral-8x7b").expert_bytes() == 2 * 3 * 4096 * 14336
    mixtral = preset("mixtral-8x7b")
    active = mixtral.layers * (mixtral.dense_params + mixtral.top_k * mixtral.expert_params)
    assert 12.5e9 < active < 13e9  # parameters of the layers that one token uses
    assert len(PRESETS) == 6
    with pytest.raises(InputError, match="known models"):
        preset("gpt-5")


def test_nodes_that_do_not_divide_the_ranks_are_the_global_policy_of_vllm() -> None:
    assert sizes_of(12, 1, 3, 4) == (12, 1, 1, 4)
    assert sizes_of(12, 2, 2, 4) == (12, 2, 2, 4)


def test_without_lost_gpus_tokens_go_to_the_other_holders() -> None:
    holds = np.zeros((1, 4, 3), bool)
    holds[0, [0, 1], 0] = holds[0, [1, 2], 1] = holds[0, 1, 2] = True
    placed = Placement(2, 2, holds, np.array([[0, 1, 1]], np.int32))
    left = placed.without(np.array([False, True, False, False]))
    assert left.holds[0].T.tolist() == [
        [True, False, False, False],
        [False, False, True, False],
        [False, True, False, False],
    ]
    assert left.home.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("replicas", [33, 36, 40, 47, 48, 56])
def test_with_another_number_of_replicas_only_the_difference_moves(replicas: int) -> None:
    weight, on = zipf(3, 32, seed=5), np.arange(8)
    before = replicated(weight, 40, 2, 4)
    made = resized(weight, before, replicas, on)
    assert (made.holds.sum(axis=(1, 2)) == replicas).all()
    assert made.holds.any(axis=1).all()
    assert made.holds.sum(axis=2).max() <= -(-replicas // 8)
    assert (made.holds & ~before.holds).sum() == 3 * max(0, replicas - 40)


def test_experts_of_which_there_is_one_copy_move_where_their_gpu_has_no_room() -> None:
    alone = Placement.contiguous(1, 8, 1, 4)
    made = resized(np.ones((1, 8)), alone, 8, np.arange(3))
    assert made.holds.sum(axis=2).tolist() == [[3, 3, 2, 0]]
    assert (made.holds & ~alone.holds).sum() == 2
