"""The kernels of `pro_prophet`: a greedy path of copies, and a clean-up."""

from __future__ import annotations

from typing import NamedTuple

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

    away    [E, M]   tokens that leave a node for the expert's home, 0 where no copy can change that
    flat    [E * M]  the same memory
    near    [E, D]   tokens that leave a GPU for the expert, the same
    crest   [M, E]   the largest of `near` in each node that has the expert
    server  [M, E]   the GPU that serves such a node: the home, or its first holder; D for none
    begins  [D + 1]  the first expert at home on each GPU
    """

    away: Ints
    flat: Ints
    near: Ints
    crest: Ints
    server: Ints
    begins: Ints


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
    path = Path(away, away.reshape(-1), layer.tokens.copy(), crest, server, begins)
    for d in range(devices):
        if state.room[d] == 0:
            _fill(d, state, path)
    for e in range(experts):
        _keep_tokens(layer.home[e], e, layer, path)
    trail = np.empty(min(state.limit, devices * experts), np.int64)
    best, kept, used = _follow(state, path, trail)
    for t in range(used - 1, kept - 1, -1):
        toggle(trail[t] // experts, trail[t] % experts, layer, state.holds, state.times)
    a2a, fec, _, _, total, _ = terms(devices, state.times, layer.scalars)
    if total > 4 * a2a + 3 * fec:  # else all transfers are hidden: fewer copies shorten nothing
        prune(best, trail[:kept], layer, state.holds, state.times)
    return state.holds


@part(error_model="numpy")
def _follow(state: LayerState, path: Path, trail: Ints) -> tuple[int, int, int]:
    """Copies one by one, into trail [most] as pairs; (least total on the way, copies up to there,
    copies in all).
    """
    layer, times, room = state.layer, state.times, state.room
    scalars, rates, home = layer.scalars, layer.rates, layer.home
    experts, devices = state.holds.shape
    nodes = scalars[NODES]
    move = 2 * devices + 2 * nodes
    best, kept, used = UNFIT, 0, 0
    mark, marked = best, 0  # the best total when it last fell by 1/GAIN, and the copies then
    patience = PATIENCE + (devices if scalars[GPUS] > 1 else devices // 2)
    enough = times[:devices].sum() // devices * (3 * (CLOSE + 1)) // CLOSE  # 3 FEC at its mean
    while True:
        busy, link = _argmax(times[:devices]), _argmax(times[devices:move])
        trans, agg = sending(devices, times, scalars)
        total = combine(times[devices + link], times[busy], trans, agg, scalars)
        if total < best:
            best, kept = total, used
            if best < mark - mark // GAIN:
                mark, marked = best, used
        if used == len(trail) or used - marked > patience or best <= enough:
            return best, kept, used
        d, e = _next(busy, link, scalars, rates, home, times, room, path)
        if e < 0:
            return best, kept, used
        toggle(d, e, layer, state.holds, times)
        _keep_tokens(d, e, layer, path)
        room[d] -= 1
        if room[d] == 0:
            _fill(d, state, path)
        trail[used] = d * experts + e
        used += 1


@part(error_model="numpy")
def _keep_tokens(device: int, expert: int, layer: LayerTables, path: Path) -> None:
    """The GPU has the expert: its tokens stay there, and those of its node in the node."""
    gpus = layer.scalars[GPUS]
    node = device // gpus
    path.away[expert, node] = path.near[expert, device] = 0
    path.crest[node, expert] = peak(path.near[expert, node * gpus : (node + 1) * gpus])
    home = layer.home[expert]
    first = min(path.server[node, expert], device)
    path.server[node, expert] = home if home // gpus == node else first


@part(error_model="numpy")
def _fill(device: int, state: LayerState, path: Path) -> None:
    """The GPU has no slot left: nothing more can stay there, nor in its node if that is full."""
    near, crest = path.near, path.crest
    gpus = state.layer.scalars[GPUS]
    node = device // gpus
    near[:, device] = 0
    for e in range(len(near)):
        crest[node, e] = min(crest[node, e], peak(near[e, node * gpus : (node + 1) * gpus]))
    if peak(state.room[node * gpus : (node + 1) * gpus]) == 0:
        path.away[:, node] = 0


@part(error_model="numpy")
def prune(best: int, trail: Ints, layer: LayerTables, holds: Bools, times: Ints) -> int:
    """Take back copies, the latest first, where the total does not grow; the total then."""
    experts, scalars = len(holds), layer.scalars
    for t in range(len(trail) - 1, -1, -1):
        d, e = trail[t] // experts, trail[t] % experts
        toggle(d, e, layer, holds, times)
        total = terms(holds.shape[1], times, scalars)[4]
        if total <= best:
            best = total
        else:
            toggle(d, e, layer, holds, times)
    return best


@part(error_model="numpy")
def _argmax(values: Ints) -> int:
    """The first of the largest, in two passes: the first is compiled to vector instructions, the
    second ends early.
    """
    most, first = peak(values), 0
    while values[first] != most:
        first += 1
    return first


@part(error_model="numpy")
def _next(
    busy: int,
    link: int,
    scalars: tuple[int, ...],
    rates: Ints,
    home: Ints,
    times: Ints,
    room: Ints,
    path: Path,
) -> tuple[int, int]:
    """The (GPU, expert) copy that takes most time off the busiest link and the busiest GPU; (-1,
    -1) at the end.  Arrays one by one: numba counts references to all that a record has.
    """
    begins, nodes, gpus = path.begins, scalars[NODES], scalars[GPUS]
    devices = nodes * gpus
    moved2, d2, e2 = _relieve_homes(begins[busy], begins[busy + 1], nodes, path.flat)
    if gpus > 1:
        moved2, d2, e2 = _relieve_mates(busy, gpus, path, moved2, d2, e2)
    if link < devices:
        moved1, d1, e1 = _relieve_homes(begins[link], begins[link + 1], nodes, path.flat)
        if gpus > 1:
            moved1, d1, e1 = _relieve_mates(link, gpus, path, moved1, d1, e1)
        pace = scalars[UP]
    elif link < devices + nodes:
        node = link - devices
        first, last = begins[node * gpus], begins[(node + 1) * gpus]
        moved1, d1, e1 = _relieve_homes(first, last, nodes, path.flat)
        pace = rates[0, node]
    else:
        node = link - devices - nodes
        e1 = _argmax(path.away[:, node])
        moved1, d1 = path.away[e1, node], -1 - node
        pace = rates[0, node]
    gain1 = 4 * pace * moved1 + (3 * scalars[TOKEN] * moved1 if home[e1] == busy else 0)
    if moved1 > 0 and gain1 >= 3 * scalars[TOKEN] * moved2:
        d2, e2 = d1, e1
    return (d2 if d2 >= 0 else _lightest(-1 - d2, gpus, times, room)), e2


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
    away [E * M]  as `flat` of `Path`
    """
    if first == last:
        return 0, -1, -1
    flat = away[first * nodes : last * nodes]
    i = _argmax(flat)
    if flat[i] == 0:
        return 0, -1, -1
    return flat[i], -1 - i % nodes, first + i // nodes


@part(error_model="numpy")
def _relieve_mates(
    top: int, gpus: int, path: Path, best: int, device: int, expert: int
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy that takes most tokens off one GPU, as given in a node that
    sends to it (by `_relieve_homes`), or on a node-mate.
    """
    node, mates = top // gpus, -1
    crest, server = path.crest[node], path.server[node]
    for e in range(len(crest)):
        if server[e] == top and crest[e] > best:
            best, mates = crest[e], e
    if mates < 0:
        return best, device, expert
    return best, node * gpus + _argmax(path.near[mates, node * gpus : (node + 1) * gpus]), mates
