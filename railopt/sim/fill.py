"""Max-min fair rates by water filling, the inner loop of the simulator.

Every flow crosses a few ports and has a weight; at a port it takes `cost` bytes of capacity for each of its own bytes.
All rates rise together, in proportion to the weights, until a port is full; the flows that cross it stop there and the
others go on.  Ports are taken in the order in which they fill up, from a binary heap; a flow is touched once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]


class Net(NamedTuple):
    """Flows over ports, flat: flow f crosses `path[first[f]:first[f+1]]`, each at its `cost`.

    capacity   float64 [ports], bytes per picosecond; the only array that a run changes
    fan_in     bool [ports]: the capacity is multiplied by `goodput[flows that cross it]`
    """

    first: Array
    path: Array
    cost: Array
    weight: Array
    capacity: Array
    fan_in: Array
    goodput: Array


class Scratch(NamedTuple):
    """Buffers of one run; `crowd` is all zero between two fills."""

    left: Array       # float64 [ports]: capacity that nobody has yet
    demand: Array     # float64 [ports]: weight x cost of the flows that still rise
    number: Array     # int64 [ports]: how many those are
    crowd: Array      # int64 [ports]: flows that cross it
    place: Array      # int64 [ports]: past its last member
    members: Array    # int32 [path]: the rising flows of each port
    touched: Array    # int64 [ports]
    keys: Array       # float64 [ports], the heap
    ports: Array      # int64 [ports], the heap


def scratch(ports: int, entries: int) -> Scratch:
    """Fresh buffers for `ports` ports and paths of `entries` entries in all."""
    def whole() -> Array:
        return np.zeros(ports, np.int64)

    return Scratch(np.zeros(ports), np.zeros(ports), whole(), whole(), whole(), np.zeros(entries, np.int32),
                   whole(), np.zeros(ports), whole())


@njit(cache=True)
def _before(keys: Array, ports: Array, place: int, key: float, port: int) -> bool:
    """Whether the heap's entry comes before (key, port); equal keys go by port, so that every run is the same."""
    return bool(keys[place] < key or (keys[place] == key and ports[place] < port))


@njit(cache=True)
def _push(keys: Array, ports: Array, count: int, key: float, port: int) -> int:
    """Add to the heap; its new length."""
    child = count
    while child > 0:
        parent = (child - 1) >> 1
        if _before(keys, ports, parent, key, port):
            break
        keys[child], ports[child] = keys[parent], ports[parent]
        child = parent
    keys[child], ports[child] = key, port
    return count + 1


@njit(cache=True)
def _drop(keys: Array, ports: Array, count: int) -> int:
    """Remove the top of the heap; its new length."""
    count -= 1
    key, port = keys[count], ports[count]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        other = child + 1
        if other < count and _before(keys, ports, other, keys[child], ports[child]):
            child = other
        if not _before(keys, ports, child, key, port):
            break
        keys[hole], ports[hole] = keys[child], ports[child]
        hole = child
    keys[hole], ports[hole] = key, port
    return count


@njit(cache=True)
def _gather(active: Array, fixed: Array, net: Net, rate: Array, s: Scratch) -> int:
    """Sum up what each touched port carries and list its rising flows; the length of the heap of ports."""
    found = 0
    for i in range(active.size):
        f = active[i]
        for e in range(net.first[f], net.first[f + 1]):
            p = net.path[e]
            if s.crowd[p] == 0:
                s.touched[found] = p
                found += 1
                s.left[p], s.demand[p], s.number[p] = 0.0, 0.0, 0
            s.crowd[p] += 1
            if fixed[f]:
                s.left[p] -= rate[f] * net.cost[e]
            else:
                s.demand[p] += net.weight[f] * net.cost[e]
                s.number[p] += 1
    total = count = 0
    for i in range(found):
        p = s.touched[i]
        room = net.capacity[p]
        if net.fan_in[p]:
            room *= net.goodput[min(s.crowd[p], net.goodput.size - 1)]
        s.left[p] = max(s.left[p] + room, 0.0)
        s.crowd[p] = 0
        s.place[p] = total
        total += s.number[p]
        if s.number[p] > 0:
            count = _push(s.keys, s.ports, count, s.left[p] / s.demand[p], p)
    for i in range(active.size):
        f = active[i]
        if not fixed[f]:
            rate[f] = -1.0
            for e in range(net.first[f], net.first[f + 1]):
                p = net.path[e]
                s.members[s.place[p]] = f
                s.place[p] += 1
    return count


@njit(cache=True)
def fill(active: Array, fixed: Array, net: Net, rate: Array, s: Scratch) -> None:
    """Set `rate` (bytes per picosecond) of every flow in `active` that is not `fixed`; fixed ones keep theirs."""
    count = _gather(active, fixed, net, rate, s)
    level = 0.0
    while count > 0:
        key, p = s.keys[0], s.ports[0]
        count = _drop(s.keys, s.ports, count)
        if s.number[p] == 0:
            continue
        share = max(s.left[p] / s.demand[p], level) if s.demand[p] > 0.0 else level
        if share > key and count > 0 and share > s.keys[0]:
            count = _push(s.keys, s.ports, count, share, p)      # others froze meanwhile and left more for its flows
            continue
        level = share
        at = s.place[p]
        while s.number[p] > 0:
            at -= 1
            f = s.members[at]
            if rate[f] >= 0.0:
                continue
            rate[f] = net.weight[f] * level
            for e in range(net.first[f], net.first[f + 1]):
                q = net.path[e]
                s.left[q] = max(s.left[q] - rate[f] * net.cost[e], 0.0)
                s.demand[q] -= net.weight[f] * net.cost[e]
                s.number[q] -= 1
