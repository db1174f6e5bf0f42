"""Packings improved: replicas are exchanged between GPUs, and copies given to other experts, while
the mean over scenes of the largest GPU load falls.

    value = sum over scenes of weight * max over GPUs of load / mean load

Scenes are shares of the tokens of a step.  Where popularity drifts, a packing of the forecast alone
is even only if the forecast is right: scenes are the forecast and the newest steps, which show how
far it may be off.  Where it stands still the forecast is the only scene, and where the packing
stays uneven, as with a few very popular experts, it is shaken and improved again and again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s
from railopt.base.kernels import kernel, part

TRUST = 0.7  # the forecast's weight among the scenes
DECAY = 0.65  # a recent step weighs so much of the one after it
ROUNDS = 64  # changes of a packing at most
PAYS = 1 - 1e-4  # of the value: what a change must reach
EVEN = 1.002  # value at which nothing more is tried
NEAR = 1.01  # of the best value: from up to there a walk goes on
SHAKEN = 5  # changes at random at most
SEED = 88172645463325252


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


def hedge(
    phy2log: Int32s, forecast: Floats, recent: Floats, nodes: int, owner: Int32s, tries: int
) -> None:
    """Change packings phy2log int32 [layer, slot], slots on the GPUs owner int32 [slot], in place.

    forecast  float64 [layer, expert]: the loads that they were packed for
    recent    float64 [step, layer, expert]: loads of the newest steps, oldest first; steps without
              tokens are not counted
    nodes     experts stay on theirs; 1: they may go anywhere
    tries     packings that are shaken, in layers without such steps that are not `EVEN` yet
    """
    size = len(owner) // nodes
    for first in range(0, len(owner), size):
        mine = slice(first, first + size)
        packed = phy2log[:, mine].copy()
        _hedge(packed, forecast, recent, owner[mine] - owner[first], tries)
        phy2log[:, mine] = packed


@kernel
def _hedge(phy2log: Int32s, forecast: Floats, recent: Floats, owner: Int32s, tries: int) -> None:
    """The same of the slots of one node, whose experts are those in them."""
    for layer in range(len(phy2log)):
        experts, slots = _numbered(phy2log[layer], forecast.shape[1])
        scenes = _scenes(forecast[layer], recent[:, layer], experts)
        if len(scenes.weight):
            packing = _packing(slots, owner, scenes)
            alone = len(scenes.weight) == 1  # with steps, more tries fitted these and no others
            _search(scenes, packing, tries if alone else 0)
            for s in range(len(slots)):
                phy2log[layer, s] = experts[slots[s]]


@part
def _numbered(row: Int32s, most: int) -> tuple[Int32s, Int32s]:
    """The experts of some slots in order, and each slot's place among them."""
    place = np.full(most, -1, np.int32)
    for s in range(len(row)):
        place[row[s]] = 0
    experts = np.flatnonzero(place + 1).astype(np.int32)
    for k in range(len(experts)):
        place[experts[k]] = k
    return experts, place[row]


@part
def _scenes(forecast: Floats, recent: Floats, experts: Int32s) -> Scenes:
    """The forecast, then the steps with tokens, newest first; none where the forecast has none."""
    load = np.empty((1 + len(recent), len(experts)))
    weight = np.empty(len(load))
    number, age = 0, 1.0
    for k in range(len(load)):
        row = forecast if k == 0 else recent[len(recent) - k]
        total = 0.0
        for e in range(len(experts)):
            load[number, e] = row[experts[e]]
            total += load[number, e]
        if total > 0:
            for e in range(len(experts)):
                load[number, e] /= total
            weight[number] = age
            age *= DECAY if k else 1.0
            number += 1
        elif k == 0:
            break
    if number > 1:
        weight[0] = TRUST
        weight[1:number] *= (1 - TRUST) / weight[1:number].sum()
    return Scenes(load[:number], weight[:number])


@part
def _packing(slots: Int32s, owner: Int32s, scenes: Scenes) -> Packing:
    """Slots on their GPUs, the rest not filled in yet."""
    number, experts = scenes.load.shape
    gpus = owner[-1] + 1
    return Packing(
        slots,
        owner,
        np.empty(experts, np.int32),
        np.empty((experts, gpus), np.bool_),
        np.empty((number, experts)),
        np.empty((number, gpus)),
        np.empty((number, 3), np.int32),
    )


