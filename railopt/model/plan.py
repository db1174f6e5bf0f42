"""Plan: which rail carries which chunk, and what it moves inside nodes.  Loads and times are exact.

For a chunk of b bytes from GPU g of node k to the GPUs H of node f, on rail n:

    staged      b if n's NIC is not near g: moved to the NIC's owner before the rail
    passed on   b for each GPU of H but one that is near the NIC and gets it from there; for each
                GPU of H where none is near (the owner passes on)

so that the cost of a rail is one row of `rail_costs`: times b it gives moved bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import (
    Array,
    Bools,
    Digested,
    Int32s,
    Ints,
    Rails,
    check_range,
    check_suffix,
    digest,
    frozen,
    read_npz,
    require_type,
    save_npz,
    saved_digest,
    write_atomic,
)
from railopt.base.errors import FOREIGN, FormatError, InputError, about, printable
from railopt.base.units import quoted
from railopt.files.formats import format_stages
from railopt.model.chunks import COLUMNS, Chunks
from railopt.model.fabric import SIDES as SIDES
from railopt.model.fabric import Fabric, check_side
from railopt.model.traffic import Traffic


class Bottleneck(NamedTuple):
    """The NIC that finishes last: `load` bytes at `rate` bytes per second on `side` "send" or
    "recv".
    """

    node: int
    side: str
    rail: int
    load: int
    rate: int


@dataclass(frozen=True, eq=False)
class Plan(Digested):
    """Every chunk on one rail, alive at both ends.

    rail    int16 [C], the rail of each chunk
    stage   int32 [C] or None: chunks of stage s start when stage s - 1 is done
    policy  the name of what made it: printable, at most 200 characters
    """

    fabric: Fabric
    chunks: Chunks
    rail: Rails = field(repr=False)
    policy: str = "given"
    stage: Int32s | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        fabric, chunks = self.fabric, self.chunks
        require_type(fabric, Fabric, "fabric", "a Fabric")
        require_type(chunks, Chunks, "chunks", "Chunks")
        name = self.policy
        if not isinstance(name, str) or len(name) > FOREIGN or not name.isprintable():
            raise InputError(
                f"policy {quoted(name)}: expected a name of printable characters, at most {FOREIGN}"
            )
        if chunks.nodes != fabric.nodes or chunks.gpus not in (1, fabric.gpus):
            raise InputError(
                f"chunks of {chunks.nodes} nodes x {chunks.gpus} GPUs, the fabric has "
                f"{fabric.nodes} x {fabric.gpus}"
            )
        object.__setattr__(self, "rail", frozen(self.rail, np.int16, "rail", 1))
        count = len(chunks.size)
        if self.stage is not None:
            object.__setattr__(self, "stage", frozen(self.stage, np.int32, "stage", 1))
            if len(self.stage) != count or (count and self.stage.min() < 0):
                raise InputError(
                    f"stage has {len(self.stage)} entries for {count} chunks, or a negative one"
                )
        if len(self.rail) != count:
            raise InputError(f"{len(self.rail)} rails for {count} chunks: expected one per chunk")
        if not count:
            return
        check_range(self.rail, "rail", fabric.rails)
        if fabric.tx.min() == 0 or fabric.rx.min() == 0:
            dead = (fabric.tx[chunks.src, self.rail] == 0) | (fabric.rx[chunks.dst, self.rail] == 0)
            if dead.any():
                row = int(np.argmax(dead))
                ends = f"node {chunks.src[row]} to {chunks.dst[row]}"
                raise InputError(
                    f"chunk {row} from {ends}: rail {self.rail[row]} is dead at one of them"
                )

    @classmethod
    def of(cls, fabric: Fabric, chunks: Chunks, rail: Array, policy: str) -> Plan:
        """The plan, its rails frozen in place."""
        rails: Rails = rail.astype(np.int16, copy=False)
        rails.flags.writeable = False
        return cls(fabric, chunks, rails, policy)

    @cached_property
    def send(self) -> Ints:
        """int64 [nodes, rails]: bytes that each NIC sends."""
        return self._sum(self.chunks.src)

    @cached_property
    def recv(self) -> Ints:
        """int64 [nodes, rails]: bytes that each NIC receives."""
        return self._sum(self.chunks.dst)

    def _sum(self, node: Int32s) -> Ints:
        nodes, rails = self.fabric.nodes, self.fabric.rails
        loads = np.zeros(nodes * rails, np.int64)
        np.add.at(loads, node.astype(np.int64) * rails + self.rail, self.chunks.size)
        loads.flags.writeable = False
        return loads.reshape(nodes, rails)

    def loads(self, side: str) -> Ints:
        """`send` or `recv` by name."""
        return self.send if check_side(side) == "send" else self.recv

    def side_time(self, side: str) -> Fraction:
        """Seconds until the last NIC of one side is done."""
        return _slowest(self.loads(side), self.fabric.rates(side), side)[0]

    @cached_property
    def bottleneck(self) -> Bottleneck:
        """The NIC that decides the makespan; the send side where both sides tie."""
        sends = _slowest(self.send, self.fabric.tx, "send")
        receives = _slowest(self.recv, self.fabric.rx, "recv")
        return max(sends, receives, key=lambda found: found[0])[1]

    @cached_property
    def makespan(self) -> Fraction:
        """Seconds until every NIC has sent and received its bytes: max of load / rate."""
        return Fraction(self.bottleneck.load, self.bottleneck.rate)

    @cached_property
    def moves(self) -> Moves:
        """What the plan moves between the GPUs of each node, before and after the rails."""
        return moves_of(self.fabric, self.chunks, self.rail)

    @property
    def staged(self) -> int:
        """Bytes that are moved to the GPU of a NIC before a rail."""
        return self.moves.staged

    @property
    def passed_on(self) -> int:
        """Bytes that are moved from the GPU of a NIC to those that need them after a rail."""
        return self.moves.passed_on

    @property
    def moved(self) -> int:
        """All bytes that go over scale-up: staged and passed on."""
        return self.moves.staged + self.moves.passed_on

    @cached_property
    def scaleup_time(self) -> Fraction:
        """Seconds that the busiest scale-up port, or pair of GPUs, needs for what is moved."""
        return self.moves.time(self.fabric)

    @property
    def time_with_scaleup(self) -> Fraction:
        """Seconds until every NIC and every scale-up port is done, all of them working at once."""
        return max(self.makespan, self.scaleup_time)

    @cached_property
    def uplink_time(self) -> Fraction:
        """Seconds that the links above the busiest leaf need, all of them at work, each way; 0
        where the fabric has no leaves.
        """
        fabric, leaves = self.fabric, self.fabric.leaves
        if leaves is None:
            return Fraction(0)
        ends = [
            leaves.of(node.astype(np.int64), self.rail.astype(np.int64), fabric.nodes)
            for node in (self.chunks.src, self.chunks.dst)
        ]
        away = ends[0] != ends[1]
        loads = np.zeros((2, leaves.count(fabric.nodes, fabric.rails)), np.int64)
        for side, leaf in zip(loads, ends, strict=True):
            np.add.at(side, leaf[away], self.chunks.size[away])
        return Fraction(int(loads.max()), leaves.capacity)

    @property
    def slowest(self) -> str:
        """The bottleneck in words: `gpu10 mlx5_5 recv`, or `node 9 recv rail 5`."""
        worst = self.bottleneck
        return self.fabric.side_name(worst.node, worst.side, worst.rail)

    @cached_property
    def digest(self) -> str:
        return digest(*self._content())

    @cached_property
    def saved_digest(self) -> str:
        """The digest in the header of its file, by which certificates name it."""
        return saved_digest("plan", *self._content())

    def _content(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        arrays = {
            **self.chunks.columns(),
            "rail": self.rail,
            "tx": self.fabric.tx,
            "rx": self.fabric.rx,
            "send": self.send,
            "recv": self.recv,
        }
        if self.stage is not None:
            arrays["stage"] = self.stage
        return {
            "policy": self.policy,
            "fabric": self.fabric.header(),
            "chunk_gpus": self.chunks.gpus,
            "makespan": str(self.makespan),
        }, arrays

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Save as `.npz`; the loads and the makespan go with it, as claims that `railopt check`
        re-computes.  A name that ends in `.cm` gets `to_cm()` instead, which can't be loaded.
        """
        check_suffix(path, "plan")
        if Path(path).suffix.lower() == ".cm":
            write_atomic(path, self.to_cm(), force=force)
        else:
            header, arrays = self._content()
            names = self.fabric.names()  # no part of what makes two plans equal
            header |= {"names": names} if names else {}
            save_npz(path, "plan", header, arrays, force=force)

    @classmethod
    def read(cls, path: str | os.PathLike[str], content: str | None = None) -> Plan:
        """Read a saved plan; its claims must agree with its chunks.  `content` is the digest that
        its file must have, where another reader has looked at it before.
        """
        header, arrays = read_npz(path, "plan", content)
        needed = {*COLUMNS, "rail", "tx", "rx", "send", "recv"}
        missing = (needed - set(arrays)) | (
            {"policy", "fabric", "chunk_gpus", "makespan"} - set(header)
        )
        unknown = set(arrays) - needed - {"stage", "targets"}
        if missing or unknown:
            raise FormatError(
                f"{printable(path)}: a plan without {sorted(missing)} and with unknown "
                f"{printable(sorted(unknown))}"
            )
        with about(f"{printable(path)}: ", FormatError):
            fabric = _named(
                Fabric.from_header(header["fabric"], arrays["tx"], arrays["rx"]),
                header.get("names", {}),
            )
            chunks = Chunks.from_columns(fabric.nodes, header["chunk_gpus"], arrays)
            plan = cls(fabric, chunks, arrays["rail"], header["policy"], arrays.get("stage"))
        if not (
            np.array_equal(plan.send, arrays["send"])
            and np.array_equal(plan.recv, arrays["recv"])
            and str(plan.makespan) == header["makespan"]
        ):
            raise FormatError(f"{printable(path)}: the loads it claims are not those of its chunks")
        return plan

    def misses(self, traffic: Traffic) -> str:
        """What keeps this plan from sending every byte of the traffic between nodes exactly once,
        in words; "" if nothing.
        """
        chunks = self.chunks
        if chunks.targets is not None:
            return (
                "a plan of units: what several GPUs need is sent once, a traffic has it each time"
            )
        if (chunks.nodes, chunks.gpus) != (traffic.nodes, traffic.gpus):
            return (
                f"a plan for {chunks.nodes} nodes x {chunks.gpus} GPUs, the traffic has "
                f"{traffic.nodes} x {traffic.gpus}"
            )
        order = np.lexsort((chunks.offset, chunks.dst_gpu, chunks.src_gpu))
        src, dst, offset = chunks.src_gpu[order], chunks.dst_gpu[order], chunks.offset[order]
        ends = offset + chunks.size[order]
        same = (src[1:] == src[:-1]) & (dst[1:] == dst[:-1])
        due = (
            np.concatenate([[0], np.where(same, ends[:-1], 0)])
            if len(chunks)
            else np.zeros(0, np.int64)
        )
        wrong = np.flatnonzero(offset != due)
        if len(wrong):
            row = int(order[wrong[0]])
            what = (
                "sends bytes again"
                if offset[wrong[0]] < due[wrong[0]]
                else "leaves bytes out before it"
            )
            return (
                f"chunk {row} (GPU {chunks.src_gpu[row]} to {chunks.dst_gpu[row]}, offset "
                f"{chunks.offset[row]}) {what}"
            )
        sent = Traffic.from_chunks(chunks).bytes
        node = np.arange(len(sent)) // traffic.gpus
        differ = np.argwhere(np.where(node[:, None] == node, 0, traffic.bytes) != sent)
        if len(differ):
            i, j = differ[0]
            return (
                f"GPU {i} sends GPU {j} {sent[i, j]} bytes, the traffic has {traffic.bytes[i, j]}"
            )
        return ""

    def to_cm(self) -> str:
        """As an htsim `.cm`: one connection per chunk between the NICs of its rail, a barrier
        between stages.
        """
        nodes, chunks = self.fabric.nodes, self.chunks
        stage = None if self.stage is None else np.unique(self.stage, return_inverse=True)[1]
        first = self.rail.astype(np.int64) * nodes
        ends = first + chunks.src, first + chunks.dst
        return format_stages(nodes * self.fabric.rails, *ends, chunks.size, stage)


