"""The hot loops of the coupled search, on flat integer arrays.

Both sides are one array, whose first index is SEND or RECV, and a cell is (side, node, rail).  A
cell is overloaded by `load - capacity` bytes, which cost `(weight * overload) ** 2`.  Capacities
are what the rails carry in the time that is aimed at, so that a plan with no overloaded cell
attains it.

A node's *far* end of a chunk is the chunk's node on the other side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import PASSES_S, below, kernel, part, seeded

SEND, RECV = 0, 1
SPLIT = 10  # chunks that one re-split looks at: 2 ** 10 subsets
EVALUATIONS = 20_000  # exchanges looked at in one step
REST = 4  # least steps that a moved chunk rests
LOCKED = 2**31 - 1
NONE = np.int64(-1)  # no chunk, no rail


class SearchState(NamedTuple):
    """A plan under change.  `rail` and `load` change, the rest is the problem.

    start     int64 [2, nodes + 1], members int32 [2, C]: the chunks of a node on a side, largest
              first, are members[side, start[side, node]:start[side, node + 1]]
    below     int32 [2, C]: where the next smaller size begins among these
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


class Cell(NamedTuple):
    """One NIC's sends or receives."""

    side: int
    node: int
    rail: int


class Walk(NamedTuple):
    """What a tabu walk remembers, and its scratch.

    until    int32 [C]: the step until which a chunk rests, for good if that is `LOCKED`
    chosen   int32 [SPLIT], chunks that are about to change rails
    seen     int64 [nodes];  net int64 [nodes], zero between calls
    draws    int64 [1], the state of the random numbers
    """

    until: Array
    chosen: Array
    seen: Array
    net: Array
    draws: Array


class RailExchange(NamedTuple):
    """A chunk that moves to another rail, or swaps with `partner` there (-1: none), and what that
    changes the cost by; chunk -1 where there is none.
    """

    change: float
    chunk: np.int64
    to: np.int64
    partner: np.int64


@kernel(element_s=PASSES_S)
def group(end: Array, size: Array, order: Array, nodes: int) -> tuple[Array, Array, Array]:
    """`start`, `members` and `below` of a SearchState; `order` is by size, largest first."""
    start = np.zeros((2, nodes + 1), np.int64)
    members, below = np.empty((2, order.size), np.int32), np.empty((2, order.size), np.int32)
    for side in range(2):
        for chunk in range(order.size):
            start[side, end[side, chunk] + 1] += 1
        for node in range(nodes):
            start[side, node + 1] += start[side, node]
        place = start[side, :nodes].copy()
        for i in range(order.size):
            chunk = order[i]
            node = end[side, chunk]
            members[side, place[node]] = chunk
            place[node] += 1
        for node in range(nodes):
            last = start[side, node + 1] - 1
            for i in range(last, start[side, node] - 1, -1):
                if i == last or size[members[side, i]] != size[members[side, i + 1]]:
                    below[side, i] = i + 1
                else:
                    below[side, i] = below[side, i + 1]
    return start, members, below


@part
def _cost(over: int, weight: float) -> float:
    """(weight * overload) ** 2 of a cell that carries `over` bytes more than its capacity."""
    excess = max(over, 0) * weight
    return excess * excess


@part
def shift(state: SearchState, side: int, node: int, here: int, there: int, moved: int) -> float:
    """What it costs to shift `moved` bytes of a node from rail `here` to rail `there`."""
    load, capacity, weight = state.load, state.capacity, state.weight
    over_here = load[side, node, here] - capacity[side, node, here]
    over_there = load[side, node, there] - capacity[side, node, there]
    weight_here, weight_there = weight[side, node, here], weight[side, node, there]
    return (
        _cost(over_here - moved, weight_here)
        - _cost(over_here, weight_here)
        + _cost(over_there + moved, weight_there)
        - _cost(over_there, weight_there)
    )


@part
def put(state: SearchState, chunk: int, to: int) -> None:
    """Move a chunk to another rail."""
    rail, size = state.rail[chunk], state.size[chunk]
    for side in range(2):
        state.load[side, state.end[side, chunk], rail] -= size
        state.load[side, state.end[side, chunk], to] += size
    state.rail[chunk] = to


