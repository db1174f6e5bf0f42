"""What a plan moves inside nodes: bytes that change their GPU over scale-up.

For a chunk of b bytes from GPU g of node k to the GPUs H of node f, on rail n:

    staged      b if n's NIC is not near g: moved to the NIC's owner before the rail
    passed on   b for each GPU of H but one that is near the NIC and gets it from there; for each
                GPU of H where none is near (the owner passes on)

so that the cost of a rail is one row of `rail_costs`: times b it gives moved bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Ints
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric


class Moves(NamedTuple):
    """Bytes over scale-up.

    staged     bytes moved before a rail, in all
    passed_on  bytes moved after a rail, in all
    pairs      int64 [nodes, gpus, gpus]: bytes from GPU to GPU of a node
    """

    staged: int
    passed_on: int
    pairs: Ints

    @property
    def out(self) -> Ints:
        """int64 [nodes, gpus]: bytes that a GPU gives to others of its node."""
        return self.pairs.sum(axis=2)

    @property
    def into(self) -> Ints:
        """int64 [nodes, gpus]: bytes that a GPU gets from others of its node."""
        return self.pairs.sum(axis=1)

    def time(self, fabric: Fabric) -> Fraction:
        """Seconds until the busiest port, or pair where pairs have a rate of their own, is done."""
        ports = Fraction(int(max(self.out.max(), self.into.max())), fabric.scaleup)
        pair = fabric.node.pair
        return ports if pair is None else max(ports, Fraction(int(self.pairs.max()), pair))


def needed_by(fabric: Fabric, chunks: Chunks) -> Bools:
    """bool [C, gpus]: the GPUs of its node that need a chunk."""
    if chunks.gpus != fabric.gpus or chunks.nodes != fabric.nodes:
        raise InputError(
            f"chunks of {chunks.nodes} nodes x {chunks.gpus} GPUs, the fabric has {fabric.nodes} x "
            f"{fabric.gpus}: what is moved between GPUs needs chunks that name theirs (from a "
            f"Traffic or from_units)"
        )
    if chunks.targets is not None:
        return chunks.targets
    return np.arange(fabric.gpus) == (chunks.dst_gpu % fabric.gpus)[:, None]


def rail_costs(fabric: Fabric, chunks: Chunks) -> Array:
    """int16 [C, rails]: how often each byte of a chunk is moved inside nodes, by the rail."""
    needed, near = needed_by(fabric, chunks), fabric.node.near
    reached = needed.astype(np.float32) @ near.astype(np.float32) > 0
    moves = needed.sum(axis=1, dtype=np.int16)[:, None] - reached.astype(np.int16)
    moves += ~near[chunks.src_gpu % fabric.gpus]
    return moves


class Hops(NamedTuple):
    """Chunks that go from one GPU of a node to another: columns of equal length.

    chunk            int64, the row of the chunk
    source, target   int64, GPU ids (node * gpus + local index)
    """

    chunk: Ints
    source: Ints
    target: Ints


def staging(fabric: Fabric, chunks: Chunks, rail: Array) -> Hops:
    """What is moved before these rails: from its source to the NIC's owner."""
    source = chunks.src_gpu.astype(np.int64)
    far = np.flatnonzero(~fabric.node.near[source % fabric.gpus, rail])
    owner = chunks.src[far].astype(np.int64) * fabric.gpus + fabric.node.owner[rail[far]]
    return Hops(far, source[far], owner)


def passing_on(fabric: Fabric, chunks: Chunks, rail: Array) -> Hops:
    """What is moved after these rails: from the GPU that has it first to each that needs it."""
    node = fabric.node
    if chunks.targets is None and chunks.gpus == fabric.gpus:
        target, gateway = chunks.dst_gpu.astype(np.int64), node.owner[rail]
        local = target % fabric.gpus
        far = np.flatnonzero(~node.near[local, rail] & (gateway != local))
        return Hops(far, (target - local + gateway)[far], target[far])
    needed = needed_by(fabric, chunks)
    direct = needed & node.near[:, rail].T
    gateway = np.where(direct.any(axis=1), direct.argmax(axis=1), node.owner[rail])
    rest = needed.copy()
    rest[np.arange(len(chunks)), gateway] = False
    row, gpu = np.nonzero(rest)
    first = chunks.dst[row].astype(np.int64) * fabric.gpus
    return Hops(row, first + gateway[row], first + gpu)


def moves_of(fabric: Fabric, chunks: Chunks, rail: Array) -> Moves:
    """What chunks on these rails move."""
    pairs, moved = np.zeros(fabric.nodes * fabric.gpus**2, np.int64), []
    for hops in (staging(fabric, chunks, rail), passing_on(fabric, chunks, rail)):
        place = hops.source * fabric.gpus + hops.target % fabric.gpus
        np.add.at(pairs, place, chunks.size[hops.chunk])
        moved.append(int(chunks.size[hops.chunk].sum()))
    pairs.flags.writeable = False
    staged, passed_on = moved
    return Moves(staged, passed_on, pairs.reshape(-1, fabric.gpus, fabric.gpus))