def in_stages(fabric: Fabric, plans: Mapping[int, Plan]) -> Plan:
    """Plans of one policy on one fabric, one after the other, by rising stage.  All chunks between
    two GPUs are one flow, whose bytes go on from stage to stage.
    """
    empty = {name: np.zeros(0, kind) for name, kind in COLUMNS.items()}
    parts: list[dict[str, Array]] = [{**empty, "rail": np.zeros(0, np.int16)}]
    stages = [np.zeros(0, np.int32)]
    ranks = fabric.nodes * fabric.gpus
    before: Ints = np.zeros((ranks, ranks), np.int64)
    for stage, made in plans.items():
        columns, pair = made.chunks.columns(), (made.chunks.src_gpu, made.chunks.dst_gpu)
        parts.append({**columns, "offset": columns["offset"] + before[pair], "rail": made.rail})
        stages.append(np.full(len(made.rail), stage, np.int32))
        np.add.at(before, pair, made.chunks.size)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    pairs = joined["src_gpu"].astype(np.int64) * ranks + joined["dst_gpu"]
    joined["flow"] = np.unique(pairs, return_inverse=True)[1].astype(np.int32)
    rail = joined.pop("rail")
    chunks = Chunks.from_columns(fabric.nodes, fabric.gpus, joined)
    policy = next((made.policy for made in plans.values()), "given")
    return Plan(fabric, chunks, rail, policy, np.concatenate(stages))


