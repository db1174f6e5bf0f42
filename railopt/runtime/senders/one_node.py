"""Runs of what each node has to send, planned by the node alone.

A node plans its own row and tells each peer what comes from it; the peer says where in its memory
that goes:

    SIZES    to every peer: chunks on each rail, and bytes from each GPU here to each GPU there
    READY    back to those that send something: where the bytes of each pair of GPUs begin

Both travel over the rails, as bytes of an immediate, a few integers per pair of GPUs; nothing goes
through rank 0, and no rank knows more than what it sends and receives. A policy that needs the
matrix ("spill") gathers every node's row at every rank instead, through rank 0.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, InputError
from railopt.base.units import INT64_MAX
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.planner import NODE_POLICIES, Planner, planned_by
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.memory import refuse_overlap, require_room
from railopt.runtime.rendezvous.wire import MAX_FRAME, read_list, read_number, understood
from railopt.runtime.senders.rounds import SIZES
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.senders.verbs_run import VerbsRun
from railopt.runtime.verbs.objects import Mr
from railopt.runtime.verbs.work import Parcel

__all__ = ["RowSender", "Sizes"]

NUMBER = np.dtype("<i8")


class RowSender:
    """Sends rows of bytes, one per call, with a verbs sender; every rank makes one, which agrees
    that fabric, policy and cap are the same, and every rank calls it.

        >>> rows = RowSender(sender, fabric, "even-excess")
        >>> report = rows.run(row).wait()    # [gpus, nodes * gpus], bytes of this node

    alone    whether each node plans its own row, or all of them every row ("spill")
    """

    def __init__(
        self, sender: Verbs, fabric: Fabric, policy: str = "even-excess", cap: str | int = "1MiB"
    ) -> None:
        group, rails = sender.group, len(sender.wiring.rails)
        if (fabric.nodes, fabric.rails) != (group.size, rails):
            raise InputError(
                f"the fabric has {fabric.nodes} nodes with {fabric.rails} rails, this run "
                f"{group.size} ranks with {rails}"
            )
        if len(sender.send) not in (1, fabric.gpus) or len(sender.recv) != len(sender.send):
            raise InputError(
                f"{len(sender.send)} send and {len(sender.recv)} recv buffers: expected one of "
                f"each, or one per GPU ({fabric.gpus})"
            )
        refuse_overlap(sender.send, sender.recv)
        self.sender, self.alone = sender, policy in NODE_POLICIES
        self._planner = Planner(fabric, group.rank if self.alone else None, cap, policy)
        setup = {"fabric": fabric.digest, "policy": policy, "cap": self._planner.cap}
        self._digest = hashlib.blake2b(json.dumps(setup).encode(), digest_size=16).hexdigest()
        self._sizes = Sizes(sender, fabric)
        for rank, answer in enumerate(group.allgather({**setup, "sizes": self._sizes.card()})):
            said = answer if isinstance(answer, dict) else {}
            if {name: said.get(name) for name in setup} != setup:
                raise InputError(
                    f"{group.names[rank]} plans for another fabric, with another policy or cap "
                    f"than this node: give all ranks the same"
                )
            self._sizes.meet(rank, said.get("sizes"))

    def run(self, row: Any) -> VerbsRun:
        """Start a run of what this node sends: bytes `row` [gpus, nodes * gpus] from its GPUs, in
        its send memory in this order; what arrives lies by (GPU here, GPU there). What is wrong
        here ends the run on all ranks.
        """
        sender = self.sender
        try:
            if not self.alone:
                return sender.run(self._gathered(row))
            plan = planned_by(self._planner, row)
            layout = Layout.packed(plan.chunks, per_gpu=len(sender.send) > 1)
            there = [memory.length for memory in sender.send]
            require_room("send", there, layout.send_bytes[sender.group.rank], "the row")
            self._sizes.decide(plan)
            return sender.begin(plan, layout, self._digest, self._sizes)
        except BaseException as error:
            sender.group.abort(error)
            raise

    def _gathered(self, row: Any) -> Plan:
        """The plan of all nodes' rows, the same on every rank."""
        group, fabric = self.sender.group, self._planner.fabric
        shape = (fabric.gpus, fabric.nodes * fabric.gpus)
        data = packed(self._planner.taken(row, shape))
        if len(data) * group.size > MAX_FRAME // 2:
            raise InputError(
                f"{self._planner.policy} needs the rows of all {group.size} nodes of {fabric.gpus} "
                f"GPUs, too many to be sent to all: take one of {', '.join(NODE_POLICIES)}"
            )
        rows = zip(group.names, group.allgather(data), strict=True)
        return planned_by(self._planner, np.concatenate([unpacked(t, shape, n) for n, t in rows]))


