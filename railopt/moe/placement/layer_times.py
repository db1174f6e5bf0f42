"""Kernels of the placement planners: the times of one layer under a placement, kept up to date copy
by copy.

Where tokens go, from the copies alone: to the own GPU if it holds the expert; else to the first GPU
of the own node that does (in the home's node: to the home); else to the home.

State (D GPUs, M nodes, E experts): `holds` bool [E, D], who has which expert, homes included, and
one flat int64 array `times`, picoseconds:
    load     [D]            expert compute
    net      [D + 2M]       all-to-all: tokens from node-mates [D], tokens into the node [M], tokens
             out of the node [M]
    move     [D + 2M]       parameters: copies from node-mates [D], copies into the node [M], copies
             out of the node [M];
                            an expert enters each node that needs it once and spreads there, and it
                            leaves its home's node once: nodes pass it on in a pipeline, as
                            broadcasts do
    copied   [1]            copies beyond the homes that have to be sent (a number, not a time)
    reached  [E]            nodes that fetch each expert (a number)

numba counts references to the arrays that a part is handed, which can take longer than what the
part does, but drops a count that begins and ends there.  So parts take a table and where in it to
look, not a slice, and use all that they are handed up to their last line, or one array alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.kernels import kernel, part

# Where `TimeModel.vectors` puts each scalar.
UP, TOKEN, COPY_UP, COPY_MEAN, GRAD, GRAD_OF, FNEC, BNEC, OVERLAP, GPUS, NODES = range(11)

UNFIT = 2**62  # the total where no placement fits


class LayerTables(NamedTuple):
    """One layer as the kernels read it; tables are [E, D], so that what a node's GPUs have of one
    expert lies side by side.

    home [E]  the home GPU of each expert;  have [E, D]  copies that need not be sent
    place [D]  the node of each GPU, looked up, since to divide takes longer
    rates int64 [2, M] and scalars  come from `TimeModel.vectors`
    """

    rates: Ints
    scalars: tuple[int, ...]
    tokens: Ints
    home: Ints
    place: Ints
    have: Bools


class LayerState(NamedTuple):
    """A placement that kernels change copy by copy, and what may not be exceeded.

    holds, times  as above: who has which expert, and what that takes
    room          int64 [D]: slots that each GPU has left
    limit         copies beyond the homes that there may be
    """

    layer: LayerTables
    holds: Bools
    times: Ints
    room: Ints
    limit: int


@part(error_model="numpy")
def toggle(device: int, expert: int, state: LayerState) -> None:
    """Add the copy of an expert to a GPU, or take it away; never the home's."""
    scalars = state.layer.scalars
    nodes, gpus = scalars[NODES], scalars[GPUS]
    devices, owner = nodes * gpus, state.layer.home[expert]
    node, owner_node = state.layer.place[device], state.layer.place[owner]
    sign = -1 if state.holds[expert, device] else 1
    mate = -1  # the first other GPU of the node that holds the expert
    fetcher: Any = np.int64(-1)  # the first other one whose copy has to be sent
    rest = 0  # tokens of the node's other GPUs that do not hold it
    near = node == owner_node  # whether the node need not fetch it from another one
    for d in range(node * gpus, (node + 1) * gpus):
        near |= state.layer.have[expert, d]
        if d == device:
            continue
        if not state.holds[expert, d]:
            rest += state.layer.tokens[expert, d]
            continue
        mate = d if mate < 0 else mate
        if fetcher < 0 and d != owner and not state.layer.have[expert, d]:
            fetcher = d
    serving = owner if node == owner_node else mate
    own = state.layer.tokens[expert, device]
    moved = own + rest if serving < 0 or (node != owner_node and device < serving) else own
    # who has the tokens if this GPU has not: a mate, or the home over both nodes' links
    loser, link, pace, out = serving, devices + serving, scalars[UP], np.int64(0)
    if serving < 0:
        loser, link = owner, 2 * devices + owner_node
        pace, out = state.layer.rates[0, owner_node], state.layer.rates[0, node]
    if not state.layer.have[expert, device]:
        _send(device, expert, fetcher, near, sign, state.layer, state.times)
    state.times[device] += sign * moved * scalars[TOKEN]
    state.times[loser] -= sign * moved * scalars[TOKEN]
    state.times[devices + device] += sign * (moved - own) * scalars[UP]
    state.times[link] -= sign * moved * pace
    state.times[2 * devices + nodes + node] -= sign * moved * out
    state.holds[expert, device] = sign > 0


@part(error_model="numpy")
def _send(
    device: int, expert: int, fetcher: int, near: bool, sign: int, layer: LayerTables, times: Ints
) -> None:
    """What sending the copy costs: the node's first one crosses, the others come from it.

    sign 1 to send it, -1 to take that back;  fetcher, near  as in `toggle`
    """
    scalars = layer.scalars
    nodes, gpus = scalars[NODES], scalars[GPUS]
    devices, node, owner_node = nodes * gpus, layer.place[device], layer.place[layer.home[expert]]
    enter, leave = layer.rates[1, node], layer.rates[1, owner_node]
    move = 2 * devices + 2 * nodes
    last = move + devices + 2 * nodes
    times[last] += sign
    if near or 0 <= fetcher < device:
        times[move + device] += sign * scalars[COPY_UP]
    elif fetcher >= 0:  # this copy is the one that crosses, in place of the fetcher's
        times[move + fetcher] += sign * scalars[COPY_UP]
    else:
        times[move + devices + node] += sign * enter
        reached = last + 1 + expert
        if times[reached] + sign == (sign > 0):  # the first node reached, or the last one lost
            times[move + devices + nodes + owner_node] += sign * leave
        times[reached] += sign


