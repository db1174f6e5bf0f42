"""A new map of slots that disturbs the old one least: what stays on its GPU stays in its slot."""

from __future__ import annotations

import numpy as np

from railopt.arrays import Array, Floats, Int32s
from railopt.errors import InputError
from railopt.moe.placement.placement import assigned


def settled(phy2log: Int32s, before: Array, gpus: int, together: int) -> Int32s:
    """The plan phy2log int32 [layers, slots] after the map `before` of the same shape (-1: a slot
    was empty), slots in GPU order, the same number on each; the plan has no expert twice on a GPU.

    GPUs are renamed so that fewest experts are new on theirs, blocks of `together` GPUs as one (the
    loads say nothing about which GPU is which); an expert that its GPU held keeps its slot there,
    and the others fill what is left in their order.
    """
    if before.shape != phy2log.shape or phy2log.shape[1] % gpus:
        raise InputError(
            f"a map before of shape {before.shape}, a plan of {phy2log.shape} on {gpus} GPUs: "
            f"expected the same slots, as many on each GPU"
        )
    size = phy2log.shape[1] // gpus
    experts = int(max(phy2log.max(), before.max())) + 1
    new = phy2log.reshape(-1, gpus, size)
    old = before.reshape(-1, gpus, size)
    renamed = np.empty_like(new)
    for layer in range(len(new)):
        worth = _held(new[layer], experts) @ _held(old[layer], experts).T
        renamed[layer, assigned(worth, together)] = new[layer]
    return _in_place(renamed.reshape(-1, size), old.reshape(-1, size)).reshape(phy2log.shape)


def _held(slots: Array, experts: int) -> Floats:
    """float64 [GPU, expert]: 1 where a GPU holds an expert."""
    held = np.zeros((len(slots), experts))
    gpu, slot = np.nonzero(slots >= 0)
    held[gpu, slots[gpu, slot]] = 1
    return held


def _in_place(new: Int32s, old: Array) -> Int32s:
    """The experts of each GPU, rows [GPU, slot], in the slots of those that were there already."""
    same = old[:, :, None] == new[:, None, :]
    stays, slot = same.any(axis=1), same.argmax(axis=1)
    gpu = np.broadcast_to(np.arange(len(new))[:, None], new.shape)
    result = np.full(new.shape, -1, np.int32)
    result[gpu[stays], slot[stays]] = new[stays]
    result[result < 0] = new[~stays]  # as many of both on each GPU, both row by row
    return result
