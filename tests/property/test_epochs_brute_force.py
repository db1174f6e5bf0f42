"""The time-expanded program against a search through every state that its chunks can be in.

RAILOPT_SCHEDULES sets how many random instances are tried.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt.solver.epochs.best import best
from railopt.solver.epochs.exchange import ChunkExchange, bound, lengths

INSTANCES = int(os.environ.get("RAILOPT_SCHEDULES", "6"))
FIRST = int(os.environ.get("RAILOPT_FIRST", "0"))


def instance(seed: int) -> ChunkExchange:
    """Two or three servers, up to four chunks; slow and dead NICs, several per GPU, stages and
    epochs.  Every fifth is a GPU without a NIC.
    """
    rng = np.random.default_rng([44, seed])
    if seed % 5 == 4:
        gpus = int(rng.integers(3, 5))
        targets, sources = (rng.choice(np.arange(1, gpus), 2, replace=False) for _ in range(2))
        beat, inside, more = rng.integers((1, 2, -1), (3, 6, 2)).tolist()
        return without_nic(gpus, targets, sources, (beat, inside, inside + more))
    nodes, gpus, per_gpu = int(rng.integers(2, 4)), int(rng.integers(1, 3)), 1
    if gpus == 1 and rng.random() < 0.4:
        per_gpu = 2
    staged = bool(rng.random() < 0.6)
    rails = gpus * per_gpu
    demand = np.zeros((nodes * gpus,) * 2, np.int64)
    for _ in range(int(rng.integers(1, 5 if staged else 4))):
        g, h = rng.choice(nodes * gpus, 2, replace=False)
        demand[g, h] += 1
    send, recv = (
        rng.choice([2, 4, 0], (nodes, rails), p=[0.6, 0.3, 0.1] if rails > 1 else [0.7, 0.3, 0])
        for _ in range(2)
    )
    send[:, 0], recv[:, 0] = np.maximum(send[:, 0], 2), np.maximum(recv[:, 0], 2)
    near = np.repeat(np.eye(gpus, dtype=np.bool_), per_gpu, axis=1)
    startup = int(rng.integers(0, 6)) if staged else 4 * int(rng.integers(0, 3))
    inside = int(rng.integers(1, 4)) if staged else int(rng.choice([1, 2, 4]))
    peers = int(rng.integers(1, 3))
    return ChunkExchange(
        demand, send, recv, near, inside, startup, peers, 0 if staged else 4, Fraction(1)
    )


def without_nic(
    gpus: int, targets: Any, sources: Any, times: tuple[int, int, int]
) -> ChunkExchange:
    """Two servers; GPU 0 has a dead NIC, sends a chunk to GPUs `targets` of the other server and
    gets one from its `sources`.  Times of a chunk on a NIC and on scale-up, and of a start-up.
    """
    demand = np.zeros((2 * gpus,) * 2, np.int64)
    demand[0, gpus + np.asarray(targets)] = 1
    demand[gpus + np.asarray(sources), 0] = 1
    beat, inside, startup = times
    nics = np.full((2, gpus), beat)
    nics[0, 0] = 0
    near = np.eye(gpus, dtype=np.bool_)
    return ChunkExchange(demand, nics, nics, near, inside, startup, 1, 0, Fraction(1))


State = tuple[Any, ...]
Hop = tuple[Any, ...]


class States:
    """Where each chunk is: ("at",) its source, ("on", r) the owner of rail r before the wire,
    ("off", r) the owner of rail r after it, ("done",).
    """

    def __init__(self, exchange: ChunkExchange) -> None:
        self.e = exchange
        self.chunks = [
            (g, h)
            for g, h in np.argwhere(exchange.demand).tolist()
            for _ in range(exchange.demand[g, h])
            if g != h
        ]
        self._ways: dict[tuple[int, State], list[tuple[State, tuple[Hop, ...]]]] = {}
        self._costs: dict[tuple[Hop, ...], tuple[int, int] | None] = {}

    def hops(self, chunk: int, place: State) -> Iterator[tuple[State, Hop]]:
        """Every next place, and the hop: ("in", GPU, GPU) or ("wire", node, node, rail)."""
        e, (g, h) = self.e, self.chunks[chunk]
        i, j = g // e.gpus, h // e.gpus
        if place == ("done",):
            return
        if i == j:
            yield ("done",), ("in", g, h)
            return
        for r in range(e.rails):
            owner = int(np.argmax(e.near[:, r]))
            alive = e.send[i, r] and e.recv[j, r]
            after = ("done",) if e.near[h % e.gpus, r] else ("off", r)
            if place == ("at",) and not e.near[g % e.gpus, r]:
                yield ("on", r), ("in", g, i * e.gpus + owner)
            if alive and (place == ("on", r) or (place == ("at",) and e.near[g % e.gpus, r])):
                yield after, ("wire", i, j, r)
            if place == ("off", r):
                yield ("done",), ("in", j * e.gpus + owner, h)

    def ways(self, chunk: int, place: State) -> list[tuple[State, tuple[Hop, ...]]]:
        """What a chunk can do in a period: at most one hop, or in an epoch as many as it likes."""
        if (chunk, place) in self._ways:
            return self._ways[chunk, place]
        found: list[tuple[State, tuple[Hop, ...]]] = [(place, ())]
        for after, hop in self.hops(chunk, place):
            if self.e.epoch:
                found += [(last, (hop, *more)) for last, more in self.ways(chunk, after)]
            else:
                found.append((after, (hop,)))
        self._ways[chunk, place] = found
        return found

    def cost(self, hops: tuple[Hop, ...]) -> tuple[int, int] | None:
        """(time on the wire, time inside), or None where a NIC has too many peers."""
        if hops not in self._costs:  # wherever the chunks are that make none
            self._costs[hops] = self._cost(hops)
        return self._costs[hops]

    def _cost(self, hops: tuple[Hop, ...]) -> tuple[int, int] | None:
        e = self.e
        loads: Counter[Any] = Counter()
        met: dict[Any, set[int]] = {}
        for kind, a, b, *rail in hops:
            if kind == "in":
                loads["out", a] += e.inside
                loads["into", b] += e.inside
                continue
            (r,) = rail
            loads["wire", "s", a, r] += int(e.send[a, r])
            loads["wire", "r", b, r] += int(e.recv[b, r])
            met.setdefault(("s", a, r), set()).add(b)
            met.setdefault(("r", b, r), set()).add(a)
        if any(len(peers) > e.peers for peers in met.values()):
            return None
        wire = max((t for key, t in loads.items() if key[0] == "wire"), default=0)
        return wire, max((t for key, t in loads.items() if key[0] != "wire"), default=0)

    def steps(self, state: State) -> Iterator[tuple[State, tuple[Hop, ...], tuple[int, int]]]:
        for chosen in itertools.product(*(self.ways(c, p) for c, p in enumerate(state))):
            hops = tuple(hop for _, some in chosen for hop in some)
            cost = self.cost(hops)
            if cost is not None:
                yield tuple(after for after, _ in chosen), hops, cost


def by_stages(exchange: ChunkExchange) -> int:
    """The least time, by Dijkstra's search."""
    states = States(exchange)
    first = tuple(("at",) for _ in states.chunks)
    queue, done = [(0, first)], set[State]()
    while queue:
        spent, state = heapq.heappop(queue)
        if all(place == ("done",) for place in state):
            return spent
        if state in done:
            continue
        done.add(state)
        for after, _, (wire, inside) in states.steps(state):
            if after not in done and after != state:
                takes = max(inside, wire + exchange.startup if wire else 0)
                heapq.heappush(queue, (spent + takes, after))
    raise AssertionError("no schedule")


