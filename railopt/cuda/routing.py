"""Routes on the device: from what ranks sent each other to the tables of one rank, and from choices
of experts to the order of rows (kernels/counts.cu, tables.cu, expand.cu, list.cu, stage.cu,
add_counts.cu, choose.cu).  Everything is an address of int64 or int32 numbers; nothing waits for
the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.cuda.driver import Arguments, Gpu, packed
from railopt.cuda.planner import GpuPlanner
from railopt.model.fabric import Fabric

_THREADS, _BLOCKS = 512, 16


class TableOffsets(NamedTuple):
    """Where numbers stand in a rank's int64 buffer: first those that the host reads.

    sent, received [rails], staged, gathered [G], there, here [nodes], passed, into [G]: sums of
    rows; copies: [2 G + slots] of `add_counts.cu`; then begins of the same length, and pieces: own
    [R, G], blocks [G, nodes], arrived [R, G], came [R, G].
    """

    status: slice
    sent: slice
    received: slice
    staged: slice
    gathered: slice
    there: slice
    here: slice
    passed: slice
    into: slice
    copies: slice
    begins: slice
    own: slice
    blocks: slice
    arrived: slice
    came: slice

    @classmethod
    def of(cls, fabric: Fabric, slots: int) -> TableOffsets:
        nodes, gpus, rails = fabric.nodes, fabric.gpus, fabric.rails
        ranks, copies = nodes * gpus, 2 * gpus + slots
        sums = [1, rails, rails, gpus, gpus, nodes, nodes, gpus, gpus, copies, copies]
        ends = np.cumsum([*sums, ranks * gpus, gpus * nodes, ranks * gpus, ranks * gpus]).tolist()
        return cls(*(slice(a, b) for a, b in zip([0, *ends], ends, strict=False)))


class PieceTable(NamedTuple):
    """Sizes [rows, columns] at an address, steps in numbers; where their order column by column and
    its inverse go.
    """

    size: int
    rows: int
    columns: int
    row_step: int
    column_step: int
    ordered: int
    inverse: int


class ChoiceEntries(NamedTuple):
    """`entries` with `k` slots each, `stride` bytes apart; a slot's class is (slot - first)
    // divide, if that is in 0 .. classes - 1.
    """

    slots: int
    stride: int
    entries: int
    k: int
    divide: int
    first: int
    classes: int


class ClassList(NamedTuple):
    """`Listed` of list.cu: where it writes, and what it reads beside entries; 0 for what is not
    wanted.
    """

    order: int = 0
    base: int = 0
    limit: int = 0
    list: int = 0
    inverse: int = 0
    by_choice: int = 0
    counts: int = 0
    seen: int = 0
    dropped: int = 0
    status: int = 0
    width: int = 0
    counts_step: int = 1
    experts: int = 0
    in_place: int = 0


class RouteKernels:
    """The kernels of one rank, its plans by `policy`, its slots per rank.

    head    numbers before the rows that ranks tell each other
    via     int [G, G, rails]: the rail group that carries rows between two local GPUs on a rail
    """

    def __init__(
        self, fabric: Fabric, rank: int, policy: str, pieces: int, via: Array, head: int
    ) -> None:
        self.fabric, self.rank, self.pieces = fabric, rank, pieces
        self.gpu = gpu = Gpu()
        flows = fabric.gpus * fabric.nodes * fabric.gpus
        capacity = flows + fabric.rails * pieces
        self._planner = GpuPlanner(fabric, None, policy, capacity=capacity)
        self._via = gpu.array(np.ascontiguousarray(via, np.int32))
        self._shape = {"NODES": fabric.nodes, "GPUS": fabric.gpus, "RAILS": fabric.rails}
        self._shape |= {"THREADS": _THREADS}
        self._counts = self._kernel("counts", HEAD=head)
        self._tables = self._kernel("tables", CAPACITY=capacity)
        self._expand = self._kernel("expand", BLOCKS=_BLOCKS)
        self._made: dict[tuple[Any, ...], Any] = {}

    def _kernel(self, name: str, **macros: int) -> Any:
        return self.gpu.kernel(name, {**self._shape, **macros})[0]

    def _launch(self, kernel: Any, blocks: int, stream: int, *arguments: Any) -> None:
        if blocks:
            given = Arguments(*arguments)  # which must live until the launch
            kernel.launch(blocks, _THREADS, given.address, stream)

    def _once(self, name: str, **macros: int) -> Any:
        key = (name, *macros.values())
        if key not in self._made:
            self._made[key] = self._kernel(name, **macros)
        return self._made[key]

    def plan(
        self, sent: int, both: bool, work: int, tables: int, at: TableOffsets, stream: int
    ) -> None:
        """Fill the rank's buffer `tables`, all zero, from what all ranks `sent`, [R, head + 2 R];
        `work` has room for R * R + nodes numbers.
        """
        ranks = self.fabric.nodes * self.fabric.gpus
        caps = work + 8 * ranks * ranks
        given = packed("pqqppp", sent, self.pieces, int(both), work, caps, tables)
        self._launch(self._counts, self.fabric.nodes, stream, given)
        made = self._planner.launch(work, caps, stream)
        columns = (made.src_gpu, made.dst_gpu, made.size, made.rail, made.count)
        pointers = [column.pointer for column in columns]
        planned = packed(
            "pppppppp", *pointers, self._planner.status.pointer, work, self._via.pointer
        )
        parts = [*at[:9], *at[-4:]]
        out = packed("p" * len(parts), *(tables + 8 * part.start for part in parts))
        rank = packed("i", self.rank)
        self._launch(self._tables, self.fabric.nodes, stream, planned, out, rank)

    def expand(self, stream: int, *pieces: PieceTable) -> None:
        """Index and inverse of each of at most four tables."""
        four = [*pieces, *[PieceTable(*[0] * 7)] * (4 - len(pieces))]
        given = packed("piiiipp" * 4, *(value for one in four for value in one))
        self._launch(self._expand, _BLOCKS * len(pieces), stream, given)

    def list(
        self, entries: ChoiceEntries, to: ClassList, stream: int, *, every: bool = False
    ) -> None:
        """Entries by class; `every` choice or each class once."""
        kernel = self._once("list", ALL_CHOICES=int(every))
        given = packed("pqiiiii", *entries), packed("ppqpppppppiiii", *to)
        self._launch(kernel, entries.classes, stream, *given)

    def stage(
        self, entries: ChoiceEntries, slots: int, values: tuple[int, ...], stream: int
    ) -> None:
        """stage.cu with its `Units`, the rank's number left out."""
        *first, width, counts_step = values
        units = packed("ppppqpppiii", *first, width, self.rank, counts_step)
        kernel = self._once("stage", SLOTS=slots)
        self._launch(kernel, self.fabric.nodes, stream, packed("pqiiiii", *entries), units)

    def add_copies(self, slots: int, received: int, sums: int, begins: int, stream: int) -> None:
        """Add up the copies that all ranks counted (add_counts.cu)."""
        addresses = [packed("p", address) for address in (received, sums, begins)]
        self._launch(self._once("add_counts", SLOTS=slots), 1, stream, *addresses)

    def choose(self, copies: int, values: tuple[int, ...], stream: int) -> None:
        """choose.cu with its `Choices`; the last of them is how many experts there are."""
        kernel = self._once("choose", COPIES=copies)
        self._launch(kernel, values[-1], stream, packed("ppppppii", *values))
