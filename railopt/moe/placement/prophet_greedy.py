"""The kernels of `pro_prophet`: a greedy path of copies and a clean-up; small layers are tried out
in full or searched.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.arrays import Ints
from railopt.moe.placement.layer_times import (
    COPY_MEAN,
    GPUS,
    GRAD,
    GRAD_OF,
    NODES,
    TOKEN,
    UP,
    Bools,
    Layer,
    begin,
    combine,
    exhaust,
    peak,
    terms,
    toggle,
)
from railopt.moe.placement.prophet_search import local_search

EXACT, MIDDLE = (
    18,
    512,
)  # (GPU, expert) pairs beyond the homes: so many are tried out in full, so many searched locally


@njit(cache=True, error_model="numpy")
def plan_layer(layer: Layer, slots: Ints, limit: int, search: bool) -> Bools:
    """Copies for one layer, bool [E, D]; its homes must be in ascending order."""
    experts, devices = layer.tokens.shape
    pairs = (devices - 1) * experts
    if search and pairs <= EXACT:
        return exhaust(layer, slots, limit)[1]
    holds, times, away = begin(layer)
    room = slots.copy()
    for d in layer.home:
        room[d] -= 1
    best, copies = _greedy(layer, away, room, limit, holds, times)
    if search and pairs <= MIDDLE:
        return local_search(best, copies, layer, room, limit, holds, times)
    return holds


@njit(cache=True, error_model="numpy")
def _greedy(
    layer: Layer, away: Ints, room: Ints, limit: int, holds: Bools, times: Ints
) -> tuple[int, int]:
    """Relieve the busiest link or GPU copy by copy, keep the best prefix of that path, drop copies
    that do not pay.
    """
    experts, devices = layer.tokens.shape
    begins = np.searchsorted(layer.home, np.arange(devices + 1))
    serves = np.empty((devices, experts + 1), np.int64)
    serves[:, 0] = 0
    near, crest = layer.tokens.copy(), np.zeros_like(away)
    for d in range(devices):
        if room[d] == 0:
            _fill(d, layer, away, near, crest, room)
    for e in range(experts):
        _serve(layer.home[e], e, serves)
        _settle(layer.home[e], e, layer, away, near, crest)
    heads = np.full(devices + 2 * layer.scalars[NODES], -1)
    trail = np.empty((min(limit, devices * experts), 2), np.int64)
    best, kept, used = _path(
        layer, away, near, crest, begins, serves, heads, room, holds, times, trail
    )
    for t in range(used - 1, kept - 1, -1):
        toggle(trail[t, 0], trail[t, 1], layer, holds, times)
        room[trail[t, 0]] += 1
    a2a, fec, _, _, total, _ = terms(devices, times, layer.scalars)
    if total == 4 * a2a + 3 * fec:
        return best, kept  # all transfers are hidden: fewer copies would not shorten anything
    return _prune(best, trail[:kept], layer, room, holds, times)


@njit(cache=True, error_model="numpy", _nrt=False)
def _path(
    layer: Layer,
    away: Ints,
    near: Ints,
    crest: Ints,
    begins: Ints,
    serves: Ints,
    heads: Ints,
    room: Ints,
    holds: Bools,
    times: Ints,
    trail: Ints,
) -> tuple[int, int, int]:
    """Copies one by one, into trail [most, 2] (GPU, expert); (least total on the way, copies up to
    there, copies in all).

    away    [E, M]      tokens that leave a node for the expert's home, 0 where no copy can change
            that
    near    [E, D]      tokens that leave a GPU for the expert, the same
    crest   [E, M]      the largest of `near` in each node that has the expert
    begins  [D + 1]     the first expert at home on each GPU
    serves  [D, 1 + E]  the experts whose tokens the GPU gets from its node-mates, after their
            number
    heads   [D + 2M]    where `away` was last largest: of the experts at home on each GPU, in each
            node, and out of each node
    """
    place, scalars = layer.place, layer.scalars
    devices, nodes = len(place), scalars[NODES]
    move, last = 2 * devices + 2 * nodes, 3 * devices + 4 * nodes
    best, kept, used = 2**62, 0, 0
    mark, marked = best, 0  # the path ends when a round of devices gains less than a hundredth
    patience = 8 + (devices if scalars[GPUS] > 1 else devices // 2)
    enough = (
        times[:devices].sum() // devices * 75 // 24
    )  # ... or when no placement is 1/24 faster: 3 FEC at its mean
    while True:
        busy, link = _argmax(times[:devices]), _argmax(times[devices:move])
        trans = peak(times[move:last]) + times[last] * scalars[COPY_MEAN]
        total = combine(
            times[devices + link],
            times[busy],
            trans,
            trans * scalars[GRAD] // scalars[GRAD_OF],
            scalars,
        )
        if total < best:
            best, kept = total, used
            if best < mark - mark // 128:
                mark, marked = best, used
        if used == len(trail) or used - marked > patience or best <= enough:
            return best, kept, used
        d, e = _next(busy, link, layer, away, near, crest, begins, serves, heads, room, times)
        if e < 0:
            return best, kept, used
        _take_over(d, e, layer, serves, holds)
        toggle(d, e, layer, holds, times)
        _settle(d, e, layer, away, near, crest)
        room[d] -= 1
        if room[d] == 0:
            _fill(d, layer, away, near, crest, room)
        trail[used, 0], trail[used, 1] = d, e
        used += 1


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _serve(device: int, expert: int, serves: Ints) -> None:
    serves[device, 0] += 1
    serves[device, serves[device, 0]] = expert


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _take_over(device: int, expert: int, layer: Layer, serves: Ints, holds: Bools) -> None:
    """Before the GPU gets a copy: in `serves` it replaces the first holder of its node, if it comes
    before that one.
    """
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


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _settle(device: int, expert: int, layer: Layer, away: Ints, near: Ints, crest: Ints) -> None:
    """The GPU has the expert: its tokens stay there, and those of its node in the node."""
    node, gpus = layer.place[device], layer.scalars[GPUS]
    away[expert, node] = near[expert, device] = 0
    crest[expert, node] = peak(near[expert, node * gpus : (node + 1) * gpus])


@njit(cache=True, error_model="numpy", _nrt=False)
def _fill(device: int, layer: Layer, away: Ints, near: Ints, crest: Ints, room: Ints) -> None:
    """The GPU has no slot left: nothing more can stay there, nor in its node if that is full."""
    node, gpus = layer.place[device], layer.scalars[GPUS]
    near[:, device] = 0
    for e in range(len(near)):
        crest[e, node] = min(crest[e, node], peak(near[e, node * gpus : (node + 1) * gpus]))
    if peak(room[node * gpus : (node + 1) * gpus]) == 0:
        away[:, node] = 0


@njit(cache=True, error_model="numpy", _nrt=False)
def _prune(
    best: int, trail: Ints, layer: Layer, room: Ints, holds: Bools, times: Ints
) -> tuple[int, int]:
    """Take back copies, the latest first, where the total does not grow; (total, copies left)."""
    copies, devices = len(trail), len(layer.place)
    for t in range(copies - 1, -1, -1):
        d, e = trail[t, 0], trail[t, 1]
        toggle(d, e, layer, holds, times)
        total = terms(devices, times, layer.scalars)[4]
        if total <= best:
            best = total
            room[d] += 1
            copies -= 1
        else:
            toggle(d, e, layer, holds, times)
    return best, copies


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _argmax(values: Ints) -> int:
    """The first of the largest, in two passes that are compiled to vector instructions."""
    most, first = peak(values), len(values)
    for i in range(len(values)):
        at = i if values[i] == most else len(values)
        first = at if at < first else first
    return first


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _head(values: Ints, key: int, heads: Ints) -> int:
    """The first of the largest of a part of `away`: since its entries only ever become 0, the last
    one found while it is not 0.
    """
    if heads[key] < 0 or values[heads[key]] == 0:
        heads[key] = _argmax(values)
    return heads[key]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _next(
    busy: int,
    link: int,
    layer: Layer,
    away: Ints,
    near: Ints,
    crest: Ints,
    begins: Ints,
    serves: Ints,
    heads: Ints,
    room: Ints,
    times: Ints,
) -> tuple[int, int]:
    """The (GPU, expert) copy that takes most time off the busiest link and the busiest GPU; (-1,
    -1) at the end.
    """
    scalars, rates = layer.scalars, layer.rates
    devices, nodes, gpus = len(layer.place), scalars[NODES], scalars[GPUS]
    moved2, d2, e2 = _relieve_device(
        busy, layer, away, near, crest, begins, serves, heads, room, times
    )
    if link < devices:
        moved1, d1, e1 = _relieve_device(
            link, layer, away, near, crest, begins, serves, heads, room, times
        )
        pace = scalars[UP]
    elif link < devices + nodes:
        node = link - devices
        moved1, d1, e1 = _relieve_homes(
            begins[node * gpus], begins[(node + 1) * gpus], link, layer, away, heads, room, times
        )
        pace = rates[0, node]
    else:
        node = link - devices - nodes
        e1 = _head(away[:, node], link, heads)
        moved1, d1 = away[e1, node], _lightest(node, gpus, room, times)
        pace = rates[0, node]
    if moved1 == 0 or (d1 == d2 and e1 == e2):
        return d2, e2
    gain1 = 4 * pace * moved1 + (3 * scalars[TOKEN] * moved1 if layer.home[e1] == busy else 0)
    gain2 = 3 * scalars[TOKEN] * moved2
    return (d1, e1) if gain1 >= gain2 else (d2, e2)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _lightest(node: int, gpus: int, room: Ints, times: Ints) -> int:
    """The GPU of the node with the least load that has a free slot; -1 without one."""
    best = -1
    for d in range(node * gpus, (node + 1) * gpus):
        if room[d] > 0 and (best < 0 or times[d] < times[best]):
            best = d
    return best


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _relieve_homes(
    first: int, last: int, key: int, layer: Layer, away: Ints, heads: Ints, room: Ints, times: Ints
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy in another node that takes most tokens off some experts'
    homes; -1 for none.
    """
    if first == last:
        return 0, -1, -1
    nodes = layer.scalars[NODES]
    flat = away.reshape(-1)[first * nodes : last * nodes]
    i = _head(flat, key, heads)
    if flat[i] == 0:
        return 0, -1, -1
    return flat[i], _lightest(i % nodes, layer.scalars[GPUS], room, times), first + i // nodes


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _relieve_device(
    top: int,
    layer: Layer,
    away: Ints,
    near: Ints,
    crest: Ints,
    begins: Ints,
    serves: Ints,
    heads: Ints,
    room: Ints,
    times: Ints,
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy that takes most tokens off one GPU, in a node that sends to
    it or on a node-mate.
    """
    gpus = layer.scalars[GPUS]
    best, device, expert = _relieve_homes(
        begins[top], begins[top + 1], top, layer, away, heads, room, times
    )
    if gpus == 1:
        return best, device, expert
    node, mates = layer.place[top], -1
    for i in range(1, 1 + serves[top, 0]):
        e = serves[top, i]
        if crest[e, node] > best:
            best, mates = crest[e, node], e
    if mates < 0:
        return best, device, expert
    return best, node * gpus + _argmax(near[mates, node * gpus : (node + 1) * gpus]), mates
