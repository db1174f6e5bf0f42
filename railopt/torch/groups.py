"""Process groups of a rank layout: rank = node * gpus + local index, in the group of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist

from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.torch.agree import gathered

__all__ = ["Groups", "checked", "everyone", "made"]


@dataclass(frozen=True)
class Groups:
    """The process groups of one rank, each in the order of ranks.

    node    the ranks of its node
    rail    the ranks of its local index, one a node: what goes on its GPU's NICs
    all     every rank of the all-to-all; None: the default group
    """

    node: Any
    rail: Any
    all: Any = None


def everyone(group: Any, limit_s: float) -> Any:
    """A group of its own for the exchange of counts, whose waits end after `limit_s`."""
    if not dist.is_available() or not dist.is_initialized():
        raise InputError(
            "torch.distributed has no process group: call torch.distributed.init_process_group "
            "before a RailAllToAll is made"
        )
    group = dist.group.WORLD if group is None else group
    _level(group, limit_s)
    return _new(dist.get_process_group_ranks(group), dist.get_backend(group), limit_s)


def _level(group: Any, limit_s: float) -> None:
    """Let every rank of a group be in as many groups as the others.

    PyTorch names a group that its members alone make by how many groups they are in already, and
    members that would name it differently wait for each other: who is in fewer makes groups of
    itself.
    """
    number = len(dist.distributed_c10d._world.pg_names)
    most = int(gathered(group, np.array([number]), limit_s).max())
    for _ in range(number, most):
        _new([dist.get_rank()], "gloo", limit_s)


def made(fabric: Fabric, group: Any, limit_s: float) -> Groups:
    """Groups of the layout inside `group`; every rank of it calls this."""
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    node, rail = members(fabric, dist.get_rank(group))
    return Groups(
        _new([ranks[i] for i in node], backend, limit_s),
        _new([ranks[i] for i in rail], backend, limit_s),
        group,
    )


def members(fabric: Fabric, rank: int) -> tuple[range, range]:
    """The ranks of the node of `rank`, and those of its local index."""
    node, local = divmod(rank, fabric.gpus)
    ranks = fabric.nodes * fabric.gpus
    return range(node * fabric.gpus, (node + 1) * fabric.gpus), range(local, ranks, fabric.gpus)


def checked(fabric: Fabric, groups: Groups | None, group: Any) -> str:
    """What is wrong with a layout or with groups that were handed in, in words; "" if nothing."""
    ranks = dist.get_process_group_ranks(group)
    if len(ranks) != fabric.nodes * fabric.gpus:
        return (
            f"the group has {len(ranks)} ranks, the fabric {fabric.nodes} nodes x {fabric.gpus} "
            f"GPUs = {fabric.nodes * fabric.gpus}: expected one rank a GPU"
        )
    if groups is None:
        return ""
    wanted = members(fabric, dist.get_rank(group))
    for name, handed, local in zip(
        ("node", "rail"), (groups.node, groups.rail), wanted, strict=True
    ):
        if handed is None or handed is dist.GroupMember.NON_GROUP_MEMBER:
            return f"no {name} group was handed in: expected ranks {[ranks[i] for i in local]}"
        found = dist.get_process_group_ranks(handed)
        if found != [ranks[i] for i in local]:
            return f"the {name} group has ranks {found}: expected {[ranks[i] for i in local]}"
    return ""


def _new(ranks: list[int], backend: str, limit_s: float) -> Any:
    return dist.new_group(
        ranks, timedelta(seconds=limit_s), backend=backend, use_local_synchronization=True
    )
