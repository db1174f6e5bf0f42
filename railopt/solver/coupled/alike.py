"""Chunks of one size at a node that change places, so that none of their far ends is overloaded.

What the node's rails carry stays as it is.  A far end's slow NIC has room for few chunks, and
dealing them out one by one may leave it with more.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Floats, Rails

if TYPE_CHECKING:
    from railopt.solver.coupled.search import Cells

EXCHANGES = 200  # at most; a few tens relieve most nodes


def relieve(
    cells: Cells, time: Fraction, side: int, alike: npt.NDArray[np.int32], rail: Rails
) -> None:
    """Exchange the rails of chunks `alike`, of one size and of one node on `side`, as long as that
    takes an overload in `time` seconds off their far ends.  Changes `rail`.
    """
    far, size = cells.end[1 - side, alike], int(cells.chunks.size[alike[0]])
    load, capacity = cells.loads(rail)[1 - side], cells.capacity(time)[1 - side]
    weight, lives = cells.weight[1 - side], cells.rate[1 - side] > 0
    here = np.zeros(load.shape, np.int64)
    np.add.at(here, (far, rail[alike]), 1)

    def cost(added: int) -> Floats:
        """float64 [nodes, rails]: what `added` bytes more cost each NIC, the weighted overload
        squared.
        """
        costs: Floats = (np.maximum(load + added - capacity, 0) * weight) ** 2
        return costs

    for _ in range(EXCHANGES):
        now = cost(0)
        saved = np.where(here > 0, now - cost(-size), 0)
        k, n = np.unravel_index(np.argmax(saved), saved.shape)
        added = np.where(lives, cost(size) - now, np.inf)
        change = added[k][None, :] + added[:, n][:, None] - saved
        change[(here == 0) | (np.arange(len(here)) == k)[:, None]] = np.inf
        change[:, n] = np.inf
        other, there = np.unravel_index(np.argmin(change), change.shape)
        if not change[other, there] < saved[k, n]:
            return
        for end, before, after in ((k, n, there), (other, there, n)):
            chunk = alike[np.flatnonzero((far == end) & (rail[alike] == before))[0]]
            rail[chunk] = after
            here[end, before], here[end, after] = here[end, before] - 1, here[end, after] + 1
            load[end, before], load[end, after] = load[end, before] - size, load[end, after] + size
