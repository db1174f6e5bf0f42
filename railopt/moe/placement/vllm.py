"""railopt as a policy of vLLM's expert load balancer: its abstract interface, on torch tensors.

    VLLM_PLUGINS=railopt vllm serve ... --enable-expert-parallel --enable-eplb

The interface is that of vLLM 0.32 and 0.33: summed loads and five numbers.  Two replicas of one
expert never share a GPU, where vLLM's own policy puts some of them together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from railopt.base.arrays import Int32s
from railopt.base.errors import InputError
from railopt.moe.placement.replicate import hierarchical, rebalance
from railopt.moe.placement.settled import settled

if TYPE_CHECKING:
    import torch


class UnequalSlots(InputError, AssertionError):
    """Replicas that the ranks do not divide; vLLM's own policy asserts that they do."""


def _abstract_policy() -> Any:
    """vLLM's abstract policy, or `object` where vLLM is not there."""
    try:
        return import_module("vllm.distributed.eplb.policy.abstract").AbstractEplbPolicy
    except (ImportError, AttributeError):
        return object


class Sizes(NamedTuple):
    """Of EPLB's problem; `gpus` counts all GPUs."""

    replicas: int
    groups: int
    nodes: int
    gpus: int


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


class RailoptEplbPolicy(_abstract_policy()):  # type: ignore[misc]
    """`railopt.moe.placement.replicate.rebalance` behind vLLM's interface."""

    @classmethod
    def rebalance_experts(
        cls,
        weight: torch.Tensor,
        num_replicas: int,
        num_groups: int = 1,
        num_nodes: int = 1,
        num_ranks: int = 1,
        old_global_expert_indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The expert of each slot, int64 [layers, num_replicas] on the CPU, slots in rank order.

        weight      [layers, experts] on any device, any load statistic
        num_groups  kept on one node each where they divide the experts and the nodes divide them,
                    else the global policy
        old_global_expert_indices  [layers, num_replicas], the slots before; where they are as many,
                    ranks are named and slots kept such that least moves
        """
        import torch

        sizes = _checked(num_replicas, num_groups, num_nodes, num_ranks)
        loads = weight.detach().to("cpu", torch.float64).numpy()
        plan = rebalance(loads, *sizes)[0]
        return _kept(plan, loads.shape[1], sizes, old_global_expert_indices)
