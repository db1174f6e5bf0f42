"""Who sends which rows to whom on which rail: from the counts that every rank knows to the way of
one rank.  numpy and numba alone, no PyTorch.

Ranks are GPU ids: rank = node * gpus + local.  The ranks of one local index are a *rail group*:
the process group that carries what goes on that GPU's NICs.  A flow's rows are divided
between rail groups as a policy puts its pieces on rails, and lie in their order at both ends.

    1  inside the node        from the source to the rail group's GPU         (what is staged)
    2  inside the rail group  from node to node
    3  inside the node        from the rail group's GPU to the destination    (what is passed on)

Rows inside a node take step 1 alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.policies import plan, policy_named
from railopt.policies.planner import Planner
from railopt.torch.tally import RailRows, RowSums, Tables, add, begin, busiest, sums
from railopt.torch.ways import Exchange, Way, transposed

__all__ = ["PIECES", "Route", "Router"]

PIECES = 64  # of the busiest node's share of a rail: so finely a policy divides
LOOPED = ("lpt", "lpt-local", "even-excess", "own-nic", "spill")  # by a `Planner`, without a `Plan`


class Route(NamedTuple):
    """One rank's part of a planned all-to-all.

    way             its steps
    sent, received  int64 [nodes, rails]: rows that each NIC of the fabric sends and receives
    sources         int64 [R]: rows that are at this rank after the way, by the rank they are from
    """

    way: Way
    sent: Ints
    received: Ints
    sources: Ints


class Router:
    """Plans the all-to-alls of rank `rank` of a fabric, call after call, with the same buffers.

    >>> router = Router(fabric, rank=3, policy="even-excess")
    >>> route = router.route(counts)     # int64 [R, R], rows from rank to rank
    """

    def __init__(
        self, fabric: Fabric, rank: int, policy: str = "even-excess", pieces: int = PIECES
    ) -> None:
        ranks = fabric.nodes * fabric.gpus
        if not 0 <= rank < ranks:
            raise InputError(f"rank {rank}: expected 0 to {ranks - 1}")
        policy_named(str(policy))
        self.fabric, self.rank, self.policy = fabric, rank, policy
        self.pieces = whole_number(pieces, "pieces", 1, INT64_MAX)
        self._via = rail_groups(fabric)
        one_nic = fabric.node.near.sum(axis=1).max() == 1
        looped = policy in LOOPED and (one_nic or policy != "own-nic")
        fast = policy == "spill"
        self._planner = Planner(fabric, None, 1, policy, fast=fast) if looped else None
        shapes = [(ranks, fabric.gpus), (fabric.gpus, ranks)] + [(ranks, fabric.gpus)] * 2
        shapes += [(fabric.nodes, fabric.rails)] * 2
        self._tables = Tables(*(np.empty(shape, np.int64) for shape in shapes))
        lengths = [fabric.gpus] * 2 + [fabric.nodes] * 2 + [fabric.gpus] * 2
        vectors = [np.empty(length, np.int64) for length in lengths]
        self._sums = RowSums._make([*vectors, np.empty((fabric.gpus, fabric.nodes), np.int64)])

    def route(self, counts: Ints, *, to_nodes: bool = False) -> Route:
        """The way of `counts` [R, R] rows from rank to rank.

        to_nodes   rows only have to reach the node of their destination: step 3 is left out, and
                   rows stay with the GPU of the rail group that carried them, by source
        """
        self._count(counts)
        tables, total = self._tables, self._sums
        sums(tables, total)
        staged = Exchange("node", total.staged.tolist(), total.gathered.tolist())
        carried = Exchange("rail", total.sent.tolist(), total.received.tolist())
        way: Way = (transposed(tables.own), staged, transposed(total.blocks), carried)
        reached = tables.arrived
        if not to_nodes:
            passed = Exchange("node", total.passed.tolist(), total.into.tolist())
            way = (*way, transposed(tables.arrived), passed, transposed(tables.into.T))
            reached = tables.into
        return Route(way, tables.sent.copy(), tables.received.copy(), reached.sum(axis=1))

    def _count(self, counts: Ints) -> None:
        """Fill the tables."""
        begin(counts, self.rank, self._tables)
        add(self._planned(counts), self._via, self.rank, self._tables)

    def _planned(self, counts: Ints) -> RailRows:
        """Every row between nodes on a rail."""
        fabric = self.fabric
        cap = max(1, -(-busiest(counts, fabric.gpus) // (fabric.rails * self.pieces)))
        if self._planner is None:
            chunks = Traffic(counts, fabric.nodes).chunks(cap)
            rail = plan(fabric, chunks, self.policy).rail
            return RailRows(chunks.src_gpu, chunks.dst_gpu, chunks.size, rail)
        self._planner.cap = cap
        made = self._planner.plan(counts)
        return RailRows(made.src_gpu, made.dst_gpu, made.size, made.rail)


def rail_groups(fabric: Fabric) -> Array:
    """int64 [G, G, rails]: the rail group of what goes from local GPU i to local GPU j of another
    node on rail n: i where it is near the NIC, else j where that is, else the NIC's owner.
    """
    near, owner = fabric.node.near, fabric.node.owner
    gpu = np.arange(fabric.gpus)
    target = np.where(near, gpu[:, None], owner)
    return np.where(near[:, None, :], gpu[:, None, None], target[None, :, :])