class Sizes:
    """What this rank sends its peers before a run that each node plans alone, and the memory to
    which they write theirs.

    sources, targets    peers that send to this rank, and to which it sends, in this run

    A peer may be one run ahead, with its SIZES, and no more: two of them are kept in turn.
    """

    def __init__(self, sender: Verbs, fabric: Fabric) -> None:
        self._sender, self._fabric = sender, fabric
        self._rank, nodes = sender.group.rank, fabric.nodes
        pairs = fabric.gpus * fabric.gpus
        sizes, places = (nodes, fabric.rails + pairs), (nodes, pairs)
        shapes: list[tuple[int, ...]] = [sizes, places, (2, *sizes), places]
        ends = np.cumsum([0, *(np.prod(shape) for shape in shapes)])
        self._memory = np.zeros(ends[-1], NUMBER)
        self._at = [self._memory.ctypes.data + 8 * int(end) for end in ends]
        self._tell, self._place, self._received, self._placed = (
            self._memory[start:end].reshape(shape)
            for start, end, shape in zip(ends, ends[1:], shapes, strict=False)
        )
        size = self._memory.nbytes
        self._regions = [
            Mr(rail.pd, self._at[0], size, self._memory) for rail in sender.wiring.rails
        ]
        self._peers: dict[int, tuple[int, list[int]]] = {}
        self.sources: list[int] = []
        self.targets: list[int] = []

    def card(self) -> dict[str, Any]:
        """What peers must know to write here: address, and key on each rail."""
        return {"address": self._at[0], "rkeys": [region.rkey for region in self._regions]}

    def meet(self, rank: int, card: Any) -> None:
        """Take a peer's card."""
        with understood(self._sender.group.names[rank], "an address"):
            keys = [read_number(key, 32) for key in read_list(card["rkeys"])]
            self._peers[rank] = read_number(card["address"], 64), keys
            if len(keys) != len(self._regions):
                raise ValueError("not one key per rail")

    def decide(self, plan: Plan) -> None:
        """Write down what this node sends to each."""
        chunks, fabric = plan.chunks, self._fabric
        rails, gpus = fabric.rails, fabric.gpus
        self._tell[:] = 0
        np.add.at(self._tell, (chunks.dst, plan.rail), 1)
        pair = chunks.src_gpu % gpus * gpus + chunks.dst_gpu % gpus
        np.add.at(self._tell, (chunks.dst, rails + pair), chunks.size)
        self.targets = np.flatnonzero(self._tell[:, :rails].any(axis=1)).tolist()

    def read_sizes(self, round_: int) -> Iterator[tuple[int, int, int]]:
        """(peer, rail, chunks) of what comes, once every peer has said; writes down where each puts
        its bytes.
        """
        received, recv, rails = self._received[round_ % 2], self._sender.recv, self._fabric.rails
        nodes, gpus = self._fabric.nodes, self._fabric.gpus
        received[self._rank] = 0
        if received.min() < 0 or received.max() > INT64_MAX // received.size:
            raise BackendError("a rank sent sizes that are none: run the same version on all nodes")
        sizes = (
            received[:, rails:].reshape(nodes, gpus, gpus).transpose(2, 0, 1)
        )  # there, node, here
        ends = np.cumsum(sizes.reshape(len(recv), -1), axis=1)
        require_room("recv", [memory.length for memory in recv], ends[:, -1], "what arrives")
        starts = ends.reshape(sizes.shape) - sizes
        self._place[:] = starts.transpose(1, 2, 0).reshape(nodes, -1)
        sources, on = received[:, :rails].nonzero()
        self.sources = np.unique(sources).tolist()
        return zip(sources.tolist(), on.tolist(), received[sources, on].tolist(), strict=True)

    def place(self, chunks: Chunks, layout: Layout) -> None:
        """Complete a layout with where the peers want our bytes, once they have said."""
        gpus = self._fabric.gpus
        pair = chunks.src_gpu % gpus * gpus + chunks.dst_gpu % gpus
        layout.recv_offset[:] = self._placed[chunks.dst, pair] + chunks.offset

    def parcel(self, peer: int, kind: int, rail: int, round_: int) -> Parcel:
        """The bytes of SIZES or READY for a peer."""
        tell, place, received, placed = self._at[:4]
        address, keys = self._peers[peer]
        width = self._tell.itemsize * (self._tell if kind == SIZES else self._place).shape[1]
        row, mine = peer * width, self._rank * width
        if kind == SIZES:
            local, remote = tell + row, received + mine + round_ % 2 * width * len(self._tell)
        else:
            local, remote = place + row, placed + mine
        lkey, rkey = self._regions[rail].lkey, keys[rail]
        return Parcel(local, address + remote - self._at[0], width, lkey, rkey)


def packed(row: Ints) -> str:
    """A row as text."""
    return base64.b64encode(zlib.compress(row.astype(NUMBER).tobytes(), 1)).decode()


def unpacked(text: Any, shape: tuple[int, int], name: str) -> Ints:
    """The way back; whatever the text is, a row or a BackendError that says who sent it."""
    size = shape[0] * shape[1] * NUMBER.itemsize
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), size)
        fine = len(data) == size and inflate.eof and not inflate.unused_data
    except (TypeError, ValueError, binascii.Error, zlib.error):
        fine = False
    if not fine:
        raise BackendError(f"{name} sent no row of bytes: run the same version on all nodes")
    return np.frombuffer(data, NUMBER).reshape(shape).astype(np.int64)
