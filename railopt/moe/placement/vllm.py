"""railopt as a policy of vLLM's expert load balancer: its abstract interface, on torch tensors.

    VLLM_PLUGINS=railopt vllm serve ... --enable-expert-parallel --enable-eplb

The interface is that of vLLM 0.32 and 0.33: summed loads, five numbers and the map that is there,
which is repaired with few moves.  RAILOPT_EPLB says how far, "tolerance=1.05,stays=1.1" or
"moves=20" (see `FewMoves`).  Two replicas of one expert never share a GPU, where vLLM's own policy
puts some of them together.
"""

from __future__ import annotations

import logging
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from railopt.base.errors import InputError
from railopt.moe.placement.placement import checked_map
from railopt.moe.placement.repair import FewMoves
from railopt.moe.placement.replicate import rebalance

if TYPE_CHECKING:
    import torch

    from railopt.base.arrays import Array

_logged: set[str] = set()  # reasons that were logged, without their numbers


class UnequalSlots(InputError, AssertionError):
    """Replicas that the ranks do not divide; vLLM's own policy asserts that they do."""


def few_asked() -> FewMoves:
    """What the environment variable RAILOPT_EPLB asks for."""
    return FewMoves.parse(os.environ.get("RAILOPT_EPLB", ""), "RAILOPT_EPLB")


def _abstract_policy() -> Any:
    """vLLM's abstract policy, or `object` where vLLM is not there."""
    try:
        return import_module("vllm.distributed.eplb.policy.abstract").AbstractEplbPolicy
    except (ImportError, AttributeError):
        return object


def sizes_of(replicas: int, groups: int, nodes: int, ranks: int) -> tuple[int, int, int, int]:
    """The numbers of vLLM's interface as `rebalance` has them."""
    if ranks < 1 or replicas % ranks:
        raise UnequalSlots(
            f"{replicas} replicas on {ranks} ranks: vLLM puts the same number on each"
        )
    # where nodes do not divide the ranks no group can stay on one: the global policy
    return replicas, groups, 1 if nodes > 0 and ranks % nodes else nodes, ranks


def _on_host(tensor: torch.Tensor) -> Array:
    """A tensor as an array; kinds that numpy lacks, as float8 and bfloat16, as float64."""
    import torch

    held = tensor.detach().cpu()
    if held.dtype == torch.bool or held.is_floating_point():
        held = held.to(torch.float64)
    array: Array = held.numpy()
    return array


def _need_every_expert(before: Array, experts: int) -> None:
    """Refuse a map that lacks an expert: no rank can supply its weights."""
    held = np.zeros((len(before), experts), np.bool_)
    layer, slot = np.nonzero(before >= 0)
    held[layer, before[layer, slot]] = True
    for place, expert in np.argwhere(~held)[:1].tolist():
        raise InputError(f"expert {expert} of layer {place} is in no slot of the map before")


def _log_once(text: str) -> None:
    """Log a reason, unless one that differs in numbers alone was logged."""
    kind = re.sub(r"\d+", "", text)
    if kind not in _logged:
        _logged.add(kind)
        logging.getLogger("railopt").warning("%s", text)


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
        old_global_expert_indices  [layers, num_replicas], the slots before, which are repaired with
                    few moves; where the number of slots differs, as after a rank is gone, all is
                    planned anew, which is logged once

        With a map before nothing is raised: where loads or map are no good it is returned as it
        is, and the reason is logged once.
        """
        import torch

        before = old_global_expert_indices
        try:
            sizes = sizes_of(num_replicas, num_groups, num_nodes, num_ranks)
            old = None if before is None else _on_host(torch.as_tensor(before))
            loads, anew = _on_host(torch.as_tensor(weight)), ""
            if old is not None and old.ndim == 2 and old.shape[1] != num_replicas:
                anew = f"{old.shape[1]} slots became {num_replicas}: all is planned anew"
                old = None
            if old is not None:
                old = checked_map(old, num_ranks, loads.shape[1], "the map before")
                _need_every_expert(old, loads.shape[1])
            made = rebalance(loads, *sizes, old, few_asked())[0]
        except Exception as error:  # whatever it is, a server goes on with the map that it has
            if before is None:
                raise
            _log_once(f"experts stay where they are: {error}")
            return torch.as_tensor(before).detach().to("cpu", torch.int64)
        if anew:
            _log_once(anew)
        return torch.from_numpy(made.astype(np.int64))
