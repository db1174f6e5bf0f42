"""Epochs in which scale-up is never full: the exchange of whole servers has the same optimum.

The GPU that a chunk comes from then matters to no NIC, and it makes its hops inside servers in the
epoch in which it is on the wire.  The program of the servers has fewer columns by far.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railopt.solver.epochs.exchange import ChunkExchange, Timetable, at_once, empty


def between_servers(exchange: ChunkExchange, epochs: int) -> ChunkExchange:
    """The same exchange with one GPU per server, where no schedule of `epochs` or more epochs fills
    a scale-up port; else the exchange as it is.
    """
    if exchange.gpus == 1 or not len(exchange.pairs) or _filled(exchange, epochs):
        return exchange
    n, gpus = exchange.nodes, exchange.gpus
    demand = exchange.demand.reshape(n, gpus, n, gpus).sum(axis=(1, 3))
    np.fill_diagonal(demand, 0)
    return replace(exchange, demand=demand, near=np.ones((1, exchange.rails), np.bool_))


def _filled(exchange: ChunkExchange, epochs: int) -> bool:
    """Whether a port may be full: what all NICs at their rates ask of it, and its share of what
    stays inside the server, are more than an epoch carries.
    """
    sent, got = (
        np.where(times > 0, exchange.epoch // np.maximum(times, 1), 0)
        for times in (exchange.send, exchange.recv)
    )
    owned = np.arange(exchange.gpus)[:, None] == exchange.owner
    stays = np.zeros_like(exchange.demand)
    inner = tuple(exchange.inner.T)
    stays[inner] = -(-exchange.demand[inner] // epochs)
    for gives, takes, kept in ((sent, got, stays.sum(axis=1)), (got, sent, stays.sum(axis=0))):
        asked = gives @ (~exchange.near).T + takes @ owned.T
        if ((asked.reshape(-1) + kept) * exchange.inside > exchange.epoch).any():
            return True
    return False


def between_gpus(exchange: ChunkExchange, servers: ChunkExchange, table: Timetable) -> Timetable:
    """A timetable of `between_servers` as one of the exchange itself."""
    if servers is exchange:
        return table
    epochs = len(table.wire)
    found = empty(exchange, epochs)
    found.start[:] = table.start
    left = exchange.demand.copy()
    source, target = exchange.node_of[exchange.pairs.T]
    for pair, (i, j) in enumerate(servers.pairs.tolist()):
        some = np.flatnonzero((source == i) & (target == j)).tolist()
        for p, rail in np.argwhere(table.wire[:, pair]).tolist():
            for _ in range(int(table.wire[p, pair, rail])):
                at = next(k for k in some if left[tuple(exchange.pairs[k])])
                left[tuple(exchange.pairs[at])] -= 1
                found.wire[p, at, rail] += 1
    for pair, (g, h) in enumerate(exchange.inner.tolist()):
        np.add.at(found.local[:, pair], np.arange(exchange.demand[g, h]) % epochs, 1)
    return at_once(exchange, found)
