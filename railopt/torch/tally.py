"""The kernels behind routes and ways: sums of chunks in one rank's tables, and orders of pieces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel


class RailRows(NamedTuple):
    """Rows on rails: src_gpu, dst_gpu int32 [C], size int64 [C] rows, rail int16 [C]."""

    src_gpu: Array
    dst_gpu: Array
    size: Array
    rail: Array


class Tables(NamedTuple):
    """What one rank (GPU g of node k, of G GPUs per node and R in all) must know, in rows, int64.

    own       [R, G]     from this rank to GPU d, by the rail group that carries them
    gathered  [G, R]     from GPU i of this node to GPU d, by this rank's rail group
    arrived   [R, G]     from GPU s to GPU h of this node, by this rank's rail group
    into      [R, G]     from GPU s to this rank, by the rail group that carries them
    received  [rails]    what each NIC of this node receives
    sent_counts  [nodes, rails + 2 * G * G]   what this rank sends the same GPU of each node: rows
              that each NIC of this node sends there; from GPU i to GPU j there, by this rank's
              rail group; from GPU i to that GPU, by the rail group that carries them
    """

    own: Array
    gathered: Array
    arrived: Array
    into: Array
    received: Array
    sent_counts: Array


@kernel
def begin(rows: Array, rank: int, tables: Tables) -> None:
    """Tables with what stays inside the rank's node alone, of the node's `rows` [G, R]: it goes by
    the rail group of its destination.
    """
    tables.own[:], tables.gathered[:], tables.arrived[:], tables.into[:] = 0, 0, 0, 0
    tables.sent_counts[:], tables.received[:] = 0, 0
    gpus = tables.own.shape[1]
    local = rank % gpus
    for i in range(gpus):
        mate = rank - local + i
        tables.own[mate, i] = rows[local, mate]
        tables.gathered[i, rank] = rows[i, rank]
        tables.arrived[mate, local] = rows[i, rank]
        tables.into[mate, local] = rows[i, rank]


@kernel
def add(pieces: RailRows, via: Array, rank: int, tables: Tables) -> None:
    """Add `pieces` to `tables` of `rank`; `via` [G, G, rails] is the rail group of a rail's rows
    from a local GPU to a local GPU of another node.
    """
    gpus, rails = np.uint64(via.shape[0]), np.uint64(via.shape[2])
    node, local = np.uint64(rank) // gpus, np.uint64(rank) % gpus
    for p in range(pieces.size.size):
        # unsigned indices: numba does not ask whether they count from the end
        s, d = np.uint64(pieces.src_gpu[p]), np.uint64(pieces.dst_gpu[p])
        n, rows = np.uint64(pieces.rail[p]), pieces.size[p]
        k, f = s // gpus, d // gpus
        i, j = s - k * gpus, d - f * gpus
        c = np.uint64(via[i, j, n])
        if k == node:
            tables.sent_counts[f, n] += rows
            if s == rank:
                tables.own[d, c] += rows
            if c == local:
                tables.gathered[i, d] += rows
                tables.sent_counts[f, rails + i * gpus + j] += rows
            if j == local:
                tables.sent_counts[f, rails + (gpus + i) * gpus + c] += rows
        elif f == node:
            tables.received[n] += rows
            if d == rank:
                tables.into[s, c] += rows
            if c == local:
                tables.arrived[s, j] += rows


@kernel
def add_received(counts: Array, node: int, tables: Tables) -> None:
    """Add `counts`, the `Tables.sent_counts` of all nodes for this rank of `node`."""
    rails, gpus = tables.received.size, tables.own.shape[1]
    for k in range(counts.shape[0]):
        for n in range(rails):
            tables.received[n] += counts[k, n]
        if k == node:  # what stays there is known
            continue
        for i in range(gpus):
            first = rails + i * gpus
            for j in range(gpus):
                tables.arrived[k * gpus + i, j] = counts[k, first + j]
                tables.into[k * gpus + i, j] = counts[k, first + gpus * gpus + j]


class RowSums(NamedTuple):
    """Rows of one rank's exchanges, int64: what it stages and gathers [G], by node what it sends
    and receives in its rail group [nodes], and what it passes on and gets passed on [G].

    blocks    [G, nodes]: `Tables.gathered`, all GPUs of a node together
    """

    staged: Array
    gathered: Array
    sent: Array
    received: Array
    passed: Array
    into: Array
    blocks: Array


@kernel
def sums(tables: Tables, total: RowSums) -> None:
    """Fill `total` from one rank's tables."""
    for array in total[:-1]:
        array[:] = 0
    gpus = tables.own.shape[1]
    for node in range(total.sent.size):
        for r in range(node * gpus, (node + 1) * gpus):
            for i in range(gpus):
                total.received[node] += tables.arrived[r, i]
                total.passed[i] += tables.arrived[r, i]
                total.staged[i] += tables.own[r, i]
                total.into[i] += tables.into[r, i]
        for i in range(gpus):
            rows = tables.gathered[i, node * gpus : (node + 1) * gpus].sum()
            total.blocks[i, node] = rows
            total.gathered[i] += rows
            total.sent[node] += rows


@kernel
def outgoing(rows: Array, gpus: int, first: int, out: Array) -> None:
    """Fill `out` [senders]: what each of the nodes from `first` on has for other nodes, of the
    `rows` [senders * G, R] of their GPUs.
    """
    for k in range(out.size):
        own = (first + k) * gpus
        out[k] = 0
        for g in range(k * gpus, (k + 1) * gpus):
            out[k] += rows[g].sum() - rows[g, own : own + gpus].sum()


@kernel
def by_column(pieces: Array) -> tuple[Array, Array]:
    """Sizes of the pieces [A, B] that are not empty, row by row, and their order column by
    column.
    """
    rows, columns = pieces.shape
    number = np.empty((rows, columns), np.int64)
    sizes = np.empty(rows * columns, np.int64)
    full = 0
    for a in range(rows):
        for b in range(columns):
            if pieces[a, b] > 0:
                number[a, b] = full
                sizes[full] = pieces[a, b]
                full += 1
    order = np.empty(full, np.int64)
    place = 0
    for b in range(columns):
        for a in range(rows):
            if pieces[a, b] > 0:
                order[place] = number[a, b]
                place += 1
    return sizes[:full], order