@part
def _search(scenes: Scenes, packing: Packing, tries: int) -> None:
    """The best of the packing improved, and of it shaken and improved again and again."""
    slots = packing.slots
    best, kept, dice = _improve(scenes, packing), slots.copy(), np.uint64(SEED)
    for _ in range(tries):
        if best <= EVEN:
            break
        dice = _shake(packing, dice)
        value = _improve(scenes, packing)
        if value < best:
            best, kept = value, slots.copy()
        elif value > best * NEAR:
            slots[:] = kept
            _survey(scenes, packing)
    slots[:] = kept


@part
def _drawn(dice: Any, below: int) -> tuple[Any, Any]:
    """The next number of a xorshift generator, and one of `below` by it."""
    dice ^= dice << np.uint64(13)
    dice ^= dice >> np.uint64(7)
    dice ^= dice << np.uint64(17)
    return dice, np.int64((dice >> np.uint64(11)) % np.uint64(below))


@part
def _shake(packing: Packing, dice: Any) -> Any:
    """A few random changes: a copy becomes one of another expert, or two slots are exchanged."""
    slots, owner, copies, held = packing.slots, packing.owner, packing.copies, packing.held
    dice, changes = _drawn(dice, SHAKEN)
    for _ in range(1 + changes):
        dice, s = _drawn(dice, len(slots))
        dice, e = _drawn(dice, len(copies))
        dice, t = _drawn(dice, len(slots))
        a, b, g, h = slots[s], slots[t], owner[s], owner[t]
        if copies[a] > 1 and not held[e, g]:
            slots[s] = e
            copies[a] -= 1
            copies[e] += 1
            held[a, g], held[e, g] = False, True
        elif g != h and not held[a, h] and not held[b, g]:
            slots[s], slots[t] = b, a
            held[a, g], held[b, g], held[b, h], held[a, h] = False, True, False, True
    return dice


@part
def _improve(scenes: Scenes, packing: Packing) -> float:
    """The best exchange or else the best other copy, again and again while one pays; the value."""
    slots = packing.slots
    for _ in range(ROUNDS):
        value = _survey(scenes, packing)
        one, other = _exchange(scenes, packing, value * PAYS)
        if one >= 0:
            slots[one], slots[other] = slots[other], slots[one]
            continue
        one, other = _other_copy(scenes, packing, value * PAYS)
        if one < 0:
            return value
        slots[one] = other
    return _survey(scenes, packing)


@part
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


@part
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


@part
def _other_copy(scenes: Scenes, packing: Packing, best: float) -> tuple[int, int]:
    """The slot of the copy, and the expert to give it to, that make the value least, below `best`;
    -1 without one.  Only experts on a GPU that is the fullest of some scene can help.
    """
    slots, owner, copies, held, _, total, first = packing
    one = other = -1
    hot = np.zeros(len(copies), np.bool_)
    for s in range(len(slots)):
        for scene in range(len(total)):
            hot[slots[s]] |= owner[s] == first[scene, 0]
    experts = np.flatnonzero(hot)
    for s in range(len(slots)):
        a, g = slots[s], owner[s]
        if copies[a] == 1:
            continue
        for b in experts:
            if held[b, g]:
                continue
            value = 1.0  # no scene's largest load is below the mean
            for scene in range(len(total)):
                most = 1 + (best - value) / scenes.weight[scene]
                value += scenes.weight[scene] * (_peak(packing, scene, s, b, most) - 1)
                if value >= best:
                    break
            if value < best:
                best, one, other = value, s, int(b)
    return one, other


@part
def _peak(packing: Packing, scene: int, s: int, b: int, most: float) -> float:
    """A scene's largest load after slot s went to expert b; where it reaches `most`, something from
    there on: the fullest GPUs before are looked at first, since they mostly decide.
    """
    slots, owner, copies, held, share, total, first = packing
    a, g = slots[s], owner[s]
    up = share[scene, a] / (copies[a] - 1)
    down = share[scene, b] / (copies[b] + 1)
    peak = total[scene, g] - share[scene, a] + share[scene, b] - down
    for k in range(-3, held.shape[1]):
        q = k if k >= 0 else first[scene, k + 3]
        if q >= 0 and q != g:
            peak = max(peak, total[scene, q] + held[a, q] * up - held[b, q] * down)
        if peak >= most:
            break
    return peak
