"""Max-min fair rates by water filling, the inner loop of the simulator.

Every flow crosses a few ports and has a weight; at a port it takes `cost` bytes of capacity for
each of its own bytes.  All rates rise together, in proportion to the weights, until a port is full;
the flows that cross it stop there and the others go on.  Ports are taken in the order in which they
fill up, from a binary heap; a flow is touched once.

numba caches by file: after a change here, remove the caches of events.py, which has this code
inlined.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import part


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


class Ports(NamedTuple):
    """Who crosses each port now, kept up to date as flows come and go, and the buffers of a
    fill.
    """

    # int32 [path]: the flows of port p in members[begin[p]:end[p]], finished ones dropped when met
    members: Array
    begin: Array  # int64 [ports]
    end: Array  # int64 [ports]
    number: Array  # int64 [ports]: flows that are active
    demand: Array  # float64 [ports]: their weight x cost
    gone: Array  # bool [flows]: finished
    left: Array  # float64 [ports]: capacity that no flow has yet
    rising: Array  # int64 [ports]: flows that have no rate yet
    pull: Array  # float64 [ports]: their weight x cost
    keys: Array  # float64 [ports], the heap
    heap: Array  # int64 [ports], the heap
    rated_in: Array  # int64 [flows]: the last fill that set its rate
    fills: Array  # int64 [1]: how many there were


def ports_of(count: int, flows: int, path: Array) -> Ports:
    """No flow active yet, room for each where it will cross."""

    def zeros(length: int) -> Array:
        return np.zeros(length, np.int64)

    begin = np.concatenate([[0], np.cumsum(np.bincount(path, minlength=count))]).astype(np.int64)[
        :count
    ]
    return Ports(
        np.zeros(len(path), np.int32),
        begin,
        begin.copy(),
        zeros(count),
        np.zeros(count),
        np.zeros(flows, np.bool_),
        np.zeros(count),
        zeros(count),
        np.zeros(count),
        np.zeros(count),
        zeros(count),
        zeros(flows),
        zeros(1),
    )


@part
def enter(f: int, net: Net, ports: Ports) -> None:
    """Flow f becomes active."""
    for e in range(net.first[f], net.first[f + 1]):
        p = net.path[e]
        ports.members[ports.end[p]] = f
        ports.end[p] += 1
        ports.number[p] += 1
        ports.demand[p] += net.weight[f] * net.cost[e]


@part
def leave(f: int, net: Net, ports: Ports) -> None:
    """Flow f is over."""
    ports.gone[f] = True
    for e in range(net.first[f], net.first[f + 1]):
        p = net.path[e]
        ports.number[p] -= 1
        ports.demand[p] -= net.weight[f] * net.cost[e]


@part
def _before(keys: Array, heap: Array, place: int, key: float, port: int) -> bool:
    """Whether the heap's entry comes before (key, port); equal keys go by port, so that every run
    is the same.
    """
    return bool(keys[place] < key or (keys[place] == key and heap[place] < port))


@part
def push(keys: Array, heap: Array, count: int, key: float, port: int) -> int:
    """Add to a heap; its new length."""
    child = count
    while child > 0:
        parent = (child - 1) >> 1
        if _before(keys, heap, parent, key, port):
            break
        keys[child], heap[child] = keys[parent], heap[parent]
        child = parent
    keys[child], heap[child] = key, port
    return count + 1


@part
def sink(keys: Array, heap: Array, count: int, key: float, port: int) -> None:
    """Put (key, port) in place of the top of a heap."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        other = child + 1
        if other < count and _before(keys, heap, other, keys[child], heap[child]):
            child = other
        if not _before(keys, heap, child, key, port):
            break
        keys[hole], heap[hole] = keys[child], heap[child]
        hole = child
    keys[hole], heap[hole] = key, port


@part
def _take_rate(f: int, rate: float, net: Net, ports: Ports) -> None:
    """Flow f has its rate: take it from every port it crosses."""
    ports.rated_in[f] = ports.fills[0]
    for e in range(net.first[f], net.first[f + 1]):
        p = net.path[e]
        ports.left[p] -= rate * net.cost[e]
        ports.pull[p] -= net.weight[f] * net.cost[e]
        ports.rising[p] -= 1


@part
def fill(among: Array, fixed: Array, net: Net, rate: Array, ports: Ports) -> None:
    """Set the rates (bytes per picosecond) of the active flows over the ports `among`; those in
    `fixed` keep theirs.
    """
    ports.fills[0] += 1
    for i in range(among.size):
        p = among[i]
        ports.rising[p], ports.pull[p] = ports.number[p], ports.demand[p]
        ports.left[p] = net.capacity[p]
        if net.fan_in[p]:
            # a connection's flows weigh 1 together, and cost 1 per byte where they are received
            senders = int(np.ceil(ports.demand[p] - 1e-9))
            ports.left[p] *= net.goodput[min(senders, net.goodput.size - 1)]
    for i in range(fixed.size):
        _take_rate(fixed[i], rate[fixed[i]], net, ports)
    count = np.int64(0)
    for i in range(among.size):
        p = among[i]
        if ports.rising[p] > 0:
            count = push(ports.keys, ports.heap, count, max(ports.left[p], 0.0) / ports.pull[p], p)
    level = 0.0
    while count > 0:
        key, p = ports.keys[0], ports.heap[0]
        if ports.rising[p] > 0:
            share = max(ports.left[p] / ports.pull[p], level) if ports.pull[p] > 0.0 else level
            if share > key:
                # others got their rates meanwhile and left more for its flows
                sink(ports.keys, ports.heap, count, share, p)
                continue
            level = share
            _rate_members(p, level, net, rate, ports)
        count -= 1
        sink(ports.keys, ports.heap, count, ports.keys[count], ports.heap[count])


@part
def _rate_members(p: int, level: float, net: Net, rate: Array, ports: Ports) -> None:
    """Port p is full: its rising flows get their share of `level`; finished flows are dropped from
    its list.
    """
    kept = ports.begin[p]
    for i in range(ports.begin[p], ports.end[p]):
        f = ports.members[i]
        if ports.gone[f]:
            continue
        ports.members[kept] = f
        kept += 1
        if ports.rated_in[f] != ports.fills[0]:
            rate[f] = net.weight[f] * level
            _take_rate(f, rate[f], net, ports)
    ports.end[p] = kept
