"""A plan and a bound without any kernel: what is known of a problem before the first step is done.

Nothing is compiled or imported for them, so that an interrupt in the first moment of a solve, or a
kernel that can't run, still leaves an answer.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from railopt.base.arrays import Rails, by_key
from railopt.evidence.bounds import Witness, average, node_sizes
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import SIDES

GOLDEN = 0.6180339887498949  # turns the first rail of each pair of nodes, evenly
SHARES = "shares of rates"


def shared_out(fabric: Fabric, chunks: Chunks) -> Rails:
    """int16 [C]: the bytes of each pair of nodes, laid end to end, are cut into shares of its
    rails' rates, the slower end's; a chunk goes to the rail in whose share its middle lies.
    """
    pair = chunks.src.astype(np.int64) * fabric.nodes + chunks.dst
    order = by_key(pair)
    pairs, first, count = np.unique(pair[order], return_index=True, return_counts=True)
    size = chunks.size[order].astype(np.float64)
    ends = np.cumsum(size)
    begin = (ends - size)[first]
    whole = ends[first + count - 1] - begin
    place = (ends - size / 2 - np.repeat(begin, count)) / np.repeat(whole, count)
    rates = np.minimum(fabric.tx[pairs // fabric.nodes], fabric.rx[pairs % fabric.nodes])
    share = np.cumsum(rates / rates.sum(axis=1, keepdims=True), axis=1)
    last = fabric.rails - 1 - np.argmax(rates[:, ::-1] > 0, axis=1)  # whatever the sum rounds to
    share[np.arange(fabric.rails) >= last[:, None]] = np.inf
    place = (place + np.repeat(pairs * GOLDEN, count)) % 1.0
    which = np.repeat(np.arange(len(pairs)), count)
    rail = np.zeros(len(chunks), np.int16)
    for n in range(fabric.rails - 1):
        rail[order] += place >= share[which, n]
    return rail


def first_bound(fabric: Fabric, chunks: Chunks) -> tuple[Fraction, Witness]:
    """The average bound, in seconds, of the node and side that has the most to carry for its
    rates.
    """
    side, node = most_loaded(fabric, chunks)
    sizes = node_sizes(fabric, chunks, side, node)
    bound, witness = average(sizes, fabric.rates(side)[node].tolist())
    return bound, {"kind": "node", "node": node, "side": side, "witness": witness}


def most_loaded(fabric: Fabric, chunks: Chunks) -> tuple[str, int]:
    """(side, node) with the most bytes for its rates."""
    means = []
    for side, ends in zip(SIDES, (chunks.src, chunks.dst), strict=True):
        total = np.zeros(fabric.nodes, np.int64)
        np.add.at(total, ends, chunks.size)
        means.append(total / np.maximum(fabric.rates(side).sum(axis=1), 1))
    row, node = divmod(int(np.argmax(means)), fabric.nodes)
    return SIDES[row], node
