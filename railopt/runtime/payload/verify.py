"""Payloads: fill a node's send memory with the pattern, find wrong chunks in its receive memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railopt.base.arrays import Ints
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout, rows_of
from railopt.runtime.payload.memory import Memory
from railopt.runtime.payload.pattern import Payloads


def _side(
    plan: Plan, layout: Layout, node: int, side: str, memory: Sequence[Memory]
) -> tuple[Ints, Payloads]:
    """The chunks that a node sends or receives, int64 [R], and where they lie."""
    rows = rows_of(plan, node, side=side)
    buffer, offset = (
        (layout.send_buffer, layout.send_offset)
        if side == "send"
        else (layout.recv_buffer, layout.recv_offset)
    )
    held = [m.bytes() for m in memory]
    return rows, Payloads(held, buffer[rows].astype(np.int64), offset[rows], plan.chunks.size[rows])


def fill(plan: Plan, layout: Layout, node: int, memory: Sequence[Memory], seed: int) -> None:
    """Write the pattern of round `seed` into what `node` sends."""
    rows, payloads = _side(plan, layout, node, "send", memory)
    payloads.fill(rows.astype(np.uint64), np.uint64(seed))


def wrong(plan: Plan, layout: Layout, node: int, memory: Sequence[Memory], seed: int) -> Ints:
    """Chunks that `node` received and that do not hold the pattern of round `seed`, compared byte
    for byte.
    """
    rows, payloads = _side(plan, layout, node, "recv", memory)
    return rows[payloads.wrong(rows.astype(np.uint64), np.uint64(seed))]
