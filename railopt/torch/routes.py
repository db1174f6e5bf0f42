"""Who sends which rows to whom on which rail: from counts to the way of one rank.  numpy and numba
alone, no PyTorch.

Ranks are GPU ids: rank = node * gpus + local.  The ranks of one local index are a *rail group*:
the process group that carries what goes on that GPU's NICs.  A flow's rows are divided
between rail groups as a policy puts its pieces on rails, and lie in their order at both ends.

    1  inside the node        from the source to the rail group's GPU         (what is staged)
    2  inside the rail group  from node to node
    3  inside the node        from the rail group's GPU to the destination    (what is passed on)

Rows inside a node take step 1 alone.

A policy that needs its own row alone is planned by its node, which sends the receivers counts:

    decide    from the rows of the own node: what this rank stages, and what it tells each node
    finish    from what the other nodes tell: what it passes on and gets, and the way

`route` makes the same of counts that every rank knows.
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
from railopt.policies.planner import NODE_POLICIES, NodePlan, Planner
from railopt.torch.tally import RailRows, RowSums, Tables, add, add_received, begin, outgoing, sums
from railopt.torch.ways import Exchange, Way, transposed

PIECES = 64  # of a node's share of a rail: so finely a policy divides


class Route(NamedTuple):
    """One rank's part of a planned all-to-all.

    way             its steps
    sent, received  int64 [rails]: rows that each NIC of its node sends and receives
    sources         int64 [R]: rows that are at this rank after a way that ends at nodes, by the
                    rank they are from; [0] after others
    """

    way: Way
    sent: Ints
    received: Ints
    sources: Ints


class Router:
    """Plans the all-to-alls of rank `rank` of a fabric, call after call, with the same buffers.

        >>> router = Router(fabric, rank=3, policy="even-excess")
        >>> route = router.route(counts)     # int64 [R, R], rows from rank to rank

    alone   whether the policy needs its own node's rows alone; each node's share of a rail is then
            cut into `pieces`, else that of the node that sends most
    """

    def __init__(
        self, fabric: Fabric, rank: int, policy: str = "even-excess", pieces: int = PIECES
    ) -> None:
        ranks = fabric.nodes * fabric.gpus
        if not 0 <= rank < ranks:
            raise InputError(f"rank {rank}: expected 0 to {ranks - 1}")
        policy_named(str(policy))
        self.fabric, self.rank, self.policy = fabric, rank, policy
        self.node = rank // fabric.gpus
        self.pieces = whole_number(pieces, "pieces", 1, INT64_MAX)
        self.alone = policy in NODE_POLICIES
        self.via = rail_groups(fabric)
        self._planners: dict[int | None, Planner] = {}
        nodes, gpus = fabric.nodes, fabric.gpus
        shapes = [(ranks, gpus), (gpus, ranks), (ranks, gpus), (ranks, gpus), (fabric.rails,)]
        tables = [np.empty(shape, np.int64) for shape in shapes]
        sent_counts = np.empty((nodes, fabric.rails + 2 * gpus * gpus), np.int64)
        self._tables = Tables._make([*tables, sent_counts])
        vectors = [np.empty(n, np.int64) for n in (gpus, gpus, nodes, nodes, gpus, gpus)]
        self._sums = RowSums._make([*vectors, np.empty((gpus, nodes), np.int64)])

    def route(self, counts: Ints, *, to_nodes: bool = False) -> Route:
        """The way of `counts` [R, R] rows from rank to rank.

        to_nodes   rows only have to reach the node of their destination: step 3 is left out, and
                   rows stay with the GPU of the rail group that carried them, by source
        """
        first, gpus = self.node * self.fabric.gpus, self.fabric.gpus
        begin(counts[first : first + gpus], self.rank, self._tables)
        add(self._planned(counts), self.via, self.rank, self._tables)
        return self._way(to_nodes)

    def decide(self, rows: Ints) -> Ints:
        """int64 [nodes, rails + 2 * G * G]: what this rank tells the same GPU of each node, of the
        `rows` [G, R] that its node has; see `Tables.sent_counts`, whose buffer it is.
        """
        begin(rows, self.rank, self._tables)
        made = self._plan_of(self.node, rows, self._caps(rows, self.node, 1))
        pieces = RailRows(made.src_gpu, made.dst_gpu, made.size, made.rail)
        add(pieces, self.via, self.rank, self._tables)
        return self._tables.sent_counts

    def finish(self, counts: Ints, *, to_nodes: bool = False) -> Route:
        """The way, from the `counts` that `decide` makes for this rank, one row per node."""
        add_received(counts, self.node, self._tables)
        return self._way(to_nodes)

    def _way(self, to_nodes: bool) -> Route:
        """The way that the tables say."""
        tables, total = self._tables, self._sums
        sums(tables, total)
        staged = Exchange("node", total.staged.tolist(), total.gathered.tolist())
        carried = Exchange("rail", total.sent.tolist(), total.received.tolist())
        way: Way = (transposed(tables.own), staged, transposed(total.blocks), carried)
        if not to_nodes:
            passed = Exchange("node", total.passed.tolist(), total.into.tolist())
            way = (*way, transposed(tables.arrived), passed, transposed(tables.into.T))
        sources = tables.arrived.sum(axis=1) if to_nodes else np.zeros(0, np.int64)
        sent = tables.sent_counts[:, : self.fabric.rails].sum(axis=0)
        return Route(way, sent, tables.received.copy(), sources)

    def pieces_of(self) -> tuple[Ints, Ints]:
        """The last route's rows by rank and rail group [R, G], and those that this rank carries, by
        GPU of its node and target node [G, nodes]: copies.
        """
        return self._tables.own.copy(), self._sums.blocks.copy()

    def _planned(self, counts: Ints) -> RailRows:
        """Every row between nodes on a rail."""
        fabric = self.fabric
        caps = self._caps(counts, 0, fabric.nodes)
        if self.policy != "spill" and not self.alone:
            chunks = Traffic(counts, fabric.nodes).chunks(int(caps.max()))
            rail = plan(fabric, chunks, self.policy).rail
            return RailRows(chunks.src_gpu, chunks.dst_gpu, chunks.size, rail)
        made = self._plan_of(None, counts, caps if self.alone else np.full_like(caps, caps.max()))
        return RailRows(made.src_gpu, made.dst_gpu, made.size, made.rail)

    def _caps(self, rows: Ints, first: int, senders: int) -> Ints:
        """int64 [senders]: rows of the largest piece of each of the nodes from `first` on."""
        out = np.empty(senders, np.int64)
        outgoing(rows, self.fabric.gpus, first, out)
        return np.maximum(1, -(-out // (self.fabric.rails * self.pieces)))

    def _plan_of(self, node: int | None, rows: Ints, caps: Ints) -> NodePlan:
        if node not in self._planners:
            fast = self.policy == "spill"
            self._planners[node] = Planner(self.fabric, node, 1, self.policy, fast=fast)
        return self._planners[node].plan(rows, caps)


def rail_groups(fabric: Fabric) -> Array:
    """int64 [G, G, rails]: the rail group of what goes from local GPU i to local GPU j of another
    node on rail n: i where it is near the NIC, else j where that is, else the NIC's owner.
    """
    near, owner = fabric.node.near, fabric.node.owner
    gpu = np.arange(fabric.gpus)
    target = np.where(near, gpu[:, None], owner)
    return np.where(near[:, None, :], gpu[:, None, None], target[None, :, :])
