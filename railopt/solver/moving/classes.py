"""Classes of units: those of one sender and receiver to which every rail costs the same.

What a plan moves inside nodes is bytes times the cost of their rail (`moves.rail_costs`), so units
of one sending node, receiving node and row of costs are one *class*, whose bytes add up.  What a
row costs at its cheapest live rail is moved whatever the plan: classes count from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Int32s, Ints, total
from railopt.base.errors import Infeasible
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import rail_costs, target_sets


class Classes(NamedTuple):
    """Classes of units, in no special order, of a few kinds.

    src, dst   int32 [C]: nodes
    size       int64 [C]: bytes
    kind       int64 [C]: the row of `costs` and `lives`
    costs      int64 [K, rails]: how often a byte is moved beyond what its class must; 0 somewhere
    lives      bool [K, rails]: whether both NICs of the rail live
    floor      bytes that are moved whatever the plan
    """

    src: Int32s
    dst: Int32s
    size: Ints
    kind: Ints
    costs: Ints
    lives: Bools
    floor: int

    @property
    def cost(self) -> Ints:
        """int64 [C, rails]: the costs of each class."""
        return self.costs[self.kind]

    @property
    def live(self) -> Bools:
        """bool [C, rails]: the live rails of each class."""
        return self.lives[self.kind]

    def same(self, other: Classes) -> bool:
        """Whether these are the classes of the same bytes."""
        pairs: Iterable[tuple[Any, Any]] = zip(self, other, strict=True)
        return all(np.array_equal(mine, its) for mine, its in pairs)


def classes_of(fabric: Fabric, chunks: Chunks) -> Classes:
    """The classes of chunks that name their GPUs.

    What a byte costs depends on its GPU and targets within their nodes and on which NICs live: of
    each such kind one chunk is looked at.
    """
    targets, sets = target_sets(chunks)
    pair = chunks.src_gpu.astype(np.int64) * fabric.nodes + chunks.dst
    first, size = _summed(pair * sets + targets, chunks.size)
    src, dst = chunks.src[first], chunks.dst[first]
    (sends, send_sets), (gets, get_sets) = (_codes(rates > 0) for rates in (fabric.tx, fabric.rx))
    kinds = chunks.src_gpu[first] % fabric.gpus * send_sets + sends[src]
    kinds = (kinds * get_sets + gets[dst]) * sets + targets[first]
    _, row, kind = np.unique(kinds, return_index=True, return_inverse=True)
    some = chunks.take(first[row])
    live = (fabric.tx > 0)[some.src] & (fabric.rx > 0)[some.dst]
    for dead in np.flatnonzero(~live.any(axis=1))[:1]:
        raise Infeasible(f"no living rail from node {some.src[dead]} to node {some.dst[dead]}")
    cost = rail_costs(fabric, some).astype(np.int64)
    least = np.where(live, cost, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    floor = sum(int(c) * total(size[(least == c)[kind]]) for c in np.unique(least))
    cost = np.where(live, cost - least[:, None], 0)
    code, codes = _codes(cost)
    kept, added = _summed((src.astype(np.int64) * fabric.nodes + dst) * codes + code[kind], size)
    return Classes(src[kept], dst[kept], added, kind[kept], cost, live, floor)


def _codes(rows: Array) -> tuple[Ints, int]:
    """A number of each row, the same for equal rows, and one above all of them."""
    code = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    return code, int(code.max(initial=0)) + 1


def _summed(key: Array, size: Ints) -> tuple[Ints, Ints]:
    """A row of each key, and the bytes of all its rows."""
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    return order[begins], np.add.reduceat(size[order], begins) if len(key) else size
