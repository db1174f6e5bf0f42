"""A planner for the training loop: one node plans its own row again and again, with buffers that it
keeps.

MoE traffic changes with every layer and iteration, and RailS-like policies (`lpt`, `lpt-local`)
need nothing but the node's own row.  `Planner` cuts that row into chunks and puts them on rails in
a few tens of microseconds; the result is the same as `railopt.plan` on the whole matrix, restricted
to the node's chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.arrays import Int32s, Ints, Rails
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.policies.common import Columns
from railopt.policies.cutting import cut_row, room_for
from railopt.policies.lpt import Senders
from railopt.units import parse_bytes

__all__ = ["NodePlan", "Planner"]

_RULES = {"lpt": Senders.lpt, "lpt-local": Senders.lpt_local}
_MAX_CAP = 2**31
_INT64 = np.dtype(np.int64)
_FIRST_ROOM = 4096


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
    """Plans what `node` sends, chunks of at most `cap` bytes, with `policy` "lpt" or "lpt-local".

    >>> planner = Planner(fabric, node=3, cap="1MiB")
    >>> node_plan = planner.plan(row)    # int64 [gpus, nodes * gpus], bytes from this node's GPUs
    """

    def __init__(
        self, fabric: Fabric, node: int, cap: str | int = "1MiB", policy: str = "lpt"
    ) -> None:
        if not 0 <= node < fabric.nodes:
            raise InputError(f"node {node}: expected 0 to {fabric.nodes - 1}")
        if policy not in _RULES:
            raise InputError(
                f"policy {policy!r} needs more than one node's traffic; a Planner takes "
                f"{' or '.join(_RULES)}"
            )
        self.fabric, self.node, self.policy = fabric, node, policy
        self.cap = parse_bytes(cap)
        if self.cap >= _MAX_CAP:
            raise InputError(f"chunks of {self.cap} bytes: a Planner cuts below {_MAX_CAP} bytes")
        self._senders, self._rule = Senders.of(fabric, node), _RULES[policy]
        self._shape = (fabric.gpus, fabric.nodes * fabric.gpus)
        self._joined = np.any((fabric.tx[node] > 0) & (fabric.rx > 0), axis=1)
        self._grow(_FIRST_ROOM)

    def _grow(self, length: int) -> None:
        self._cut, self._rail = room_for(length), np.empty(length, np.int16)
        self._sender = np.zeros(length, np.int32)

    def plan(self, row: Ints) -> NodePlan:
        """Chunks and rails for the bytes `row[local GPU, destination GPU]`; bytes to the own node
        are left out.
        """
        if row.shape != self._shape or row.dtype != _INT64:
            raise InputError(f"row is {row.dtype} {row.shape}, expected int64 {self._shape}")
        count, largest, stuck = cut_row(row, self.node, self.cap, self._joined, self._cut)
        if stuck >= 0:
            raise InputError(
                f"no living rail from node {self.node} to node {stuck}, or a negative number of "
                f"bytes to it"
            )
        if count > len(self._rail):
            self._grow(2 * count)
            return self.plan(row)
        cut, rail = self._cut, self._rail[:count]
        dst, size = cut.dst[:count], cut.size[:count]
        if count:
            chunks = Columns(self._sender[:count], dst, size, largest, count * largest)
            self._rule(self._senders, chunks, rail)
        return NodePlan(cut.src_gpu[:count], cut.dst_gpu[:count], cut.offset[:count], size, rail)
