"""The kernels of `pro_prophet`: a greedy path of copies, and a clean-up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.kernels import kernel, part
from railopt.moe.placement.layer_times import (
    GPUS,
    NODES,
    TOKEN,
    UNFIT,
    UP,
    LayerState,
    LayerTables,
    at_home,
    combine,
    peak,
    sending,
    terms,
    toggle,
)

# The path ends when a round of devices and PATIENCE copies gain less than 1/GAIN of the best total,
# or when no placement is faster than the best by more than 1/CLOSE.
PATIENCE, GAIN, CLOSE = 8, 128, 24


class Path(NamedTuple):
    """What the greedy path keeps beside the state, to find the next copy without looking at all.

    away    [E * M]  tokens that leave a node for the expert's home, 0 where no copy can change that
    near    [E * D]  tokens that leave a GPU for the expert, the same
    crest   [M, E]   the largest of `near` in each node that has the expert
    server  [M, E]   the GPU that serves such a node: the home, or its first holder; D for none
    begins  [D + 1]  the first expert at home on each GPU
    """

    away: Ints
    near: Ints
    crest: Ints
    server: Ints
    begins: Ints


# compiles for 10 s, with the parts it calls: 64 experts on 64 GPUs take 0.4 ms, 189 interpreted
@kernel(error_model="numpy")
def plan_layer(layer: LayerTables, slots: Ints, limit: int) -> Bools:
    """Copies for one layer, bool [E, D]; its homes must be in ascending order.

    Relieve the busiest link or GPU copy by copy, keep the best prefix of that path, drop copies
    that do not pay.
    """
    state, away = at_home(layer, slots, limit)
    experts, devices = layer.tokens.shape
    begins = np.zeros(devices + 1, np.int64)
    for d in layer.home:
        begins[d + 1] += 1
    for d in range(devices):
        begins[d + 1] += begins[d]
    crest = np.zeros((layer.scalars[NODES], experts), np.int64)
    server = np.full_like(crest, devices)
    trail = np.empty(min(state.limit, devices * experts), np.int64)
    near = layer.tokens.copy().reshape(-1)
    path = Path(away, near, crest, server, begins)
    for d in range(devices):
        if state.room[d] == 0:
            _fill(d, state, path)
    for e in range(experts):
        _keep_tokens(layer.home[e], e, layer, path)
    best, kept, used = _follow(state, path, trail)
    for t in range(used - 1, kept - 1, -1):
        toggle(trail[t] // experts, trail[t] % experts, state)
    a2a, fec, _, _, total, _ = terms(devices, state.times, layer.scalars)
    if total > 4 * a2a + 3 * fec:  # else all transfers are hidden: fewer copies shorten nothing
        prune(best, trail, kept, state)
    return state.holds


@part(error_model="numpy")
def _follow(state: LayerState, path: Path, trail: Ints) -> tuple[int, int, int]:
    """Copies one by one, into trail [most], GPU * E + expert; (least total on the way, copies up to
    there, copies in all).
    """
    scalars = state.layer.scalars
    experts, devices = state.holds.shape
    move = 2 * devices + 2 * scalars[NODES]
    best, kept, used = UNFIT, 0, 0
    mark, marked = best, 0  # the best total when it last fell by 1/GAIN, and the copies then
    patience = PATIENCE + (devices if scalars[GPUS] > 1 else devices // 2)
    load = np.int64(0)
    for d in range(devices):
        load += state.times[d]
    enough = load // devices * (3 * (CLOSE + 1)) // CLOSE  # 3 FEC at its mean
    while True:
        busy = _argmax(state.times, 0, devices)
        link = _argmax(state.times, devices, move)
        trans, agg = sending(devices, state.times, scalars)
        a2a, fec = state.times[link], state.times[busy]
        total = combine(a2a, fec, trans, agg, scalars)
        if total < best:
            best, kept = total, used
            if best < mark - mark // GAIN:
                mark, marked = best, used
        if used == len(trail) or used - marked > patience or best <= enough:
            return best, kept, used
        d, e = _next(busy, link - devices, scalars, state.layer.rates, path)
        if e < 0:
            return best, kept, used
        if d < 0:
            d = _lightest(-1 - d, scalars[GPUS], state.times, state.room)
        toggle(d, e, state)
        _keep_tokens(d, e, state.layer, path)
        state.room[d] -= 1
        if state.room[d] == 0:
            _fill(d, state, path)
        trail[used] = d * experts + e
        used += 1


@part(error_model="numpy")
def _keep_tokens(device: int, expert: int, layer: LayerTables, path: Path) -> None:
    """The GPU has the expert: its tokens stay there, and those of its node in the node."""
    gpus, nodes = layer.scalars[GPUS], layer.scalars[NODES]
    node, row = layer.place[device], expert * nodes * gpus
    path.away[expert * nodes + node] = path.near[row + device] = 0
    path.crest[node, expert] = peak(path.near, row + node * gpus, row + (node + 1) * gpus)
    home = layer.home[expert]
    first = min(path.server[node, expert], device)
    path.server[node, expert] = home if layer.place[home] == node else first


@part(error_model="numpy")
def _fill(device: int, state: LayerState, path: Path) -> None:
    """The GPU has no slot left: nothing more can stay there, nor in its node if that is full."""
    near, crest, scalars = path.near, path.crest, state.layer.scalars
    nodes, gpus = scalars[NODES], scalars[GPUS]
    node = device // gpus
    full = peak(state.room, node * gpus, (node + 1) * gpus) == 0
    for e in range(crest.shape[1]):
        row = e * nodes * gpus
        near[row + device] = 0
        left = peak(near, row + node * gpus, row + (node + 1) * gpus)
        crest[node, e] = min(crest[node, e], left)
        if full:
            path.away[e * nodes + node] = 0


@part(error_model="numpy")
def prune(best: int, trail: Ints, kept: int, state: LayerState) -> int:
    """Take back the copies trail[:kept], the latest first, where the total does not grow; the total
    then.
    """
    experts, devices = state.holds.shape
    for t in range(kept - 1, -1, -1):
        d, e = trail[t] // experts, trail[t] % experts
        toggle(d, e, state)
        total = terms(devices, state.times, state.layer.scalars)[4]
        if total <= best:
            best = total
        else:
            toggle(d, e, state)
    return best


@part(error_model="numpy")
def _argmax(values: Ints, first: int, last: int) -> int:
    """Where the first of the largest of values[first:last] is, in two passes: the first is compiled
    to vector instructions, the second ends early.
    """
    most = peak(values, first, last)
    while values[np.uint64(first)] != most:
        first += 1
    return first


@part(error_model="numpy")
def _next(
    busy: int, link: int, scalars: tuple[int, ...], rates: Ints, path: Path
) -> tuple[int, int]:
    """The (GPU, expert) copy that takes most time off the busiest link and the busiest GPU, GPU
    -1 - node for the lightest of a node; expert -1 at the end.
    """
    nodes, gpus = scalars[NODES], scalars[GPUS]
    node = link - nodes * gpus  # that tokens come into; below 0 for a link of a GPU
    out = node >= nodes  # or leave
    node -= nodes if out else 0
    pace = scalars[UP] if node < 0 else rates[0, node]
    moved2, d2, e2 = _relieve_homes(path.begins[busy], path.begins[busy + 1], nodes, path.away)
    if gpus > 1:
        moved2, d2, e2 = _relieve_mates(busy, gpus, path, moved2, d2, e2)
    if out:
        moved1, d1, e1 = _relieve_node(node, nodes, path.away)
    else:
        own, end = (link, link + 1) if node < 0 else (node * gpus, (node + 1) * gpus)
        moved1, d1, e1 = _relieve_homes(path.begins[own], path.begins[end], nodes, path.away)
        if node < 0 and gpus > 1:
            moved1, d1, e1 = _relieve_mates(link, gpus, path, moved1, d1, e1)
    at_busy = (path.begins[busy] <= e1) & (e1 < path.begins[busy + 1])
    gain1 = moved1 * (4 * pace + at_busy * 3 * scalars[TOKEN])
    return (d1, e1) if moved1 > 0 and gain1 >= 3 * scalars[TOKEN] * moved2 else (d2, e2)


@part(error_model="numpy")
def _lightest(node: int, gpus: int, times: Ints, room: Ints) -> int:
    """The first GPU of the node with the least load that has a free slot; -1 without one."""
    best, least = -1, UNFIT
    for d in range(node * gpus, (node + 1) * gpus):  # without branches, which nothing foretells
        load = times[d] if room[d] > 0 else UNFIT
        best = d if load < least else best
        least = load if load < least else least
    return best


@part(error_model="numpy")
def _relieve_homes(first: int, last: int, nodes: int, away: Ints) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy in another node that takes most tokens off the homes of
    experts `first` to `last`; expert -1 for none, GPU -1 - node for the lightest of that node.
    """
    most, at = peak(away, first * nodes, last * nodes), first * nodes
    if most == 0:
        return most, -1, -1
    while away[np.uint64(at)] != most:
        at += 1
    return most, -1 - at % nodes, at // nodes


