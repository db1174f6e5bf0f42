"""How fast two servers can exchange bytes over NICs that differ, are slow or are dead.

A transfer from server i to server j uses every rail that is alive at both, each in proportion to
the slower of its two NICs, so that all rails end together.  Its rate is the sum of those.  What it
takes is counted in *equal bytes*: what the fastest pair of servers would exchange meanwhile.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.errors import Infeasible
from railopt.base.kernels import kernel
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic

MOST = 1 << 20  # numerators, denominators and weights: products with bytes stay within int64


class PairRates(NamedTuple):
    """The rates of the pairs of servers of a fabric.

    fastest   bytes per second of the fastest pair
    width     that over the rate of the fastest NIC: how many NICs it is worth
    up, down  int64 [nodes, nodes]: a byte of the pair is worth up / down equal bytes; 0 / 1 where
              no rail is alive at both
    weights   int64 [2, nodes, rails]: rates of sending and receiving, in a common unit
    """

    fastest: int
    width: Fraction
    up: Ints
    down: Ints
    weights: Ints


@lru_cache(maxsize=16)
def pair_rates(fabric: Fabric) -> PairRates:
    """The rates of a fabric's pairs."""
    nodes, top = fabric.nodes, int(max(fabric.tx.max(), fabric.rx.max()))
    pair = np.zeros((nodes, nodes), np.int64)
    for rail in range(fabric.rails):
        pair += np.minimum.outer(fabric.tx[:, rail], fabric.rx[:, rail])
    fastest = int(pair.max())
    up, down = np.zeros_like(pair), np.ones_like(pair)
    for rate in np.unique(pair[pair > 0]).tolist():
        worth = Fraction(fastest, rate).limit_denominator(MOST)
        up[pair == rate], down[pair == rate] = worth.numerator, worth.denominator
    rates = np.stack([fabric.tx, fabric.rx])
    unit = max(gcd(*np.unique(rates).tolist()), -(-top // MOST), 1)
    weights = -(-rates // unit)
    for each in (up, down, weights):
        each.setflags(write=False)
    return PairRates(fastest, Fraction(fastest, max(1, top)), up, down, weights)


def require_reachable(fabric: Fabric, traffic: Traffic) -> None:
    """Refuse traffic between servers that have no living rail in common."""
    if fabric.is_uniform:
        return
    apart = np.argwhere((traffic.node_matrix > 0) & (pair_rates(fabric).up == 0))
    for i, j in apart.tolist():
        if i != j:
            raise Infeasible(f"no rail is alive at both server {i} and server {j}, which has bytes")


def busiest_nic(fabric: Fabric, matrix: Ints) -> int:
    """What the busiest NIC takes for int64 [nodes, nodes] bytes, each transfer split by the slower
    NIC of each rail, in equal bytes.
    """
    rates, most = pair_rates(fabric), 0
    worth = equal_bytes(matrix, rates.up, rates.down)
    for tx, rx in zip(*rates.weights.swapaxes(1, 2), strict=True):
        slower = np.minimum.outer(tx, rx)
        for own, axis in ((tx[:, None], 1), (rx, 0)):
            own = np.maximum(own, 1)
            busy = worth // own * slower + -(-(worth % own * slower) // own)
            most = max(most, int(busy.sum(axis=axis).max()))
    return most


@kernel
def equal_bytes(matrix: Array, up: Array, down: Array) -> Array:
    """int64 [n, n] bytes in equal bytes, rounded up."""
    n = len(matrix)
    found = np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            whole, rest = matrix[i, j] // down[i, j], matrix[i, j] % down[i, j]
            found[i, j] = whole * up[i, j] + (rest * up[i, j] + down[i, j] - 1) // down[i, j]
    return found


@kernel
def real_bytes(
    matrix: Array, peer: Array, sent: Array, up: Array, down: Array
) -> tuple[Array, Array]:
    """Stages of equal bytes, (peer, sent) [stages, n], as stages of the bytes of `matrix`: of each
    pair the share that has gone after a stage, rounded down, until all is gone.
    """
    stages, n = sent.shape
    gone, real = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    peers, bytes_ = np.full((stages, n), -1, np.int32), np.zeros((stages, n), np.int64)
    count = 0
    for s in range(stages):
        busy = False
        for i in range(n):
            j = peer[s, i]
            if j < 0:
                continue
            gone[i, j] += sent[s, i]
            whole, rest = gone[i, j] // up[i, j], gone[i, j] % up[i, j]
            due = min(matrix[i, j], whole * down[i, j] + rest * down[i, j] // up[i, j])
            if due > real[i, j]:
                peers[count, i], bytes_[count, i] = j, due - real[i, j]
                real[i, j] = due
                busy = True
        count += busy
    return peers[:count].copy(), bytes_[:count].copy()
