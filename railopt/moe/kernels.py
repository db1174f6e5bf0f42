"""Kernels of the placement planners: the times of one layer under a placement, kept up to date copy by copy.

Where tokens go, from the copies alone: to the own GPU if it holds the expert; else to the first GPU of the own node that
does (in the home's node: to the home); else to the home.

State (D GPUs, M nodes, E experts): `holds` bool [D, E], who has which expert, homes included, and one flat int64 array
`times`, picoseconds (one array and offsets instead of several, since every array that changes hands costs atomic counters):
    load     [D]            expert compute
    net      [D + 2M]       all-to-all: tokens from node-mates [D], tokens into the node [M], tokens out of the node [M]
    move     [D + 2M]       parameters: copies from node-mates [D], copies into the node [M], copies out of the node [M];
                            an expert enters each node that needs it once and spreads there, and it leaves its home's node once:
                            nodes pass it on in a pipeline, as broadcasts do
    copied   [1]            copies beyond the homes that have to be sent (a number, not a time)
    reached  [E]            nodes that fetch each expert (a number)

`rates`, `scalars` and `place` (the node of each GPU) come from `TimeModel.vectors`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from railopt.arrays import Ints

Bools = npt.NDArray[np.bool_]


@njit(cache=True, error_model="numpy")
def _first(node: int, gpus: int, expert: int, flags: Bools) -> int:
    """The first GPU of the node whose flag for the expert is set; -1 without one."""
    for d in range(node * gpus, (node + 1) * gpus):
        if flags[d, expert]:
            return d
    return -1


@njit(cache=True, error_model="numpy")
def _flow(
    node: int,
    owner: int,
    owner_node: int,
    serving: int,
    expert: int,
    sign: int,
    tokens: Ints,
    rates: Ints,
    scalars: Ints,
    holds: Bools,
    times: Ints,
) -> None:
    """Add (sign 1) or take away (-1) what the tokens of one node for one expert cost; `serving` -1 sends them to the home."""
    devices, nodes, gpus = tokens.shape[0], rates.shape[1], scalars[9]
    for d in range(node * gpus, (node + 1) * gpus):
        count = sign * tokens[d, expert]
        if serving < 0:
            times[owner] += count * scalars[1]
            times[2 * devices + owner_node] += count * rates[0, owner_node]
            times[2 * devices + nodes + node] += count * rates[0, node]
        elif holds[d, expert]:
            times[d] += count * scalars[1]
        else:
            times[serving] += count * scalars[1]
            times[devices + serving] += count * scalars[0]


@njit(cache=True, error_model="numpy")
def _parameters(
    node: int,
    owner: int,
    owner_node: int,
    near: bool,
    expert: int,
    sign: int,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    holds: Bools,
    times: Ints,
) -> None:
    """The same for the parameters of the node's copies; `near`: the node need not fetch them from another one."""
    devices, nodes, gpus = holds.shape[0], rates.shape[1], scalars[9]
    move = 2 * devices + 2 * nodes
    fresh = 0
    for d in range(node * gpus, (node + 1) * gpus):
        if holds[d, expert] and d != owner and not have[d, expert]:
            fresh += 1
            if fresh == 1 and not near:  # the first copy crosses, the others come from it
                times[move + devices + node] += sign * rates[1, node]
                reached = move + devices + 2 * nodes + 1 + expert
                if times[reached] + sign == (sign > 0):  # the first node reached, or the last one lost
                    times[move + devices + nodes + owner_node] += sign * rates[1, owner_node]
                times[reached] += sign
            else:
                times[move + d] += sign * scalars[2]
    times[move + devices + 2 * nodes] += sign * fresh


@njit(cache=True, error_model="numpy")
def toggle(
    device: int,
    expert: int,
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    holds: Bools,
    times: Ints,
) -> None:
    """Add the copy of an expert to a GPU, or take it away; never the home's."""
    node, owner, gpus = place[device], home[expert], scalars[9]
    owner_node = place[owner]
    near = node == owner_node or _first(node, gpus, expert, have) >= 0
    serving = owner if node == owner_node else _first(node, gpus, expert, holds)
    _flow(node, owner, owner_node, serving, expert, -1, tokens, rates, scalars, holds, times)
    _parameters(node, owner, owner_node, near, expert, -1, have, rates, scalars, holds, times)
    holds[device, expert] = not holds[device, expert]
    serving = owner if node == owner_node else _first(node, gpus, expert, holds)
    _flow(node, owner, owner_node, serving, expert, 1, tokens, rates, scalars, holds, times)
    _parameters(node, owner, owner_node, near, expert, 1, have, rates, scalars, holds, times)


