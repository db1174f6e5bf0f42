"""Schedule: an all-to-all(v) in stages between servers, and how its bytes reach the rails and their
targets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import (
    Array,
    Digested,
    Int32s,
    Ints,
    check_suffix,
    digest,
    frozen,
    read_npz,
    save_npz,
    total,
)
from railopt.base.errors import CheckFailed, FormatError, InputError, printable
from railopt.base.kernels import kernel
from railopt.base.units import parse_bytes, quoted
from railopt.evidence.bounds import Bound
from railopt.files.formats import format_stages
from railopt.model.chunks import MAX_CHUNKS, Chunks, check_count
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.schedule.decompose import line_sums
from railopt.schedule.kinds import KINDS, ORDERS
from railopt.schedule.pieces import Pieces, cut, node_matrix
from railopt.schedule.rates import busiest_nic, pair_rates, require_reachable

DEFAULT_CHUNK = 1 << 18
_NO_CAP = int(np.iinfo(np.int64).max)
_MOST_PIECES = int(np.iinfo(np.int32).max)
_ALONE = frozen(np.zeros(0, np.int32), np.int32, "stage", 1)


@dataclass(frozen=True, eq=False)
class Schedule(Digested):
    """Every byte between servers in exactly one stage; valid by construction.

    peer   int32 [rows, nodes], the server that server i sends to in a row, or -1
    sent   int64 [rows, nodes], bytes; 0 where the peer is -1
    kind   a name of KINDS
    order  how the stages were ordered by length
    stage  int32 [rows], the stage of each row, in ascending order from 0; None: a row each

    GPU r of every server owns NIC r.  Each transfer is split over the rails, evenly where they are
    alike (see `pieces`), so a GPU sends to at most one and receives from at most one peer per
    stage.  Rows of one stage share the GPUs: the first has the first of them, and so on, all as
    many (compact, NICs all alike).
    """

    fabric: Fabric
    traffic: Traffic
    kind: str
    order: str
    peer: npt.NDArray[np.int32] = field(repr=False)
    sent: Ints = field(repr=False)
    stage: Int32s | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.order not in ORDERS:
            raise InputError(
                f"a schedule of kind {quoted(self.kind)} in order {quoted(self.order)}: "
                f"known kinds are {', '.join(KINDS)}; orders {', '.join(ORDERS)}"
            )
        require_two_levels(self.fabric, self.traffic)
        object.__setattr__(self, "peer", frozen(self.peer, np.int32, "peer", 2))
        object.__setattr__(self, "sent", frozen(self.sent, np.int64, "sent", 2))
        if self.peer.shape != self.sent.shape or self.peer.shape[1] != self.fabric.nodes:
            raise InputError(
                f"peer {self.peer.shape} and sent {self.sent.shape}: "
                f"expected both (stages, {self.fabric.nodes} nodes)"
            )
        if self.stage is not None:
            self._check_stages(frozen(self.stage, np.int32, "stage", 1))
        fault, stage, node = _fault(self.traffic.bytes, self.traffic.nodes, self.peer, self.sent)
        if fault:
            raise CheckFailed(_FAULTS[fault].format(stage=stage, node=node))

    def _check_stages(self, stage: Int32s) -> None:
        """Refuse stages whose rows are apart or can't share the GPUs evenly."""
        object.__setattr__(self, "stage", stage)
        steps = np.diff(stage, prepend=0)
        if len(stage) != len(self.sent) or np.any(steps * (steps - 1)) or np.any(stage[:1]):
            raise InputError(
                f"stage has {len(stage)} entries for {len(self.sent)} rows: expected a stage for "
                "each, in ascending order from 0, none left out"
            )
        if not (KINDS[self.kind].tunable and self.fabric.is_uniform):
            raise InputError("several rows in a stage: expected compact, and NICs that are alike")
        sizes = np.bincount(stage)
        if np.any(self.fabric.gpus % sizes):
            raise InputError(
                f"{sizes.max()} rows in a stage: expected numbers that divide the "
                f"{self.fabric.gpus} GPUs of a server"
            )

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.lengths)

    @cached_property
    def lengths(self) -> Ints:
        """int64 [stages]: the longest transfer of each stage, bytes between two servers over all
        rails; where NICs differ equal bytes (see `railopt.schedule.rates`), and as many times as
        long where rows share the rails.
        """
        sent = self.sent
        if not self.fabric.is_uniform:
            rates, rows = pair_rates(self.fabric), np.arange(self.fabric.nodes)
            up, down = rates.up[rows, self.peer], rates.down[rows, self.peer]
            sent = sent // down * up + -(-(sent % down * up) // down)
        longest = sent.max(axis=1, initial=0)
        if self.stage is not None and len(longest):
            first = np.flatnonzero(np.diff(self.stage, prepend=-1))
            longest = np.maximum.reduceat(longest, first) * np.bincount(self.stage)
        return frozen(longest, np.int64, "lengths", 1)

    @cached_property
    def total(self) -> int:
        """The sum of the stages' lengths, bytes between two servers; where nothing waits for a
        stage the line sum, or what the busiest NIC takes where NICs differ.
        """
        if KINDS[self.kind].barriers:
            return int(self.lengths.sum())
        if self.fabric.is_uniform:
            return self.line_sum
        return max(self.line_sum, busiest_nic(self.fabric, self.traffic.node_matrix))

    @property
    def line_sum(self) -> int:
        """L: the most bytes that a server sends to or receives from others; where NICs differ, what
        the bound is worth in equal bytes.
        """
        if self.fabric.is_uniform:
            return self._line[2]
        return ceil(self.bound.value * pair_rates(self.fabric).fastest)

    @cached_property
    def _line(self) -> tuple[str, int, int, int]:
        """(side, node, bytes, their rate) of the fullest line; the send side and the lowest node
        where several tie.
        """
        if not self.fabric.is_uniform:
            return self._slowest()
        rows, columns = line_sums(self.traffic.node_matrix)
        side, sums = ("send", rows) if rows.max() >= columns.max() else ("recv", columns)
        node = int(sums.argmax())
        return side, node, int(sums[node]), int(self.fabric.rates(side)[node].sum())

    def _slowest(self) -> tuple[str, int, int, int]:
        """The line that takes longest: what a server exchanges with all others, or with one of
        them, each rail no faster than its NICs at both ends.
        """
        lines = [("send", 0, 0, 1)]
        demand = self.traffic.node_matrix
        for side, other, matrix in (("send", "recv", demand), ("recv", "send", demand.T)):
            for node in np.flatnonzero(matrix.any(axis=1)).tolist():
                peers = np.flatnonzero(matrix[node])
                own, theirs = self.fabric.rates(side)[node], self.fabric.rates(other)[peers]
                whole = int(np.minimum(own, theirs.sum(axis=0)).sum())
                lines.append((side, node, int(matrix[node].sum()), whole))
                each = np.minimum(own, theirs).sum(axis=1)
                slowest = int(np.argmax(matrix[node, peers] / each))
                lines.append((side, node, int(matrix[node, peers[slowest]]), int(each[slowest])))
        return max(lines, key=lambda line: Fraction(line[2], line[3]))

    @cached_property
    def bound(self) -> Bound:
        """t_opt = L / (m B2): no schedule is faster, because of what one server sends or
        receives.
        """
        side, node, load, rate = self._line
        return Bound(Fraction(load, rate), node, side, {"kind": "average"})

    @cached_property
    def excess(self) -> Fraction:
        """total / L - 1: how much longer the stages are than the bound; 0 for no traffic."""
        return Fraction(self.total, self.line_sum) - 1 if self.line_sum else Fraction(0)

    def pieces(
        self, cap: int | None = None, node: int | None = None, sources: slice = slice(None)
    ) -> Pieces:
        """Every piece, at most `cap` bytes each, or those that `node` sends or receives, or those
        of some `sources` (servers).

        A node that carries out the schedule needs only its own; see `railopt.schedule.pieces.cut`.
        """
        if cap is None:
            cap = _NO_CAP
        elif cap < 1:
            raise InputError(f"pieces of at most {cap} bytes: expected 1 or more")
        elif total(self.sent) // cap > _MOST_PIECES:
            raise InputError(
                f"{total(self.sent)} bytes in chunks of {cap}: more than {_MOST_PIECES} chunks; "
                "use larger ones"
            )
        if node is not None and not 0 <= node < self.fabric.nodes:
            raise InputError(f"server {node}: expected 0 to {self.fabric.nodes - 1}")
        if node is not None and sources != slice(None):
            raise InputError("pieces of a node or of sources: give one of them")
        ends = np.zeros((2, self.fabric.nodes), np.bool_)
        if node is None:
            ends[0, sources] = True
        else:
            ends[:, node] = True
        ids, rail, span = cut(
            self.traffic.bytes,
            pair_rates(self.fabric).weights,
            (self.peer, self.sent, _ALONE if self.stage is None else self.stage),
            KINDS[self.kind].by_target,
            KINDS[self.kind].tunable and self.fabric.is_uniform,
            cap,
            ends,
        )
        return Pieces(ids[0], rail, ids[1], ids[2], span[0], span[1])

    def to_cm(self) -> str:
        """As an htsim `.cm`: one connection per transfer and rail, a barrier between stages where
        the kind has them.
        """
        stage, rail, src, dst, _, size = self.pieces()
        nodes, gpus, barriers = self.fabric.nodes, self.fabric.gpus, KINDS[self.kind].barriers
        turn = np.unique(stage, return_inverse=True)[1] if barriers else np.zeros_like(stage)
        keys = np.stack([turn, rail * nodes + src // gpus, rail * nodes + dst // gpus])
        (turn, source, target), row = np.unique(keys, axis=1, return_inverse=True)
        loads = np.zeros(len(turn), np.int64)
        np.add.at(loads, row.ravel(), size)
        stages = turn if barriers else None
        return format_stages(nodes * self.fabric.rails, source, target, loads, stages)

    def plan(self, chunk: str | int | None = None) -> Plan:
        """As a Plan whose chunks are the pieces, at most `chunk` each, in the order of their
        stages.

        With barriers the plan has a stage column.  A pipelined schedule is cut into chunks of 256
        KiB by default.
        """
        if chunk is None and KINDS[self.kind].chunked:
            chunk = DEFAULT_CHUNK
        least = self.fabric.rails * int(np.count_nonzero(self.sent >= self.fabric.rails))
        if least > MAX_CHUNKS:
            raise InputError(
                f"{least} pieces or more: a plan has at most {MAX_CHUNKS} chunks; use fewer servers"
            )
        cap = None if chunk is None else parse_bytes(chunk)
        bytes_ = total(self.sent)
        check_count(least, max(least, 0 if cap is None else bytes_ // cap), bytes_)
        stage, rail, src, dst, offset, size = self.pieces(cap)
        rows = np.argsort(stage, kind="stable")
        stage, rail, src, dst, offset, size = (
            column[rows] for column in (stage, rail, src, dst, offset, size)
        )
        gpus = self.fabric.gpus
        flow = np.unique(src.astype(np.int64) * len(self.traffic.bytes) + dst, return_inverse=True)[
            1
        ].astype(np.int32)
        chunks = Chunks(
            self.fabric.nodes, gpus, src // gpus, dst // gpus, src, dst, flow, offset, size
        )
        return Plan(
            self.fabric, chunks, rail, self.kind, stage if KINDS[self.kind].barriers else None
        )

    @cached_property
    def digest(self) -> str:
        return digest(*self._content())

    def _content(self) -> tuple[dict[str, Any], dict[str, Array]]:
        header = {
            "kind": self.kind,
            "order": self.order,
            "fabric": self.fabric.header(),
            "total": self.total,
            "line_sum": self.line_sum,
        }
        return header, {
            "bytes": self.traffic.bytes,
            "peer": self.peer,
            "sent": self.sent,
            "tx": self.fabric.tx,
            "rx": self.fabric.rx,
            **({} if self.stage is None else {"stage": self.stage}),
        }

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Save as `.npz`, with the total and the line sum as claims."""
        check_suffix(path, "schedule")
        save_npz(path, "schedule", *self._content(), force=force)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schedule:
        """Read a saved schedule; everything the constructor checks is checked again, and the claims
        must hold.
        """
        header, arrays = read_npz(path, "schedule")
        names, columns = (
            {"kind", "order", "fabric", "total", "line_sum"},
            {"bytes", "peer", "sent", "tx", "rx"},
        )
        if set(header) != names or set(arrays) - {"stage"} != columns:
            raise FormatError(
                f"{path}: a schedule holds {sorted(names | columns)}; found "
                f"{sorted({*header, *arrays})}"
            )
        for name, kind in (("kind", str), ("order", str), ("total", int), ("line_sum", int)):
            if type(header[name]) is not kind:
                raise FormatError(
                    f"{printable(path)}: {name} is a {type(header[name]).__name__}, expected a "
                    f"{kind.__name__}"
                )
        fabric = Fabric.from_header(header["fabric"], arrays["tx"], arrays["rx"])
        traffic = Traffic.from_matrix(arrays["bytes"], fabric)
        rows = arrays["peer"], arrays["sent"], arrays.get("stage")
        schedule = cls(fabric, traffic, header["kind"], header["order"], *rows)
        if (schedule.total, schedule.line_sum) != (header["total"], header["line_sum"]):
            raise FormatError(
                f"{path}: claims total {header['total']} and line sum {header['line_sum']}, "
                f"its stages have {schedule.total} and {schedule.line_sum}"
            )
        return schedule


def require_two_levels(fabric: Fabric, traffic: Traffic) -> None:
    """Two-level schedules need servers of equal size, as many NICs for each GPU, and a living rail
    between any two servers that exchange bytes.
    """
    if (traffic.nodes, traffic.gpus) != (fabric.nodes, fabric.gpus):
        raise InputError(
            f"traffic of {traffic.nodes} servers x {traffic.gpus} GPUs, the fabric has "
            f"{fabric.nodes} x {fabric.gpus}: all servers must have as many GPUs as the fabric says"
        )
    if fabric.rails % fabric.gpus:
        raise InputError(
            f"{fabric.gpus} GPUs and {fabric.rails} NICs per server: a two-level schedule needs "
            "one NIC per GPU, or as many for each (use railopt plan, which has no such rule)"
        )
    require_reachable(fabric, traffic)
    if fabric.inside is None:  # the usual one
        return
    rails = np.arange(fabric.rails)
    if not fabric.inside.near[rails * fabric.gpus // fabric.rails, rails].all():
        raise InputError(
            "GPUs that are not near the NICs of their own number: a two-level schedule puts the "
            "bytes of GPU r on its own rails (use railopt plan, which has no such rule)"
        )


_FAULTS = {
    1: "stage {stage}: server {node} sends to a server that does not exist, or to itself, or "
    "idles with bytes to send",
    2: "stage {stage}: server {node} receives from two servers",
    3: "the stages send more bytes from a server to another than there are (stage {stage}, server "
    "{node})",
    4: "bytes of server {node} are in no stage",
}


@kernel
def _fault(bytes_: Array, nodes: int, peer: Array, sent: Array) -> tuple[int, int, int]:
    """(0, 0, 0), or the first fault (a key of _FAULTS) of a schedule of `bytes_` int64 [GPUs, GPUs]
    with its stage and server.
    """
    matrix = node_matrix(bytes_, nodes)
    stages, n = peer.shape
    seen = np.zeros(n, np.int64)  # the last stage in which the server received, plus one
    for s in range(stages):
        for i in range(n):
            j = peer[s, i]
            if j == -1 and sent[s, i] == 0:
                continue
            if j < 0 or j >= n or j == i or sent[s, i] <= 0:
                return 1, s, i
            if seen[j] == s + 1:
                return 2, s, j
            seen[j] = s + 1
            if sent[s, i] > matrix[i, j]:
                return 3, s, i
            matrix[i, j] -= sent[s, i]
    for i in range(n):
        for j in range(n):
            if matrix[i, j]:
                return 4, 0, i
    return 0, 0, 0