@part
def worst(state: SearchState, draws: Array, draw: bool) -> tuple[float, Cell]:
    """(weighted overload of the worst cell; that cell or, with `draw`, any overloaded one)."""
    load, capacity, weight = state.load, state.capacity, state.weight
    most, seen, found_side, found_node, found_rail = 0.0, 0, 0, 0, 0
    for side in range(load.shape[0]):
        for node in range(load.shape[1]):
            for rail in range(load.shape[2]):
                over = load[side, node, rail] - capacity[side, node, rail]
                if over > 0:
                    seen += 1
                    worse = over * weight[side, node, rail] > most
                    if worse:
                        most = over * weight[side, node, rail]
                    if below(draws, seen) == 0 if draw else worse:
                        found_side, found_node, found_rail = side, node, rail
    return most, Cell(found_side, found_node, found_rail)


@part
def _best_move(
    state: SearchState, cell: Cell, chunk: int, best: RailExchange
) -> tuple[RailExchange, int]:
    """The best of `best` and the chunk's moves to other rails, and how many moves there were."""
    side, node, here = cell
    far, size, tried = np.int64(state.end[1 - side, chunk]), state.size[chunk], 0
    for there in range(state.load.shape[2]):
        dead = state.weight[side, node, there] == 0 or state.weight[1 - side, far, there] == 0
        if there == here or dead:
            continue
        change = shift(state, side, node, here, there, size) + shift(
            state, 1 - side, far, here, there, size
        )
        tried += 1
        if change < best.change:
            best = RailExchange(change, np.int64(chunk), np.int64(there), NONE)
    return best, tried


@part
def _best_swap(
    state: SearchState,
    walk: Walk,
    cell: Cell,
    step: int,
    place: int,
    reach: int,
    best: RailExchange,
) -> tuple[RailExchange, int]:
    """The best of `best` and the swaps of the chunk at `place` of `members` with a smaller one on
    another rail that shift less than `reach` bytes, and how many swaps there were.
    """
    side, node, here = cell
    other, tried = 1 - side, 0
    members, end, weight = state.members[side], state.end[other], state.weight[other]
    chunk = members[place]
    far, size = np.int64(end[chunk]), state.size[chunk]
    for i in range(state.below[side, place], state.start[side, node + 1]):
        partner = members[i]
        less, there = state.size[partner], np.int64(state.rail[partner])
        if size - less >= reach:
            break
        its_far = np.int64(end[partner])
        dead = weight[far, there] == 0 or weight[its_far, here] == 0
        if there == here or walk.until[partner] > step or dead:
            continue
        change = shift(state, side, node, here, there, size - less)
        if far == its_far:
            change += shift(state, other, far, here, there, size - less)
        else:
            change += shift(state, other, far, here, there, size) + shift(
                state, other, its_far, there, here, less
            )
        tried += 1
        if change < best.change:
            best = RailExchange(change, np.int64(chunk), np.int64(there), np.int64(partner))
    return best, tried


@part
def _best_exchange(state: SearchState, walk: Walk, cell: Cell, step: int) -> RailExchange:
    """The best move or swap that takes bytes off a cell.

    The node's chunks come largest first; a swap is worth a look while it shifts less than the
    overload plus the most room on the node's other rails, since more would only move the overload.
    Of chunks of one size and one far end a single one is tried.  Ends early at a move that costs
    nothing any more, or after `EVALUATIONS` looks.
    """
    side, node, rail = cell
    load, capacity, weight = state.load[side, node], state.capacity[side, node], state.weight
    first, count = state.start[side, node], state.start[side, node + 1] - state.start[side, node]
    over, room = load[rail] - capacity[rail], 0
    for there in range(load.size):
        if there != rail and weight[side, node, there] > 0:
            room = max(room, capacity[there] - load[there])
    reach, enough = over + room, -_cost(over, weight[side, node, rail])
    best = RailExchange(np.inf, NONE, NONE, NONE)
    begin, looks = below(walk.draws, count), EVALUATIONS
    for far in range(walk.seen.size):
        walk.seen[far] = -1
    for x in range(count):
        place = first + (begin + x) % count
        chunk = state.members[side, place]
        if state.rail[chunk] != rail or walk.until[chunk] > step:
            continue
        far, smaller = state.end[1 - side, chunk], state.below[side, place]
        if walk.seen[far] == smaller:
            continue
        walk.seen[far] = smaller
        if state.size[chunk] < reach:
            best, tried = _best_move(state, cell, chunk, best)
            looks -= tried
        best, tried = _best_swap(state, walk, cell, step, place, reach, best)
        looks -= tried
        if best.change <= enough or (looks < 0 and best.chunk >= 0):
            break
    return best


