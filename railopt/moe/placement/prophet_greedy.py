"""The kernels of `pro_prophet`: a greedy path of copies, and a clean-up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.kernels import kernel, part
from railopt.moe.placement.layer_times import (
    COPY_MEAN,
    GPUS,
    GRAD,
    GRAD_OF,
    NODES,
    TOKEN,
    UNFIT,
    UP,
    LayerState,
    LayerTables,
    at_home,
    combine,
    flip,
    peak,
    terms,
    toggle,
)

# The path ends when a round of devices and PATIENCE copies gain less than 1/GAIN of the best total,
# or when no placement is faster than the best by more than 1/CLOSE.
PATIENCE, GAIN, CLOSE = 8, 128, 24


class Path(NamedTuple):
    """What the greedy path keeps beside the state, to find the next copy without looking at all.

    away    [E, M]      tokens that leave a node for the expert's home, 0 where no copy can change
                        that
    flat    [E * M]     the same memory
    near    [E, D]      tokens that leave a GPU for the expert, the same
    crest   [E, M]      the largest of `near` in each node that has the expert
    begins  [D + 1]     the first expert at home on each GPU
    serves  [D, 1 + E]  the experts whose tokens the GPU gets from its node-mates, after their
                        number
    heads   [D + 2M]    where `away` was last largest: of the experts at home on each GPU, in each
                        node, and out of each node
    """

    away: Ints
    flat: Ints
    near: Ints
    crest: Ints
    begins: Ints
    serves: Ints
    heads: Ints


@kernel(error_model="numpy")
def plan_layer(layer: LayerTables, slots: Ints, limit: int) -> Bools:
    """Copies for one layer, bool [E, D]; its homes must be in ascending order."""
    state, away = at_home(layer, slots, limit)
    _greedy(state, away)
    return state.holds


@part(error_model="numpy")
def _greedy(state: LayerState, away: Ints) -> int:
    """Relieve the busiest link or GPU copy by copy, keep the best prefix of that path, drop copies
    that do not pay; the total that is left.
    """
    layer = state.layer
    experts, devices = layer.tokens.shape
    begins = np.zeros(devices + 1, np.int64)
    for d in layer.home:
        begins[d + 1] += 1
    for d in range(devices):
        begins[d + 1] += begins[d]
    serves = np.empty((devices, experts + 1), np.int64)
    serves[:, 0] = 0
    heads = np.full(devices + 2 * layer.scalars[NODES], -1)
    path = Path(
        away, away.reshape(-1), layer.tokens.copy(), np.zeros_like(away), begins, serves, heads
    )
    for d in range(devices):
        if state.room[d] == 0:
            _fill(d, state, path)
    for e in range(experts):
        _serve(layer.home[e], e, serves)
        _keep_tokens(layer.home[e], e, layer, path)
    trail = np.empty(min(state.limit, devices * experts), np.int64)
    best, kept, used = _follow(state, path, trail)
    for t in range(used - 1, kept - 1, -1):
        flip(trail[t], state)
    a2a, fec, _, _, total, _ = terms(devices, state.times, layer.scalars)
    if total == 4 * a2a + 3 * fec:
        return best  # all transfers are hidden: fewer copies would not shorten anything
    return _prune(best, trail[:kept], state)


@part(error_model="numpy")
def _follow(state: LayerState, path: Path, trail: Ints) -> tuple[int, int, int]:
    """Copies one by one, into trail [most] as pairs; (least total on the way, copies up to there,
    copies in all).
    """
    layer, times, room = state.layer, state.times, state.room
    scalars, experts = layer.scalars, len(state.holds)
    devices, nodes = len(layer.place), scalars[NODES]
    move, last = 2 * devices + 2 * nodes, 3 * devices + 4 * nodes
    best, kept, used = UNFIT, 0, 0
    copying = peak(times[move:last])  # the busiest link of the copies; none of them gets less busy
    mark, marked = best, 0  # the best total when it last fell by 1/GAIN, and the copies then
    patience = PATIENCE + (devices if scalars[GPUS] > 1 else devices // 2)
    enough = times[:devices].sum() // devices * (3 * (CLOSE + 1)) // CLOSE  # 3 FEC at its mean
    loads, links = times[:devices], times[devices:move]
    busy, link = _argmax(loads), _argmax(links)
    while True:
        trans = copying + times[last] * scalars[COPY_MEAN]
        agg = trans * scalars[GRAD] // scalars[GRAD_OF]
        total = combine(links[link], loads[busy], trans, agg, scalars)
        if total < best:
            best, kept = total, used
            if best < mark - mark // GAIN:
                mark, marked = best, used
        if used == len(trail) or used - marked > patience or best <= enough:
            return best, kept, used
        d, e = _next(busy, link, state, path)
        if e < 0:
            return best, kept, used
        _take_over(d, e, state, path.serves)
        fec, a2a = loads[busy], links[link]
        toggle(d, e, layer, state.holds, times)
        busy, link = _argmax_now(loads, busy, fec, d), _argmax_now(links, link, a2a, d)
        copying = max(copying, _copying(d, e, layer, times[move:last]))
        _keep_tokens(d, e, layer, path)
        state.copies[0] += 1
        room[d] -= 1
        if room[d] == 0:
            _fill(d, state, path)
        trail[used] = d * experts + e
        used += 1


@part(error_model="numpy")
def _copying(device: int, expert: int, layer: LayerTables, links: Ints) -> int:
    """The busiest of the links of copies, [D + 2M], that a copy of the expert on the GPU can use:
    those in its node, into it, and out of the home's.
    """
    node, gpus, nodes = layer.place[device], layer.scalars[GPUS], layer.scalars[NODES]
    into, out = len(layer.place) + node, len(layer.place) + nodes + layer.place[layer.home[expert]]
    return max(peak(links[node * gpus : (node + 1) * gpus]), links[into], links[out])


@part(error_model="numpy")
def _serve(device: int, expert: int, serves: Ints) -> None:
    serves[device, 0] += 1
    serves[device, serves[device, 0]] = expert


@part(error_model="numpy")
def _take_over(device: int, expert: int, state: LayerState, serves: Ints) -> None:
    """Before the GPU gets a copy: in `serves` it replaces the first holder of its node, if it comes
    before that one.
    """
    layer, holds = state.layer, state.holds
    node, gpus = layer.place[device], layer.scalars[GPUS]
    if node == layer.place[layer.home[expert]]:
        return
    for d in range(node * gpus, (node + 1) * gpus):
        if not holds[expert, d]:
            continue
        if d < device:
            return
        i = 1
        while serves[d, i] != expert:
            i += 1
        serves[d, i] = serves[d, serves[d, 0]]
        serves[d, 0] -= 1
        break
    _serve(device, expert, serves)


@part(error_model="numpy")
def _keep_tokens(device: int, expert: int, layer: LayerTables, path: Path) -> None:
    """The GPU has the expert: its tokens stay there, and those of its node in the node."""
    node, gpus = layer.place[device], layer.scalars[GPUS]
    path.away[expert, node] = path.near[expert, device] = 0
    path.crest[expert, node] = peak(path.near[expert, node * gpus : (node + 1) * gpus])


@part(error_model="numpy")
def _fill(device: int, state: LayerState, path: Path) -> None:
    """The GPU has no slot left: nothing more can stay there, nor in its node if that is full."""
    near, crest = path.near, path.crest
    node, gpus = state.layer.place[device], state.layer.scalars[GPUS]
    near[:, device] = 0
    for e in range(len(near)):
        crest[e, node] = min(crest[e, node], peak(near[e, node * gpus : (node + 1) * gpus]))
    if peak(state.room[node * gpus : (node + 1) * gpus]) == 0:
        path.away[:, node] = 0


@part(error_model="numpy")
def _prune(best: int, trail: Ints, state: LayerState) -> int:
    """Take back copies, the latest first, where the total does not grow; the total then."""
    layer, times, scalars = state.layer, state.times, state.layer.scalars
    experts, devices = len(state.holds), len(layer.place)
    move, last = 2 * devices + 2 * scalars[NODES], 3 * devices + 4 * scalars[NODES]
    loads, links, moves = times[:devices], times[devices:move], times[move:last]
    a2a, copying = peak(links), peak(moves)
    for t in range(len(trail) - 1, -1, -1):
        d, e = trail[t] // experts, trail[t] % experts
        link, copy = _talking(d, e, layer, links), _copying(d, e, layer, moves)
        flip(trail[t], state)
        link = _peak_now(links, a2a, link, _talking(d, e, layer, links))
        copy = _peak_now(moves, copying, copy, _copying(d, e, layer, moves))
        trans = copy + times[last] * scalars[COPY_MEAN]
        agg = trans * scalars[GRAD] // scalars[GRAD_OF]
        total = combine(link, peak(loads), trans, agg, scalars)
        if total <= best:
            best, a2a, copying = total, link, copy
        else:
            flip(trail[t], state)
    return best


@part(error_model="numpy")
def _peak_now(values: Ints, most: int, before: int, after: int) -> int:
    """The largest of `values`, which was `most`, when that of those that have changed since was
    `before` and is `after`.
    """
    if after >= most:
        return after
    return most if before < most else peak(values)


@part(error_model="numpy")
def _talking(device: int, expert: int, layer: LayerTables, links: Ints) -> int:
    """The busiest of the links of tokens, [D + 2M], that a copy of the expert on the GPU changes:
    those to the GPUs of its node and to the home, into the home's node, and out of its own.
    """
    node, gpus, home = layer.place[device], layer.scalars[GPUS], layer.home[expert]
    into = len(layer.place) + layer.place[home]
    out = len(layer.place) + layer.scalars[NODES] + node
    own = peak(links[node * gpus : (node + 1) * gpus])
    return max(own, links[home], links[into], links[out])


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
def _argmax_now(values: Ints, first: int, most: int, device: int) -> int:
    """The first of the largest, which was `first` with `most`; since then the GPU's alone can have
    grown, as it got a copy.
    """
    if values[first] < most:
        return _argmax(values)
    grown = values[device]
    return device if grown > most or (grown == most and device < first) else first


@part(error_model="numpy")
def _head(values: Ints, key: int, heads: Ints) -> int:
    """The first of the largest of a part of `away`: since its entries only ever become 0, the last
    one found while it is not 0.
    """
    if heads[key] < 0 or values[heads[key]] == 0:
        heads[key] = _argmax(values)
    return heads[key]


@part(error_model="numpy")
def _next(busy: int, link: int, state: LayerState, path: Path) -> tuple[int, int]:
    """The (GPU, expert) copy that takes most time off the busiest link and the busiest GPU; (-1,
    -1) at the end.
    """
    layer, begins = state.layer, path.begins
    scalars, rates = layer.scalars, layer.rates
    devices, nodes, gpus = len(layer.place), scalars[NODES], scalars[GPUS]
    moved2, d2, e2 = _relieve_device(busy, state, path)
    if link < devices:
        moved1, d1, e1 = _relieve_device(link, state, path)
        pace = scalars[UP]
    elif link < devices + nodes:
        node = link - devices
        first, last = begins[node * gpus], begins[(node + 1) * gpus]
        moved1, d1, e1 = _relieve_homes(first, last, link, state, path)
        pace = rates[0, node]
    else:
        node = link - devices - nodes
        e1 = _head(path.away[:, node], link, path.heads)
        moved1, d1 = path.away[e1, node], -1 - node
        pace = rates[0, node]
    gain1 = 4 * pace * moved1 + (3 * scalars[TOKEN] * moved1 if layer.home[e1] == busy else 0)
    if moved1 > 0 and gain1 >= 3 * scalars[TOKEN] * moved2:
        d2, e2 = d1, e1
    return (d2 if d2 >= 0 else _lightest(-1 - d2, state)), e2


@part(error_model="numpy")
def _lightest(node: int, state: LayerState) -> int:
    """The first GPU of the node with the least load that has a free slot; -1 without one."""
    gpus, best, least = state.layer.scalars[GPUS], -1, UNFIT
    for d in range(node * gpus, (node + 1) * gpus):  # without branches, which nothing foretells
        load = state.times[d] if state.room[d] > 0 else UNFIT
        best = d if load < least else best
        least = load if load < least else least
    return best


@part(error_model="numpy")
def _relieve_homes(
    first: int, last: int, key: int, state: LayerState, path: Path
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy in another node that takes most tokens off the homes of
    experts `first` to `last`; expert -1 for none, GPU -1 - node for the lightest of that node.
    key  of these experts in `heads`
    """
    if first == last:
        return 0, -1, -1
    nodes = state.layer.scalars[NODES]
    flat = path.flat[first * nodes : last * nodes]
    i = _head(flat, key, path.heads)
    if flat[i] == 0:
        return 0, -1, -1
    return flat[i], -1 - i % nodes, first + i // nodes


@part(error_model="numpy")
def _relieve_device(top: int, state: LayerState, path: Path) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy that takes most tokens off one GPU, in a node that sends to
    it (as in `_relieve_homes`) or on a node-mate.
    """
    layer, begins, serves, crest = state.layer, path.begins, path.serves, path.crest
    gpus = layer.scalars[GPUS]
    best, device, expert = _relieve_homes(begins[top], begins[top + 1], top, state, path)
    if gpus == 1:
        return best, device, expert
    node, mates = layer.place[top], -1
    for i in range(1, 1 + serves[top, 0]):
        e = serves[top, i]
        if crest[e, node] > best:
            best, mates = crest[e, node], e
    if mates < 0:
        return best, device, expert
    return best, node * gpus + _argmax(path.near[mates, node * gpus : (node + 1) * gpus]), mates
