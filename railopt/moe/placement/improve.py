"""Packings improved step by step: two slots are exchanged, or a copy is given to another expert.

A step relieves the fullest GPU, and no GPU that it changes ends as full as that one was.  Of all
such steps the one with the largest relief per move is taken, where a move is a copy that its GPU
did not hold before.  So few moves come first where a map that is there is repaired, and the largest
relief where nothing is there yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s
from railopt.base.kernels import kernel, part

WORTH = 1e-4  # of the fullest GPU's load: the relief that a step must reach
STEPS = 4  # per GPU, at most
FREE = 0.5  # what a step without a move weighs, in moves


class MapState(NamedTuple):
    """slots   int32 [slot]: the expert of each, GPUs one after the other
    owner   int32 [slot]: the GPU of each
    copies  int32 [expert]: slots of each
    held    bool [expert, GPU]
    share   float64 [expert]: load of one copy
    total   float64 [GPU]: loads
    before  bool [expert, GPU]: what was there, so that having it again is no move
    first   int32 [expert + 1]: expert e is on gpus[first[e]:first[e + 1]]
    gpus    int32 [slot]
    """

    slots: Int32s
    owner: Int32s
    copies: Int32s
    held: Bools
    share: Floats
    total: Floats
    before: Bools
    first: Int32s
    gpus: Int32s


@kernel
def improve(
    slots: Int32s, owner: Int32s, load: Floats, before: Bools, goal: float, budget: int
) -> int:
    """Change slots, in place, until no GPU has more than `goal`, no step helps or `budget` moves
    are made; the moves.

    slots, owner  int32 [slot], as in `MapState`; no expert twice on a GPU, each in some slot
    load          float64 [expert]
    before        bool [expert, GPU], as in `MapState`

    Loops throughout: numba takes seconds to compile what numpy does with whole arrays.
    """
    experts, gpus = before.shape
    state = MapState(
        slots,
        owner,
        np.empty(experts, np.int32),
        np.zeros((experts, gpus), np.bool_),
        np.empty(experts, np.float64),
        np.empty(gpus, np.float64),
        before,
        np.empty(experts + 1, np.int32),
        np.empty(len(slots), np.int32),
    )
    used = 0
    for _ in range(STEPS * gpus):
        top = _survey(load, state)
        if state.total[top] <= goal:
            break
        floor = WORTH * state.total[top]
        worth, s, t, moves = _exchange(top, floor, budget - used, state)
        other, slot, expert, more = _other_copy(top, floor, budget - used, state)
        for k in range(len(slots)):  # the next survey sets it anew
            state.held[slots[k], owner[k]] = False
        if other > worth:
            used += more
            slots[slot] = expert
        elif s >= 0:
            used += moves
            slots[s], slots[t] = slots[t], slots[s]
        else:
            break
    return used


@part
def _survey(load: Floats, state: MapState) -> int:
    """Everything that follows from the slots, where `held` is empty; returns the fullest GPU."""
    slots, owner, copies, held, share, total, _, first, gpus = state
    for e in range(len(copies)):
        copies[e] = 0
    for s in range(len(slots)):
        copies[slots[s]] += 1
        held[slots[s], owner[s]] = True
    place, first[0] = np.empty(len(copies), np.int32), 0
    for e in range(len(copies)):
        share[e] = load[e] / max(copies[e], 1)
        place[e] = first[e]
        first[e + 1] = first[e] + copies[e]
    for g in range(len(total)):
        total[g] = 0.0
    for s in range(len(slots)):
        e = slots[s]
        total[owner[s]] += share[e]
        gpus[place[e]] = owner[s]
        place[e] += 1
    top = 0
    for g in range(1, len(total)):
        if total[g] > total[top]:
            top = g
    return top


@part
def _exchange(top: int, floor: float, budget: int, state: MapState) -> tuple[float, int, int, int]:
    """(relief per move, slots, moves) of the best exchange of a slot of GPU `top` for a lighter one
    of another GPU; slots -1 without one.  Moves are below 0 where copies come back.
    """
    slots, owner, held, before = state.slots, state.owner, state.held, state.before
    given, room = np.empty(len(slots), np.float64), np.empty(len(slots), np.float64)
    for t in range(len(slots)):
        given[t] = state.share[slots[t]]
        room[t] = state.total[top] - state.total[owner[t]]
    best, one, other, used = 0.0, -1, -1, 0
    for s in range(len(slots)):
        if owner[s] != top:
            continue
        a = slots[s]
        for t in range(len(slots)):
            shift = given[s] - given[t]
            relief = min(shift, room[t] - shift)
            if relief <= floor or relief <= best * FREE:
                continue
            b, h = slots[t], owner[t]
            if held[a, h] or held[b, top]:
                continue
            moves = (1 if before[a, top] else 0) + (1 if before[b, h] else 0)
            moves -= (1 if before[b, top] else 0) + (1 if before[a, h] else 0)
            worth = relief / max(moves, FREE)
            if moves <= budget and worth > best:
                best, one, other, used = worth, s, t, moves
    return best, one, other, used


@part
def _other_copy(
    top: int, floor: float, budget: int, state: MapState
) -> tuple[float, int, int, int]:
    """(relief per move, slot, expert, moves) of the best copy that becomes one of another expert:
    any copy one of an expert of GPU `top`, or a copy on `top` one of any expert; slot -1 without
    one.
    """
    slots, owner, copies, held = state.slots, state.owner, state.copies, state.held
    share, total, before = state.share, state.total, state.before
    hot, hots = np.empty(len(copies), np.int32), 0
    less = np.empty(len(copies), np.float64)  # load of a copy if there were one more
    for e in range(len(copies)):
        less[e] = share[e] / (copies[e] + 1)
        if held[e, top]:
            hot[hots] = e
            hots += 1
    best, slot, expert, used = 0.0, -1, -1, 0
    for s in range(len(slots)):
        a, g = slots[s], owner[s]
        if copies[a] == 1:
            continue
        up = share[a] / (copies[a] - 1)
        for k in range(len(copies) if g == top else hots):
            b = k if g == top else int(hot[k])
            down = less[b]
            here = total[g] - share[a] + share[b] - down  # what the slot's GPU has then
            relief = total[top] - here
            if g != top:
                relief = min(relief, down - (up if held[a, top] else 0.0))
            if relief <= floor or relief <= best * FREE or held[b, g]:
                continue
            moves = (0 if before[b, g] else 1) - (0 if before[a, g] else 1)
            weight = max(moves, FREE)
            least = total[top] - max(floor, best * weight)
            after = _highest_other(g, a, b, up, down, state)
            relief = min(relief, total[top] - after)
            if moves <= budget and after < least and relief > floor and relief / weight > best:
                best, slot, expert, used = relief / weight, s, b, moves
    return best, slot, expert, used


@part
def _highest_other(gpu: int, a: int, b: int, up: float, down: float, state: MapState) -> float:
    """The highest load, beside that of `gpu`, of the GPUs that hold a, whose copies have `up` more
    then, or b, whose copies have `down` less.
    """
    held, total, first, gpus = state.held, state.total, state.first, state.gpus
    highest = 0.0
    for i in range(first[a], first[a + 1]):
        q = gpus[i]
        if q != gpu:
            highest = max(highest, total[q] + up - (down if held[b, q] else 0.0))
    for i in range(first[b], first[b + 1]):
        q = gpus[i]
        if q != gpu and not held[a, q]:
            highest = max(highest, total[q] - down)
    return highest
