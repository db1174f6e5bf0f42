"""The kernels of `pro_prophet`: a greedy path of copies, a clean-up, and for small layers a local search."""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.arrays import Ints
from railopt.moe.kernels import Bools, begin, exhaust, free_pairs, terms, toggle

EXACT, SMALL = 12, 40  # (GPU, expert) pairs beyond the homes: so many are tried out in full, so many searched locally
RESTARTS = 80


@njit(cache=True, error_model="numpy")
def plan_layer(
    place: Ints, tokens: Ints, home: Ints, have: Bools, rates: Ints, scalars: Ints, slots: Ints, limit: int
) -> Bools:
    """Copies for one layer, bool [D, E]; see `railopt.moe.kernels` for the arrays."""
    devices, experts = tokens.shape
    pairs = (devices - 1) * experts
    if pairs <= EXACT:
        pair_device, pair_expert = free_pairs(devices, home)
        return exhaust(place, tokens, home, have, rates, scalars, pair_device, pair_expert, slots, limit)[1]
    holds, times = begin(place, tokens, home, rates, scalars)
    room = slots.copy()
    for d in home:
        room[d] -= 1
    best, copies = _greedy(place, tokens, home, have, rates, scalars, room, limit, holds, times)
    if pairs <= SMALL:
        return _restarts(best, copies, place, tokens, home, have, rates, scalars, room, limit, holds, times)
    return holds


