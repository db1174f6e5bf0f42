"""A greedy timetable in epochs: each NIC sends the first chunk that it may send."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.epochs.exchange import ChunkExchange, Timetable, at_once, empty


class _Epoch:
    """What is left of an epoch: of NICs and scale-up ports, and whom each NIC has met."""

    def __init__(self, exchange: ChunkExchange) -> None:
        self.exchange = exchange
        self.sent, self.got = np.zeros_like(exchange.send), np.zeros_like(exchange.recv)
        self.out, self.into = np.zeros((2, len(exchange.demand)), np.int64)
        self.met: set[tuple[int, int, int]] = set()

    def fits(self, g: int, h: int, rail: int, calling: set[tuple[int, int]]) -> bool:
        """Whether a chunk from GPU g to GPU h can still go on a rail; if so, it does."""
        e, met = self.exchange, self.met
        i, j = int(e.node_of[g]), int(e.node_of[h])
        peers = {b for a, b, r in met if (a, r) == (i, rail)} | {j}
        others = {a for a, b, r in met if (b, r) == (j, rail)} | {i}
        hops = [
            (a, b)
            for a, b in ((g, i * e.gpus + e.owner[rail]), (j * e.gpus + e.owner[rail], h))
            if not e.near[(a if a == g else b) % e.gpus, rail]
        ]
        ports = [self.out[a] for a, _ in hops] + [self.into[b] for _, b in hops]
        if (
            (i, rail) in calling
            or self.sent[i, rail] + e.send[i, rail] > e.epoch
            or self.got[j, rail] + e.recv[j, rail] > e.epoch
            or max(len(peers), len(others)) > e.peers
            or any(used + e.inside > e.epoch for used in ports)
        ):
            return False
        self.sent[i, rail] += e.send[i, rail]
        self.got[j, rail] += e.recv[j, rail]
        self.met.add((i, j, rail))
        for a, b in hops:
            self.out[a] += e.inside
            self.into[b] += e.inside
        return True

    def fits_inside(self, g: int, h: int) -> bool:
        """The same of a chunk that stays inside its server."""
        inside = self.exchange.inside
        if max(self.out[g], self.into[h]) + inside > self.exchange.epoch:
            return False
        self.out[g] += inside
        self.into[h] += inside
        return True


def in_epochs(exchange: ChunkExchange, load: Ints) -> Timetable:
    """The timetable of chunks whose rails are given, `load` int64 [pairs, rails].  A NIC calls the
    servers that it sends to before it sends anything, the next one on first; a chunk gives and
    takes in the epoch in which it is on the wire.
    """
    left, inner = load.copy(), exchange.demand[tuple(exchange.inner.T)]
    n, ready = exchange.nodes, dict[tuple[int, int, int], int]()
    source, target = exchange.node_of[exchange.pairs.T]
    rows = list[Timetable]()
    while left.any() or inner.any():
        p, epoch, row = len(rows), _Epoch(exchange), empty(exchange, 1)
        calling = _call(exchange, load, ready, p, row) if exchange.starts else set()
        shift = (target - source) % n
        for pair in np.lexsort((np.arange(len(left)), (shift + p) % n)).tolist():
            g, h = exchange.pairs[pair].tolist()
            for rail in np.flatnonzero(left[pair]).tolist():
                link = (int(source[pair]), int(target[pair]), rail)
                while (
                    left[pair, rail]
                    and (not exchange.starts or ready.get(link, p + 1) <= p)
                    and epoch.fits(g, h, rail, calling)
                ):
                    left[pair, rail] -= 1
                    row.wire[0, pair, rail] += 1
        for pair, (g, h) in enumerate(exchange.inner.tolist()):
            while inner[pair] and epoch.fits_inside(g, h):
                inner[pair] -= 1
                row.local[0, pair] += 1
        rows.append(row)
    parts = zip(empty(exchange, 0), *rows, strict=True)
    return at_once(exchange, Timetable(*(np.concatenate(part) for part in parts)))


def _call(
    exchange: ChunkExchange,
    load: Ints,
    ready: dict[tuple[int, int, int], int],
    p: int,
    row: Timetable,
) -> set[tuple[int, int]]:
    """Begin the next start-up of each NIC; the NICs that are in one in epoch p."""
    source, target = exchange.node_of[exchange.pairs.T]
    calling = {(i, r) for (i, _, r), when in ready.items() if when > p}
    for i, rail in np.argwhere(exchange.send).tolist():
        for step in range(1, exchange.nodes):
            j = (i + step) % exchange.nodes
            needed = load[(source == i) & (target == j), rail].any()
            if needed and (i, j, rail) not in ready and (i, rail) not in calling:
                ready[i, j, rail] = p + exchange.starts
                row.start[0, i, j, rail] = 1
                calling.add((i, rail))
    return calling
