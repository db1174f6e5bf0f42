"""railopt as a policy of vLLM's expert load balancer: its abstract interface, on torch tensors.

    VLLM_PLUGINS=railopt vllm serve ... --enable-expert-parallel --enable-eplb

vLLM's interface has had two forms, and both are served: `rebalance_experts` with the loads and five
numbers, and a context with the loads sample by sample, under the name `rebalance_experts` or
`plan_rebalance`.  Two replicas of one expert never share a GPU, where vLLM's own policy puts some
of them together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from railopt.base.arrays import Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.placement.foreseen import Sizes, foreseen
from railopt.moe.placement.replicate import hierarchical, rebalance
from railopt.moe.placement.settled import settled
from railopt.moe.routing.window import WHOLE, seen

if TYPE_CHECKING:
    import torch

BLOCKS = 32  # steps that a window of samples is joined to


class UnequalSlots(InputError, AssertionError):
    """Replicas that the ranks do not divide; vLLM's own policy asserts that they do."""


def _of_vllm(name: str, instead: type) -> Any:
    """A class beside vLLM's abstract policy, or another where it is not there."""
    try:
        return getattr(import_module("vllm.distributed.eplb.policy.abstract"), name, instead)
    except ImportError:
        return instead


class EplbPlan(NamedTuple):
    """What vLLM calls so, where it is not installed."""

    physical_to_logical_map: torch.Tensor


def _checked(replicas: int, groups: int, nodes: int, ranks: int) -> Sizes:
    """The numbers of vLLM's interface."""
    if ranks < 1 or replicas % ranks:
        raise UnequalSlots(
            f"{replicas} replicas on {ranks} ranks: vLLM puts the same number on each"
        )
    # where nodes do not divide the ranks no group can stay on one: the global policy
    return Sizes(replicas, groups, 1 if nodes > 0 and ranks % nodes else nodes, ranks)


def _kept(phy2log: Int32s, experts: int, sizes: Sizes, before: torch.Tensor | None) -> torch.Tensor:
    """A plan as int64 [layers, replicas], after the slots before."""
    import torch

    old = None if before is None else before.detach().to("cpu", torch.int64).numpy()
    if old is not None and old.shape == phy2log.shape:
        apart = hierarchical(experts, *sizes)
        together = sizes.gpus // sizes.nodes if apart else sizes.gpus
        phy2log = settled(phy2log, old, sizes.gpus, together)
    return torch.from_numpy(phy2log.astype(np.int64))


def _steps(window: torch.Tensor) -> Ints:
    """int64 [steps, layers, experts] of the samples of a window, joined to at most `BLOCKS`."""
    samples: Ints = window.detach().to("cpu").round().long().numpy()
    if samples.ndim != 3 or not len(samples):
        raise InputError(
            f"a load window of shape {samples.shape}: expected [samples, layers, experts], one "
            f"sample at least"
        )
    size = -(-len(samples) // BLOCKS)
    return np.add.reduceat(samples, range(len(samples) % size, len(samples), size))


class RailoptEplbPolicy(_of_vllm("AbstractEplbPolicy", object)):  # type: ignore[misc]
    """`railopt.moe.placement.replicate.rebalance` behind vLLM's interface."""

    @classmethod
    def rebalance_experts(
        cls,
        weight: torch.Tensor | Any,
        num_replicas: int | Any = None,
        num_groups: int = 1,
        num_nodes: int = 1,
        num_ranks: int = 1,
        old_global_expert_indices: torch.Tensor | None = None,
    ) -> torch.Tensor | Any:
        """The expert of each slot, int64 [layers, num_replicas] on the CPU, slots in rank order.

        weight  [layers, experts] on any device, any load statistic; or a context, followed by
                    vLLM's state of the policy: then what `plan_rebalance` returns
        num_groups  kept on one node each where they divide the experts and the nodes divide them,
                    else the global policy
        old_global_expert_indices  [layers, num_replicas], the slots before; where they are as many,
                    ranks are named and slots kept such that least moves
        """
        import torch

        if hasattr(weight, "load_window_cpu"):
            return cls.plan_rebalance(weight, num_replicas)
        sizes = _checked(num_replicas, num_groups, num_nodes, num_ranks)
        loads = weight.detach().to("cpu", torch.float64).numpy()
        plan = rebalance(loads, *sizes)[0]
        return _kept(plan, loads.shape[1], sizes, old_global_expert_indices)

    @classmethod
    def plan_rebalance(cls, context: Any, policy_state: Any = None) -> Any:
        """vLLM's EplbPlan, the map of `rebalance_experts`, of an EplbRebalanceContext.

        The samples of its window, [samples, layers, experts], are planned on as `railopt place`
        does: a forecast layer by layer where one pays, hedged by the newest of them.
        """
        where = context.topology
        sizes = _checked(context.num_replicas, where.num_groups, where.num_nodes, where.num_ranks)
        steps = _steps(context.load_window_cpu)
        plan = foreseen(seen(steps[:, :, None, :], WHOLE), sizes).phy2log
        before = context.physical_to_logical_map_cpu
        return _of_vllm("EplbPlan", EplbPlan)(_kept(plan, steps.shape[2], sizes, before))
