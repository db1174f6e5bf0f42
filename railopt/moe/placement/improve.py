"""Packings improved step by step: two slots are exchanged, or a copy is given to another expert.

A step relieves the fullest GPU, and no GPU that it changes ends as full as that one was.  Of all
such steps the one with the largest relief per move is taken, where a move is a copy that its GPU
did not hold before.  So few moves come first where a map that is there is repaired, and the largest
relief where nothing is there yet.

All rows take a step at once.  Two searches and the step itself are kernels of their own, which
interpreted use numpy: a server that has just started compiles nothing, and later never waits for
numba as long as for all of them at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints
from railopt.base.kernels import NUMPY_S, kernel, part

RELIEF = 1e-4  # of the fullest GPU's load: the relief that a step must reach
STEPS = 4  # per GPU, at most
FREE = 0.5  # what a step without a move weighs, in moves
ANY_NUMBER = 1 << 62  # of moves: copies that come back may add to it


class MapStates(NamedTuple):
    """Rows that are improved at once.

    slots   int64 [row, slot]: the expert of each
    owner   int64 [slot]: the GPU of each
    start   int64 [GPU + 1]: GPU g has the slots from start[g] to start[g + 1]
    load    float64 [row, expert]
    before  int8 [row, expert, GPU]: 1 for what was there, so that having it again is no move
    held    int8 [row, expert, GPU]: 1 for what is there
    away    int64 [row, GPU]: how many of what it holds were not there before
    copies  int64 [row, expert]: slots of each
    share   float64 [row, expert]: load of one copy
    less    float64 [row, expert]: what each copy has less once there is one more
    total   float64 [row, GPU]: loads
    goal    float64 [row]: what no GPU should have more than
    left    int64 [row]: moves that may still be made
    top     int64 [row]: the fullest GPU; -1 once the row is done
    worth   float64 [row]: relief per move of the best step so far
    step    int64 [row, 2, 2]: that step, up to two slots and the experts that they get, else -1
    """

    slots: Ints
    owner: Ints
    start: Ints
    load: Floats
    before: Array
    held: Array
    away: Ints
    copies: Ints
    share: Floats
    less: Floats
    total: Floats
    goal: Floats
    left: Ints
    top: Ints
    worth: Floats
    step: Ints


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
    allowed = np.minimum(budgets, ANY_NUMBER)
    state = _first_states(rows, owner, loads, before, goals, allowed)
    for _ in range(STEPS * before.shape[2]):
        _advance(state)
        if state.top.max(initial=-1) < 0:
            break
        _exchanges(state)
        _other_copies(state)
    else:
        _advance(state)
    rows[:] = state.slots
    return allowed - state.left


def _first_states(
    rows: Int32s, owner: Int32s, loads: Floats, before: Bools, goals: Floats, budgets: Ints
) -> MapStates:
    """Nothing is done yet: the first step puts into slot 0 what is there."""
    number, experts, gpus = before.shape
    slots, where = rows.astype(np.int64), owner.astype(np.int64)
    was, held = np.ascontiguousarray(before).view(np.int8), np.zeros(before.shape, np.int8)
    row = np.arange(number)[:, None]
    held[row, slots, where] = 1
    new = was[row, slots, where] == 0
    away = np.bincount((row * gpus + where)[new], minlength=number * gpus)
    step = np.full((number, 2, 2), -1)
    step[:, 0, 0], step[:, 0, 1] = 0, slots[:, 0]
    return MapStates(
        slots,
        where,
        np.searchsorted(where, np.arange(gpus + 1)),
        np.ascontiguousarray(loads),
        was,
        held,
        away.reshape(number, gpus),
        np.zeros((number, experts), np.int64),
        np.zeros((number, experts)),
        np.zeros((number, experts)),
        np.zeros((number, gpus)),
        goals,
        budgets.copy(),
        np.zeros(number, np.int64),
        np.zeros(number),
        step,
    )


@kernel(element_s=NUMPY_S)
def _advance(state: MapStates) -> None:
    """Make the step of each row, and say which GPU is fullest then; a row without one is done."""
    slots, owner, before, held = state.slots, state.owner, state.before, state.held
    for r in range(len(slots)):
        if state.top[r] < 0:
            continue
        if state.step[r, 0, 0] < 0:
            state.top[r] = -1
            continue
        for k in range(2):
            s, e = state.step[r, k, 0], state.step[r, k, 1]
            state.step[r, k, 0] = -1
            if s < 0:
                continue
            old, g = slots[r, s], owner[s]
            more = before[r, old, g] - before[r, e, g]
            held[r, old, g] = 0
            held[r, e, g] = 1
            slots[r, s] = e
            state.away[r, g] += more
            state.left[r] -= more
        state.worth[r] = 0.0
        state.top[r] = _summed(r, state)


def _summed_by_numpy(r: int, state: MapStates) -> int:
    """`_summed`, by numpy."""
    slots, experts, gpus = state.slots[r], state.load.shape[1], state.total.shape[1]
    state.copies[r] = copies = np.bincount(slots, minlength=experts)
    state.share[r] = share = state.load[r] / np.maximum(copies, 1)
    state.less[r] = share / (copies + 1)
    state.total[r] = total = np.bincount(state.owner, share[slots], gpus)
    top = int(total.argmax())
    return top if total[top] > state.goal[r] else -1


@part(numpy=_summed_by_numpy)
def _summed(r: int, state: MapStates) -> int:
    """Count copies and add up loads of a row; its fullest GPU, or -1 where the goal is met."""
    slots, copies, share = state.slots[r], state.copies[r], state.share[r]
    less, total, top = state.less[r], state.total[r], 0
    for e in range(len(copies)):
        copies[e] = 0
    for s in range(len(slots)):
        copies[slots[s]] += 1
    for e in range(len(copies)):
        share[e] = state.load[r, e] / max(copies[e], 1)
        less[e] = share[e] / (copies[e] + 1)
    for g in range(len(total)):
        total[g] = 0.0
        for s in range(state.start[g], state.start[g + 1]):
            total[g] += share[slots[s]]
        if total[g] > total[top]:
            top = g
    return top if total[top] > state.goal[r] else -1


@kernel(element_s=NUMPY_S)
def _exchanges(state: MapStates) -> None:
    """`_exchange` of each row that is not done."""
    for r in range(len(state.top)):
        if state.top[r] >= 0:
            _exchange(r, state)


def _exchange_by_numpy(r: int, state: MapStates) -> None:
    """`_exchange`, all pairs of slots at once."""
    slots, owner, start, top = state.slots[r], state.owner, state.start, int(state.top[r])
    before, held, share, total = state.before[r], state.held[r], state.share[r], state.total[r]
    mine, room = slots[start[top] : start[top + 1]], total[top] - total[owner]
    relief = share[mine, None] - share[slots]
    relief = np.minimum(relief, room - relief)
    s, t = np.nonzero((relief > RELIEF * total[top]) & (held[slots, top] == 0))
    a, b, h = mine[s], slots[t], owner[t]
    moves = before[a, top] - before[a, h] + before[b, h] - before[b, top]
    worth = relief[s, t] / np.where(moves > 0, moves, FREE)
    worth *= (held[a, h] == 0) & (moves <= state.left[r])
    at = int(worth.argmax()) if len(worth) else -1
    if at >= 0 and worth[at] > 0:
        state.worth[r] = worth[at]
        state.step[r] = (start[top] + s[at], b[at]), (t[at], a[at])


@part(numpy=_exchange_by_numpy)
def _exchange(r: int, state: MapStates) -> None:
    """Find the exchange of a slot of the fullest GPU for a lighter one of another GPU that relieves
    it most per move.  Moves are below 0 where copies come back.

    An exchange relieves that GPU by half of what the two differ by at most.
    """
    slots, start, top, left = state.slots[r], state.start, state.top[r], state.left[r]
    before, held, away = state.before[r], state.held[r], state.away[r]
    share, total = state.share[r], state.total[r]
    floor, gone = RELIEF * total[top], 0
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
                if moves <= left and worth > best:
                    best, one, other = worth, s, t
    if one >= 0:
        state.worth[r] = best
        state.step[r, 0, 0], state.step[r, 0, 1] = one, slots[other]
        state.step[r, 1, 0], state.step[r, 1, 1] = other, slots[one]


@kernel(element_s=NUMPY_S)
def _other_copies(state: MapStates) -> None:
    """`_other_copy` of each row that is not done."""
    for r in range(len(state.top)):
        if state.top[r] >= 0:
            _other_copy(r, state)


def _other_copy_by_numpy(r: int, state: MapStates) -> None:
    """`_other_copy`, all pairs of a slot and an expert at once."""
    slots, owner, start, top = state.slots[r], state.owner, state.start, int(state.top[r])
    before, held, copies = state.before[r], state.held[r], state.copies[r]
    share, less, total, best = state.share[r], state.less[r], state.total[r], state.worth[r]
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
    most = total[top] * (1 - RELIEF)
    fits = np.flatnonzero((here < most) & (total[top] - here > best * FREE))
    i, b, here = i[fits], b[fits], here[fits]
    a, g, up = a[i], g[i], up[i]
    moves = before[a, g] - before[b, g]
    after = total + up[:, None] * held[a] - less[b, None] * held[b]
    after[(held[a] | held[b]) == 0] = 0.0
    after[np.arange(len(g)), g] = here
    here = after.max(axis=1)
    worth = (total[top] - here) / np.where(moves > 0, moves, FREE)
    worth *= (here < most) & (moves <= state.left[r]) & (held[b, g] == 0) & (copies[b] > 0)
    at = int(worth.argmax()) if len(worth) else -1
    if at >= 0 and worth[at] > best:
        state.step[r] = (spare[i[at]], b[at]), (-1, -1)


@part(numpy=_other_copy_by_numpy)
def _other_copy(r: int, state: MapStates) -> None:
    """Find the best copy that becomes one of another expert: either any copy becomes one of an
    expert of the fullest GPU, or a copy there becomes one of any expert that is here.  It replaces
    the step that was found where it relieves more per move.
    """
    slots, owner, start, top = state.slots[r], state.owner, state.start, state.top[r]
    before, held, copies, left = state.before[r], state.held[r], state.copies[r], state.left[r]
    share, less, total, best = state.share[r], state.less[r], state.total[r], state.worth[r]
    first, another = np.empty(len(copies), np.int64), np.empty(len(slots), np.int64)
    for e in range(len(first)):
        first[e] = -1
    for s in range(len(slots)):
        another[s], first[slots[s]] = first[slots[s]], s
    low, reach = total.min(), 0.0  # the emptiest GPU; the most a copy elsewhere relieves `top`
    for s in range(start[top], start[top + 1]):
        reach = max(reach, less[slots[s]])
    most = total[top] * (1 - RELIEF)  # above it no step is worth it, whatever it weighs
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            a = slots[s]
            if copies[a] == 1:
                continue
            up = share[a] / (copies[a] - 1)
            if g != top and low + up - reach >= most:
                continue
            high, full = -1.0, g  # of the other GPUs that hold a
            t = first[a]
            while t >= 0:
                if t != s and total[owner[t]] > high:
                    high, full = total[owner[t]], owner[t]
                t = another[t]
            for k in range(len(copies) if g == top else start[top + 1] - start[top]):
                b = k if g == top else slots[start[top] + k]
                here = total[g] - share[a] + share[b] - less[b]  # the highest load after the step
                if g != top and total[top] - less[b] > here:
                    here = total[top] - less[b]
                after = high + up - less[b] * held[b, full]
                if here >= most or after >= most or held[b, g]:
                    continue
                here = max(here, after)
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
                if here < most and worth > best and moves <= left and copies[b] > 0:
                    best = worth
                    state.step[r, 0, 0], state.step[r, 0, 1], state.step[r, 1, 0] = s, b, -1
                    most = min(most, total[top] - best * FREE)