def _named(fabric: Fabric, names: Any) -> Fabric:
    """The fabric with the names that a file gives its hosts and devices."""
    if not isinstance(names, dict) or not set(names) <= {"hosts", "devices"}:
        raise FormatError(f"names = {printable(names)}: expected hosts and devices")
    return replace(fabric, **names)


def _slowest(loads: Ints, rates: Ints, side: str) -> tuple[Fraction, Bottleneck]:
    """The NIC with the largest load / rate, compared exactly: one candidate per distinct rate, the
    first with the largest load.
    """
    load, rate = loads.reshape(-1), rates.reshape(-1)
    order = np.lexsort((-load, rate))
    order = order[rate[order] > 0]
    nic, most, slowest = 0, -1, 1
    for candidate in order[np.unique(rate[order], return_index=True)[1]].tolist():
        if int(load[candidate]) * slowest > most * int(rate[candidate]):
            nic, most, slowest = candidate, int(load[candidate]), int(rate[candidate])
    node, rail = divmod(nic, loads.shape[1])
    found = Bottleneck(node, side, rail, max(most, 0), slowest)
    return Fraction(found.load, found.rate), found


def node_bound(fabric: Fabric, sent: Ints, received: Ints) -> Fraction:
    """Seconds below which no plan gets whose nodes send and receive int64 [nodes] bytes: the
    busiest node with all its NICs at work.
    """
    best = Fraction(0)
    for loads, rates in ((sent, fabric.tx), (received, fabric.rx)):
        for load, rate in zip(loads.tolist(), rates.sum(axis=1).tolist(), strict=True):
            if load and rate:
                best = max(best, Fraction(load, rate))
    return best


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


def target_sets(chunks: Chunks) -> tuple[Array, int]:
    """(a number for the set of GPUs that need each chunk, [C]; one above all of them)."""
    if chunks.targets is None:
        return chunks.dst_gpu % chunks.gpus, chunks.gpus
    packed = np.packbits(chunks.targets, axis=1)
    whole = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    whole[:, : packed.shape[1]] = packed
    words = whole.view(np.uint64)
    number = np.unique(words[:, 0], return_inverse=True)[1]
    for word in words.T[1:]:
        values, place = np.unique(word, return_inverse=True)
        number = np.unique(number * len(values) + place, return_inverse=True)[1]
    return number, int(number.max(initial=0)) + 1


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
