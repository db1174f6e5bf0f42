"""railopt as a policy of vLLM's expert load balancer: its abstract interface, on torch tensors.

    from vllm.distributed.eplb.policy import EPLB_POLICIES
    from railopt.moe.placement.vllm import RailoptEplbPolicy

    EPLB_POLICIES["default"] = RailoptEplbPolicy

Two replicas of one expert never share a GPU, where vLLM's own policy puts some of them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from railopt.errors import InputError
from railopt.moe.placement.replicate import hierarchical, rebalance
from railopt.moe.placement.settled import settled

if TYPE_CHECKING:
    import torch


class UnequalSlots(InputError, AssertionError):
    """Replicas that the ranks do not divide; vLLM's own policy asserts that they do."""


def _abstract() -> Any:
    """vLLM's abstract policy, or `object` where vLLM is not installed."""
    try:
        from vllm.distributed.eplb.policy.abstract import (  # type: ignore[import-not-found]
            AbstractEplbPolicy,
        )
    except ImportError:
        return object
    return AbstractEplbPolicy


class RailoptEplbPolicy(_abstract()):  # type: ignore[misc]
    """`railopt.moe.placement.replicate.rebalance` behind vLLM's interface."""

    @classmethod
    def rebalance_experts(
        cls,
        weight: torch.Tensor,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old_global_expert_indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The expert of each slot, int64 [layers, num_replicas] on the CPU, slots in rank order.

        weight  [layers, experts] on any device, any load statistic
        num_groups  kept on one node each where they divide the experts and the nodes divide them,
                    else the global policy
        old_global_expert_indices  [layers, num_replicas], the slots before; where they are as many,
                    ranks are named and slots kept such that least moves
        """
        import torch

        if num_ranks < 1 or num_replicas % num_ranks:
            raise UnequalSlots(
                f"{num_replicas} replicas on {num_ranks} ranks: vLLM puts the same number on each"
            )
        loads = weight.detach().to("cpu", torch.float64).numpy()
        phy2log, _, _ = rebalance(loads, num_replicas, num_groups, num_nodes, num_ranks)
        if old_global_expert_indices is not None:
            before = old_global_expert_indices.detach().to("cpu", torch.int64).numpy()
            if before.shape == phy2log.shape:
                apart = hierarchical(loads.shape[1], num_replicas, num_groups, num_nodes)
                together = num_ranks // num_nodes if apart else num_ranks
                phy2log = settled(phy2log, before, num_ranks, together)
        return torch.from_numpy(phy2log.astype(np.int64))