@part
def draw(state: SearchState, walk: Walk, cell: Cell, there: int) -> int:
    """Draw chunks of a node on its rails `cell.rail` and `there` into `walk.chosen`, at most two of
    one size on a rail; how many.
    """
    side, node, here = cell
    size, rail, chosen = state.size, state.rail, walk.chosen
    weight, end = state.weight[1 - side], state.end[1 - side]
    count = seen = 0
    run_here = run_there = previous = 0
    for i in range(state.start[side, node], state.start[side, node + 1]):
        chunk = state.members[side, i]
        far = end[chunk]
        if (
            (rail[chunk] != here and rail[chunk] != there)
            or weight[far, here] == 0
            or weight[far, there] == 0
            or walk.until[chunk] == LOCKED
        ):
            continue
        if size[chunk] != previous:
            run_here, run_there, previous = 0, 0, size[chunk]
        if rail[chunk] == here:
            run_here += 1
        else:
            run_there += 1
        if (run_here if rail[chunk] == here else run_there) > 2:
            continue
        seen += 1
        if count < chosen.size:
            chosen[count] = chunk
            count += 1
        else:
            j = below(walk.draws, seen)
            if j < chosen.size:
                chosen[j] = chunk
    return count


@part
def _best_split(
    state: SearchState, walk: Walk, cell: Cell, there: int, chosen: Array
) -> tuple[float, int]:
    """The best of all ways to split the chosen chunks of a node between its rails `cell.rail` and
    `there` but the present one.

    Returns (cost change, mask); bit i of the mask says that chosen[i] changes rail.  All subsets
    are walked in Gray code order; the far side is looked at only where this side, and all it could
    gain there, beat the best so far.
    """
    side, node, here = cell
    size, rail = state.size, state.rail
    best, best_mask, moved, mask = np.inf, 0, 0, 0
    spare = _overload_cost(state, walk, cell, there, chosen)
    for code in range(1, 1 << chosen.size):
        bit = 0
        while not (code >> bit) & 1:
            bit += 1
        mask ^= 1 << bit
        chunk = chosen[bit]
        moved += size[chunk] if ((mask >> bit) & 1) == (rail[chunk] == here) else -size[chunk]
        change = shift(state, side, node, here, there, moved)
        if change - spare >= best:
            continue
        change += far_change(state, walk, cell, there, chosen, mask)
        if change < best:
            best, best_mask = change, mask
    return best, best_mask


@part
def far_change(
    state: SearchState, walk: Walk, cell: Cell, there: int, chosen: Array, mask: int
) -> float:
    """What it costs at the far ends to let the chosen chunks of the mask change between the rails
    `cell.rail` and `there`.
    """
    other, here, net = 1 - cell.side, cell.rail, walk.net
    end, size, rail, change = state.end[other], state.size, state.rail, 0.0
    for i in range(chosen.size):
        if (mask >> i) & 1:
            chunk = chosen[i]
            net[end[chunk]] += size[chunk] if rail[chunk] == here else -size[chunk]
    for i in range(chosen.size):
        far = np.int64(end[chosen[i]])
        if net[far] != 0:
            change += shift(state, other, far, here, there, net[far])
            net[far] = 0
    return change


@part
def _overload_cost(state: SearchState, walk: Walk, cell: Cell, there: int, chosen: Array) -> float:
    """What the far ends of the chosen chunks cost on rails `cell.rail` and `there` now."""
    other, here = 1 - cell.side, cell.rail
    end, net, spare = state.end[other], walk.net, 0.0
    load, capacity, weight = state.load[other], state.capacity[other], state.weight[other]
    for i in range(chosen.size):
        far = np.int64(end[chosen[i]])
        if net[far] == 0:
            net[far] = 1
            spare += _cost(load[far, here] - capacity[far, here], weight[far, here])
            spare += _cost(load[far, there] - capacity[far, there], weight[far, there])
    for i in range(chosen.size):
        net[end[chosen[i]]] = 0
    return spare


