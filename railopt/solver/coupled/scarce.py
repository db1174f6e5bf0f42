"""Rails of a node that its far ends can hardly fill, being dead or slow there.

Where such a rail has to be full, the chunks of a few far ends have to fill it, of a slow one as
many as its own NIC can carry: sums of few sizes, which searches that move a chunk at a time rarely
meet.  So these rails are filled before the others, far end after far end, with sets of chunks whose
sums are looked for exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.coupled.search import SIDE, Cells
from railopt.solver.local.subsets import best_subset

TIMES = 64  # that are looked at for one in which whole units fit
POOL, ALIKE = 24, 8  # chunks whose sums are looked for, and how many of them may be of one size
TRIES = 4  # to find a sum, with other chunks in the pool


def reachable(cells: Cells, time: Fraction) -> Fraction:
    """The first time from this one on in which every node's NICs can carry its bytes in whole
    units, as far as its far ends can take them there.
    """
    wraps = cells.chunks.total * cells.fabric.rails >= 2**62
    if cells.fabric.is_uniform or wraps:
        return time
    rates = [rate for rate in np.unique(cells.rate).tolist() if rate]
    for _ in range(TIMES):
        if _hold(cells, time):
            break
        unit = cells.unit
        time = min(Fraction((time * rate // unit + 1) * unit, rate) for rate in rates)
    return time


def _hold(cells: Cells, time: Fraction) -> bool:
    """Whether each node's NICs and its far ends can carry its bytes in `time` seconds, in whole
    units.
    """
    whole, matrix = cells.whole(time), cells.chunks.node_matrix
    for row, between in enumerate((matrix, matrix.T)):
        offered = np.minimum(whole[1 - row], between[:, :, None]).sum(axis=1)
        if np.any(np.minimum(whole[row], offered).sum(axis=1) < cells.total[row]):
            return False
    return True


def settled(cells: Cells, side: str, node: int, time: Fraction, seed: int) -> Ints | None:
    """int64 [n]: the rails of those of a node's chunks, largest first, that fill its scarce rails
    in `time` seconds, -1 for the others; None where no such chunks were found.
    """
    rows = cells.node_chunks(side, node)
    rail, scarce = np.full(len(rows), -1, np.int64), cells.scarce(side, node, time)
    if not scarce.any():
        return rail
    sizes, far = cells.chunks.size[rows], cells.end[1 - SIDE[side], rows]
    offered, rng = cells.offered(side, node, time), np.random.default_rng(seed)
    most = np.minimum(cells.whole(time)[SIDE[side], node], offered.sum(axis=0)).tolist()
    slack = sum(most) - int(sizes.sum())
    if slack < 0:
        return None
    for n in sorted(np.flatnonzero(scarce).tolist(), key=most.__getitem__):
        left = np.where(rail < 0, far, -1)
        chosen = _filling(sizes, left, offered[:, n].tolist(), most[n], slack, rng)
        slack -= most[n] - int(sizes[chosen].sum())
        if slack < 0:
            return None
        rail[chosen] = n
    return rail


def _filling(
    sizes: Ints, far: Ints, offered: list[int], most: int, slack: int, rng: np.random.Generator
) -> Ints:
    """Chunks that fill a rail up to `most` bytes, but for the slack where that can be, of each far
    end at most what it has offered.

    far   int64 [n], the far end of each chunk that is left, else -1
    """
    chosen: list[int] = []
    room, to_come = most, sum(offered)
    for k in sorted(range(len(offered)), key=offered.__getitem__):
        share = offered[k] if to_come <= room else offered[k] * room // to_come
        spare = max(0, min(slack - max(0, room - to_come), share))  # less what is wasted already
        to_come -= offered[k]
        free = np.flatnonzero(far == k)
        if share and len(free):
            wasted = int(rng.integers(rng.integers(spare + 1) + 1))  # mostly little
            found = free[_with_sum(sizes[free], share - wasted, rng)]
            chosen += found.tolist()
            room -= int(sizes[found].sum())
    return np.array(chosen, np.int64)


def _with_sum(sizes: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Places of sizes with a sum of `most`, or the largest below it that some tries find."""
    best, reached = np.empty(0, np.int64), -1
    for _ in range(TRIES):
        pool, chosen, total = _drawn(sizes, most, rng)
        values = np.ascontiguousarray(sizes[pool])
        buffers = np.empty((6, 1 << (POOL // 2)), np.int64)
        more, mask = best_subset(values, len(pool), most - total, most - total, buffers)
        if total + more > reached:
            reached = total + more
            best = np.array(chosen + [p for i, p in enumerate(pool) if mask >> i & 1], np.int64)
        if reached == most:
            break
    return best


def _drawn(sizes: Ints, most: int, rng: np.random.Generator) -> tuple[list[int], list[int], int]:
    """(pool, chosen, their sum): places of sizes at random, some for sums to be looked for, and, of
    the others, as many as leave about half of the pool to be added to them.
    """
    pool: list[int] = []
    others: list[int] = []
    alike: dict[int, int] = {}
    for place, size in _shuffled(sizes, rng):
        alike[size] = alike.get(size, 0) + 1
        (pool if len(pool) < POOL and alike[size] <= ALIKE else others).append(place)
    chosen, total, half = [], 0, int(sizes[pool].sum()) // 2
    for place in others:
        if total + int(sizes[place]) + half <= most:
            chosen.append(place)
            total += int(sizes[place])
    return pool, chosen, total


def _shuffled(sizes: Ints, rng: np.random.Generator) -> Sequence[tuple[int, int]]:
    """(place, size) of all, in random order."""
    order = rng.permutation(len(sizes))
    return list(zip(order.tolist(), sizes[order].tolist(), strict=True))
