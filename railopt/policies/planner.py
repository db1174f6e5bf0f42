"""A planner for the training loop: one node plans what it sends again and again, with buffers that
it keeps.

MoE traffic changes with every layer and iteration.  The policies `NODE_POLICIES` need nothing but
the node's own row, and `Planner` cuts that row into chunks and puts them on rails in a few tens of
microseconds.  `spill` takes the whole matrix, which every rank has after the exchange of counts.
The result is that of `railopt.plan` on the whole matrix, restricted to the node's chunks, except
with `fast`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Int32s, Ints, Rails, whole_number
from railopt.base.errors import Infeasible, InputError
from railopt.base.units import parse_bytes
from railopt.files.tabular import plain
from railopt.model.chunks import MAX_CHUNKS, Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.policies.common import Columns, costs
from railopt.policies.cutting import Cut, cut_rows, room_for
from railopt.policies.excess import EvenSenders
from railopt.policies.fixed import own_nic, own_rails
from railopt.policies.longest_first import Senders
from railopt.policies.rounds import round_robin
from railopt.policies.spilling import FastSpill, spill

__all__ = ["NODE_POLICIES", "NodePlan", "Planner", "planned_by"]

MAX_CAP = 2**31
_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_FIRST_ROOM = 4096

# (columns [C], bytes of the largest chunk, rails [C] to be filled)
Rule = Callable[[Cut, int, Rails], None]
MakeRule = Callable[[Fabric, int | None], Rule]


def _lpt_by(put: Callable[[Senders, Columns, Rails], None]) -> MakeRule:
    """An LPT of `Senders`."""

    def rule(fabric: Fabric, node: int | None) -> Rule:
        senders = Senders.of(fabric, node)
        return lambda cut, largest, rail: put(
            senders, Columns(cut.sender, cut.dst, cut.size, largest, len(cut.size) * largest), rail
        )

    return rule


def _even_excess(fabric: Fabric, node: int | None) -> Rule:
    senders = EvenSenders.of(fabric, node)
    return lambda cut, _, rail: senders.assign(cut.sender, cut.src_gpu, cut.dst, cut.size, rail)


def _own_nic(fabric: Fabric, node: int | None) -> Rule:
    if fabric.node.near.sum(axis=1).max() > 1:
        return lambda cut, _, rail: np.copyto(rail, own_nic(fabric, _chunks(fabric, cut)).rail)
    rails = own_rails(fabric)
    return lambda cut, _, rail: np.copyto(rail, rails[cut.src_gpu, cut.dst])


def _rotate(fabric: Fabric, node: int | None) -> Rule:
    paid = costs(fabric)
    if node is not None:
        paid = paid._replace(tx=paid.tx[node : node + 1], first=node)
    return lambda cut, _, rail: round_robin(cut.sender, cut.dst, paid, True, rail)


_RULES = {
    "lpt": _lpt_by(Senders.lpt),
    "lpt-local": _lpt_by(Senders.lpt_local),
    "lpt-dealt": _lpt_by(Senders.lpt_dealt),
    "even-excess": _even_excess,
    "own-nic": _own_nic,
    "rotate": _rotate,
}
NODE_POLICIES = tuple(_RULES)
"""Policies by which a node plans what it sends from its own row."""
_WHOLE = "spill"  # knows every node's traffic


class NodePlan(NamedTuple):
    """One node's chunks, flow by flow, and their rails: views of the planner's buffers, valid until
    its next call.

    src_gpu, dst_gpu  int32 [C], GPU ids       offset, size  int64 [C], bytes       rail  int16 [C]
    """

    src_gpu: Int32s
    dst_gpu: Int32s
    offset: Ints
    size: Ints
    rail: Rails


class Planner:
    """Plans what `node` sends, chunks of at most `cap` bytes, with a `policy` of `NODE_POLICIES` or
    "spill"; what all nodes send, from the whole matrix, where `node` is None.

    fast      "spill" of all nodes without the exchanges at its end, which improve its plan
              by some tenths of a per cent and take milliseconds

        >>> from railopt import Fabric, Planner
        >>> planner = Planner(Fabric.uniform(nodes=2, rails=2), node=0, cap=2)
        >>> row = [[0, 0, 6, 0], [0, 0, 0, 2]]    # bytes [gpus, nodes * gpus]
        >>> planner.plan(row).rail.tolist()
        [0, 1, 0, 1]
    """

    def __init__(
        self,
        fabric: Fabric,
        node: int | None,
        cap: str | int = "1MiB",
        policy: str = "lpt",
        *,
        fast: bool = False,
    ) -> None:
        if node is not None:
            node = whole_number(node, "node", 0, fabric.nodes - 1)
        if policy not in (*_RULES, _WHOLE):
            raise InputError(
                f"policy {policy!r} is not made for a training loop; a Planner takes "
                f"{', '.join(_RULES)} or {_WHOLE}"
            )
        if fast and (policy != _WHOLE or node is not None):
            raise InputError(f"fast: expected {_WHOLE} of all nodes, found {policy} of {node}")
        self.fabric, self.node, self.policy = fabric, node, policy
        self.cap = parse_bytes(cap)
        if self.cap >= MAX_CAP:
            raise InputError(f"chunks of {self.cap} bytes: a Planner cuts below {MAX_CAP} bytes")
        ranks = fabric.nodes * fabric.gpus
        self._caps = np.full(fabric.nodes if node is None else 1, self.cap, np.int64)
        self._shape = (ranks if policy == _WHOLE or node is None else fabric.gpus, ranks)
        self._rule: Rule | None = None
        if fast:
            self._rule = FastSpill(fabric).assign
        elif policy != _WHOLE:
            self._rule = _RULES[policy](fabric, node)
        self._wide = np.empty(self._shape, np.int64)
        own = slice(None) if node is None else slice(node, node + 1)
        self._joined = np.any((fabric.tx[own, None] > 0) & (fabric.rx > 0), axis=2)
        self._grow(_FIRST_ROOM)

    def _grow(self, length: int) -> None:
        self._cut, self._rail = room_for(length), np.empty(length, np.int16)

    def plan(self, row: Any, caps: Ints | None = None) -> NodePlan:
        """Chunks and rails for the bytes `row[local GPU, destination GPU]` (with "spill": of every
        GPU to every GPU, `row[GPU, GPU]`), int64 or int32, of numpy or a tensor; bytes to the own
        node are left out.

        caps    int64 [nodes that send]: bytes of the largest chunk of each; None: `cap`
        """
        row = self.taken(row, self._shape)
        if self._rule is None:
            return self._plan_whole(row)
        first, caps = self.node or 0, self._caps if caps is None else caps
        count, largest, stuck = cut_rows(row, first, caps, self._joined, MAX_CHUNKS, self._cut)
        if stuck >= 0:
            sender, node = divmod(stuck, self.fabric.nodes)
            if self._joined[sender, node]:
                raise InputError(
                    f"a negative number of bytes from node {first + sender} to node {node}"
                )
            raise Infeasible(f"no living rail from node {first + sender} to node {node}")
        if count < 0:
            raise InputError(f"more than {MAX_CHUNKS} chunks; use larger ones (cap)")
        if count > len(self._rail):
            self._grow(2 * count)
            return self.plan(row, caps)
        cut, rail = Cut(*(column[:count] for column in self._cut)), self._rail[:count]
        if count:
            self._rule(cut, largest, rail)
        return NodePlan(cut.src_gpu, cut.dst_gpu, cut.offset, cut.size, rail)

    def taken(self, row: Any, shape: tuple[int, int]) -> Ints:
        """A row of this shape as int64 of numpy, itself or a copy."""
        if type(row) is not np.ndarray:
            row = plain(row, shape[1])
        if row.shape != shape or row.dtype not in (_INT64, _INT32):
            raise InputError(f"row is {row.dtype} {row.shape}, expected int64 or int32 {shape}")
        if row.dtype == _INT64:
            return row
        if shape != self._shape:
            return row.astype(np.int64)
        np.copyto(self._wide, row)
        return self._wide

    def _plan_whole(self, matrix: Ints) -> NodePlan:
        """The node's part of a plan for all, or that plan."""
        chunks = Traffic(matrix, self.fabric.nodes).chunks(self.cap)
        own: Any = slice(None) if self.node is None else chunks.src == self.node
        columns = (chunks.src_gpu, chunks.dst_gpu, chunks.offset, chunks.size)
        rail = spill(self.fabric, chunks).rail
        return NodePlan(*(column[own] for column in (*columns, rail)))


def planned_by(planner: Planner, row: Any) -> Plan:
    """What a planner makes of a row or matrix, as a plan of its node's chunks or of all."""
    made = planner.plan(row)
    nodes = made.src_gpu // planner.fabric.gpus, made.dst_gpu // planner.fabric.gpus
    chunks = _chunks(planner.fabric, Cut(*nodes, *made[:4]))
    return Plan(planner.fabric, chunks, made.rail.copy(), planner.policy)


def _chunks(fabric: Fabric, cut: Cut) -> Chunks:
    """Columns of chunks, flow by flow, as checked ones; their senders are read off their GPUs."""
    pair = cut.src_gpu.astype(np.int64) * fabric.nodes * fabric.gpus + cut.dst_gpu
    flow = np.cumsum(np.diff(pair, prepend=pair[:1]) != 0)
    ends = (cut.src_gpu // fabric.gpus, cut.dst, cut.src_gpu, cut.dst_gpu)
    return Chunks(fabric.nodes, fabric.gpus, *ends, flow.astype(np.int32), cut.offset, cut.size)
