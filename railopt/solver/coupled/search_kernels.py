"""The hot loops of the coupled search, on flat integer arrays.

Both sides are one array: side 0 sends, side 1 receives, and a cell is (side, node, rail).  A cell
is overloaded by
`load - capacity` bytes, which cost `(weight * overload) ** 2`.  Capacities are what the rails carry
in the time that is aimed at, so that a plan with no overloaded cell attains it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]

SPLIT = 10  # chunks that one re-split looks at: 2 ** 10 subsets
REST = 4  # least steps that a moved chunk rests
LOCKED = 2**31 - 1


class State(NamedTuple):
    """A plan under change.  `rail` and `load` change, the rest is the problem.

    start     int64 [2, nodes + 1], members int32 [2, C]: chunks of node k on side s, largest first,
              are
              members[s, start[s, k]:start[s, k + 1]];  below int32 [2, C]: where the next smaller
              size begins there
    end       int32 [2, C], a chunk's node on each side;  size int64 [C];  rail int16 [C]
    load      int64 [2, nodes, rails], bytes on each cell;  capacity int64, the same shape
    weight    float64, the same shape: fastest rate / rate, 0 for a dead NIC
    """

    start: Array
    members: Array
    below: Array
    end: Array
    size: Array
    rail: Array
    load: Array
    capacity: Array
    weight: Array


@njit(cache=True)
def group(end: Array, size: Array, order: Array, nodes: int) -> tuple[Array, Array, Array]:
    """`start`, `members` and `below` of a State; `order` is by size, largest first."""
    start = np.zeros((2, nodes + 1), np.int64)
    members, below = np.empty((2, order.size), np.int32), np.empty((2, order.size), np.int32)
    for s in range(2):
        for c in range(order.size):
            start[s, end[s, c] + 1] += 1
        for k in range(nodes):
            start[s, k + 1] += start[s, k]
        place = start[s, :nodes].copy()
        for i in range(order.size):
            c = order[i]
            k = end[s, c]
            members[s, place[k]] = c
            place[k] += 1
        for k in range(nodes):
            for i in range(start[s, k + 1] - 1, start[s, k] - 1, -1):
                last = i + 1 == start[s, k + 1] or size[members[s, i]] != size[members[s, i + 1]]
                below[s, i] = i + 1 if last else below[s, i + 1]
    return start, members, below


@njit(cache=True)
def loads(end: Array, size: Array, rail: Array, nodes: int, rails: int) -> Array:
    """int64 [2, nodes, rails]: bytes on every cell."""
    load = np.zeros((2, nodes, rails), np.int64)
    for c in range(size.size):
        load[0, end[0, c], rail[c]] += size[c]
        load[1, end[1, c], rail[c]] += size[c]
    return load


@njit(cache=True)
def _cost(over: int, weight: float) -> float:
    excess = max(over, 0) * weight
    return excess * excess


@njit(cache=True)
def _shift(
    load: Array, capacity: Array, weight: Array, s: int, k: int, n: int, m: int, moved: int
) -> float:
    """What it costs to shift `moved` bytes of node k, side s, from rail n to rail m."""
    here, there = load[s, k, n] - capacity[s, k, n], load[s, k, m] - capacity[s, k, m]
    return (
        _cost(here - moved, weight[s, k, n])
        - _cost(here, weight[s, k, n])
        + _cost(there + moved, weight[s, k, m])
        - _cost(there, weight[s, k, m])
    )


@njit(cache=True)
def _put(state: State, c: int, m: int) -> None:
    n, p = state.rail[c], state.size[c]
    for s in range(2):
        state.load[s, state.end[s, c], n] -= p
        state.load[s, state.end[s, c], m] += p
    state.rail[c] = m


@njit(cache=True)
def _worst(state: State, draw: bool) -> tuple[float, int, int, int]:
    """(weighted overload of the worst cell, side, node, rail of that cell or, with `draw`, of any
    overloaded one).
    """
    load, capacity, weight = state.load, state.capacity, state.weight
    most, side, node, rail, seen = 0.0, 0, 0, 0, 0
    for s in range(load.shape[0]):
        for k in range(load.shape[1]):
            for n in range(load.shape[2]):
                over = load[s, k, n] - capacity[s, k, n]
                if over > 0:
                    seen += 1
                    worse = over * weight[s, k, n] > most
                    if worse:
                        most = over * weight[s, k, n]
                    if np.random.randint(0, seen) == 0 if draw else worse:
                        side, node, rail = s, k, n
    return most, side, node, rail


@njit(cache=True)
def _best_exchange(
    state: State, s: int, k: int, n: int, step: int, until: Array, seen: Array, evaluations: int
) -> tuple[float, int, int, int]:
    """The best move (partner -1) or swap that takes bytes off cell (s, k, n): (cost change, chunk,
    to rail, partner).

    The node's chunks come largest first; a swap is worth a look while it shifts less than the
    overload plus the most room
    on the node's other rails, since more would only move the overload.  Of chunks of one size and
    one other end a single
    one is tried.  `seen` int64 [nodes] is scratch.
    """
    members, size, rail, load, capacity, weight = (
        state.members,
        state.size,
        state.rail,
        state.load,
        state.capacity,
        state.weight,
    )
    o = 1 - s
    rails, first, last = load.shape[2], state.start[s, k], state.start[s, k + 1]
    over, room = load[s, k, n] - capacity[s, k, n], 0
    for m in range(rails):
        if m != n and weight[s, k, m] > 0:
            room = max(room, capacity[s, k, m] - load[s, k, m])
    reach, enough = over + room, -_cost(over, weight[s, k, n])
    best, chunk, to, partner = np.inf, -1, -1, -1
    begin = np.random.randint(0, last - first)
    seen[:] = -1
    for x in range(last - first):
        i = first + (begin + x) % (last - first)
        c = members[s, i]
        if rail[c] != n or until[c] > step:
            continue
        b, p, smaller = state.end[o, c], size[c], state.below[s, i]
        if seen[b] == smaller:
            continue
        seen[b] = smaller
        if p < reach:
            for m in range(rails):
                if m != n and weight[s, k, m] > 0 and weight[o, b, m] > 0:
                    change = _shift(load, capacity, weight, s, k, n, m, p) + _shift(
                        load, capacity, weight, o, b, n, m, p
                    )
                    evaluations -= 1
                    if change < best:
                        best, chunk, to, partner = change, c, m, -1
        for j in range(smaller, last):
            e = members[s, j]
            q, m = size[e], rail[e]
            if p - q >= reach:
                break
            g = state.end[o, e]
            if m == n or until[e] > step or weight[o, b, m] == 0 or weight[o, g, n] == 0:
                continue
            change = _shift(load, capacity, weight, s, k, n, m, p - q)
            if b == g:
                change += _shift(load, capacity, weight, o, b, n, m, p - q)
            else:
                change += _shift(load, capacity, weight, o, b, n, m, p) + _shift(
                    load, capacity, weight, o, g, m, n, q
                )
            evaluations -= 1
            if change < best:
                best, chunk, to, partner = change, c, m, e
        if best <= enough or (evaluations < 0 and chunk >= 0):
            break
    return best, chunk, to, partner


@njit(cache=True)
def _draw(state: State, s: int, k: int, n: int, m: int, until: Array, chosen: Array) -> int:
    """Draw chunks of node k on rails n and m into `chosen`, at most two of one size on a rail; how
    many.
    """
    size, rail, weight, o = state.size, state.rail, state.weight, 1 - s
    count = seen = 0
    run_n = run_m = previous = 0
    for i in range(state.start[s, k], state.start[s, k + 1]):
        c = state.members[s, i]
        b = state.end[o, c]
        if (
            (rail[c] != n and rail[c] != m)
            or weight[o, b, n] == 0
            or weight[o, b, m] == 0
            or until[c] == LOCKED
        ):
            continue
        if size[c] != previous:
            run_n, run_m, previous = 0, 0, size[c]
        run_n, run_m = (run_n + 1, run_m) if rail[c] == n else (run_n, run_m + 1)
        if (run_n if rail[c] == n else run_m) > 2:
            continue
        seen += 1
        if count < chosen.size:
            chosen[count] = c
            count += 1
        else:
            j = np.random.randint(0, seen)
            if j < chosen.size:
                chosen[j] = c
    return count


@njit(cache=True)
def _best_split(
    state: State, s: int, k: int, n: int, m: int, chosen: Array, net: Array
) -> tuple[float, int]:
    """The best of all ways to split the chosen chunks of node k between rails n and m but the
    present one.

    Returns (cost change, mask); bit i of the mask says that chosen[i] changes rail.  All subsets
    are walked in Gray code order; the other side is looked at only where this side, and all it
    could gain there, beat the best so far. `net` int64 [nodes] is scratch, zero before and after.
    """
    end, size, rail, load, capacity, weight = (
        state.end,
        state.size,
        state.rail,
        state.load,
        state.capacity,
        state.weight,
    )
    o = 1 - s
    best, best_mask, moved, mask, spare = np.inf, 0, 0, 0, 0.0
    for i in range(chosen.size):
        b = end[o, chosen[i]]
        if net[b] == 0:
            net[b] = 1
            spare += _cost(load[o, b, n] - capacity[o, b, n], weight[o, b, n])
            spare += _cost(load[o, b, m] - capacity[o, b, m], weight[o, b, m])
    for i in range(chosen.size):
        net[end[o, chosen[i]]] = 0
    for code in range(1, 1 << chosen.size):
        bit = 0
        while not (code >> bit) & 1:
            bit += 1
        mask ^= 1 << bit
        c = chosen[bit]
        moved += size[c] if ((mask >> bit) & 1) == (rail[c] == n) else -size[c]
        change = _shift(load, capacity, weight, s, k, n, m, moved)
        if change - spare >= best:
            continue
        for i in range(chosen.size):
            if (mask >> i) & 1:
                net[end[o, chosen[i]]] += (
                    size[chosen[i]] if rail[chosen[i]] == n else -size[chosen[i]]
                )
        for i in range(chosen.size):
            b = end[o, chosen[i]]
            if net[b] != 0:
                change += _shift(load, capacity, weight, o, b, n, m, net[b])
                net[b] = 0
        if change < best:
            best, best_mask = change, mask
    return best, best_mask


@njit(cache=True)
def tabu(
    state: State, until: Array, enough: float, steps: int, evaluations: int, seed: int
) -> float:
    """Lower the worst weighted overload in at most `steps` steps; `rail` and `load` end at the best
    plan seen.

    A step relieves the worst cell, or each fourth time any overloaded one, by its best move or
    swap; where none helps, two
    rails of that node share some of their chunks anew.  Steps that cost are taken too; a moved
    chunk rests for a while, so
    that the walk does not undo itself: until step `until` (int32 [C]), for good if that is
    `LOCKED`.  Stops at an overload of at most `enough`.
    """
    np.random.seed(seed)
    rails, nodes = state.load.shape[2], state.load.shape[1]
    chosen, net, seen = (
        np.empty(SPLIT, np.int32),
        np.zeros(nodes, np.int64),
        np.empty(nodes, np.int64),
    )
    undo_chunk, undo_rail = np.empty(SPLIT * steps, np.int32), np.empty(SPLIT * steps, np.int16)
    logged = kept = 0
    best = np.inf
    for step in range(steps):
        most, s, k, n = _worst(state, step % 4 == 3)
        if most < best:
            best, kept = most, logged
        if most <= enough:
            break
        change, c, m, e = _best_exchange(state, s, k, n, step, until, seen, evaluations)
        count = mask = 0
        if (change >= 0 or c < 0) and rails > 1:
            other = (n + 1 + np.random.randint(0, rails - 1)) % rails
            if state.weight[s, k, other] > 0:
                count = _draw(state, s, k, n, other, until, chosen)
                split, mask = _best_split(state, s, k, n, other, chosen[:count], net)
                if mask and (c < 0 or split <= 0 or split < change or np.random.randint(0, 4) == 0):
                    m = other
                else:
                    mask = 0
        if mask == 0:
            if c < 0:
                continue
            chosen[0], count, mask = c, 1, 1
            if e >= 0:
                chosen[1], count, mask = e, 2, 3
        for bit in range(count):
            if (mask >> bit) & 1:
                c = chosen[bit]
                undo_chunk[logged], undo_rail[logged] = c, state.rail[c]
                logged += 1
                _put(state, c, m if state.rail[c] == n else n)
                if count <= 2:
                    until[c] = step + REST + np.random.randint(0, 2 * REST)
    for i in range(logged - 1, kept - 1, -1):
        _put(state, undo_chunk[i], undo_rail[i])
    return best


@njit(cache=True)
def complete(state: State, order: Array, slots: Array, anchored: Array, side: int) -> None:
    """Plan anew, chunk by chunk in the given order: each to the rail that is fullest least at both
    ends, relative to capacity.

    `anchored` int32 [C]: -1, or the row of `slots` int64 [sizes, rails] whose open places a chunk
    must take; such a chunk belongs to an anchored node on `side`, whose loads are thereby given,
    and looks at the other end alone.
    """
    end, size, rail, load, weight, capacity = (
        state.end,
        state.size,
        state.rail,
        state.load,
        state.weight,
        state.capacity,
    )
    load[:] = 0
    open_slots = slots.copy()
    for i in range(order.size):
        c = order[i]
        p, row = size[c], anchored[c]
        best, latest, both = -1, 0.0, 0.0
        for n in range(load.shape[2]):
            a, b = end[0, c], end[1, c]
            if (
                weight[0, a, n] == 0
                or weight[1, b, n] == 0
                or (row >= 0 and open_slots[row, n] == 0)
            ):
                continue
            x = (load[0, a, n] + p - capacity[0, a, n]) * weight[0, a, n]
            y = (load[1, b, n] + p - capacity[1, b, n]) * weight[1, b, n]
            later = max(x, y)
            if row >= 0:
                later = y if side == 0 else x
            if best < 0 or later < latest or (later == latest and x + y < both):
                best, latest, both = n, later, x + y
        if best < 0:  # no open place lies on a living rail: any living rail
            for n in range(load.shape[2]):
                if weight[0, end[0, c], n] > 0 and weight[1, end[1, c], n] > 0:
                    best = n
        elif row >= 0:
            open_slots[row, best] -= 1
        rail[c] = best
        load[0, end[0, c], best] += p
        load[1, end[1, c], best] += p
