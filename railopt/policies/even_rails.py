"""The kernel of `even-excess`: what a GPU has too much for a destination goes to rails that have
too little for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part

__all__ = ["Near", "Rows", "Shares", "even_excess", "near_lists", "shares"]

DEBT = 2  # 1 / 2**DEBT: how much a rail's debts elsewhere count
LARGEST = 1 << 20  # the largest share of a rail


class Rows(NamedTuple):
    """What a kernel reads of C chunks of some senders.

    sender    int32 [C], a row of `Shares.tx`
    gpu       int32 [C], GPU ids; those of sender 0 begin at `first`
    dst       int32 [C], the receiving node
    size      int64 [C], bytes
    """

    sender: Array
    gpu: Array
    dst: Array
    size: Array
    first: int


class Shares(NamedTuple):
    """Rates as small whole numbers, 0 where a NIC is dead: [senders, rails], [nodes, rails]."""

    tx: Array
    rx: Array


class Near(NamedTuple):
    """The rails of GPU g: `rails[first[g] : first[g + 1]]`."""

    rails: Array
    first: Array


def near_lists(near: Array) -> Near:
    """From bool [gpus, rails]."""
    first = np.concatenate([[0], np.cumsum(near.sum(axis=1))])
    return Near(np.nonzero(near)[1].astype(np.int64), first.astype(np.int64))


def shares(tx: Array, rx: Array) -> Shares:
    """From rates in bytes per second."""
    shift = max(0, int(max(tx.max(), rx.max())).bit_length() - LARGEST.bit_length())
    return Shares(*(np.where(rate > 0, np.maximum(rate >> shift, 1), 0) for rate in (tx, rx)))


@part
def _due(rows: Rows, shares: Shares) -> Array:
    """int64 [senders, nodes, rails]: minus the bytes that each rail should carry to a destination,
    by the shares of its NICs.
    """
    senders, rails = shares.tx.shape
    nodes = shares.rx.shape[0]
    over = np.zeros((senders, nodes, rails), np.int64)
    due = np.zeros((senders, nodes), np.int64)
    for c in range(rows.size.size):
        due[rows.sender[c], rows.dst[c]] += rows.size[c]
    for k in range(senders):
        for f in range(nodes):
            if due[k, f] == 0:
                continue
            whole = 0
            for n in range(rails):
                whole += min(shares.tx[k, n], shares.rx[f, n])
            for n in range(rails):
                share = min(shares.tx[k, n], shares.rx[f, n])
                over[k, f, n] = -(due[k, f] // whole * share + due[k, f] % whole * share // whole)
    return over


@part(inline="always")
def _put(over: Array, debt: Array, k: int, f: int, n: int, size: int) -> None:
    """`size` bytes of sender k for node f on rail n; what goes beyond its share is a debt."""
    before = max(over[k, f, n], 0)
    over[k, f, n] += size
    debt[k, n] += max(over[k, f, n], 0) - before


@part
def _lowest(over: Array, shares: Shares, debt: Array, at: tuple[int, int, int], best: int) -> int:
    """The living rail that is furthest below what is due from sender k to node f, its debts
    counted too; among equals `best`, if that is a rail, then the first from `begin` on.
    """
    k, f, begin = at
    rails = debt.size
    least = np.int64(2**63 - 1)
    if best < rails:
        least = over[k, f, best] + (debt[best] >> DEBT)
    for i in range(rails):
        n = (i + begin) % rails
        alive = shares.tx[k, n] > 0 and shares.rx[f, n] > 0
        if alive and over[k, f, n] + (debt[n] >> DEBT) < least:
            best, least = n, over[k, f, n] + (debt[n] >> DEBT)
    return best


@kernel
def even_excess(rows: Rows, shares: Shares, near: Near, rail: Array) -> None:
    """Fill `rail`.  A chunk stays on the emptiest of its GPU's own rails if at least half of it is
    due there.  Of the others, those of a sender's largest size first, each goes, in order, to the
    rail that is furthest below what is due to its destination, if at least half of it is due
    there: so far destinations do not touch each other.  The few that are left do the same, a
    rail's debts elsewhere counted too, unless their own rail is as far below.
    """
    over = _due(rows, shares)
    debt = np.zeros(shares.tx.shape, np.int64)
    rails, gpus = shares.tx.shape[1], near.first.size - 1
    none = np.zeros(rails, np.int64)
    node = rows.first // gpus  # of sender 0
    largest = np.zeros(shares.tx.shape[0], np.int64)
    for c in range(rail.size):
        largest[rows.sender[c]] = max(largest[rows.sender[c]], rows.size[c])
    for c in range(rail.size):
        k, f = rows.sender[c], rows.dst[c]
        g = rows.gpu[c] - rows.first - k * gpus
        own = -1
        for i in range(near.first[g], near.first[g + 1]):
            n = near.rails[i]
            alive = shares.tx[k, n] > 0 and shares.rx[f, n] > 0
            if alive and (own < 0 or over[k, f, n] < over[k, f, own]):
                own = n
        if own >= 0 and over[k, f, own] + (rows.size[c] >> 1) <= 0:
            _put(over, debt, k, f, own, rows.size[c])
            rail[c] = own
        else:
            rail[c] = -1 - own if own >= 0 else -1 - rails
    for smaller in range(2):
        for c in range(rail.size):
            k, f = rows.sender[c], rows.dst[c]
            if rail[c] < 0 and (smaller or rows.size[c] == largest[k]):
                best = _lowest(over, shares, none, (k, f, node + k + f), rails)
                if over[k, f, best] + (rows.size[c] >> 1) <= 0:
                    _put(over, debt, k, f, best, rows.size[c])
                    rail[c] = best
    for c in range(rail.size):
        if rail[c] < 0:
            k, f = rows.sender[c], rows.dst[c]
            best = _lowest(over, shares, debt[k], (k, f, node + k + f), -1 - rail[c])
            _put(over, debt, k, f, best, rows.size[c])
            rail[c] = best
