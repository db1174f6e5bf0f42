"""Even to every destination, moving only the excess; no node knows more than its own row.

For each destination every rail should carry its share of what the node sends there (an equal one
where NICs are alike).  What a GPU has beyond the share of its own NIC is its excess: that much goes
to rails that have less, and nothing else is moved.  Where traffic divides, every NIC of every node
then sends and receives evenly (theorem T1: even to each destination is optimal on both sides), and
no smaller staging evens a destination out.  Where it does not divide, a rail is off by about half a
chunk per destination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints, Rails
from railopt.base.errors import InputError
from railopt.base.kernels import PASSES_S, added_up, kernel, part
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.common import check_alive
from railopt.policies.rounds import largest_of_each, pair_numbers

__all__ = ["DEBT", "EvenSenders", "even_excess"]

DEBT = 2  # 1 / 2**DEBT: how much a rail's debts elsewhere count
LARGEST = 1 << 20  # the largest share of a rail


class Rows(NamedTuple):
    """What a kernel reads of C chunks of some senders.

    sender    int32 [C], a row of `Shares.tx`
    pair      int [C], the number of (sender, receiver) among `pairs`
    gpu       int32 [C], GPU ids; those of sender 0 begin at `first`
    dst       int32 [C], the receiving node
    size      int64 [C], bytes
    """

    sender: Array
    gpu: Array
    dst: Array
    size: Array
    first: int
    pair: Array
    pairs: int


class Shares(NamedTuple):
    """Rates as small whole numbers, 0 where a NIC is dead: [senders, rails], [nodes, rails]."""

    tx: Array
    rx: Array


class Near(NamedTuple):
    """The rails of GPU g: `rails[first[g] : first[g + 1]]`."""

    rails: Array
    first: Array


def near_lists(near: Array) -> Near:
    """The near rails of each GPU, from bool [gpus, rails]."""
    first = np.concatenate([[0], np.cumsum(near.sum(axis=1))])
    return Near(np.nonzero(near)[1].astype(np.int64), first.astype(np.int64))


def _shares(tx: Array, rx: Array) -> Shares:
    """The shares of rates in bytes per second."""
    shift = max(0, int(max(tx.max(), rx.max())).bit_length() - LARGEST.bit_length())
    return Shares(*(np.where(rate > 0, np.maximum(rate >> shift, 1), 0) for rate in (tx, rx)))


@part
def _due(rows: Rows, shares: Shares) -> Array:
    """int64 [pairs, rails]: minus the bytes that each rail should carry to a destination, by the
    shares of its NICs.
    """
    due = added_up(rows.pair, rows.size, rows.pairs).reshape(-1, 1)
    one = np.zeros(rows.pairs, np.int64)  # a chunk of each pair
    one[rows.pair] = np.arange(rows.size.size)
    share = np.minimum(shares.tx[rows.sender[one]], shares.rx[rows.dst[one]])
    whole = share.sum(axis=1).reshape(-1, 1)
    return -(due // whole * share + due % whole * share // whole)


@part
def _put(over: Array, debt: Array, n: int, size: int) -> None:
    """`size` bytes of a pair on rail n; what goes beyond its share is a debt of the sender."""
    before = max(over[n], 0)
    over[n] += size
    debt[n] += max(over[n], 0) - before


@part
def _lowest(over: Array, shares: Shares, debt: Array, at: tuple[int, int, int], best: int) -> int:
    """The living rail that is furthest below what is due from sender k to node f, `over` [rails],
    its debts counted too; among equals `best`, if that is a rail, then the first from `begin` on.
    """
    k, f, begin = at
    rails = debt.size
    least = np.int64(2**63 - 1)
    if best < rails:
        least = over[best] + (debt[best] >> DEBT)
    for i in range(rails):
        n = (i + begin) % rails
        alive = shares.tx[k, n] > 0 and shares.rx[f, n] > 0
        if alive and over[n] + (debt[n] >> DEBT) < least:
            best, least = n, over[n] + (debt[n] >> DEBT)
    return best


@part
def stay_near(
    rows: Rows, shares: Shares, near: Near, loads: tuple[Array, Array], rail: Array
) -> Ints:
    """Put each chunk on the emptiest of its GPU's own rails if at least half of it is due there.
    Returns the others; `rail` says of these which that is: -1 - n, or -1 - rails if there is none.
    """
    over, debt = loads
    rails, gpus = debt.shape[1], near.first.size - 1
    waiting, count = np.empty(rail.size, np.int64), 0
    for c in range(rail.size):
        k, f, to = rows.sender[c], rows.dst[c], over[rows.pair[c]]
        g = rows.gpu[c] - rows.first - k * gpus
        own = -1
        for i in range(near.first[g], near.first[g + 1]):
            n = near.rails[i]
            alive = shares.tx[k, n] > 0 and shares.rx[f, n] > 0
            if alive and (own < 0 or to[n] < to[own]):
                own = n
        if own >= 0 and to[own] + (rows.size[c] >> 1) <= 0:
            _put(to, debt[k], own, rows.size[c])
            rail[c] = own
        else:
            rail[c] = -1 - own if own >= 0 else -1 - rails
            waiting[count] = c
            count += 1
    return waiting[:count]


def _move_by_lists(rows: Rows, shares: Shares, near: Near, rail: Array) -> None:
    """`_move_excess` for Python, which is faster on lists."""
    gpus, (senders, rails) = len(near.first) - 1, shares.tx.shape
    over, debt = _due(rows, shares).tolist(), [[0] * rails for _ in range(senders)]
    near_of = [each.tolist() for each in np.split(near.rails, near.first[1:-1])]
    source = rows.gpu - rows.first - rows.sender * gpus
    taken = (rows.sender, rows.dst, rows.pair, source, rows.size)
    chunks = list(zip(*(column.tolist() for column in taken), strict=True))
    largest = largest_of_each(rows.sender, rows.size, senders).tolist()
    alive: dict[tuple[int, int], list[int]] = {}  # from `begin` of `_lowest` on
    own: dict[tuple[int, int, int], list[int]] = {}
    chosen = []
    for k, f, p, g, size in chunks:
        if (k, f, g) not in own:
            order = (np.arange(rails) + rows.first // gpus + k + f) % rails
            alive[k, f] = order[(shares.tx[k, order] > 0) & (shares.rx[f, order] > 0)].tolist()
            for other, rails_near in enumerate(near_of):
                own[k, f, other] = [n for n in rails_near if n in alive[k, f]]
        mine, to = own[k, f, g], over[p]
        n = mine[0] if len(mine) == 1 else min(mine, key=to.__getitem__, default=rails)
        if n < rails and to[n] + (size >> 1) <= 0:
            to[n] += size
            if to[n] > 0:
                debt[k][n] += to[n]
        else:
            n = -1 - n
        chosen.append(n)
    for step in range(3):
        for c in [c for c, n in enumerate(chosen) if n < 0]:
            k, f, p, _, size = chunks[c]
            to, debts = over[p], debt[k]
            if step == 2:
                first = [-1 - chosen[c]] if chosen[c] >= -rails else []
                lowest = min(first + alive[k, f], key=lambda n: to[n] + (debts[n] >> DEBT))
            elif step == 0 and size != largest[k]:
                continue
            else:
                lowest = min(alive[k, f], key=to.__getitem__)
                if to[lowest] + (size >> 1) > 0:
                    continue
            debts[lowest] += max(to[lowest] + size, 0) - max(to[lowest], 0)
            to[lowest] += size
            chosen[c] = lowest
    rail[:] = chosen


# compiles for 5.5 s: 14,513 chunks take 1.2 ms, 20 on lists
@kernel(numpy=_move_by_lists, element_s=PASSES_S)
def _move_excess(rows: Rows, shares: Shares, near: Near, rail: Array) -> None:
    """Fill `rail`.  A chunk stays on the emptiest of its GPU's own rails if at least half of it is
    due there.  Of the others, those of a sender's largest size first, each goes, in order, to the
    rail that is furthest below what is due to its destination, if at least half of it is due
    there: so far destinations do not touch each other.  The few that are left do the same, a
    rail's debts elsewhere counted too, unless their own rail is as far below.
    """
    over = _due(rows, shares)
    debt = np.zeros(shares.tx.shape, np.int64)
    rails = shares.tx.shape[1]
    none = np.zeros(rails, np.int64)
    node = rows.first // (near.first.size - 1)  # of sender 0
    waiting = stay_near(rows, shares, near, (over, debt), rail)
    largest = largest_of_each(rows.sender, rows.size, shares.tx.shape[0])
    for smaller in range(2):
        for c in waiting:
            k, f, to = rows.sender[c], rows.dst[c], over[rows.pair[c]]
            if rail[c] < 0 and (smaller or rows.size[c] == largest[k]):
                best = _lowest(to, shares, none, (k, f, node + k + f), rails)
                if to[best] + (rows.size[c] >> 1) <= 0:
                    _put(to, debt[k], best, rows.size[c])
                    rail[c] = best
    for c in waiting:
        if rail[c] < 0:
            k, f, to = rows.sender[c], rows.dst[c], over[rows.pair[c]]
            best = _lowest(to, shares, debt[k], (k, f, node + k + f), -1 - rail[c])
            _put(to, debt[k], best, rows.size[c])
            rail[c] = best


@dataclass(frozen=True)
class EvenSenders:
    """Who plans, each for itself: all nodes of a fabric, or one of them.

    first   the node of row 0 of `tx`
    """

    first: int
    shares: Shares
    near: Near

    @classmethod
    def of(cls, fabric: Fabric, node: int | None = None) -> EvenSenders:
        """All nodes, or `node` alone."""
        shares = _shares(fabric.tx, fabric.rx)
        if node is not None:
            shares = shares._replace(tx=shares.tx[node : node + 1])
        return cls(node or 0, shares, near_lists(fabric.node.near))

    def assign(self, sender: Array, gpu: Array, dst: Array, size: Array, rail: Rails) -> None:
        """Fill `rail`, int16 [C]; columns as in `Rows`."""
        gpus = len(self.near.first) - 1
        pairs = pair_numbers(sender, dst, self.shares.tx, len(self.shares.rx))
        rows = Rows(sender, gpu, dst, size, self.first * gpus, *pairs)
        _move_excess(rows, self.shares, self.near, rail)


def even_excess(fabric: Fabric, chunks: Chunks) -> Plan:
    """Chunks on their own GPU's rails as far as these are due them, the excess on others."""
    check_alive(fabric, chunks)
    if chunks.gpus != fabric.gpus:
        raise InputError(
            "even-excess needs to know the source GPU of each chunk: cut them from a Traffic or "
            "from_units, not from_arrays"
        )
    rail = np.empty(len(chunks.size), np.int16)
    if len(rail):
        senders = EvenSenders.of(fabric)
        senders.assign(chunks.src, chunks.src_gpu, chunks.dst, chunks.size, rail)
    return Plan.of(fabric, chunks, rail, "even-excess")
