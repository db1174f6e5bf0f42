"""A planner for the training loop: one node plans its own row again and again, with buffers that it
keeps.

MoE traffic changes with every layer and iteration, and RailS-like policies (`lpt`, `lpt-local`)
need nothing but the
node's own row.  `Planner` cuts that row into chunks and puts them on rails in a few tens of
                 microseconds; the result is
the same as `railopt.plan` on the whole matrix, restricted to the node's chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.arrays import Ints
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.policies import equal_rails, kernels
from railopt.policies.common import costs, rail_turns
from railopt.policies.lpt import PAIR_WEIGHT, rails_equal
from railopt.units import parse_bytes

_MAX_CAP = 2**31


class NodePlan(NamedTuple):
    """One node's chunks, flow by flow, and their rails: views of the planner's buffers, valid until
    its next call.

    src_gpu, dst_gpu  int32 [C], GPU ids       offset, size  int64 [C], bytes       rail  int16 [C]
    """

    src_gpu: npt.NDArray[np.int32]
    dst_gpu: npt.NDArray[np.int32]
    offset: Ints
    size: Ints
    rail: npt.NDArray[np.int16]


class Planner:
    """Plans what `node` sends, chunks of at most `cap` bytes, with `policy` "lpt" or "lpt-local".

    >>> planner = Planner(fabric, node=3, cap="1MiB")
    >>> node_plan = planner.plan(row)          # row: int64 [gpus, nodes * gpus], bytes from this
    node's GPUs
    """

    def __init__(
        self, fabric: Fabric, node: int, cap: str | int = "1MiB", policy: str = "lpt"
    ) -> None:
        if not 0 <= node < fabric.nodes:
            raise InputError(f"node {node}: expected 0 to {fabric.nodes - 1}")
        if policy not in ("lpt", "lpt-local"):
            raise InputError(
                f"policy {policy!r} needs more than one node's traffic; a Planner takes lpt or "
                f"lpt-local"
            )
        self.fabric, self.node, self.policy = fabric, node, policy
        self.cap = parse_bytes(cap)
        if self.cap >= _MAX_CAP:
            raise InputError(f"chunks of {self.cap} bytes: a Planner cuts below {_MAX_CAP} bytes")
        tx, self._rx = costs(fabric)
        self._tx = tx[node : node + 1]
        self._joined = np.isfinite(np.min(np.maximum(self._tx[:, None, :], self._rx[None]), axis=2))
        self._equal, self._uniform = policy == "lpt" and rails_equal(fabric), fabric.is_uniform
        self._turns = rail_turns(fabric)
        self._grow(4096)

    def _grow(self, length: int) -> None:
        self._sender, self._all = np.zeros(length, np.int32), np.arange(length)
        self._dst, self._src_gpu, self._dst_gpu = (np.empty(length, np.int32) for _ in range(3))
        self._offset, self._size = (np.empty(length, np.int64) for _ in range(2))
        self._rail = np.empty(length, np.int16)

    def plan(self, row: npt.NDArray[np.int64]) -> NodePlan:
        """Chunks and rails for the bytes `row[local GPU, destination GPU]`; bytes to the own node
        are left out.
        """
        fabric = self.fabric
        if row.shape != (fabric.gpus, fabric.nodes * fabric.gpus) or row.dtype != np.int64:
            raise InputError(
                f"row is {row.dtype} {row.shape}, expected int64 "
                f"{(fabric.gpus, fabric.nodes * fabric.gpus)}"
            )
        count, stuck = kernels.cut_row(
            row,
            self.node,
            fabric.gpus,
            self.cap,
            self._joined[0],
            self._dst,
            self._src_gpu,
            self._dst_gpu,
            self._offset,
            self._size,
        )
        if stuck >= 0:
            raise InputError(
                f"no living rail from node {self.node} to node {stuck}, or a negative number of "
                f"bytes to it"
            )
        if count > len(self._size):
            self._grow(2 * count)
            return self.plan(row)
        size, dst, rail, sender = (
            self._size[:count],
            self._dst[:count],
            self._rail[:count],
            self._sender[:count],
        )
        largest = int(size.max()) if count else 0
        if count and self.policy == "lpt-local":
            rows = self._all[:count]
            if self._turns is not None:
                rows = kernels.unfinished(
                    *kernels.rounds(sender, dst, size, largest, 1, fabric.nodes, self._turns, rail)
                )
            total = count * self.cap
            if (
                len(rows)
                and self._uniform
                and equal_rails.fits_pairs(
                    count, total, largest, fabric.nodes, fabric.rails, PAIR_WEIGHT
                )
            ):
                equal_rails.lpt_local(
                    rows,
                    sender,
                    dst,
                    size,
                    1,
                    fabric.nodes,
                    fabric.rails,
                    self.node,
                    PAIR_WEIGHT,
                    rail,
                )
            elif len(rows):
                words = kernels.descending(size[rows])
                kernels.lpt_local_unequal(
                    words, rows, sender, dst, size, self._tx, self._rx, self.node, PAIR_WEIGHT, rail
                )
        elif (
            count
            and self._equal
            and equal_rails.fits(count, count * self.cap, largest, 1, fabric.rails)
        ):
            equal_rails.lpt(sender, size, largest, 1, fabric.rails, rail)
        elif count:
            kernels.lpt_unequal(
                kernels.descending(size), sender, dst, size, self._tx, self._rx, rail
            )
        return NodePlan(
            self._src_gpu[:count], self._dst_gpu[:count], self._offset[:count], size, rail
        )