def by_epochs(exchange: ChunkExchange) -> int:
    """The least time, epoch by epoch: all states that can be reached, with the epoch in which each
    connection is ready.
    """
    states, busy = States(exchange), exchange.startup // exchange.epoch
    wanted = {(g // exchange.gpus, h // exchange.gpus) for g, h in states.chunks}
    calls = [
        (i, j, r) for i, j in wanted if i != j for r in range(exchange.rails) if exchange.send[i, r]
    ]
    reached: set[State] = {(tuple(("at",) for _ in states.chunks), frozenset[Any]())}
    for epoch in range(60):
        if any(all(place == ("done",) for place in state) for state, _ in reached):
            return epoch * exchange.epoch
        following: set[State] = set()
        for state, ready in reached:
            known = dict(ready)
            in_call = {(i, r) for (i, _, r), when in ready if when > epoch}
            for after, hops, (wire, inside) in states.steps(state):
                wires = [hop[1:] for hop in hops if hop[0] == "wire"]
                if max(wire, inside) > exchange.epoch or (
                    busy
                    and any(
                        (i, r) in in_call or known.get((i, j, r), 99) > epoch for i, j, r in wires
                    )
                ):
                    continue
                taken = in_call | {(i, r) for i, _, r in wires}
                free = [c for c in calls if (c[0], c[2]) not in taken and c not in known]
                for new in _calls(free) if busy else [()]:
                    begun = dict.fromkeys(new, epoch + busy)
                    following.add((after, frozenset({**known, **begun}.items())))
        reached = following
    raise AssertionError("no schedule within 60 epochs")


def _calls(free: list[tuple[int, int, int]]) -> Iterator[tuple[Any, ...]]:
    """Every set of calls, at most one per NIC."""
    by_nic: dict[Any, list[Any]] = {}
    for call in free:
        by_nic.setdefault((call[0], call[2]), []).append(call)
    for chosen in itertools.product(*([None, *some] for some in by_nic.values())):
        yield tuple(call for call in chosen if call is not None)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + INSTANCES))
def test_the_optimum_is_that_of_a_search_through_all_states(seed: int) -> None:
    exchange = instance(seed)
    backend = "pulp" if seed % 3 == 2 else "cpsat"
    found = best(exchange, backend, 60.0)
    truth = by_epochs(exchange) if exchange.epoch else by_stages(exchange)
    assert found.notes == ()
    assert found.table is not None
    assert found.bracket.value == truth == sum(lengths(exchange, found.table))
    assert str(found.bracket.status) in ("known", "claimed")
    assert bound(exchange).value <= truth


@pytest.mark.usefixtures("in_this_process")
def test_scale_up_alone_may_work_between_two_stages() -> None:
    """In the middle period one chunk comes in while another goes out."""
    small = without_nic(3, [1, 2], [1, 2], (1, 3, 3))
    found = best(small, limit_s=300.0)
    assert found.table is not None
    assert [t for t in lengths(small, found.table) if t] == [4, 3, 4]
    assert found.bracket.value == by_stages(small) == 11
    large = without_nic(4, [1, 2, 3], [1, 2, 3], (1, 2, 3))
    assert best(large, limit_s=300.0).bracket.value == 10
