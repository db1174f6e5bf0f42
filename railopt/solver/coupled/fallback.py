"""A plan and a bound without any kernel: what is known of a problem before the first step is done.

Nothing is compiled or imported for them, so that an interrupt in the first moment of a solve, or a
kernel that can't run, still leaves an answer.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from railopt.arrays import Rails
from railopt.bounds import Witness, average, node_sizes
from railopt.chunks import Chunks
from railopt.fabric import Fabric
from railopt.plans import SIDES


def plain_lpt(fabric: Fabric, chunks: Chunks) -> Rails:
    """int16 [C]: each chunk, largest first, to the rail of its sender that is done with it first
    and lives at both ends (LPT, Graham 1969).
    """
    load = [[0] * fabric.rails for _ in range(fabric.nodes)]
    tx, rx = fabric.tx.tolist(), fabric.rx.tolist()
    src, dst, size = chunks.src.tolist(), chunks.dst.tolist(), chunks.size.tolist()
    rail = np.zeros(len(chunks), np.int16)
    for chunk in np.argsort(-chunks.size, kind="stable").tolist():
        rates, sent, into = tx[src[chunk]], load[src[chunk]], rx[dst[chunk]]
        living = [n for n in range(fabric.rails) if rates[n] and into[n]]
        first = min(living, key=lambda n: (sent[n] + size[chunk]) / rates[n])
        sent[first] += size[chunk]
        rail[chunk] = first
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
