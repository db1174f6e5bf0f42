"""Even to every destination, moving only the excess; no node knows more than its own row.

For each destination every rail should carry its share of what the node sends there (an equal one
where NICs are alike).  What a GPU has beyond the share of its own NIC is its excess: that much goes
to rails that have less, and nothing else is moved.  Where traffic divides, every NIC of every node
then sends and receives evenly (theorem T1: even to each destination is optimal on both sides), and
no smaller staging evens a destination out; where it does not divide, a rail is off by about half a
chunk a destination.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railopt.base.arrays import Array, Rails
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.common import check_alive, make_plan

__all__ = ["EvenSenders", "even_excess"]


@dataclass(frozen=True)
class EvenSenders:
    """Who plans, each for itself: all nodes of a fabric, or one of them.

    first   the node of row 0 of `tx`
    """

    first: int
    shares: tuple[Array, Array]
    near: tuple[Array, Array]

    @classmethod
    def of(cls, fabric: Fabric, node: int | None = None) -> EvenSenders:
        """All nodes, or `node` alone."""
        from railopt.policies import even_rails

        tx, rx = even_rails.shares(fabric.tx, fabric.rx)
        own = tx if node is None else tx[node : node + 1]
        shares = even_rails.Shares(own, rx)
        return cls(node or 0, shares, even_rails.near_lists(fabric.node.near))

    def assign(self, sender: Array, gpu: Array, dst: Array, size: Array, rail: Rails) -> None:
        """Fill `rail`, int16 [C]; columns as in `even_rails.Rows`."""
        from railopt.policies import even_rails

        gpus = len(self.near[1]) - 1
        rows = even_rails.Rows(sender, gpu, dst, size, self.first * gpus)
        even_rails.even_excess(rows, self.shares, self.near, rail)


def even_excess(fabric: Fabric, chunks: Chunks) -> Plan:
    """Chunks on their own GPU's rails as far as these are due them, the excess on others."""
    check_alive(fabric, chunks)
    if chunks.gpus != fabric.gpus:
        raise InputError(
            "even-excess needs to know the source GPU of each chunk: cut them from a Traffic or "
            "from_units, not from_arrays"
        )
    rail = np.empty(len(chunks), np.int16)
    if len(chunks):
        senders = EvenSenders.of(fabric)
        senders.assign(chunks.src, chunks.src_gpu, chunks.dst, chunks.size, rail)
    return make_plan(fabric, chunks, rail, "even-excess")
