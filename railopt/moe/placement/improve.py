"""Packings improved step by step: two slots are exchanged, or a copy is given to another expert.

A step relieves the fullest GPU, and no GPU that it changes ends as full as that one was.  Of all
such steps the one with the largest relief per move is taken, where a move is a copy that its GPU
did not hold before.  So few moves come first where a map that is there is repaired, and the largest
relief where nothing is there yet.

Loops throughout, and few of them: numba takes seconds to compile what numpy does with whole arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints
from railopt.base.kernels import kernel, part

WORTH = 1e-4  # of the fullest GPU's load: the relief that a step must reach
STEPS = 4  # per GPU, at most
FREE = 0.5  # what a step without a move weighs, in moves


class MapState(NamedTuple):
    """slots   int64 [slot]: the expert of each
    owner   int64 [slot]: the GPU of each
    start   int64 [GPU + 1]: GPU g has slots[start[g]:start[g + 1]]
    before  int8 [expert, GPU]: 1 for what was there, so that having it again is no move
    held    int8 [expert, GPU]: 1 for what is there
    copies  int64 [expert]: slots of each
    first   int64 [expert]: one of them, -1 for none
    another int64 [slot]: the next slot of the same expert, -1 for none
    share   float64 [expert]: load of one copy
    less    float64 [expert]: what each copy has less once there is one more
    total   float64 [GPU]: loads
    stayed  int64 [GPU]: 1 where all that it holds was there before
    """

    slots: Ints
    owner: Ints
    start: Ints
    before: Array
    held: Array
    copies: Ints
    first: Ints
    another: Ints
    share: Floats
    less: Floats
    total: Floats
    stayed: Ints


def improve(
    rows: Int32s, owner: Int32s, loads: Floats, before: Bools, goals: Floats, budgets: Ints
) -> Ints:
    """Change rows of slots, in place, until no GPU has more than its row's goal, no step helps or
    its budget of moves is spent; the moves, int64 [row].

    rows    int32 [row, slot]: experts, none twice on a GPU
    owner   int32 [slot]: the GPU of each, ascending
    loads   float64 [row, expert];  goals  float64 [row];  budgets  int64 [row]
    before  bool [row, expert, GPU]: what was there
    """
    experts, gpus = before.shape[1:]
    where, start = owner.astype(np.int64), np.searchsorted(owner, np.arange(gpus + 1))
    was = before.view(np.int8)
    ints = [np.zeros(size, np.int64) for size in (experts, experts, len(owner))]
    floats = [np.zeros(size) for size in (experts, experts, gpus)]
    follows: tuple[Any, ...] = (*ints, *floats, np.zeros(gpus, np.int64))
    moves = np.zeros(len(rows), np.int64)
    for row, slots in enumerate(rows.astype(np.int64)):
        held = np.zeros((experts, gpus), np.int8)
        state = MapState(slots, where, start, was[row], held, *follows)
        moves[row] = _improved(loads[row], goals[row], budgets[row], state)
        rows[row] = slots
    return moves


@kernel
def _improved(load: Array, goal: float, budget: int, state: MapState) -> int:
    """`improve` of one row; its arrays are all given, since numba takes 0.2 s for an `np.empty`."""
    slots, _, start, before, held, copies, first, another, share, less, total, stayed = state
    used = 0
    for _ in range(STEPS * len(total)):
        for e in range(len(copies)):
            copies[e], first[e] = 0, -1
        for s in range(len(slots)):
            e = slots[s]
            copies[e] += 1
            another[s], first[e] = first[e], s
        for e in range(len(copies)):
            share[e] = load[e] / copies[e] if copies[e] else load[e]
            less[e] = share[e] / (copies[e] + 1)
        top = 0
        for g in range(len(total)):
            total[g], stayed[g] = 0.0, 1
            for s in range(start[g], start[g + 1]):
                e = slots[s]
                held[e, g] = 1
                total[g] += share[e]
                stayed[g] &= before[e, g]
            if total[g] > total[top]:
                top = g
        if total[top] <= goal:
            break
        worth, s, t, moves = _exchange(top, budget - used, state)
        slot, expert, more = _other_copy(top, worth, budget - used, state)
        for g in range(len(total)):
            for k in range(start[g], start[g + 1]):
                held[slots[k], g] = 0
        if slot >= 0:
            slots[slot] = expert
            used += more
        elif s >= 0:
            slots[s], slots[t] = slots[t], slots[s]
            used += moves
        else:
            break
    return used


@part
def _exchange(top: int, budget: int, state: MapState) -> tuple[float, int, int, int]:
    """(relief per move, slots, moves) of the best exchange of a slot of GPU `top` for a lighter one
    of another GPU; slots -1 without one.  Moves are below 0 where copies come back.

    An exchange relieves `top` by half of what the GPUs differ by at most.
    """
    slots, _, start, before, held, _, _, _, share, _, total, stayed = state
    floor, gone = WORTH * total[top], 0
    for e in range(len(share)):
        if before[e, top] and not held[e, top]:
            gone = 1
    best, one, other, used = 0.0, -1, -1, 0
    for s in range(start[top], start[top + 1]):
        a = slots[s]
        for h in range(len(total)):
            if held[a, h]:
                continue
            mine = before[a, top] - before[a, h]
            fewest = mine + stayed[h] - gone
            least = best * (fewest if fewest > 0 else FREE)
            room = total[top] - total[h]
            if room <= 2 * least or room <= 2 * floor:
                continue
            for t in range(start[h], start[h + 1]):
                b = slots[t]
                relief = share[a] - share[b]
                if relief > room - relief:
                    relief = room - relief
                if relief <= least or relief <= floor or held[b, top]:
                    continue
                moves = mine + before[b, h] - before[b, top]
                worth = relief / (moves if moves > 0 else FREE)
                if moves <= budget and worth > best:
                    best, one, other, used = worth, s, t, moves
    return best, one, other, used


@part
def _other_copy(top: int, best: float, budget: int, state: MapState) -> tuple[int, int, int]:
    """(slot, expert, moves) of the best copy that becomes one of another expert: any copy one of an
    expert of GPU `top`, or a copy on `top` one of any expert that is here; slot -1 where the relief
    per move of none is above `best`.
    """
    slots, owner, start, before, held, copies, first, another, share, less, total, _ = state
    slot, expert, used = -1, -1, 0
    most = total[top] * (1 - WORTH)  # above it no step is worth it, whatever it weighs
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            a = slots[s]
            if copies[a] == 1:
                continue
            up = share[a] / (copies[a] - 1)
            high = 0.0  # of the other GPUs that hold a
            t = first[a]
            while t >= 0:
                if t != s and total[owner[t]] > high:
                    high = total[owner[t]]
                t = another[t]
            for k in range(len(copies) if g == top else start[top + 1] - start[top]):
                b = k if g == top else slots[start[top] + k]
                here = total[g] - share[a] + share[b] - less[b]  # the highest load after the step
                if g != top and total[top] - less[b] > here:
                    here = total[top] - less[b]
                if here >= most or high + up - less[b] >= most or held[b, g]:
                    continue
                moves = before[a, g] - before[b, g]
                weight = moves if moves > 0 else FREE
                if total[top] - here <= best * weight:
                    continue
                t = first[a]
                while t >= 0:
                    after = total[owner[t]] + up - less[b] * held[b, owner[t]]
                    here = after if t != s and after > here else here
                    t = another[t]
                t = first[b]
                while t >= 0:
                    after = total[owner[t]] + up * held[a, owner[t]] - less[b]
                    here = after if after > here else here
                    t = another[t]
                worth = (total[top] - here) / weight
                if here < most and worth > best and moves <= budget and copies[b] > 0:
                    best, slot, expert, used = worth, s, b, moves
                    if total[top] - best * FREE < most:
                        most = total[top] - best * FREE
    return slot, expert, used
