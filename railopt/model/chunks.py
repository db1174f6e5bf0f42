"""Chunks: what a plan assigns to rails.  Columns of equal length, one row per chunk, read-only.

A flow is the traffic of one (source GPU, destination GPU) pair between different nodes; it is cut
into pieces of at most `cap` bytes, the remainder last.  Traffic inside a node never touches a rail
and has no chunk.

A unit is a chunk that goes once to a node and there to every GPU that needs it, its targets: what a
dispatcher makes of a token that chose several experts of one node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import (
    MUCH,
    Array,
    Bools,
    Digested,
    Int32s,
    Ints,
    check_range,
    check_total,
    digest,
    frozen,
    never_changes,
    total,
    whole_number,
)
from railopt.base.errors import InputError, say
from railopt.base.units import INT64_MAX, format_bytes, parse_bytes
from railopt.model.fabric import Fabric

COLUMNS = {
    "src": np.int32,
    "dst": np.int32,
    "src_gpu": np.int32,
    "dst_gpu": np.int32,
    "flow": np.int32,
    "offset": np.int64,
    "size": np.int64,
}
MAX_CHUNKS = 1 << 25
CHUNK_BYTES = 120  # of memory that a chunk takes while it is planned, as measured


@dataclass(frozen=True, eq=False)
class Chunks(Digested):
    """Chunks between `nodes` nodes of `gpus` GPUs each.

    src, dst          int32 [C], node indices, src != dst
    src_gpu, dst_gpu  int32 [C], GPU ids (node * gpus + local index)
    flow              int32 [C], chunks of one flow share its number
    offset, size      int64 [C], bytes: where the chunk starts in its flow, and how long it is
    targets           bool [C, gpus]: the GPUs of node dst that need the chunk, dst_gpu among them,
                      or none where it only has to reach the node; None where dst_gpu alone needs it
    """

    nodes: int
    gpus: int
    src: Int32s = field(repr=False)
    dst: Int32s = field(repr=False)
    src_gpu: Int32s = field(repr=False)
    dst_gpu: Int32s = field(repr=False)
    flow: Int32s = field(repr=False)
    offset: Ints = field(repr=False)
    size: Ints = field(repr=False)
    targets: Bools | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus"):
            number = whole_number(getattr(self, name), name, 1, np.iinfo(np.int32).max)
            object.__setattr__(self, name, number)
        for name, dtype in COLUMNS.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, name, 1))
        lengths = {name: len(getattr(self, name)) for name in COLUMNS}
        if len(set(lengths.values())) != 1:
            raise InputError(f"columns of different lengths: {lengths}")
        if self.targets is not None:
            object.__setattr__(self, "targets", _targets(self.targets, len(self), self.gpus))
        if len(self) == 0:
            return
        everywhere = self.nodes * self.gpus
        for name, most in (
            ("src_gpu", everywhere),
            ("dst_gpu", everywhere),
            ("src", self.nodes),
            ("dst", self.nodes),
        ):
            check_range(getattr(self, name), name, most)
        if self.size.min() < 1 or self.offset.min() < 0 or self.flow.min() < 0:
            raise InputError(
                "a chunk has at least 1 byte, an offset of at least 0 and a flow number of at "
                "least 0; "
                f"found size {self.size.min()}, offset {self.offset.min()}, flow {self.flow.min()}"
            )
        check_total(self.size)
        if int(self.offset.max()) + self.largest > INT64_MAX:
            raise InputError(f"an offset of {self.offset.max()} bytes: beyond int64")
        if np.any(self.src == self.dst):
            row = int(np.argmax(self.src == self.dst))
            raise InputError(f"chunk {row} goes from node {self.src[row]} to itself")
        if np.any(self.src_gpu // self.gpus != self.src) or np.any(
            self.dst_gpu // self.gpus != self.dst
        ):
            raise InputError("src_gpu and dst_gpu must lie in the nodes src and dst")
        if self.targets is not None:
            listed = self.targets[np.arange(len(self)), self.dst_gpu % self.gpus]
            for row in np.flatnonzero(self.targets.any(axis=1) & ~listed)[:1]:
                raise InputError(f"chunk {row}: its dst_gpu is not one of its targets")
            most = 1 + int(self.targets.sum(axis=1).max())  # how often a byte may be moved
            if total(self.size) * most > INT64_MAX:
                raise InputError(
                    f"{total(self.size)} bytes, each moved up to {most} times: beyond int64; count "
                    f"in a larger unit than bytes"
                )

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def total(self) -> int:
        """All bytes, exact."""
        return total(self.size)

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest chunk; 0 where there is none."""
        return int(self.size.max()) if len(self) else 0

    @cached_property
    def node_matrix(self) -> Ints:
        """int64 [nodes, nodes]: bytes from node to node."""
        matrix = np.zeros((self.nodes, self.nodes), np.int64)
        np.add.at(matrix, (self.src, self.dst), self.size)
        matrix.flags.writeable = False
        return matrix

    @classmethod
    def from_arrays(
        cls,
        *,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        size: npt.ArrayLike,
        nodes: int | None = None,
    ) -> Chunks:
        """Synthetic chunks from node indices and bytes; each is a flow of its own and nodes have
        one GPU.
        """
        source, target = frozen(src, np.int32, "src", 1), frozen(dst, np.int32, "dst", 1)
        sizes = frozen(size, np.int64, "size", 1)
        if nodes is None:
            nodes = (
                1 + max(int(source.max()), int(target.max())) if len(source) and len(target) else 1
            )
        return cls(
            nodes,
            1,
            source,
            target,
            source,
            target,
            np.arange(len(sizes), dtype=np.int32),
            np.zeros(len(sizes), np.int64),
            sizes,
        )

    @classmethod
    def from_flows(
        cls, nodes: int, gpus: int, src_gpu: Array, dst_gpu: Array, size: Array, cap: int | None
    ) -> Chunks:
        """Cut flows (GPU ids and bytes, each flow once, all between different nodes) at `cap`
        bytes; None keeps them whole.
        """
        cap = int(size.max(initial=1)) if cap is None else cap
        pieces = -(-size // cap)
        count = total(pieces)
        check_count(len(size), count, total(size))
        numbers = np.repeat(np.arange(len(size), dtype=np.int32), pieces)
        first = np.cumsum(pieces) - pieces
        offset = (np.arange(count, dtype=np.int64) - first[numbers]) * cap
        sizes = np.minimum(size[numbers] - offset, cap)
        source, target = src_gpu.astype(np.int32)[numbers], dst_gpu.astype(np.int32)[numbers]
        columns = (source // gpus, target // gpus, source, target, numbers, offset, sizes)
        for column in columns:
            column.flags.writeable = False  # so that it is not copied
        return cls(nodes, gpus, *columns)

    @classmethod
    def from_units(
        cls,
        fabric: Fabric,
        *,
        src_gpu: npt.ArrayLike,
        dst: npt.ArrayLike,
        size: npt.ArrayLike,
        targets: npt.ArrayLike | None = None,
        cap: str | int | None = None,
    ) -> Chunks:
        """Units of a fabric's GPUs: from GPU `src_gpu` once to node `dst`, there to `targets`.

        src_gpu   [U], GPU ids (node * gpus + local index)
        dst       [U], node indices
        size      [U], bytes
        targets   bool [U, gpus], the GPUs of the node that need the unit; None: it only has to
                  reach the node, and nothing is passed on there
        cap       units longer than this are cut into pieces, each with its unit's targets
        """
        source, node = frozen(src_gpu, np.int32, "src_gpu", 1), frozen(dst, np.int32, "dst", 1)
        sizes = frozen(size, np.int64, "size", 1)
        if not len(source) == len(node) == len(sizes):
            found = f"{len(source)} src_gpu, {len(node)} dst and {len(sizes)} size"
            raise InputError(f"units of {found}: expected as many of each")
        given = np.zeros((len(sizes), fabric.gpus), np.bool_) if targets is None else targets
        needed = _targets(given, len(sizes), fabric.gpus)
        check_range(node, "dst", fabric.nodes)
        if sizes.min(initial=1) < 1:
            raise InputError(f"a unit of {sizes.min()} bytes: expected at least 1")
        first = np.where(needed.any(axis=1), needed.argmax(axis=1), source % fabric.gpus)
        target = node.astype(np.int64) * fabric.gpus + first
        cut = None if cap is None else parse_bytes(cap)
        whole = cls.from_flows(fabric.nodes, fabric.gpus, source, target, sizes, cut)
        return replace(whole, targets=needed[whole.flow])

    def columns(self) -> dict[str, Array]:
        """The columns by name; `targets` packed into bits, where there are any."""
        found: dict[str, Array] = {name: getattr(self, name) for name in COLUMNS}
        if self.targets is not None:
            found["targets"] = np.packbits(self.targets, axis=1)
        return found

    @classmethod
    def from_columns(cls, nodes: int, gpus: int, columns: Mapping[str, Array]) -> Chunks:
        """The inverse of `columns`."""
        gpus = whole_number(gpus, "gpus", 1, INT64_MAX)
        packed = columns.get("targets")
        targets = None
        if packed is not None:
            if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-gpus // 8):
                raise InputError(
                    f"targets of {packed.dtype}, shape {packed.shape}: expected bits of {gpus} GPUs"
                )
            targets = np.unpackbits(packed, axis=1, count=gpus).astype(np.bool_)
        return cls(nodes, gpus, **{name: columns[name] for name in COLUMNS}, targets=targets)

    def take(self, rows: npt.NDArray[Any]) -> Chunks:
        """The chunks of these rows (indices or a mask), flow numbers and offsets kept."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        targets = None if self.targets is None else self.targets[rows]
        return Chunks(self.nodes, self.gpus, **columns, targets=targets)

    @cached_property
    def digest(self) -> str:
        return digest({"nodes": self.nodes, "gpus": self.gpus}, self.columns())


def check_count(flows: int, count: int, bytes_: int) -> None:
    """Refuse `count` chunks where they are too many; say how much memory they take where that is
    much.
    """
    if count <= MAX_CHUNKS:
        if count * CHUNK_BYTES > MUCH:
            say(f"{count} chunks take about {count * CHUNK_BYTES / 1e9:.0f} GB of memory")
        return
    if flows > MAX_CHUNKS:
        raise InputError(
            f"{flows} flows: more than {MAX_CHUNKS} chunks, however large these are; use fewer "
            f"nodes or GPUs (--nodes, --gpus): {isqrt(MAX_CHUNKS)} GPUs may all exchange bytes"
        )
    few = 1 << (bytes_ // max(1, MAX_CHUNKS - flows)).bit_length()
    raise InputError(
        f"{count} chunks: more than {MAX_CHUNKS}; use larger chunks, e.g. of {format_bytes(few)} "
        f"(--chunk)"
    )


def _targets(targets: npt.ArrayLike, count: int, gpus: int) -> Bools:
    """`targets` as read-only truth values [count, gpus]."""
    given = np.asarray(targets)
    if given.dtype != np.bool_ or given.shape != (count, gpus):
        raise InputError(
            f"targets are {given.dtype} of shape {given.shape}: expected truth values of shape "
            f"{(count, gpus)} = (units, GPUs of a node)"
        )
    if not (never_changes(given) and given.flags.c_contiguous):
        given = np.array(given, order="C")
        given.flags.writeable = False
    return given
