"""Units that are alike: those of one sender and receiver to which every rail costs the same.

What a plan moves inside nodes is bytes times the cost of their rail (`moves.rail_costs`), so units
of one sending node, receiving node and row of costs are one *class*, whose bytes add up.  What a
row costs at its cheapest live rail is moved whatever the plan: classes count from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.arrays import Array, Bools, Ints, total
from railopt.chunks import Chunks
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.moves import needed_by, rail_costs

CODES = 1 << 20  # numbers for rows: a product with nodes x GPUs x nodes stays below 2**63


class Classes(NamedTuple):
    """Classes of units, in no special order.

    src, dst   int64 [C]: nodes
    size       int64 [C]: bytes
    cost       int64 [C, rails]: how often a byte is moved beyond what its class must; 0 somewhere
    live       bool [C, rails]: whether both NICs of the rail live
    floor      bytes that are moved whatever the plan
    """

    src: Ints
    dst: Ints
    size: Ints
    cost: Ints
    live: Bools
    floor: int


def classes_of(fabric: Fabric, chunks: Chunks) -> Classes:
    """The classes of chunks that name their GPUs."""
    first, size = _alike(fabric, chunks)
    some = chunks.take(first)
    src, dst = some.src.astype(np.int64), some.dst.astype(np.int64)
    live = (fabric.tx[src] > 0) & (fabric.rx[dst] > 0)
    for row in np.flatnonzero(~live.any(axis=1))[:1]:
        raise InputError(f"no living rail from node {src[row]} to node {dst[row]}")
    cost = rail_costs(fabric, some).astype(np.int64)
    least = np.where(live, cost, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    floor = sum(int(c) * total(size[least == c]) for c in np.unique(least))
    cost = np.where(live, cost - least[:, None], 0)
    code, codes = _codes(cost)
    kept, added = _summed((src * fabric.nodes + dst) * codes + code, size)
    return Classes(src[kept], dst[kept], added, cost[kept], live[kept], floor)


def _alike(fabric: Fabric, chunks: Chunks) -> tuple[Ints, Ints]:
    """Chunks of one source GPU, node and set of targets: a row of each sort, and its bytes."""
    pair = chunks.src_gpu.astype(np.int64) * fabric.nodes + chunks.dst
    packed = np.packbits(needed_by(fabric, chunks), axis=1)
    if packed.shape[1] == 1:
        return _summed(pair * 256 + packed[:, 0], chunks.size)
    code, codes = _codes(packed.astype(np.int64))
    return _summed(pair * codes + code, chunks.size)


def _codes(rows: Ints) -> tuple[Ints, int]:
    """A number of each row, the same for equal rows, and one above all of them."""
    base = int(rows.max(initial=0)) + 1
    if base ** rows.shape[1] < CODES:
        return rows @ np.array([base**i for i in range(rows.shape[1])]), base ** rows.shape[1]
    code = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return code, int(code.max(initial=0)) + 1


def _summed(key: Array, size: Ints) -> tuple[Ints, Ints]:
    """A row of each key, and the bytes of all its rows."""
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    return order[begins], np.add.reduceat(size[order], begins) if len(key) else size
