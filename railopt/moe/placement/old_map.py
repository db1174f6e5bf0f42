"""A new map of slots that disturbs the old one least: what stays on its GPU stays in its slot."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array, Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.placement.placement import assigned


def least_change(phy2log: Int32s, before: Array, gpus: int, together: int) -> Int32s:
    """The plan phy2log int32 [layers, slots] after the map `before` of the same shape (-1: a slot
    was empty), slots in GPU order, the same number on each; the plan has no expert twice on a GPU.

    GPUs are renamed so that fewest experts are new on theirs, blocks of `together` GPUs as one: the
    loads say nothing about which GPU is which.  An expert that its GPU held keeps its slot there,
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
    for layer, worth in enumerate(_shared(new, old, experts)):
        renamed[layer, assigned(worth, together)] = new[layer]
    return in_place(renamed.reshape(-1, size), old.reshape(-1, size)).reshape(phy2log.shape)


def _shared(new: Int32s, old: Array, experts: int) -> Ints:
    """int64 [layer, GPU of the plan, GPU before]: experts that both hold; slots [layer, GPU,
    slot].
    """
    layers, gpus, size = new.shape
    again = np.tril(old[..., :, None] == old[..., None, :], -1).any(axis=-1)
    layer, gpu, slot = np.nonzero((old >= 0) & ~again)
    held = layer * experts + old[layer, gpu, slot]
    holders = gpu[np.argsort(held, kind="stable")]  # of one expert after the other
    number = np.bincount(held, minlength=layers * experts)
    first = np.cumsum(number) - number
    asked = (np.arange(layers)[:, None, None] * experts + new).ravel()
    each = number[asked]
    pair = np.repeat(first[asked] - np.cumsum(each) + each, each) + np.arange(each.sum())
    mine = np.repeat(np.arange(len(asked)) // size, each)
    table = np.bincount(mine * gpus + holders[pair], minlength=layers * gpus * gpus)
    return table.reshape(layers, gpus, gpus)


def in_place(new: Int32s, old: Array) -> Int32s:
    """The experts of each GPU, rows [GPU, slot], in the slots of those that were there already."""
    same = old[:, :, None] == new[:, None, :]
    stays, slot = same.any(axis=1), same.argmax(axis=1)
    gpu = np.broadcast_to(np.arange(len(new))[:, None], new.shape)
    result = np.full(new.shape, -1, np.int32)
    result[gpu[stays], slot[stays]] = new[stays]
    result[result < 0] = new[~stays]  # as many of both on each GPU, both row by row
    return result