@part
def _next_change(state: SearchState, walk: Walk, cell: Cell, step: int) -> tuple[int, int, int]:
    """(how many of `walk.chosen` are looked at, mask of those that change rail, the rail that they
    share with `cell.rail`): the best exchange or, where none helps, a split with a random rail.
    The mask is 0 where nothing can be done.
    """
    chosen, rails = walk.chosen, state.load.shape[2]
    found = _best_exchange(state, walk, cell, step)
    if (found.change >= 0 or found.chunk < 0) and rails > 1:
        there = (cell.rail + 1 + below(walk.draws, rails - 1)) % rails
        if state.weight[cell.side, cell.node, there] > 0:
            count = draw(state, walk, cell, there)
            change, mask = _best_split(state, walk, cell, there, chosen[:count])
            if mask and (
                found.chunk < 0 or change <= 0 or change < found.change or below(walk.draws, 4) == 0
            ):
                return count, mask, there
    if found.chunk < 0:
        return 0, 0, 0
    chosen[0] = found.chunk
    if found.partner < 0:
        return 1, 1, found.to
    chosen[1] = found.partner
    return 2, 3, found.to


# compiles for 6 s, with the parts it calls: 64 steps of 430 chunks take 1.5 ms, 378 interpreted
@kernel(element_s=PASSES_S)
def tabu(state: SearchState, until: Array, enough: float, steps: int, seed: int) -> float:
    """Lower the worst weighted overload in at most `steps` steps; `rail` and `load` end at the best
    plan seen, whose worst weighted overload is returned.

    A step relieves the worst cell, or each fourth time any overloaded one, by its best move or
    swap; where none helps, two rails of that node share some of their chunks anew.  Steps that cost
    are taken too; a moved chunk rests for a while, so that the walk does not undo itself: until
    step `until` (int32 [C]), for good if that is `LOCKED`.  Stops at an overload of at most
    `enough`.
    """
    nodes = state.load.shape[1]
    chosen, seen, net = (
        np.empty(SPLIT, np.int32),
        np.empty(nodes, np.int64),
        np.zeros(nodes, np.int64),
    )
    walk = Walk(until, chosen, seen, net, seeded(seed))
    undo_chunk, undo_rail = np.empty(SPLIT * steps, np.int32), np.empty(SPLIT * steps, np.int16)
    logged = kept = 0
    best = np.inf
    for step in range(steps):
        most, cell = worst(state, walk.draws, step % 4 == 3)
        if most < best:
            best, kept = most, logged
        if most <= enough:
            break
        count, mask, there = _next_change(state, walk, cell, step)
        for bit in range(count):
            if (mask >> bit) & 1:
                chunk = chosen[bit]
                undo_chunk[logged], undo_rail[logged] = chunk, state.rail[chunk]
                logged += 1
                put(state, chunk, there if state.rail[chunk] == cell.rail else cell.rail)
                if count <= 2:
                    until[chunk] = step + REST + below(walk.draws, 2 * REST)
    for i in range(logged - 1, kept - 1, -1):
        put(state, undo_chunk[i], np.int64(undo_rail[i]))
    return best


@kernel
def complete(state: SearchState, order: Array, slots: Array, anchored: Array, side: int) -> None:
    """Plan anew, chunk by chunk in the given order: each to the rail that is fullest least at both
    ends, relative to capacity.

    `anchored` int32 [C]: -1, or the row of `slots` int64 [sizes, rails] whose open places a chunk
    must take.  Such a chunk belongs to an anchored node on `side`, whose loads are thereby given,
    and looks at the other end alone.
    """
    load, capacity, weight = state.load, state.capacity, state.weight
    load[:] = 0
    open_slots = slots.copy()
    for i in range(order.size):
        chunk = order[i]
        size, row = state.size[chunk], anchored[chunk]
        source, target = state.end[SEND, chunk], state.end[RECV, chunk]
        best, latest, both = -1, 0.0, 0.0
        for rail in range(load.shape[2]):
            dead = weight[SEND, source, rail] == 0 or weight[RECV, target, rail] == 0
            if dead or (row >= 0 and open_slots[row, rail] == 0):
                continue
            sent = load[SEND, source, rail] + size - capacity[SEND, source, rail]
            received = load[RECV, target, rail] + size - capacity[RECV, target, rail]
            x, y = sent * weight[SEND, source, rail], received * weight[RECV, target, rail]
            later = max(x, y)
            if row >= 0:
                later = y if side == SEND else x
            if best < 0 or later < latest or (later == latest and x + y < both):
                best, latest, both = rail, later, x + y
        if best < 0:  # no open place lies on a living rail: any living rail
            for rail in range(load.shape[2]):
                if weight[SEND, source, rail] > 0 and weight[RECV, target, rail] > 0:
                    best = rail
        elif row >= 0:
            open_slots[row, best] -= 1
        state.rail[chunk] = best
        load[SEND, source, best] += size
        load[RECV, target, best] += size
