"""Process groups of a rank layout: rank = node * gpus + local index, in the group of all ranks.

Groups are made once and shared by all who ask for the same: PyTorch keeps a group, with its threads
and its sockets, until it is destroyed, and then gives its name to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.errors import BackendError, InputError, printable
from railopt.model.fabric import Fabric
from railopt.torch.shared import SHARED, lost
from railopt.torch.talk import gathered, mark

SIDES = ("node", "rail")


@dataclass(frozen=True)
class Groups:
    """The process groups of one rank, each in the order of ranks.

    node    the ranks of its node
    rail    the ranks of its local index, one per node: what goes on its GPU's NICs
    all     every rank of the all-to-all; None: the default group
    """

    node: Any
    rail: Any
    all: Any = None


def everyone(group: Any, limit_s: float, use: str = "counts") -> Any:
    """A group of all ranks of `group` for one use alone, the exchange of counts or another, with
    its backend, whose waits end after `limit_s`.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InputError(
            "torch.distributed has no process group: call torch.distributed.init_process_group "
            "before a RailAllToAll is made"
        )
    group = dist.group.WORLD if group is None else group
    ranks, backend = dist.get_process_group_ranks(group), _one_backend(dist.get_backend(group))
    key = (*ranks, backend, limit_s, use)
    if not _all_have(group, _found(key), limit_s):
        SHARED[key] = _new(ranks, backend, limit_s, by_all=_is_world(ranks))
    return SHARED[key]


def _one_backend(backend: str) -> str:
    """The one that carries rows, where a group has one per device ("cpu:gloo,cuda:nccl") or was
    made without a name ("undefined"): NCCL where there is a GPU, else gloo.
    """
    if ":" not in backend and backend != "undefined":
        return backend
    on_gpu = torch.cuda.is_available() and (backend == "undefined" or "cuda:nccl" in backend)
    return "nccl" if on_gpu else "gloo"


def _all_have(group: Any, found: Any, limit_s: float) -> bool:
    """Whether all ranks of a group have `found` the same group among those made before."""
    name = 0 if found is None else mark(found.group_name)
    every = gathered(group, np.array([name]), limit_s)
    return bool((every == name).all()) and found is not None


def _found(key: tuple[Any, ...]) -> Any:
    """The group that was made for `key` and not destroyed since; None if there is none."""
    group = SHARED.get(key)
    try:
        dist.get_backend(group)
    except ValueError:  # PyTorch knows it no more
        return None
    return group


def made(fabric: Fabric, group: Any, limit_s: float) -> Groups:
    """Groups of the layout inside `group`; every rank of it calls this."""
    keys = [(group.group_name, fabric.nodes, fabric.gpus, name, limit_s) for name in SIDES]
    found = [_found(key) for key in keys]
    if gathered(group, np.array([int(None not in found)]), limit_s).all():
        return Groups(found[0], found[1], group)
    own = _layout(fabric, group, limit_s)
    SHARED.update(zip(keys, own, strict=True))
    return Groups(own[0], own[1], group)


def _layout(fabric: Fabric, group: Any, limit_s: float) -> list[Any]:
    """New groups of this rank: its node's, and its local index's.

    Where one can't be made the others are made nevertheless, and only then is it an error.  PyTorch
    names groups by number: a rank that left some out would give all later ones other names than the
    other ranks do.
    """
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    by_all, rank = _is_world(ranks), dist.get_rank(group)
    firsts = range(0, len(ranks), fabric.gpus), range(fabric.gpus)
    own, errors = [], []
    for side in range(len(SIDES)):
        for some in (members(fabric, first)[side] for first in firsts[side]):
            if rank not in some and not by_all:
                continue
            try:
                new = _new([ranks[i] for i in some], backend, limit_s, by_all=by_all)
            except BackendError as error:
                errors.append(error)
                continue
            if rank in some:
                own.append(new)
    if errors:
        raise errors[0]
    return own


def _is_world(ranks: list[int]) -> bool:
    """Whether these are all ranks.

    Then each of them makes every group, as PyTorch asks for.  A group of some ranks makes its own
    without the others; PyTorch names such groups by how many groups a rank is in, so its ranks must
    be in equally many.
    """
    return len(ranks) == dist.get_world_size()


def members(fabric: Fabric, rank: int) -> tuple[range, range]:
    """The ranks of the node of `rank`, and those of its local index."""
    node, local = divmod(rank, fabric.gpus)
    ranks = fabric.nodes * fabric.gpus
    return range(node * fabric.gpus, (node + 1) * fabric.gpus), range(local, ranks, fabric.gpus)


def checked(fabric: Any, groups: Any, group: Any) -> str:
    """What is wrong with a layout or with groups that were handed in, in words; "" if nothing."""
    if not isinstance(fabric, Fabric):
        return f"fabric is of type {type(fabric).__name__}: expected a railopt.Fabric"
    if not isinstance(groups, Groups | None):
        return f"groups is of type {type(groups).__name__}: expected railopt.torch.Groups"
    ranks = dist.get_process_group_ranks(group)
    if len(ranks) != fabric.nodes * fabric.gpus:
        return (
            f"the group has {len(ranks)} ranks, the fabric {fabric.nodes} nodes x {fabric.gpus} "
            f"GPUs = {fabric.nodes * fabric.gpus}: expected one rank a GPU"
        )
    if groups is None:
        return ""
    wanted = members(fabric, dist.get_rank(group))
    for name, handed, local in zip(SIDES, (groups.node, groups.rail), wanted, strict=True):
        if not isinstance(handed, dist.ProcessGroup):
            return f"no {name} group was handed in: expected ranks {[ranks[i] for i in local]}"
        found = dist.get_process_group_ranks(handed)
        if found != [ranks[i] for i in local]:
            return f"the {name} group has ranks {found}: expected {[ranks[i] for i in local]}"
    return ""


def _new(ranks: list[int], backend: str, limit_s: float, *, by_all: bool) -> Any:
    """A group in the order of `ranks`, made by all ranks of the world, or by its own."""
    wait = timedelta(seconds=limit_s)
    order = {} if ranks == sorted(ranks) else {"sort_ranks": False}  # which older ones don't know
    try:
        return dist.new_group(
            ranks, wait, backend=backend, use_local_synchronization=not by_all, **order
        )
    except (RuntimeError, ValueError) as error:
        raise lost(
            f"rank {dist.get_rank()}: the process group of ranks {ranks} can't be made; a rank is "
            f"gone or late, groups that railopt made were destroyed one by one, which is left to "
            f"torch.distributed.destroy_process_group(), or the ranks of a part of the world are "
            f"not in equally many groups ({printable(error)})"
        ) from error
