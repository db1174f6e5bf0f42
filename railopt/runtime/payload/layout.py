"""Where a plan's chunks lie in the nodes' memory, and what each node posts: pure functions of the
plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints, by_key
from railopt.model.chunks import Chunks
from railopt.model.plan import Plan

MAX_MESSAGE = 1 << 30


@dataclass(frozen=True)
class Layout:
    """Buffer number and byte offset of each chunk in its sender's and in its receiver's memory.

    send_buffer, recv_buffer  int32 [C]: which of the node's buffers
    send_offset, recv_offset  int64 [C]: where in it
    send_bytes, recv_bytes    int64 [nodes, buffers]: how large the buffers must be
    """

    send_buffer: npt.NDArray[np.int32]
    send_offset: Ints
    send_bytes: Ints
    recv_buffer: npt.NDArray[np.int32]
    recv_offset: Ints
    recv_bytes: Ints

    @classmethod
    def packed(cls, chunks: Chunks, *, per_gpu: bool = False) -> Layout:
        """The order of an all-to-all-v: a node's send memory goes by (source GPU, destination
        GPU), its receive memory by (destination GPU, source GPU), the chunks of a pair in their
        order, without gaps. One buffer per node, or one per GPU with `per_gpu`."""
        count = chunks.nodes * chunks.gpus
        forth = chunks.src_gpu.astype(np.int64) * count + chunks.dst_gpu
        back = chunks.dst_gpu.astype(np.int64) * count + chunks.src_gpu
        buffers = chunks.gpus if per_gpu else 1
        send = _pack(
            forth, chunks.src_gpu if per_gpu else chunks.src, chunks.size, chunks.nodes, buffers
        )
        recv = _pack(
            back, chunks.dst_gpu if per_gpu else chunks.dst, chunks.size, chunks.nodes, buffers
        )
        return cls(*send, *recv)


def _pack(
    key: Ints,
    owner: npt.NDArray[np.int32],
    size: Ints,
    nodes: int,
    buffers: int,
) -> tuple[npt.NDArray[np.int32], Ints, Ints]:
    """Lay chunks out in the order of `key` within the memory of each owner: (buffer, offset, bytes
    per owner).
    """
    order = np.arange(len(key)) if np.all(key[1:] >= key[:-1]) else by_key(key)
    ends = np.cumsum(size[order])
    starts = ends - size[order]
    owners = owner[order]
    first = np.searchsorted(owners, np.arange(nodes * buffers))  # the key sorts by owner first
    offset = np.empty(len(key), np.int64)
    offset[order] = starts - np.append(starts, 0)[first][owners]
    total = np.zeros(nodes * buffers, np.int64)
    np.add.at(total, owner, size)
    return (owner % buffers).astype(np.int32), offset, total.reshape(nodes, buffers)


@dataclass(frozen=True)
class WriteList:
    """The RDMA WRITEs of one node for one stage, grouped by link, in the plan's order within a
    link.

    peer, rail                 int64 [L] of each link, sorted
    starts                     int64 [L + 1]: link l posts rows starts[l]:starts[l + 1]
    chunk                      int64 [W]: the chunk (or, of one above the largest message, a part of
                               it)
    local_buffer, local_offset, remote_buffer, remote_offset, length   int64 [W]
    """

    peer: Ints
    rail: Ints
    starts: Ints
    chunk: Ints
    local_buffer: Ints
    local_offset: Ints
    remote_buffer: Ints
    remote_offset: Ints
    length: Ints

    def __len__(self) -> int:
        return len(self.chunk)


def stages(plan: Plan) -> list[int | None]:
    """The stages of a plan in order; [None] where it has none."""
    return [None] if plan.stage is None else [int(s) for s in np.unique(plan.stage)] or [None]


def rows_of(plan: Plan, node: int, stage: int | None = None, *, side: str = "send") -> Ints:
    """Chunks that a node sends (or receives) in a stage, as indices."""
    mask = (plan.chunks.src if side == "send" else plan.chunks.dst) == node
    if stage is not None:
        assert plan.stage is not None
        mask &= plan.stage == stage
    return np.flatnonzero(mask).astype(np.int64)


def write_list(
    plan: Plan,
    layout: Layout,
    rows: Ints,
    rail: npt.NDArray[np.integer] | None = None,
    max_message: int = MAX_MESSAGE,
) -> WriteList:
    """What the node that owns the chunks `rows` posts; `rail` overrides the plan's rails (one per
    row).
    """
    chunks = plan.chunks
    rails = (plan.rail[rows] if rail is None else rail).astype(np.int64)
    link = chunks.dst[rows].astype(np.int64) * plan.fabric.rails + rails
    order = by_key(link)
    chunk, link = rows[order], link[order]
    size = chunks.size[chunk]
    skip = np.zeros(len(chunk), np.int64)
    if len(chunk) and size.max() > max_message:
        pieces = -(-size // max_message)
        owner = np.repeat(np.arange(len(chunk)), pieces)
        skip = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * max_message
        chunk, link, size = chunk[owner], link[owner], np.minimum(size[owner] - skip, max_message)
    links, first = np.unique(link, return_index=True)
    return WriteList(
        peer=links // plan.fabric.rails,
        rail=links % plan.fabric.rails,
        starts=np.append(first, len(link)),
        chunk=chunk,
        local_buffer=layout.send_buffer[chunk].astype(np.int64),
        local_offset=layout.send_offset[chunk] + skip,
        remote_buffer=layout.recv_buffer[chunk].astype(np.int64),
        remote_offset=layout.recv_offset[chunk] + skip,
        length=size,
    )
