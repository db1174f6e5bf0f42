"""One node's flows cut into chunks, into columns that are kept from call to call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from railopt.arrays import Array

__all__ = ["Cut", "cut_row", "room_for"]


class Cut(NamedTuple):
    """Columns of chunks, each at least as long as there are chunks.

    dst               int32, target node
    src_gpu, dst_gpu  int32, GPU ids
    offset, size      int64, bytes
    """

    dst: Array
    src_gpu: Array
    dst_gpu: Array
    offset: Array
    size: Array


def room_for(length: int) -> Cut:
    """Columns for so many chunks, not filled."""
    kinds = (np.int32, np.int32, np.int32, np.int64, np.int64)
    return Cut(*(np.empty(length, kind) for kind in kinds))


@njit(cache=True)
def cut_row(row: Array, node: int, cap: int, joined: Array, cut: Cut) -> tuple[int, int]:
    """Cut the flows `row` [gpus, nodes * gpus], bytes from the node's GPUs, into chunks of at most
    `cap`, into `cut` as far as it reaches; `joined` [nodes] says who can be sent to.

    Returns how many chunks there are, and a node that can't be sent to though there are bytes for
    it, or -1.
    """
    gpus, count = row.shape[0], 0
    for g in range(gpus):
        for h in range(row.shape[1]):
            left, f = row[g, h], h // gpus
            if left == 0 or f == node:
                continue
            if left < 0 or not joined[f]:
                return 0, f
            at = np.int64(0)
            while left > 0:
                if count < cut.size.size:
                    cut.dst[count], cut.src_gpu[count], cut.dst_gpu[count] = f, node * gpus + g, h
                    cut.offset[count], cut.size[count] = at, min(left, cap)
                count += 1
                at += cap
                left -= cap
    return count, -1
