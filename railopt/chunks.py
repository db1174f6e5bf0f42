"""Chunks: what a plan assigns to rails.  Columns of equal length, one row a chunk, read-only.

A flow is the traffic of one (source GPU, destination GPU) pair between different nodes; it is cut
into pieces of at most `cap` bytes, the remainder last.  Traffic inside a node never touches a rail
and has no chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.arrays import Array, Int32s, Ints, digest, frozen, total, whole_number
from railopt.errors import InputError
from railopt.units import INT64_MAX

COLUMNS = {
    "src": np.int32,
    "dst": np.int32,
    "src_gpu": np.int32,
    "dst_gpu": np.int32,
    "flow": np.int32,
    "offset": np.int64,
    "size": np.int64,
}
MAX_TOTAL = 1 << 62  # bytes: what all chunks together stay below, so that sums of loads never wrap
MAX_CHUNKS = 1 << 25


@dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks between `nodes` nodes of `gpus` GPUs each.

    src, dst          int32 [C], node indices, src != dst
    src_gpu, dst_gpu  int32 [C], GPU ids (node * gpus + local index)
    flow              int32 [C], chunks of one flow share its number
    offset, size      int64 [C], bytes: where the chunk starts in its flow, and how long it is
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

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus"):
            number = whole_number(getattr(self, name), name, 1, np.iinfo(np.int32).max)
            object.__setattr__(self, name, number)
        for name, dtype in COLUMNS.items():
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, name, 1))
        lengths = {name: len(getattr(self, name)) for name in COLUMNS}
        if len(set(lengths.values())) != 1:
            raise InputError(f"columns of different lengths: {lengths}")
        if len(self) == 0:
            return
        everywhere = self.nodes * self.gpus
        for name, most in (
            ("src", self.nodes),
            ("dst", self.nodes),
            ("src_gpu", everywhere),
            ("dst_gpu", everywhere),
        ):
            column = getattr(self, name)
            if column.min() < 0 or column.max() >= most:
                raise InputError(
                    f"{name} goes from {column.min()} to {column.max()}: expected 0 to {most - 1}"
                )
        if self.size.min() < 1 or self.offset.min() < 0 or self.flow.min() < 0:
            raise InputError(
                "a chunk has at least 1 byte, an offset of at least 0 and a flow number of at "
                "least 0; "
                f"found size {self.size.min()}, offset {self.offset.min()}, flow {self.flow.min()}"
            )
        if int(self.offset.max()) + self.largest > INT64_MAX:
            raise InputError(f"an offset of {self.offset.max()} bytes: beyond int64")
        if np.any(self.src == self.dst):
            row = int(np.argmax(self.src == self.dst))
            raise InputError(
                f"chunk {row} goes from node {self.src[row]} to itself: traffic inside a node has "
                f"no chunk"
            )
        if np.any(self.src_gpu // self.gpus != self.src) or np.any(
            self.dst_gpu // self.gpus != self.dst
        ):
            raise InputError("src_gpu and dst_gpu must lie in the nodes src and dst")
        check_total(self.size)

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
        if cap is None:
            pieces, numbers = None, np.arange(len(size), dtype=np.int32)
            offset, sizes = np.zeros(len(size), np.int64), size.astype(np.int64)
        else:
            pieces = -(-size // cap)
            count = total(pieces)
            if count > MAX_CHUNKS:
                raise InputError(f"{count} chunks: more than {MAX_CHUNKS}; use larger chunks")
            numbers = np.repeat(np.arange(len(size), dtype=np.int32), pieces)
            first = np.cumsum(pieces) - pieces
            offset = (np.arange(count, dtype=np.int64) - first[numbers]) * cap
            sizes = np.minimum(size[numbers] - offset, cap)
        source, target = src_gpu.astype(np.int32)[numbers], dst_gpu.astype(np.int32)[numbers]
        return cls(
            nodes, gpus, source // gpus, target // gpus, source, target, numbers, offset, sizes
        )

    def columns(self) -> dict[str, Array]:
        """The columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def take(self, rows: npt.NDArray[Any]) -> Chunks:
        """The chunks of these rows (indices or a mask), flow numbers and offsets kept."""
        return Chunks(
            self.nodes, self.gpus, **{name: column[rows] for name, column in self.columns().items()}
        )

    @cached_property
    def digest(self) -> str:
        return digest({"nodes": self.nodes, "gpus": self.gpus}, self.columns())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunks) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def check_total(sizes: Ints) -> None:
    """Refuse sizes (bytes, none negative) that are `MAX_TOTAL` or more together."""
    if (found := total(sizes)) >= MAX_TOTAL:
        raise InputError(
            f"{found} bytes in all: expected less than 2**62; count in a larger unit than bytes"
        )
