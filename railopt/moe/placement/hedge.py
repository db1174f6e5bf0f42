"""Replicas for steps that may come out otherwise than forecast.

A packing of the forecast alone is even only if the forecast is right.  Where popularity drifts, the
steps just before show how far it may be off: replicas are exchanged between GPUs, and copies given
to other experts, while the mean over scenes of the largest GPU load falls.  Scenes are the forecast
and the newest steps, each as shares of its own tokens:

    value = sum over scenes of weight * max over GPUs of load / mean load
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.arrays import Bools, Floats, Int32s
from railopt.compiled import kernel_part, njit

TRUST = 0.7  # the forecast's weight among the scenes
DECAY = 0.65  # a recent step weighs so much of the one after it
ROUNDS = 64  # changes of a packing at most
PAYS = 1 - 1e-4  # of the value: what a change must reach


class Scenes(NamedTuple):
    """load    float64 [scene, expert], 1 in all experts
    weight  float64 [scene], 1 in all scenes
    """

    load: Floats
    weight: Floats


class Packing(NamedTuple):
    """slots  int32 [replicas]: the expert of each, GPUs one after the other
    owner  int32 [replicas]: the GPU of each
    copies int32 [expert]: replicas of each
    held   bool [expert, GPU]
    share  float64 [scene, expert]: load of a replica, in units of the mean GPU load
    total  float64 [scene, GPU]: loads, in the same units
    first  int32 [scene, 3]: the fullest GPUs of each scene, -1 where there are fewer
    """

    slots: Int32s
    owner: Int32s
    copies: Int32s
    held: Bools
    share: Floats
    total: Floats
    first: Int32s


def hedge(phy2log: Int32s, forecast: Floats, recent: Floats, nodes: int, owner: Int32s) -> None:
    """Change packings phy2log int32 [layer, slot], slots on the GPUs owner int32 [slot], in place.

    forecast  float64 [layer, expert]: the loads that they were packed for
    recent    float64 [step, layer, expert]: loads of the newest steps, oldest first; steps without
              tokens are not counted, so that a layer without any stays as it is
    nodes     experts stay on theirs; 1: they may go anywhere
    """
    size = len(owner) // nodes
    for layer, row in enumerate(phy2log):
        for first in range(0, len(owner), size):
            mine = slice(first, first + size)
            experts, slots = np.unique(row[mine], return_inverse=True)
            load, steps = forecast[layer, experts], recent[:, layer, experts]
            if load.any() and steps.any():
                scenes = _scenes(load, steps[steps.any(axis=1)])
                packing = _packing(slots.astype(np.int32), owner[mine] - owner[first], scenes)
                _improve(scenes, packing)
                row[mine] = experts[packing.slots]


def _scenes(forecast: Floats, steps: Floats) -> Scenes:
    """The forecast, then the steps."""
    ages = DECAY ** np.arange(len(steps) - 1, -1, -1, dtype=np.float64)
    load = np.concatenate([forecast[None], steps])
    weight = np.concatenate([[TRUST], (1 - TRUST) * ages / ages.sum()])
    return Scenes(load / load.sum(axis=1, keepdims=True), weight)


def _packing(slots: Int32s, owner: Int32s, scenes: Scenes) -> Packing:
    """Slots on their GPUs, the rest not filled in yet."""
    number, experts = scenes.load.shape
    gpus = int(owner[-1]) + 1
    return Packing(
        slots,
        owner,
        np.empty(experts, np.int32),
        np.empty((experts, gpus), np.bool_),
        np.empty((number, experts)),
        np.empty((number, gpus)),
        np.empty((number, 3), np.int32),
    )


@njit(cache=True)
def _improve(scenes: Scenes, packing: Packing) -> None:
    """The best exchange or else the best other copy, again and again while one pays."""
    for _ in range(ROUNDS):
        value = _survey(scenes, packing)
        one, other = _exchange(scenes, packing, value * PAYS)
        if one >= 0:
            slots = packing.slots
            slots[one], slots[other] = slots[other], slots[one]
            continue
        one, other = _other_copy(scenes, packing, value * PAYS)
        if one < 0:
            return
        packing.slots[one] = other


@kernel_part()
def _survey(scenes: Scenes, packing: Packing) -> float:
    """Everything that follows from the slots; the value."""
    slots, owner, copies, held, share, total, first = packing
    copies.fill(0)
    held.fill(False)
    total.fill(0)
    first.fill(-1)
    for s in range(len(slots)):
        copies[slots[s]] += 1
        held[slots[s], owner[s]] = True
    value = 0.0
    for scene in range(len(total)):
        for e in range(len(copies)):
            share[scene, e] = scenes.load[scene, e] * total.shape[1] / copies[e]
        for s in range(len(slots)):
            total[scene, owner[s]] += share[scene, slots[s]]
        for g in range(total.shape[1]):
            for place in range(3):
                at = first[scene, place]
                if at < 0 or total[scene, g] > total[scene, at]:
                    for later in range(2, place, -1):
                        first[scene, later] = first[scene, later - 1]
                    first[scene, place] = g
                    break
        value += scenes.weight[scene] * total[scene, first[scene, 0]]
    return value


@kernel_part()
def _exchange(scenes: Scenes, packing: Packing, best: float) -> tuple[int, int]:
    """The slots of the exchange between a GPU that is the fullest of some scene and another that
    makes the value least, below `best`; -1 without one.
    """
    slots, owner, _, held, share, total, first = packing
    one = other = -1
    hot = np.zeros(held.shape[1], np.bool_)
    for scene in range(len(total)):
        hot[first[scene, 0]] = True
    for s in range(len(slots)):
        a, g = slots[s], owner[s]
        if not hot[g]:
            continue
        for t in range(len(slots)):
            b, h = slots[t], owner[t]
            if g == h or held[a, h] or held[b, g]:
                continue
            value = 1.0  # no scene's largest load is below the mean
            for scene in range(len(total)):
                shift = share[scene, a] - share[scene, b]
                peak = max(total[scene, g] - shift, total[scene, h] + shift)
                for place in range(3):
                    third = first[scene, place]
                    if third >= 0 and third != g and third != h:
                        peak = max(peak, total[scene, third])
                        break
                value += scenes.weight[scene] * (peak - 1)
                if value >= best:
                    break
            if value < best:
                best, one, other = value, s, t
    return one, other


@kernel_part()
def _other_copy(scenes: Scenes, packing: Packing, best: float) -> tuple[int, int]:
    """The slot of the copy, and the expert to give it to, that make the value least, below `best`;
    -1 without one.  Only experts on a GPU that is the fullest of some scene can help.
    """
    slots, owner, copies, held, share, total, first = packing
    one = other = -1
    hot = np.zeros(len(copies), np.bool_)
    for scene in range(len(total)):
        for e in range(len(copies)):
            hot[e] |= held[e, first[scene, 0]]
    for s in range(len(slots)):
        a, g = slots[s], owner[s]
        if copies[a] == 1:
            continue
        for b in range(len(copies)):
            if not hot[b] or held[b, g]:
                continue
            value = 1.0  # no scene's largest load is below the mean
            for scene in range(len(total)):
                up = share[scene, a] / (copies[a] - 1)
                down = share[scene, b] / (copies[b] + 1)
                peak = total[scene, g] - share[scene, a] + share[scene, b] - down
                for q in range(held.shape[1]):
                    if q != g:
                        peak = max(peak, total[scene, q] + held[a, q] * up - held[b, q] * down)
                value += scenes.weight[scene] * (peak - 1)
                if value >= best:
                    break
            if value < best:
                best, one, other = value, s, b
    return one, other
