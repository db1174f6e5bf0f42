"""A plan's copies inside nodes, carried out by the host: staged before the rails, passed on after.

A node has a second send buffer and a second receive buffer, laid out as the first ones. A chunk
whose rail is not near its source is copied into the second send buffer and sent from there.  One
whose rail is not near its destination arrives in the second receive buffer and is copied from
there. All copies before come before the rails, all copies after come after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from railopt.base.arrays import Ints
from railopt.model.plan import Plan, passing_on, staging
from railopt.runtime.payload import pattern
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.memory import Memory


@dataclass(frozen=True)
class Staging:
    """Chunks that are copied before and after their rails, int64, and where all chunks lie on their
    way, in two buffers per node.
    """

    before: Ints
    after: Ints
    layout: Layout

    @classmethod
    def of(cls, plan: Plan, plain: Layout) -> Staging:
        """The staging of a plan whose chunks lie in one buffer per node."""
        parts = plan.fabric, plan.chunks, plan.rail.astype(np.int64)
        before, after = staging(*parts).chunk, np.unique(passing_on(*parts).chunk)
        send, recv = plain.send_buffer.copy(), plain.recv_buffer.copy()
        send[before], recv[after] = 1, 1
        layout = replace(
            plain,
            send_buffer=send,
            recv_buffer=recv,
            send_bytes=np.repeat(plain.send_bytes, 2, axis=1),
            recv_bytes=np.repeat(plain.recv_bytes, 2, axis=1),
        )
        return cls(before, after, layout)

    def stage(self, plan: Plan, memory: Sequence[Memory], node: int) -> None:
        """Copy what a node stages, from its first send buffer to its second."""
        rows = self.before[plan.chunks.src[self.before] == node]
        offset, (plain, staged) = self.layout.send_offset[rows], (m.bytes() for m in memory)
        pattern.copy_chunks(plain, offset, staged, offset, plan.chunks.size[rows])

    def pass_on(self, plan: Plan, memory: Sequence[Memory], node: int) -> None:
        """Copy what a node passes on, from its second receive buffer to its first."""
        rows = self.after[plan.chunks.dst[self.after] == node]
        offset, (plain, staged) = self.layout.recv_offset[rows], (m.bytes() for m in memory)
        pattern.copy_chunks(staged, offset, plain, offset, plan.chunks.size[rows])
