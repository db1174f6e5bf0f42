"""What every policy does first and last."""

from __future__ import annotations

from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.errors import Infeasible, InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric

__all__ = [
    "MAX_COST",
    "MAX_TURNS",
    "MIN_COST",
    "Columns",
    "Costs",
    "check_alive",
    "costs",
    "rail_turns",
]

MAX_TURNS = 256
MAX_COST = 1 << 20
MIN_COST = 1 << 10
SLOWEST = 1 << 20  # times as slow as the fastest NIC: no slower one is told apart from it


class Columns(NamedTuple):
    """What a kernel reads of C chunks.

    src, dst   int32 [C], the sender (a row of `Costs.tx`) and the receiving node
    size       int64 [C], bytes
    largest    bytes of the largest chunk, 0 where there is none
    total      all bytes, or more: what sums are known to stay below
    """

    src: Array
    dst: Array
    size: Array
    largest: int
    total: int

    @classmethod
    def of(cls, chunks: Chunks) -> Columns:
        return cls(chunks.src, chunks.dst, chunks.size, chunks.largest, chunks.total)


class Costs(NamedTuple):
    """What a byte costs at each NIC, in whole numbers on one scale; 0 where it is dead.

    tx      int64 [senders, rails]: of the senders, of which the first is node `first`
    rx      int64 [nodes, rails]
    far     more than any sum of times
    """

    tx: Array
    rx: Array
    first: int = 0
    far: int = (1 << 63) - 1


def check_alive(fabric: Fabric, chunks: Chunks) -> None:
    """Refuse chunks between nodes that no living rail joins, and chunks of another fabric."""
    if chunks.nodes != fabric.nodes:
        raise InputError(f"chunks of {chunks.nodes} nodes, the fabric has {fabric.nodes}")
    if fabric.tx.min() > 0 and fabric.rx.min() > 0:
        return
    sends, receives = fabric.tx > 0, fabric.rx > 0
    if fabric.nodes**2 > len(chunks):
        stuck = ~np.any(sends[chunks.src] & receives[chunks.dst], axis=1)
    else:
        stuck = ~(sends @ receives.T)[chunks.src, chunks.dst]
    if stuck.any():
        row = int(np.argmax(stuck))
        k, f = int(chunks.src[row]), int(chunks.dst[row])
        source, target = fabric.node_name(k), fabric.node_name(f)
        raise Infeasible(
            f"no living rail from {source} to {target}: {source} can send on rails "
            f"{np.flatnonzero(fabric.tx[k]).tolist()}, {target} can receive on rails "
            f"{np.flatnonzero(fabric.rx[f]).tolist()}; "
            "repair a NIC or take their traffic away"
        )


def rail_turns(fabric: Fabric) -> Ints | None:
    """The rails in turn, each as often as its rate over the common divisor, spread out: what one
    fair round looks like.

    None where nodes differ, or where such a round would be longer than `MAX_TURNS`.
    """
    rates = fabric.tx[0]
    if np.any(fabric.tx != rates) or np.any(fabric.rx != rates) or not rates.any():
        return None
    shares = [rate // gcd(*rates.tolist()) for rate in rates.tolist()]
    if sum(shares) > MAX_TURNS:
        return None
    turns = [
        ((turn + 1) / share, rail) for rail, share in enumerate(shares) for turn in range(share)
    ]
    return np.array([rail for _, rail in sorted(turns)], np.int64)


def costs(fabric: Fabric) -> Costs:
    """The costs of all nodes of a fabric: scale / rate.

    The scale is the rates' least common multiple, so that costs are exact, where the slowest NIC's
    cost then is at most `MAX_COST`.  Else the slowest NIC's cost is `MAX_COST`, or more where the
    fastest one's would be below `MIN_COST`, and costs are rounded to the nearest.  A NIC that is
    more than `SLOWEST` times as slow as the fastest counts as that slow.
    """
    if fabric.is_uniform:
        ones = np.ones(fabric.tx.shape, np.int64)
        return Costs(ones, ones)
    rates, place = np.unique(np.stack([fabric.tx, fabric.rx]), return_inverse=True)
    live = [rate for rate in rates.tolist() if rate] or [1]
    slowest = max(live[0], live[-1] // SLOWEST)
    live = [slowest, *(rate for rate in live if rate > slowest)]
    scale = 1
    for rate in live:
        scale = lcm(scale, rate)
        if scale // slowest > MAX_COST:
            scale = max(MAX_COST * slowest, MIN_COST * live[-1])
            break
    cost = [_rounded(scale, max(rate, slowest)) if rate else 0 for rate in rates.tolist()]
    tx, rx = np.array(cost, np.int64)[place.reshape(2, *fabric.tx.shape)]
    return Costs(tx, rx)


def _rounded(a: int, b: int) -> int:
    """a / b, to the nearest."""
    return (2 * a + b) // (2 * b)