@part(error_model="numpy")
def begin(layer: LayerTables) -> tuple[Bools, Ints, Ints]:
    """(holds, times, away) where every expert is at home alone; away int64 [E * M]: tokens of each
    node that leave it.
    """
    rates, scalars, tokens, home, _, _ = layer
    experts, devices = tokens.shape
    nodes, gpus = scalars[NODES], scalars[GPUS]
    times = np.zeros(3 * devices + 4 * nodes + 1 + experts, np.int64)
    holds = np.zeros((experts, devices), np.bool_)
    away = np.empty(experts * nodes, np.int64)
    into, out = 2 * devices, 2 * devices + nodes
    for e in range(experts):
        owner, node, all_ = home[e], home[e] // gpus, 0
        holds[e, owner] = True
        for n in range(nodes):
            count = tokens[e, n * gpus]
            for g in range(n * gpus + 1, (n + 1) * gpus):
                count += tokens[e, np.uint64(g)]
            away[e * nodes + n] = count
            all_ += count
        near, away[e * nodes + node] = away[e * nodes + node], 0
        times[owner] += all_ * scalars[TOKEN]
        times[devices + owner] += (near - tokens[e, owner]) * scalars[UP]
        times[into + node] += (all_ - near) * rates[0, node]
        for n in range(nodes):
            times[out + n] += away[e * nodes + n]
    for n in range(nodes):
        times[out + n] *= rates[0, n]
    return holds, times, away


@part(error_model="numpy")
def at_home(layer: LayerTables, slots: Ints, limit: int) -> tuple[LayerState, Ints]:
    """(the state of the homes alone, `away` of `begin`); slots [D] experts per GPU at most."""
    holds, times, away = begin(layer)
    room = slots.copy()
    for d in layer.home:
        room[d] -= 1
    return LayerState(layer, holds, times, room, limit), away


@kernel(error_model="numpy")
def start(layer: LayerTables, placed: Bools) -> tuple[Bools, Ints]:
    """The state of a placement."""
    state, _ = at_home(layer, np.zeros(placed.shape[1], np.int64), 0)
    for e in range(placed.shape[0]):
        for d in range(placed.shape[1]):
            if placed[e, d] and layer.home[e] != d:
                toggle(d, e, state)
    return state.holds, state.times


@part(error_model="numpy")
def peak(values: Ints, first: int, last: int) -> int:
    """The largest of values[first:last], which are at least 0."""
    most = np.int64(0)
    for i in range(first, last):
        value = values[np.uint64(i)]  # unsigned, so that this becomes vector instructions
        most = value if value > most else most
    return int(most)


@kernel(error_model="numpy")
def combine(a2a: int, fec: int, trans: int, agg: int, scalars: tuple[int, ...]) -> int:
    """Eq. 6, or eq. 8 with overlap."""
    if scalars[OVERLAP]:
        return (
            4 * a2a
            + 3 * fec
            + max(0, trans - fec - scalars[FNEC])
            + max(0, agg - 2 * fec - scalars[BNEC])
        )
    return 4 * a2a + 3 * fec + trans + agg


@part(error_model="numpy")
def sending(devices: int, times: Ints, scalars: tuple[int, ...]) -> tuple[int, int]:
    """(Trans, Agg) of a state."""
    links = devices + 2 * scalars[NODES]
    last = devices + 2 * links
    trans = peak(times, devices + links, last) + times[last] * scalars[COPY_MEAN]
    return trans, trans * scalars[GRAD] // scalars[GRAD_OF]


@kernel(error_model="numpy")
def terms(
    devices: int, times: Ints, scalars: tuple[int, ...]
) -> tuple[int, int, int, int, int, int]:
    """(A2A, FEC, Trans, Agg, total, copies) of a state."""
    links = devices + 2 * scalars[NODES]
    fec, a2a = peak(times, 0, devices), peak(times, devices, devices + links)
    trans, agg = sending(devices, times, scalars)
    return a2a, fec, trans, agg, combine(a2a, fec, trans, agg, scalars), times[devices + 2 * links]


@kernel(error_model="numpy")
def exhaust(layer: LayerTables, slots: Ints, limit: int) -> tuple[int, Bools]:
    """The least total over every set of copies, by a Gray code, and that set, bool [E, D]; slots
    [D] experts per GPU at most.
    """
    state, _ = at_home(layer, slots, limit)
    holds, room = state.holds, state.room
    experts, devices = holds.shape
    pairs = (devices - 1) * experts  # of a GPU and an expert that is not at home there
    least, best = terms(devices, state.times, layer.scalars)[4], holds.copy()
    copies = full = 0
    for step in range(1, 1 << pairs):
        bit = 0
        while not (step >> bit) & 1:
            bit += 1
        e, d = bit // (devices - 1), bit % (devices - 1)
        d += d >= layer.home[e]
        change = -1 if holds[e, d] else 1
        full -= room[d] < 0
        toggle(d, e, state)
        room[d] -= change
        full += room[d] < 0
        copies += change
        if full == 0 and copies <= limit:
            total = terms(devices, state.times, layer.scalars)[4]
            if total < least:
                least, best = total, holds.copy()
    return least, best
