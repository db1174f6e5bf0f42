"""Packings improved step by step: two slots are exchanged, or a copy is given to another expert.

A step relieves the fullest GPU, and no GPU that it changes ends as full as that one was.  Of all
such steps the one with the largest relief per move is taken, where a move is a copy that its GPU
did not hold before.  So few moves come first where a map that is there is repaired, and the largest
relief where nothing is there yet.

The two searches are kernels of their own, each with a form in numpy: a server that has just started
compiles nothing, and later never waits for numba as long as for both at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints
from railopt.base.kernels import kernel
from railopt.base.units import INT64_MAX

WORTH = 1e-4  # of the fullest GPU's load: the relief that a step must reach
STEPS = 4  # per GPU, at most
FREE = 0.5  # what a step without a move weighs, in moves


class MapState(NamedTuple):
    """slots   int64 [slot]: the expert of each
    owner   int64 [slot]: the GPU of each
    start   int64 [GPU + 1]: GPU g has slots[start[g]:start[g + 1]]
    before  int8 [expert, GPU]: 1 for what was there, so that having it again is no move
    held    int8 [expert, GPU]: 1 for what is there
    away    int64 [GPU]: how many of what it holds were not there before
    copies  int64 [expert]: slots of each
    share   float64 [expert]: load of one copy
    less    float64 [expert]: what each copy has less once there is one more
    total   float64 [GPU]: loads
    first, another  int64 [expert], [slot]: room for lists of slots, since numba takes 0.2 s for an
                    `np.empty`
    """

    slots: Ints
    owner: Ints
    start: Ints
    before: Array
    held: Array
    away: Ints
    copies: Ints
    share: Floats
    less: Floats
    total: Floats
    first: Ints
    another: Ints


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
    where, start = owner.astype(np.int64), np.searchsorted(owner, np.arange(before.shape[2] + 1))
    moves = np.zeros(len(rows), np.int64)
    for row, (goal, budget) in enumerate(zip(goals.tolist(), budgets.tolist(), strict=True)):
        slots, was = rows[row].astype(np.int64), before[row].view(np.int8)
        moves[row] = _improved(slots, (where, start), loads[row], was, goal, budget)
        rows[row] = slots
    return moves


def _improved(
    slots: Ints, gpu_of: tuple[Ints, Ints], load: Floats, before: Array, goal: float, budget: int
) -> int:
    """`improve` of one row; gpu_of is (owner, start) of `MapState`."""
    where, start = gpu_of
    experts, gpus = before.shape
    held, away = np.zeros_like(before), np.bincount(where[before[slots, where] == 0], None, gpus)
    held[slots, where] = 1
    room = np.empty(experts, np.int64), np.empty(len(slots), np.int64)

    def put(slot: int, expert: int) -> int:
        """Change a slot; how many moves that is."""
        old, gpu = slots[slot], where[slot]
        more = int(before[old, gpu]) - int(before[expert, gpu])
        held[old, gpu], held[expert, gpu], slots[slot] = 0, 1, expert
        away[gpu] += more
        return more

    used = 0
    for _ in range(STEPS * gpus):
        copies = np.bincount(slots, minlength=experts)
        share = load / np.maximum(copies, 1)
        total: Any = np.bincount(where, share[slots], gpus)
        top = int(total.argmax())
        if total[top] <= goal:
            break
        now = copies, share, share / (copies + 1), total, *room
        state = MapState(slots, where, start, before, held, away, *now)
        left = min(budget - used, INT64_MAX)
        worth, s, t = _exchange(top, left, state)
        slot, expert = _other_copy(top, worth, left, state)
        if slot >= 0:
            used += put(slot, expert)
        elif s >= 0:
            here, there = int(slots[s]), int(slots[t])
            used += put(s, there) + put(t, here)
        else:
            break
    return used


def _exchange_by_numpy(top: int, budget: int, state: MapState) -> tuple[float, int, int]:
    """`_exchange`, all pairs of slots at once."""
    slots, owner, start, before, held, _, _, share, _, total, _, _ = state
    mine, room = slots[start[top] : start[top + 1]], total[top] - total[owner]
    relief = share[mine, None] - share[slots]
    relief = np.minimum(relief, room - relief)
    s, t = np.nonzero((relief > WORTH * total[top]) & (held[slots, top] == 0))
    a, b, h = mine[s], slots[t], owner[t]
    moves = before[a, top] - before[a, h] + before[b, h] - before[b, top]
    worth = relief[s, t] / np.where(moves > 0, moves, FREE)
    worth *= (held[a, h] == 0) & (moves <= budget)
    at = int(worth.argmax()) if len(worth) else -1
    return (worth[at], start[top] + s[at], t[at]) if at >= 0 and worth[at] > 0 else (0.0, -1, -1)


@kernel(numpy=_exchange_by_numpy)
def _exchange(top: int, budget: int, state: MapState) -> tuple[float, int, int]:
    """(relief per move, slots) of the best exchange of a slot of GPU `top` for a lighter one of
    another GPU; slots -1 without one.  Moves are below 0 where copies come back.

    An exchange relieves `top` by half of what the GPUs differ by at most.
    """
    slots, _, start, before, held, away, _, share, _, total, _, _ = state
    floor, gone = WORTH * total[top], 0
    for e in range(len(share)):
        if before[e, top] and not held[e, top]:
            gone = 1
    best, one, other = 0.0, -1, -1
    for s in range(start[top], start[top + 1]):
        a = slots[s]
        for h in range(len(total)):
            if held[a, h]:
                continue
            mine = before[a, top] - before[a, h]
            fewest = mine - gone + (1 if away[h] == 0 else 0)
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
                    best, one, other = worth, s, t
    return best, one, other


def _other_copy_by_numpy(top: int, best: float, budget: int, state: MapState) -> tuple[int, int]:
    """`_other_copy`, all pairs of a slot and an expert at once."""
    slots, owner, start, before, held, _, copies, share, less, total, _, _ = state
    mine, spare = slots[start[top] : start[top + 1]], np.flatnonzero(copies[slots] > 1)
    a, g = slots[spare], owner[spare]
    high = held[a] * total  # of the other GPUs that hold a
    high[np.arange(len(a)), g] = 0.0
    up = share[a] / (copies[a] - 1)
    low = np.maximum(high.max(axis=1) + up, np.where(g == top, 0.0, total[top]))
    each = np.where(g == top, len(copies), len(mine))  # the experts that it may become
    i = np.repeat(np.arange(len(g)), each)
    k = np.arange(len(i)) - (np.cumsum(each) - each)[i]
    b = np.where((g == top)[i], k, mine[np.minimum(k, len(mine) - 1)])
    here = np.maximum((total[g] - share[a])[i] + share[b], low[i]) - less[b]
    most = total[top] * (1 - WORTH)
    fits = np.flatnonzero((here < most) & (total[top] - here > best * FREE))
    i, b, here = i[fits], b[fits], here[fits]
    a, g, up = a[i], g[i], up[i]
    moves = before[a, g] - before[b, g]
    after = total + up[:, None] * held[a] - less[b, None] * held[b]
    after[(held[a] | held[b]) == 0] = 0.0
    after[np.arange(len(g)), g] = here
    here = after.max(axis=1)
    worth = (total[top] - here) / np.where(moves > 0, moves, FREE)
    worth *= (here < most) & (moves <= budget) & (held[b, g] == 0) & (copies[b] > 0)
    at = int(worth.argmax()) if len(worth) else -1
    return (spare[i[at]], b[at]) if at >= 0 and worth[at] > best else (-1, -1)


@kernel(numpy=_other_copy_by_numpy)
def _other_copy(top: int, best: float, budget: int, state: MapState) -> tuple[int, int]:
    """(slot, expert) of the best copy that becomes one of another expert: any copy one of an expert
    of GPU `top`, or a copy on `top` one of any expert that is here; -1 where the relief per move of
    none is above `best`.
    """
    slots, owner, start, before, held, _, copies, share, less, total, first, another = state
    for e in range(len(first)):
        first[e] = -1
    for s in range(len(slots)):
        another[s], first[slots[s]] = first[slots[s]], s
    slot, expert = -1, -1
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
                    best, slot, expert = worth, s, b
                    if total[top] - best * FREE < most:
                        most = total[top] - best * FREE
    return slot, expert
