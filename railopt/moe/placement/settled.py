"""A new map of slots that disturbs the old one least: what stays on its GPU stays in its slot."""

from __future__ import annotations

import numpy as np

from railopt.arrays import Array, Int32s, Ints
from railopt.errors import InputError
from railopt.moe.placement.placement import assigned


def settled(phy2log: Int32s, before: Array, gpus: int, together: int) -> Int32s:
    """The plan phy2log int32 [layers, slots] after the map `before` of the same shape (-1: a slot
    was empty), slots in GPU order, the same number on each.

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
    result = np.empty_like(phy2log)
    for layer, row in enumerate(phy2log):
        new, old = row.reshape(gpus, size), before[layer].reshape(gpus, size)
        kept = _held(new, experts) @ _held(old, experts).T
        names = assigned(kept, together)
        for gpu, name in enumerate(names.tolist()):
            result[layer, name * size : (name + 1) * size] = _in_place(new[gpu], old[name])
    return result


def _held(slots: Array, experts: int) -> Ints:
    """int64 [GPU, expert]: 1 where a GPU holds an expert."""
    held = np.zeros((len(slots), experts), np.int64)
    gpu, slot = np.nonzero(slots >= 0)
    held[gpu, slots[gpu, slot]] = 1
    return held


def _in_place(new: Int32s, old: Array) -> Int32s:
    """The experts of one GPU, in the slots of those that were there already."""
    result, waiting = np.full(len(new), -1, np.int32), new.tolist()
    for slot, expert in enumerate(old.tolist()):
        if expert in waiting:
            result[slot] = expert
            waiting.remove(expert)
    result[result < 0] = waiting
    return result