@part(error_model="numpy")
def _relieve_node(node: int, nodes: int, away: Ints) -> tuple[int, int, int]:
    """The same for the copy that takes most tokens off what leaves one node."""
    at = node
    most: Any = np.int64(0)
    for i in range(node, len(away), nodes):
        value = away[np.uint64(i)]
        most = value if value > most else most
    while away[at] != most:
        at += nodes
    return most, -1 - node, at // nodes


@part(error_model="numpy")
def _relieve_mates(
    top: int, gpus: int, path: Path, best: int, device: int, expert: int
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy that takes most tokens off one GPU, as given in a node that
    sends to it (by `_relieve_homes`), or on a node-mate.
    """
    node, mates = top // gpus, -1
    most: Any = np.int64(0)
    for k in range(path.crest.shape[1]):
        e = np.uint64(k)
        value = path.crest[node, e] if path.server[node, e] == top else 0
        most = value if value > most else most
    if most > best:
        best, mates = most, 0
        while path.server[node, mates] != top or path.crest[node, mates] != most:
            mates += 1
    row = max(mates, 0) * path.crest.shape[0] * gpus
    nearest = _argmax(path.near, row + node * gpus, row + (node + 1) * gpus) - row
    return best, device if mates < 0 else nearest, expert if mates < 0 else mates
