"""Replicas by load that stay where they are: a placement repaired for other loads instead of made
anew.

Packing afresh moves most replicas even where loads changed a little.  Here replica counts follow
the loads as in `railopt.moe.placement.replicate`; surplus replicas leave the fullest GPUs, missing
ones fill the slots that became free, and exchanges with the fullest GPU follow.  The balance is a
little worse, the movement much less.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Floats, Int32s, Ints, whole_number
from railopt.base.kernels import kernel, part
from railopt.base.units import INT64_MAX
from railopt.moe.placement.placement import Placement, homes_near
from railopt.moe.placement.replicate import (
    _descending,
    _exchanges,
    _extra,
    _holds,
    hierarchical,
    loads_of,
)


def repaired(
    weight: npt.ArrayLike, previous: Placement, groups: int = 1, on: Ints | None = None
) -> Placement | None:
    """`previous` for the loads weight [layers, experts], with the same slots on every GPU; on the
    GPUs `on` alone, if given, without regard to groups.

    None where its expert groups are not on one node each, or a missing replica finds no slot on a
    GPU that lacks its expert.
    """
    loads = loads_of(weight)
    gpus = np.arange(previous.devices) if on is None else on
    replicas = int(previous.holds[0, gpus].sum())
    groups = whole_number(groups, "groups", 1, INT64_MAX)
    sizes = (previous.experts, replicas, groups, previous.nodes, previous.devices)
    by_node = on is None and hierarchical(*sizes)
    parts, groups = (previous.nodes, groups) if by_node else (1, 1)
    size = len(gpus) // parts
    holds = np.zeros_like(previous.holds)
    for layer, before in enumerate(previous.holds[:, gpus]):
        node_of_group = before.reshape(parts, size, groups, -1).any(axis=(1, 3))
        if by_node and np.any(node_of_group.sum(axis=0) != 1):
            return None
        for node in range(parts):
            mine = before[node * size : (node + 1) * size]
            experts = np.flatnonzero(mine.any(axis=0) | (not by_node))
            experts = experts[np.argsort(-loads[layer, experts], kind="stable")]
            slots = np.nonzero(mine[:, experts])[1].astype(np.int32)
            start = np.concatenate([[0], np.cumsum(mine.sum(axis=1))]).astype(np.int32)
            if not _repair(loads[layer, experts], slots, start):
                return None
            owner = gpus[node * size + np.repeat(np.arange(size), np.diff(start))]
            holds[layer, owner, experts[slots]] = True
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


def left_over(weight: npt.ArrayLike, previous: Placement, on: Ints) -> Placement | None:
    """What is left of `previous` on the GPUs `on`: nothing moves but experts that none of these
    holds, each into the slot of one whose other copies then have the least load; None where every
    expert left has one copy alone.
    """
    holds = np.zeros_like(previous.holds)
    holds[:, on] = previous.holds[:, on]
    for load, held in zip(loads_of(weight), holds, strict=True):
        for expert in np.argsort(-load, kind="stable"):
            copies = held.sum(axis=0)
            if copies[expert]:
                continue
            share = np.where(copies > 1, load / np.maximum(copies - 1, 1), np.inf)
            given = int(np.argmin(share))
            if copies[given] < 2:
                return None
            loads = held @ (load / np.maximum(copies, 1))
            gpu = int(np.argmin(np.where(held[:, given], loads, np.inf)))
            held[gpu, given], held[gpu, expert] = False, True
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


def resized(
    weight: npt.ArrayLike, previous: Placement, replicas: int, on: Ints
) -> Placement | None:
    """`previous` with so many replicas on the GPUs `on`, which hold every expert, none of them with
    more slots than their even share, rounded up; nothing else moves.

    Where there are too many, those leave whose experts' other copies then have the least load;
    where too few, the expert with the most load a copy gets one on the emptiest GPU with room that
    lacks it.  None where that is not enough.
    """
    most = -(-replicas // len(on))
    holds = np.zeros_like(previous.holds)
    holds[:, on] = previous.holds[:, on]
    for load, held in zip(loads_of(weight), holds, strict=True):
        mine = held[on]
        while mine.sum() > replicas or mine.sum(axis=1).max() > most:
            copies, slots = mine.sum(axis=0), mine.sum(axis=1)
            gives = mine & (copies > 1) & (slots == slots.max())[:, None]
            if not gives.any():
                return None
            share = np.where(gives, load / np.maximum(copies - 1, 1), np.inf)
            mine[np.unravel_index(int(share.argmin()), share.shape)] = False
        while mine.sum() < replicas:
            copies, room = mine.sum(axis=0), mine.sum(axis=1) < most
            share = load / np.maximum(copies, 1)
            lacking = (~mine & room[:, None]).any(axis=0)
            if not lacking.any():
                return None
            expert = int(np.where(lacking, share, -1.0).argmax())
            loads = np.where(room & ~mine[:, expert], mine @ share, np.inf)
            mine[int(loads.argmin()), expert] = True
        held[on] = mine
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


@kernel
def _repair(load: Floats, slots: Int32s, start: Int32s) -> bool:
    """Replicas slots int32 [replicas] of experts, heaviest first, those of GPU g from start[g],
    changed in place; False where one finds no slot.
    """
    experts, gpus = len(load), len(start) - 1
    count = np.empty(experts, np.int32)
    _extra(load, len(slots), gpus, count)
    share = load / count
    more, total = count.copy(), np.zeros(gpus)
    for g in range(gpus):
        for s in range(start[g], start[g + 1]):
            more[slots[s]] -= 1
            total[g] += share[slots[s]]
    for e in range(experts):
        while more[e] < 0:
            _drop(e, slots, start, total, share)
            more[e] += 1
    for e in _descending(share):
        while more[e] > 0:
            if not _fill(e, slots, start, total, share):
                return False
            more[e] -= 1
    _exchanges(slots, start, total, share, count)
    return True


@part
def _drop(expert: int, slots: Int32s, start: Int32s, total: Floats, share: Floats) -> None:
    """Free the slot of an expert on the fullest GPU that has it."""
    top, slot = -1, -1
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            if slots[s] == expert and (top < 0 or total[g] > total[top]):
                top, slot = g, s
    slots[slot] = -1
    total[top] -= share[expert]


@part
def _fill(expert: int, slots: Int32s, start: Int32s, total: Floats, share: Floats) -> bool:
    """Put an expert into a free slot of the emptiest GPU that lacks it, or let such a GPU hand one
    to a GPU with a free slot.
    """
    low, slot, free, hole = -1, -1, -1, -1
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            if slots[s] >= 0:
                continue
            free, hole = g, s
            if (low < 0 or total[g] < total[low]) and not _holds(
                slots, start[g], start[g + 1] - start[g], expert
            ):
                low, slot = g, s
    if low < 0:
        low, slot = _hand_over(expert, free, slots, start, total)
        if low < 0:
            return False
        moved = slots[slot]
        slots[hole] = moved
        total[free] += share[moved]
        total[low] -= share[moved]
    slots[slot] = expert
    total[low] += share[expert]
    return True


@part
def _hand_over(
    expert: int, free: int, slots: Int32s, start: Int32s, total: Floats
) -> tuple[int, int]:
    """(GPU, slot) of something that the GPU `free` lacks, on the emptiest GPU that lacks `expert`;
    (-1, -1) without one.
    """
    low, slot = -1, -1
    for g in range(len(total)):
        if (low >= 0 and total[g] >= total[low]) or _holds(
            slots, start[g], start[g + 1] - start[g], expert
        ):
            continue
        for s in range(start[g], start[g + 1]):
            if slots[s] >= 0 and not _holds(
                slots, start[free], start[free + 1] - start[free], slots[s]
            ):
                low, slot = g, s
    return low, slot