@njit(cache=True, error_model="numpy")
def begin(place: Ints, tokens: Ints, home: Ints, rates: Ints, scalars: Ints) -> tuple[Bools, Ints]:
    """The state in which every expert is at home alone."""
    devices, experts = tokens.shape
    nodes = rates.shape[1]
    net = devices
    times = np.zeros(3 * devices + 4 * nodes + 1 + experts, np.int64)
    holds = np.zeros((devices, experts), np.bool_)
    for e in range(experts):
        holds[home[e], e] = True
    for d in range(devices):
        node = place[d]
        for e in range(experts):
            count, owner = tokens[d, e], home[e]
            times[owner] += count * scalars[1]
            if place[owner] != node:
                times[net + devices + place[owner]] += count * rates[0, place[owner]]
                times[net + devices + nodes + node] += count * rates[0, node]
            elif owner != d:
                times[net + owner] += count * scalars[0]
    return holds, times


@njit(cache=True, error_model="numpy")
def start(
    place: Ints, tokens: Ints, home: Ints, have: Bools, rates: Ints, scalars: Ints, placed: Bools
) -> tuple[Bools, Ints]:
    """The state of a placement."""
    holds, times = begin(place, tokens, home, rates, scalars)
    for d in range(tokens.shape[0]):
        for e in range(tokens.shape[1]):
            if placed[d, e] and home[e] != d:
                toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
    return holds, times


@njit(cache=True, error_model="numpy")
def combine(a2a: int, fec: int, trans: int, agg: int, scalars: Ints) -> int:
    """Eq. 6, or eq. 8 with overlap."""
    if scalars[8]:
        return 4 * a2a + 3 * fec + max(0, trans - fec - scalars[6]) + max(0, agg - 2 * fec - scalars[7])
    return 4 * a2a + 3 * fec + trans + agg


@njit(cache=True, error_model="numpy")
def terms(devices: int, times: Ints, scalars: Ints) -> tuple[int, int, int, int, int, int]:
    """(A2A, FEC, Trans, Agg, total, copies) of a state."""
    links = devices + 2 * scalars[10]
    last = devices + 2 * links
    fec = a2a = trans = 0
    for i in range(devices):
        fec = max(fec, times[i])
    for i in range(devices, devices + links):
        a2a = max(a2a, times[i])
    for i in range(devices + links, last):
        trans = max(trans, times[i])
    trans += times[last] * scalars[3]
    agg = trans * scalars[4] // scalars[5]
    return a2a, fec, trans, agg, combine(a2a, fec, trans, agg, scalars), times[last]


@njit(cache=True, error_model="numpy")
def free_pairs(devices: int, home: Ints) -> tuple[Ints, Ints]:
    """Every (GPU, expert) pair but the homes: the copies that can be made."""
    pairs = (devices - 1) * len(home)
    device, expert, k = np.empty(pairs, np.int64), np.empty(pairs, np.int64), 0
    for d in range(devices):
        for e in range(len(home)):
            if home[e] != d:
                device[k], expert[k] = d, e
                k += 1
    return device, expert


@njit(cache=True, error_model="numpy")
def exhaust(
    place: Ints,
    tokens: Ints,
    home: Ints,
    have: Bools,
    rates: Ints,
    scalars: Ints,
    pair_device: Ints,
    pair_expert: Ints,
    slots: Ints,
    limit: int,
) -> tuple[int, Bools]:
    """The least total over every set of copies from the given pairs, by a Gray code; slots [D] experts a GPU at most."""
    devices = len(tokens)
    holds, times = begin(place, tokens, home, rates, scalars)
    room = slots.copy()
    for d in home:
        room[d] -= 1
    best, chosen, copies, full = terms(devices, times, scalars)[4], holds.copy(), 0, 0
    for step in range(1, 1 << len(pair_device)):
        bit = 0
        while not (step >> bit) & 1:
            bit += 1
        d, e = pair_device[bit], pair_expert[bit]
        toggle(d, e, place, tokens, home, have, rates, scalars, holds, times)
        full -= room[d] < 0
        change = 1 if holds[d, e] else -1
        room[d] -= change
        copies += change
        full += room[d] < 0
        if full == 0 and copies <= limit:
            total = terms(devices, times, scalars)[4]
            if total < best:
                best = total
                chosen[:] = holds
    return best, chosen
