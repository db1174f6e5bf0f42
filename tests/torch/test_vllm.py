"""The policy for vLLM: its interface on tensors, beside plain EPLB everywhere, and beside vLLM's
own policy where vLLM is installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from railopt.base.errors import InputError
from railopt.moe.placement.eplb import eplb, twins
from railopt.moe.placement.replicate import balance
from railopt.moe.placement.vllm import RailoptEplbPolicy

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
    again = RailoptEplbPolicy.rebalance_experts(weight, 96, 1, 4, 32, first.roll(3, dims=1))
    shifted = first.roll(3, dims=1)
    assert torch.equal(again, shifted)
    other = RailoptEplbPolicy.rebalance_experts(weight, 128, 1, 4, 32, first)
    assert other.shape == (3, 128)


def context(window: torch.Tensor, before: torch.Tensor) -> SimpleNamespace:
    """A stand-in for vLLM's EplbRebalanceContext."""
    topology = SimpleNamespace(num_groups=1, num_nodes=2, num_ranks=8)
    return SimpleNamespace(
        load_window_cpu=window,
        physical_to_logical_map_cpu=before,
        topology=topology,
        num_replicas=before.shape[1],
        cpu_group=None,
    )


@pytest.mark.parametrize("samples", [1, 5, 100])
def test_a_context_with_a_window_of_samples(samples: int) -> None:
    draw = np.random.default_rng(1).lognormal(0, 0.1, (samples, 3, 32))
    window = (weights(32)[None] * torch.from_numpy(draw)).to(torch.int32)
    before = torch.arange(40).remainder(32).repeat(3, 1)
    given = context(window, before)
    policy = RailoptEplbPolicy()
    plan = policy.plan_rebalance(given, policy_state=None)
    made = plan.physical_to_logical_map
    assert (made.dtype, made.shape) == (torch.int64, (3, 40))
    assert twins(made.numpy().astype(np.int32), 8) == 0
    assert torch.equal(policy.rebalance_experts(given, None).physical_to_logical_map, made)
    assert torch.equal(policy.plan_rebalance(given).physical_to_logical_map, made)
    if samples == 1:  # nothing more is known than the sum, but more is tried
        load = window.sum(dim=0)
        plain = RailoptEplbPolicy.rebalance_experts(load, 40, 1, 2, 8, before)
        tried, once = (balance(load.numpy(), p.numpy().astype(np.int32), 8) for p in (made, plain))
        assert (tried <= once * (1 + 1e-12)).all()


def test_vllms_own_plan_is_returned_where_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class EplbPlan:
        def __init__(self, physical_to_logical_map: torch.Tensor) -> None:
            self.physical_to_logical_map = physical_to_logical_map

    newer = SimpleNamespace(EplbPlan=EplbPlan)
    monkeypatch.setitem(sys.modules, "vllm.distributed.eplb.policy.abstract", newer)
    for name in (
        "vllm",
        "vllm.distributed",
        "vllm.distributed.eplb",
        "vllm.distributed.eplb.policy",
    ):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    given = context(weights(32)[None], torch.arange(40).remainder(32).repeat(3, 1))
    assert isinstance(RailoptEplbPolicy.plan_rebalance(given), EplbPlan)


def test_a_window_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="one sample at least"):
        RailoptEplbPolicy.plan_rebalance(context(torch.ones(0, 3, 32), torch.ones(3, 40)))


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