@njit(cache=True, error_model="numpy")
def _greedy(
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
) -> tuple[int, int]:
    """Relieve the busiest link or GPU copy by copy, keep the best prefix of that path, drop copies that do not pay."""
    devices, experts = tokens.shape
    nodes = rates.shape[1]
    by_node = np.zeros((nodes, experts), np.int64)
    served = np.zeros((nodes, experts), np.bool_)
    for d in range(devices):
        for e in range(experts):
            by_node[place[d], e] += tokens[d, e]
    for e in range(experts):
        served[place[home[e]], e] = True
    by_home = np.argsort(home)
    begins = np.searchsorted(home[by_home], np.arange(devices + 1))
    trail = np.empty((min(limit, devices * experts), 2), np.int64)
    best, kept, used = terms(devices, times, scalars)[4], 0, 0
    mark, marked = best, 0  # the path ends when a round of devices gains less than a hundredth
    patience = 8 + (devices if scalars[9] > 1 else devices // 2)
    while used < len(trail) and used - marked <= patience:
        d, e = _next(place, tokens, by_node, served, home, by_home, begins, rates, scalars, room, holds, times)
        if e < 0:
            break
        toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
        room[d] -= 1
        served[place[d], e] = True
        trail[used, 0], trail[used, 1] = d, e
        used += 1
        total = terms(devices, times, scalars)[4]
        if total < best:
            best, kept = total, used
            if best < mark - mark // 128:
                mark, marked = best, used
    for t in range(used - 1, kept - 1, -1):
        toggle(trail[t, 0], trail[t, 1], place, tokens, home, have, rates, scalars, holds, times)
        room[trail[t, 0]] += 1
    a2a, fec, _, _, total, _ = terms(devices, times, scalars)
    if total == 4 * a2a + 3 * fec:
        return best, kept  # all transfers are hidden: fewer copies would not shorten anything
    return _prune(best, trail[:kept], place, tokens, home, have, rates, scalars, room, holds, times)


@njit(cache=True, error_model="numpy")
def _prune(
    best: int,
    trail: Ints,
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    room: Ints,
    holds: Bools,
    times: Ints,
) -> tuple[int, int]:
    """Take back copies, the latest first, where the total does not grow; (total, copies left)."""
    copies, devices = len(trail), len(tokens)
    a2a, fec, _, _, _, _ = terms(devices, times, scalars)
    saving = (scalars[3] + max(scalars[2], rates[1].max())) * (1 + (scalars[4] + scalars[5] - 1) // scalars[5])
    for t in range(copies - 1, -1, -1):
        d, e = trail[t, 0], trail[t, 1]
        if scalars[9] == 1:  # the tokens would go home: what that costs at least
            owner = home[e]
            load = times[owner] + tokens[d, e] * scalars[1] - fec
            link = times[2 * devices + owner] + tokens[d, e] * rates[0, owner] - a2a
            if 3 * max(0, load) + 4 * max(0, link) > saving:
                continue
        toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
        total = terms(len(tokens), times, scalars)[4]
        if total <= best:
            best = total
            room[d] += 1
            copies -= 1
            a2a, fec, _, _, _, _ = terms(devices, times, scalars)
        else:
            toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
    return best, copies


@njit(cache=True, error_model="numpy")
def _argmax(times: Ints, first: int, last: int) -> int:
    best = first
    for i in range(first + 1, last):
        if times[i] > times[best]:
            best = i
    return best


@njit(cache=True, error_model="numpy")
def _next(
    place: Ints,
    tokens: Ints,
    by_node: Ints,
    served: Bools,
    home: Ints,
    by_home: Ints,
    begins: Ints,
    rates: Ints,
    scalars: Ints,
    room: Ints,
    holds: Bools,
    times: Ints,
) -> tuple[int, int]:
    """The (GPU, expert) copy that takes most time off the busiest link and the busiest GPU; (-1, -1) at the end."""
    devices, nodes, gpus = len(tokens), rates.shape[1], scalars[9]
    link = _argmax(times, devices, 2 * devices + 2 * nodes) - devices
    busy = _argmax(times, 0, devices)
    moved2, d2, e2 = _relieve_device(
        busy, place[busy], tokens, by_node, served, by_home, begins, gpus, room, holds, times
    )
    if link < devices:
        moved1, d1, e1 = _relieve_device(
            link, place[link], tokens, by_node, served, by_home, begins, gpus, room, holds, times
        )
        pace = scalars[0]
    elif link < devices + nodes:
        moved1, d1, e1 = _relieve_inward(link - devices, by_node, served, by_home, begins, gpus, room, times)
        pace = rates[0, link - devices]
    else:
        moved1, d1, e1 = _relieve_outward(link - devices - nodes, by_node, served, gpus, room, times)
        pace = rates[0, link - devices - nodes]
    if e1 < 0 or (d1 == d2 and e1 == e2):
        return d2, e2
    gain1 = 4 * pace * moved1 + (3 * scalars[1] * moved1 if home[e1] == busy else 0)
    gain2 = 3 * scalars[1] * moved2
    return (d1, e1) if gain1 >= gain2 else (d2, e2)


@njit(cache=True, error_model="numpy")
def _lightest(node: int, gpus: int, room: Ints, times: Ints) -> int:
    """The GPU of the node with the least load that has a free slot; -1 without one."""
    best = -1
    for d in range(node * gpus, (node + 1) * gpus):
        if room[d] > 0 and (best < 0 or times[d] < times[best]):
            best = d
    return best


@njit(cache=True, error_model="numpy")
def _relieve_inward(
    node: int, by_node: Ints, served: Bools, by_home: Ints, begins: Ints, gpus: int, room: Ints, times: Ints
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy, somewhere else, that takes most tokens off the links into a node."""
    best, device, expert = 0, -1, -1
    for i in range(begins[node * gpus], begins[(node + 1) * gpus]):
        e = by_home[i]
        for f in range(len(by_node)):
            if by_node[f, e] > best and not served[f, e]:
                d = _lightest(f, gpus, room, times)
                if d >= 0:
                    best, device, expert = by_node[f, e], d, e
    return best, device, expert


@njit(cache=True, error_model="numpy")
def _relieve_outward(
    node: int, by_node: Ints, served: Bools, gpus: int, room: Ints, times: Ints
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy in a node that takes most tokens off the links out of it."""
    best, expert = 0, -1
    for e in range(by_node.shape[1]):
        if by_node[node, e] > best and not served[node, e]:
            best, expert = by_node[node, e], e
    device = _lightest(node, gpus, room, times)
    return best, device, expert if device >= 0 else -1


@njit(cache=True, error_model="numpy")
def _relieve_device(
    top: int,
    node: int,
    tokens: Ints,
    by_node: Ints,
    served: Bools,
    by_home: Ints,
    begins: Ints,
    gpus: int,
    room: Ints,
    holds: Bools,
    times: Ints,
) -> tuple[int, int, int]:
    """(tokens, GPU, expert): the copy that takes most tokens off one GPU, in a node that sends to it or on a node-mate."""
    best, device, expert = 0, -1, -1
    for i in range(begins[top], begins[top + 1]):
        e = by_home[i]
        for f in range(len(by_node)):
            if by_node[f, e] > best and not served[f, e]:
                d = _lightest(f, gpus, room, times)
                if d >= 0:
                    best, device, expert = by_node[f, e], d, e
    if gpus == 1:
        return best, device, expert
    for e in range(tokens.shape[1]):
        if holds[top, e]:
            for d in range(node * gpus, (node + 1) * gpus):
                if tokens[d, e] > best and not holds[d, e] and room[d] > 0:
                    best, device, expert = tokens[d, e], d, e
    return best, device, expert


@njit(cache=True, error_model="numpy")
def _restarts(
    best: int,
    copies: int,
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
) -> Bools:
    """Local search from the greedy's placement, then from the best one with a few copies changed, as often as is cheap."""
    best, copies = _search(best, copies, place, tokens, home, have, rates, scalars, room, limit, holds, times)
    chosen, dice = holds.copy(), 12345
    for turn in range(RESTARTS):
        dice = (dice * 1103515245 + 12345) % 2147483648
        expert = (dice >> 8) % tokens.shape[1]
        for step in range(len(tokens) if turn % 2 else 2 + turn % 6):
            dice = (dice * 1103515245 + 12345) % 2147483648
            pair = (dice >> 8) % tokens.size
            if turn % 2:  # one expert everywhere, or nowhere but at home
                pair = step * tokens.shape[1] + expert
            copies += _try(pair, home, room, copies, limit, place, tokens, have, rates, scalars, holds, times)
        total = terms(len(tokens), times, scalars)[4]
        total, copies = _search(total, copies, place, tokens, home, have, rates, scalars, room, limit, holds, times)
        if total < best:
            best = total
            chosen[:] = holds
        elif total > best:
            for pair in range(tokens.size):
                d, e = pair // tokens.shape[1], pair % tokens.shape[1]
                if holds[d, e] != chosen[d, e]:
                    change = 1 if chosen[d, e] else -1
                    toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
                    room[d] -= change
                    copies += change
    return chosen


@njit(cache=True, error_model="numpy")
def _search(
    best: int,
    copies: int,
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
) -> tuple[int, int]:
    """Single toggles and pairs of toggles while the total falls; (total, copies)."""
    improved = True
    while improved:
        improved = False
        for p in range(tokens.size):
            first = _try(p, home, room, copies, limit, place, tokens, have, rates, scalars, holds, times)
            if first == 0:
                continue
            total = terms(len(tokens), times, scalars)[4]
            if total < best:
                best, copies, improved = total, copies + first, True
                continue
            for q in range(p + 1, tokens.size):
                second = _try(q, home, room, copies + first, limit, place, tokens, have, rates, scalars, holds, times)
                if second == 0:
                    continue
                total = terms(len(tokens), times, scalars)[4]
                if total < best:
                    best, copies, improved = total, copies + first + second, True
                    break
                _undo(q, second, home, room, place, tokens, have, rates, scalars, holds, times)
            else:
                _undo(p, first, home, room, place, tokens, have, rates, scalars, holds, times)
    return best, copies


@njit(cache=True, error_model="numpy")
def _try(
    pair: int,
    home: Ints,
    room: Ints,
    copies: int,
    limit: int,
    place: Ints,
    tokens: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    holds: Bools,
    times: Ints,
) -> int:
    """Toggle a (GPU, expert) pair if it is no home and fits; the change in copies, 0 if nothing was done."""
    d, e = pair // tokens.shape[1], pair % tokens.shape[1]
    if home[e] == d:
        return 0
    change = -1 if holds[d, e] else 1
    if change > 0 and (room[d] < 1 or copies >= limit):
        return 0
    toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
    room[d] -= change
    return change


@njit(cache=True, error_model="numpy")
def _undo(
    pair: int,
    change: int,
    home: Ints,
    room: Ints,
    place: Ints,
    tokens: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    holds: Bools,
    times: Ints,
) -> None:
    d, e = pair // tokens.shape[1], pair % tokens.shape[1]
    toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
    room[d] += change
