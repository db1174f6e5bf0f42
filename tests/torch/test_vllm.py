"""The policy for vLLM: its interface on tensors, beside plain EPLB everywhere, and beside vLLM's
own policy where vLLM is installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from railopt.base.errors import InputError
from railopt.moe.placement import vllm
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.packing import balance
from railopt.moe.placement.vllm import RailoptEplbPolicy
from tests.twins import twins

POLICIES = "vllm.distributed.eplb.policy"
CASES = [(12, 16, 4, 2, 8), (64, 96, 1, 4, 32), (64, 80, 8, 4, 16), (16, 24, 3, 2, 4)]


def weights(experts: int, layers: int = 3) -> torch.Tensor:
    draw = np.random.default_rng(experts).pareto(1.5, (layers, experts))
    return torch.from_numpy((1000 * draw).astype(np.int64))


@pytest.mark.parametrize(("experts", "replicas", "groups", "nodes", "ranks"), CASES)
@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.float32, torch.float16])
def test_shapes_types_and_balance(
    experts: int, replicas: int, groups: int, nodes: int, ranks: int, kind: torch.dtype
) -> None:
    weight = (weights(experts) % 1000).to(kind)
    made = RailoptEplbPolicy.rebalance_experts(weight, replicas, groups, nodes, ranks)
    assert (made.dtype, made.device.type) == (torch.int64, "cpu")
    assert made.shape == (3, replicas)
    found = made.numpy().astype(np.int32)
    assert twins(found, ranks) == 0
    assert all(set(row.tolist()) == set(range(experts)) for row in found)
    loads = weight.double().numpy()
    plain = balance(loads, eplb(loads, replicas, groups, nodes, ranks), ranks)
    # groups of three experts on two nodes leave little to choose: there one may be luckier
    assert balance(loads, found, ranks).mean() <= plain.mean() * (1.05 if experts < 16 else 1)


def test_slots_that_can_stay_do() -> None:
    weight = weights(64)
    first = RailoptEplbPolicy.rebalance_experts(weight, 96, 1, 4, 32)
    assert torch.equal(RailoptEplbPolicy.rebalance_experts(weight, 96, 1, 4, 32, first), first)
    other = RailoptEplbPolicy.rebalance_experts(weight, 128, 1, 4, 32, first)
    assert other.shape == (3, 128)


def moved(new: torch.Tensor, old: torch.Tensor, ranks: int) -> int:
    """Copies that a rank did not hold before, over all layers."""
    pairs = zip(
        new.reshape(len(new), ranks, -1).flatten(0, 1).tolist(),
        old.reshape(len(old), ranks, -1).flatten(0, 1).tolist(),
        strict=True,
    )
    return sum(len(set(now) - set(before)) for now, before in pairs)


def test_a_map_that_is_there_is_repaired_with_few_moves() -> None:
    rng = np.random.default_rng(3)
    weight = np.exp(rng.normal(size=(4, 256)))
    first = RailoptEplbPolicy.rebalance_experts(torch.from_numpy(weight), 288, 1, 4, 32)
    later = weight * np.exp(0.2 * rng.normal(size=weight.shape))
    made = RailoptEplbPolicy.rebalance_experts(torch.from_numpy(later), 288, 1, 4, 32, first)
    fresh = RailoptEplbPolicy.rebalance_experts(torch.from_numpy(later), 288, 1, 4, 32)
    assert balance(later, made.numpy().astype(np.int32), 32).max() <= 1.05
    assert 0 < moved(made, first, 32) < moved(fresh, first, 32) / 5


def test_the_environment_says_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    weight = np.exp(rng.normal(size=(4, 64)))
    first = RailoptEplbPolicy.rebalance_experts(torch.from_numpy(weight), 96, 1, 4, 32)
    later = torch.from_numpy(weight * np.exp(0.2 * rng.normal(size=weight.shape)))
    found = {}
    for how in ("moves=0", "moves=1", "tolerance=1.1,stays=1.1", ""):
        monkeypatch.setenv("RAILOPT_EPLB", how)
        made = RailoptEplbPolicy.rebalance_experts(later, 96, 1, 4, 32, first)
        found[how] = moved(made, first, 32)
    assert found["moves=0"] == 0
    assert 0 < found["moves=1"] <= 4
    assert found["tolerance=1.1,stays=1.1"] < found[""]
    monkeypatch.setenv("RAILOPT_EPLB", "tolerance=much")
    with pytest.raises(InputError, match="tolerance"):
        vllm.few_asked()


NAN, INF = float("nan"), float("inf")
BAD_LOADS = {
    "NaN": torch.full((3, 16), NAN),
    "sparse": torch.ones(3, 16).to_sparse(),
    "infinities": torch.full((3, 16), INF),
    "negative": -torch.ones(3, 16),
    "another shape": torch.ones(3, 16, 2),
    "too large": torch.full((3, 16), 1e308, dtype=torch.float64),
}


@pytest.mark.parametrize("why", BAD_LOADS)
def test_bad_loads_leave_the_map_and_one_line(why: str, caplog: pytest.LogCaptureFixture) -> None:
    old = torch.arange(24).remainder(16).repeat(3, 1)
    vllm._logged.clear()
    for _ in range(3):
        made = RailoptEplbPolicy.rebalance_experts(BAD_LOADS[why], 24, 1, 1, 4, old)
        assert torch.equal(made, old)
    assert len(caplog.records) == 1
    assert "experts stay where they are" in caplog.text
    other = old[:, :20]  # a map of other slots stays, too
    assert RailoptEplbPolicy.rebalance_experts(BAD_LOADS[why], 24, 1, 1, 4, other).equal(other)
    with pytest.raises(TypeError if why == "sparse" else InputError):
        RailoptEplbPolicy.rebalance_experts(BAD_LOADS[why], 24, 1, 1, 4)


def test_maps_that_are_none_stay_and_take_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    old = torch.arange(24).remainder(16).repeat(3, 1)
    old[1, 5] = 10**8
    vllm._logged.clear()
    assert torch.equal(RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, old), old)
    assert "expected 0 to 15" in caplog.text
    few = torch.arange(24).remainder(4).repeat(3, 1)  # six slots per rank for four experts
    assert torch.equal(RailoptEplbPolicy.rebalance_experts(weights(4), 24, 1, 1, 4, few), few)


def test_maps_of_other_shapes(caplog: pytest.LogCaptureFixture) -> None:
    old = torch.arange(24).remainder(16).repeat(3, 1)
    for other in (old[:2], old[0]):
        vllm._logged.clear()
        caplog.clear()
        for _ in range(2):
            made = RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, other)
            assert torch.equal(made, other)
        assert len(caplog.records) == 1
        assert "the map before has shape" in caplog.text
    caplog.clear()
    for _ in range(2):
        made = RailoptEplbPolicy.rebalance_experts(weights(16), 18, 1, 1, 3, old)
        assert made.shape == (3, 18)
    assert [record.message for record in caplog.records] == [
        "24 slots became 18: all is planned anew"
    ]
    repaired = RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, old)
    for same in (old.tolist(), old.numpy()):
        made = RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, same)
        assert torch.equal(made, repaired)


@pytest.mark.parametrize("kind", [torch.bool, torch.float8_e4m3fn, torch.bfloat16, torch.uint8])
def test_loads_of_every_kind(kind: torch.dtype) -> None:
    made = RailoptEplbPolicy.rebalance_experts((weights(16) % 100).to(kind), 24, 1, 1, 4)
    assert all(set(row.tolist()) == set(range(16)) for row in made)


def test_empty_slots_are_filled() -> None:
    old = torch.arange(24).remainder(16).repeat(3, 1)
    old[:, :3] = -1  # experts 0 to 2 have a second slot
    made = RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, old)
    assert all(set(row.tolist()) == set(range(16)) for row in made)
    assert twins(made.numpy().astype(np.int32), 4) == 0


def test_a_map_that_lacks_experts_stays(caplog: pytest.LogCaptureFixture) -> None:
    """No rank could supply their weights."""
    old = torch.arange(24).remainder(12).repeat(3, 1)  # experts 12 to 15 are nowhere
    made = RailoptEplbPolicy.rebalance_experts(weights(16), 24, 1, 1, 4, old)
    assert torch.equal(made, old)
    assert "expert 12 of layer 0 is in no slot" in caplog.text


def test_replicas_that_ranks_do_not_divide_are_refused_as_vllm_does() -> None:
    for kind in (AssertionError, InputError):
        with pytest.raises(kind, match="7 replicas on 4 ranks"):
            RailoptEplbPolicy.rebalance_experts(torch.ones(1, 4), 7, 2, 2, 4)


@pytest.mark.parametrize(("experts", "replicas", "groups", "nodes", "ranks"), CASES)
def test_beside_vllms_own_policy(
    experts: int, replicas: int, groups: int, nodes: int, ranks: int
) -> None:
    policy: Any = pytest.importorskip("vllm.distributed.eplb.policy.default").DefaultEplbPolicy
    weight = weights(experts)
    if experts % groups:
        pytest.skip("vLLM's policy asserts that groups divide the experts")
    theirs = policy.rebalance_experts(weight, replicas, groups, nodes, ranks)
    ours = RailoptEplbPolicy.rebalance_experts(weight, replicas, groups, nodes, ranks)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    loads = weight.double().numpy()
    mine, other = (
        balance(loads, plan.numpy().astype(np.int32), ranks).mean() for plan in (ours, theirs)
    )
    assert mine <= other * (1.05 if experts < 16 else 1)


def test_the_plugin_acts_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (plugin,) = entry_points(group="vllm.general_plugins", name="railopt")
    register = plugin.load()
    stand_in: Any = ModuleType(POLICIES)
    table = stand_in.EPLB_POLICIES = {"default": object}
    for name in ("vllm", "vllm.distributed", "vllm.distributed.eplb"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, POLICIES, stand_in)
    for names in (None, "", "other", "railopts"):
        monkeypatch.delenv("VLLM_PLUGINS", raising=False)
        if names is not None:
            monkeypatch.setenv("VLLM_PLUGINS", names)
        register()
        assert table["default"] is object, names
    monkeypatch.setenv("VLLM_PLUGINS", "other,railopt")
    register()
    assert table["default"] is RailoptEplbPolicy
