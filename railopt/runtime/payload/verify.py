"""Payloads: fill a node's send memory with the pattern, find wrong chunks in its receive memory,
compare checksums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints
from railopt.model.plan import Plan
from railopt.runtime.payload import pattern
from railopt.runtime.payload.layout import Layout, rows_of
from railopt.runtime.payload.memory import Memory


def _side(
    plan: Plan, layout: Layout, node: int, side: str, memory: Sequence[Memory]
) -> tuple[Ints, Ints, Ints]:
    """(rows, addresses, bytes) of the chunks that a node sends or receives."""
    rows = rows_of(plan, node, side=side)
    buffer, offset = (
        (layout.send_buffer, layout.send_offset)
        if side == "send"
        else (layout.recv_buffer, layout.recv_offset)
    )
    base = np.array([m.address for m in memory], np.int64)
    return rows, base[buffer[rows]] + offset[rows], plan.chunks.size[rows]


def fill(plan: Plan, layout: Layout, node: int, memory: Sequence[Memory], seed: int) -> None:
    """Write the pattern of round `seed` into what `node` sends."""
    rows, address, size = _side(plan, layout, node, "send", memory)
    pattern.fill_pattern(address, size, rows.astype(np.uint64), np.uint64(seed))


def wrong(plan: Plan, layout: Layout, node: int, memory: Sequence[Memory], seed: int) -> Ints:
    """Chunks that `node` received and that do not hold the pattern of round `seed`, compared byte
    for byte.
    """
    rows, address, size = _side(plan, layout, node, "recv", memory)
    mask = np.zeros(len(rows), np.bool_)
    pattern.wrong_chunks(address, size, rows.astype(np.uint64), np.uint64(seed), mask)
    return rows[mask]


def checksums(
    plan: Plan, layout: Layout, node: int, side: str, memory: Sequence[Memory]
) -> npt.NDArray[np.uint64]:
    """uint64 [nodes]: the checksum of all that `node` sends to (receives from) each node; equal on
    both sides.
    """
    rows, address, size = _side(plan, layout, node, side, memory)
    each = np.zeros(len(rows), np.uint64)
    pattern.checksum_chunks(address, size, rows.astype(np.uint64), each)
    sums = np.zeros(plan.fabric.nodes, np.uint64)
    np.add.at(sums, (plan.chunks.dst if side == "send" else plan.chunks.src)[rows], each)
    return sums
