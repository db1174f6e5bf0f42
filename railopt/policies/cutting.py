"""Flows of one node or of all cut into chunks, into columns that are kept from call to call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel

__all__ = ["Cut", "cut_rows", "room_for"]


class Cut(NamedTuple):
    """Columns of chunks, each at least as long as there are chunks.

    sender            int32, the node that sends, counted from the first that does
    dst               int32, target node
    src_gpu, dst_gpu  int32, GPU ids
    offset, size      int64, bytes
    """

    sender: Array
    dst: Array
    src_gpu: Array
    dst_gpu: Array
    offset: Array
    size: Array


def room_for(length: int) -> Cut:
    """Columns for so many chunks, not filled."""
    kinds = (*[np.int32] * 4, np.int64, np.int64)
    return Cut(*(np.empty(length, kind) for kind in kinds))


@kernel
def cut_rows(
    row: Array, first: int, caps: Array, joined: Array, most: int, cut: Cut
) -> tuple[int, int, int]:
    """Cut the flows `row` [senders * gpus, nodes * gpus], bytes from the GPUs of nodes `first` and
    following, into chunks of at most `caps` [senders], into `cut` as far as it reaches.  `joined`
    [senders, nodes] says who can send to whom.

    Returns how many chunks there are, or -1 where that is more than `most`; bytes of the largest;
    and sender * nodes + node of two that can't be joined though there are bytes for it, or -1.
    """
    gpus, count, largest = row.shape[0] // joined.shape[0], 0, 0
    sender, dst, src_gpu, dst_gpu, offset, size = cut
    for g in range(row.shape[0]):
        k = g // gpus
        cap = caps[k]
        for h in range(row.shape[1]):
            flow, f = int(row[g, h]), h // gpus
            if flow == 0 or f == first + k:
                continue
            if flow < 0 or not joined[k, f]:
                return 0, 0, k * joined.shape[1] + f
            largest = max(largest, min(flow, cap))
            pieces = (flow - 1) // cap + 1
            if pieces > most - count:
                return -1, 0, -1
            if count + pieces <= size.size:
                for i in range(pieces):
                    c = np.uint64(count + i)  # unsigned: it does not count from the end
                    sender[c], dst[c], src_gpu[c], dst_gpu[c] = k, f, first * gpus + g, h
                    offset[c], size[c] = i * cap, cap
                size[count + pieces - 1] = flow - (pieces - 1) * cap
            count += pieces
    return count, largest, -1
