"""Traffic: one all-to-all(v), bytes from GPU to GPU, and the files that hold it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base import archive
from railopt.base.arrays import (
    MAX_TEXT,
    Array,
    Bools,
    Digested,
    Ints,
    atomic_file,
    check_total,
    digest,
    frozen,
    kind_of,
    read_npy,
    read_npz,
    read_text,
    save_npz,
    total,
    whole_number,
    write_atomic,
)
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import INT64_MAX, parse_bytes, quoted
from railopt.files import formats, tabular
from railopt.model.chunks import Chunks, check_count
from railopt.model.fabric import Fabric

MAX_CM = 128 * formats.MAX_CONNECTIONS  # bytes of a `.cm`: a line, and perhaps its trigger's


@dataclass(frozen=True, eq=False)
class Traffic(Digested):
    """Bytes between GPUs: `bytes` int64 [GPUs, GPUs], `[source, destination]`, over `nodes` equal
    nodes.

    The diagonal blocks (traffic inside a node) are kept but never touch a rail.
    """

    bytes: Ints = field(repr=False)
    nodes: int

    def __post_init__(self) -> None:
        matrix = frozen(self.bytes, np.int64, "traffic", 2)
        rows, columns = matrix.shape
        if rows != columns:
            raise InputError(
                f"traffic is {rows} x {columns}: the matrix must be square, [source GPU, "
                f"destination GPU]"
            )
        nodes = whole_number(self.nodes, "nodes", 1, INT64_MAX)
        if rows == 0 or rows % nodes:
            raise InputError(f"traffic between {rows} GPUs does not divide over {nodes} nodes")
        if matrix.min() < 0:
            i, j = np.argwhere(matrix < 0)[0]
            raise InputError(f"traffic[{i}, {j}] = {matrix[i, j]}: bytes can't be negative")
        check_total(matrix)
        object.__setattr__(self, "bytes", matrix)
        object.__setattr__(self, "nodes", nodes)

    @classmethod
    def from_matrix(cls, matrix: npt.ArrayLike | Any, fabric: Fabric) -> Traffic:
        """A matrix of bytes `[source GPU, destination GPU]` that fits the fabric: an array, nested
        lists, a torch tensor, or a DataFrame (square, or with columns src, dst, bytes).

        Floats have to be whole numbers: nothing is rounded.

            >>> from railopt import Fabric, Traffic
            >>> fabric = Fabric.uniform(nodes=2, rails=2, link="400Gb/s")
            >>> matrix = [[0, 0, 6, 0], [0, 0, 0, 2], [4, 0, 0, 0], [0, 4, 0, 0]]
            >>> Traffic.from_matrix(matrix, fabric).node_matrix.tolist()
            [[0, 8], [8, 0]]
        """
        gpus = fabric.nodes * fabric.gpus
        array = tabular.plain(matrix, gpus)
        if array.ndim == 2 and array.shape != (gpus, gpus):
            raise InputError(
                f"traffic is {array.shape[0]} x {array.shape[1]}, expected {gpus} x {gpus} "
                f"({fabric.nodes} nodes x {fabric.gpus} GPUs)"
            )
        return cls(
            frozen(tabular.as_integers(array, "traffic"), np.int64, "traffic", 2), fabric.nodes
        )

    @property
    def gpus(self) -> int:
        """GPUs per node."""
        return len(self.bytes) // self.nodes

    @cached_property
    def node_matrix(self) -> Ints:
        """int64 [nodes, nodes]: bytes between different nodes; the diagonal is zero."""
        matrix = self.bytes.reshape(self.nodes, self.gpus, self.nodes, self.gpus).sum(axis=(1, 3))
        np.fill_diagonal(matrix, 0)
        matrix.flags.writeable = False
        return matrix

    def flows(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Ints]:
        """(source GPU, destination GPU, bytes) of every non-zero pair between different nodes, row
        by row.
        """
        src, dst = np.nonzero(self._between())
        return src, dst, self.bytes[src, dst]

    def _between(self) -> Bools:
        """bool, shaped as `bytes`: the pairs between different nodes that have some."""
        found: Bools = self.bytes != 0
        for node in range(self.nodes):
            inside = slice(node * self.gpus, (node + 1) * self.gpus)
            found[inside, inside] = False
        return found

    def chunks(self, cap: str | int) -> Chunks:
        """Cut every flow into chunks of at most `cap` ("256KiB", or bytes); "flow" keeps each flow
        whole.
        """
        most = None if cap == "flow" else parse_bytes(cap)
        flows = int(np.count_nonzero(self._between()))
        check_count(flows, flows, total(self.bytes))  # before there is room for all of them
        return Chunks.from_flows(self.nodes, self.gpus, *self.flows(), most)

    @classmethod
    def from_chunks(cls, chunks: Chunks) -> Traffic:
        """The inverse of `chunks`, but for the traffic inside nodes, which has no chunks."""
        matrix = np.zeros((chunks.nodes * chunks.gpus,) * 2, np.int64)
        np.add.at(matrix, (chunks.src_gpu, chunks.dst_gpu), chunks.size)
        return cls(matrix, chunks.nodes)

    @classmethod
    def read(cls, path: str | os.PathLike[str], fabric: Fabric | None = None) -> Traffic:
        """Read by suffix, in upper case too: `.npz` (railopt, or numpy's with one array), `.npy`,
        `.csv`, `.cm` (htsim), or anything else as an nccl-tests alltoallv matrix.  Without a
        fabric, railopt's `.npz` alone, which says its own size.
        """
        if fabric is None:
            return cls._read_own(path)
        if Path(path).suffix.lower() == ".npz" and not _is_numpys(path):
            traffic = cls._read_own(path)
            if (traffic.nodes, traffic.gpus) != (fabric.nodes, fabric.gpus):
                raise InputError(
                    f"{printable(path)}: traffic of {traffic.nodes} nodes x {traffic.gpus} GPUs, "
                    f"the fabric has {fabric.nodes} x {fabric.gpus}"
                )
            return traffic
        matrix = _foreign_matrix(path, fabric.nodes, fabric.gpus)
        with about(f"{printable(Path(path).name)}: "):
            return cls.from_matrix(matrix, fabric)

    @classmethod
    def read_sized(cls, path: str | os.PathLike[str], nodes: int, gpus: int) -> Traffic:
        """Read a file for `nodes` nodes, of as many GPUs as it says itself; `gpus` per node where
        it does not (`.cm`, or a CSV in long form).
        """
        if Path(path).suffix.lower() == ".npz" and not _is_numpys(path):
            return cls._read_own(path)
        matrix = _foreign_matrix(path, nodes, gpus)
        with about(f"{printable(Path(path).name)}: "):
            return cls(tabular.as_integers(matrix, "traffic"), nodes)

    @classmethod
    def _read_own(cls, path: str | os.PathLike[str]) -> Traffic:
        """Read a railopt `.npz`."""
        header, arrays = read_npz(path, "traffic")
        if set(arrays) != {"bytes"} or set(header) != {"nodes"}:
            raise FormatError(
                f"{printable(path)}: a traffic file holds 'bytes' and 'nodes', found "
                f"{printable(sorted(arrays))} and {printable(sorted(header))}"
            )
        with about(f"{printable(path)}: ", FormatError):
            return cls(arrays["bytes"], header["nodes"])

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write by suffix, in upper case too: `.npz` (railopt), `.npy`, `.csv` (square, without
        labels), `.cm` (htsim, direct flows between NICs), else an nccl-tests matrix.
        """
        suffix = Path(path).suffix.lower()
        if suffix == ".npz":
            save_npz(path, "traffic", {"nodes": self.nodes}, {"bytes": self.bytes}, force=force)
        elif suffix == ".cm":
            write_atomic(path, formats.matrix_to_cm(self.bytes, self.nodes), force=force)
        elif suffix == ".csv":
            write_atomic(path, tabular.format_csv(self.bytes), force=force)
        elif suffix == ".npy":
            formats.check_ranks(self.bytes)
            with atomic_file(path, force=force) as file:
                np.lib.format.write_array(file, self.bytes, allow_pickle=False)
        else:
            write_atomic(path, formats.format_matrix(self.bytes), force=force)

    @cached_property
    def digest(self) -> str:
        return digest({"nodes": self.nodes}, {"bytes": self.bytes})


def trace_file(text: str) -> tuple[str, str] | None:
    """(file, options) where the text names a routing trace, alone or with what to take of it, as
    `"trace.npz:step=3,layer=2"`; None for anything else.  A plain array is a trace if it has more
    dimensions than a matrix of bytes, or options.
    """
    if os.path.exists(text):
        return (text, "") if _is_trace(text, plain=3) else None
    path, colon, options = text.rpartition(":")
    if not colon or not os.path.exists(path):
        return None
    if not _is_trace(path, plain=2):
        raise InputError(
            f"{printable(path)} is no routing trace: expected nothing behind it, found "
            f"{quoted(colon + options)}"
        )
    return path, options


def _is_trace(path: str, plain: int) -> bool:
    """Whether a file holds routing: railopt's, PyTorch's, or an array of at least `plain`
    dimensions.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        return read_npy(path).ndim >= plain
    if suffix != ".npz":
        return suffix == ".pt"
    if (kind := kind_of(path)) is not None:
        return kind == "trace"
    with archive.opened(path) as members:
        if "header.json" in members.names or len(members.names) != 1:
            return False
        return members.array(members.names[0]).ndim >= plain


def _is_numpys(path: str | os.PathLike[str]) -> bool:
    """Whether a `.npz` is numpy's and not railopt's: it has no header."""
    with archive.opened(path) as members:
        return "header.json" not in members.names


def _foreign_matrix(path: str | os.PathLike[str], nodes: int, gpus: int) -> Array:
    """The matrix of a file that is not railopt's; the caller checks its shape."""
    suffix, name = Path(path).suffix.lower(), printable(Path(path).name)
    if suffix == ".npz":
        return _only_array(path)
    if suffix == ".npy":
        mapped = read_npy(path)
        if mapped.size > formats.MAX_RANKS**2:
            raise FormatError(f"{name}: {mapped.size} entries, at most {formats.MAX_RANKS} squared")
        return np.array(mapped)
    text = read_text(path, MAX_CM if suffix == ".cm" else MAX_TEXT)
    with about(f"{name}: ", FormatError):
        if suffix == ".cm":
            return formats.cm_to_matrix(text, nodes, gpus)
        if suffix == ".csv":
            return tabular.parse_csv(text, nodes * gpus)
        return formats.parse_matrix(text)


def _only_array(path: str | os.PathLike[str]) -> Array:
    """The one array of a `.npz` that numpy wrote."""
    with archive.opened(path) as members:
        if len(members.names) != 1 or not members.names[0].endswith(".npy"):
            raise FormatError(
                f"members {printable(members.names)}: expected one array, the "
                f"matrix of bytes, or a file that railopt wrote"
            )
        return members.array(members.names[0])
