"""Opening the rails: devices, registered memory, queue pairs to every peer, and the cards by which
peers connect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from railopt.errors import BackendError
from railopt.runtime.payload.memory import Memory
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.verbs.engine import IMM_SLOTS, RECV_DEPTH, Link
from railopt.runtime.verbs.lib import Library
from railopt.runtime.verbs.objects import Address, Cq, Device, Mr, Patience, Pd, Qp, open_device


@dataclass(frozen=True)
class Options:
    """How queue pairs are made.

    port, gid_index  of every device; None chooses the IPv4 RoCE v2 entry of the GID table
    mtu              at most this many bytes a packet; None takes what the ports have
    depth, batch     work requests in flight a queue pair, and in one list with one signal
    max_message      bytes of the largest work request; the ports' own limit holds too
    sl, tclass       InfiniBand service level, RoCE traffic class (DSCP * 4), as the fabric's
                     lossless class wants them
    patience         time-outs and retries of the queue pairs
    stall_s          a run without any progress for this long is given up
    """

    port: int = 1
    gid_index: int | None = None
    mtu: int | None = None
    depth: int = 512
    batch: int = 64
    max_message: int = 1 << 30
    sl: int = 0
    tclass: int = 0
    patience: Patience = field(default_factory=Patience)
    stall_s: float = 30.0


class Rail:
    """One open device: its completion queue, protection domain, memory keys and queue pairs, one a
    peer.
    """

    def __init__(
        self,
        lib: Library,
        name: str,
        peers: Sequence[int],
        options: Options,
        roce_v2: Callable[[str, int, int], bool],
    ) -> None:
        self.device: Device = open_device(lib, name, options.port)
        try:
            port = self.device.query_port()
            if not port.active:
                raise BackendError(
                    f"{name} port {options.port} is not active: check the cable and the link "
                    f"(railopt devices)"
                )
            self.max_message = min(options.max_message, port.max_message)
            self.address = self.device.address(
                options.gid_index, lambda i: roce_v2(name, options.port, i)
            )
            depth = options.depth + IMM_SLOTS
            self.cq = Cq(self.device, len(peers) * (depth + RECV_DEPTH) + 1)
            self.pd = Pd(self.device)
            self.qps = {peer: Qp(self.pd, self.cq, depth, RECV_DEPTH) for peer in peers}
        except BaseException:
            self.device.close()
            raise
        self.send_keys = np.zeros(0, np.uint32)
        self.recv_keys: list[int] = []

    def register(self, send: Sequence[Memory], recv: Sequence[Memory]) -> None:
        """Register the buffers: once a rail."""
        from railopt.runtime.verbs import structs as s

        local = s.IBV_ACCESS_LOCAL_WRITE
        self.send_keys = np.array(
            [Mr(self.pd, m.address, m.length, m, local).lkey for m in send], np.uint32
        )
        self.recv_keys = [Mr(self.pd, m.address, m.length, m).rkey for m in recv]


@dataclass(frozen=True)
class Peer:
    """What a peer's card says: its receive buffers (address, bytes) and their key on each rail
    [rail, buffer].
    """

    address: np.ndarray[Any, np.dtype[np.uint64]]
    length: list[int]
    rkey: np.ndarray[Any, np.dtype[np.uint32]]


def card(rails: Sequence[Rail], recv: Sequence[Memory]) -> dict[str, Any]:
    """What the others need to know of this rank, as JSON values."""
    return {
        "devices": [r.device.name for r in rails],
        "ports": [
            [
                r.address.lid,
                r.address.gid.hex(),
                r.address.gid_index,
                r.address.ethernet,
                r.address.mtu,
            ]
            for r in rails
        ],
        "queue_pairs": [
            {str(peer): [qp.number, qp.psn] for peer, qp in r.qps.items()} for r in rails
        ],
        "recv": [[m.address, m.length] for m in recv],
        "rkeys": [r.recv_keys for r in rails],
    }


def connect(
    rails: Sequence[Rail], group: Group, recv: Sequence[Memory], options: Options
) -> tuple[list[Link], dict[int, Peer]]:
    """Exchange cards and bring every queue pair up; the links in order of (peer, rail)."""
    cards = group.exchange(card(rails, recv))
    peers: dict[int, Peer] = {}
    links: list[Link] = []
    for rank, theirs in enumerate(cards):
        if rank == group.rank:
            continue
        if len(theirs["devices"]) != len(rails):
            raise BackendError(
                f"{group.names[rank]} has {len(theirs['devices'])} rails "
                f"({', '.join(theirs['devices'])}), "
                f"this node has {len(rails)}"
            )
        peer = Peer(
            np.array([a for a, _ in theirs["recv"]], np.uint64),
            [n for _, n in theirs["recv"]],
            np.array(theirs["rkeys"], np.uint32).reshape(len(rails), -1),
        )
        peers[rank] = peer
        for n, rail in enumerate(rails):
            lid, gid, index, ethernet, mtu = theirs["ports"][n]
            if ethernet != rail.address.ethernet:
                raise BackendError(
                    f"rail {n} is {'RoCE' if rail.address.ethernet else 'InfiniBand'} here and "
                    f"not at "
                    f"{group.names[rank]}: check --rails"
                )
            limit = mtu if options.mtu is None else min(mtu, options.mtu.bit_length() - 8)
            there = Address(lid, bytes.fromhex(gid), index, ethernet, limit)
            number, psn = theirs["queue_pairs"][n][str(group.rank)]
            qp = rail.qps[rank]
            qp.connect(
                number, psn, rail.address, there, options.patience, options.sl, options.tclass
            )
            link = Link(
                len(links),
                rank,
                n,
                qp,
                depth=options.depth,
                batch=options.batch,
                remote=int(peer.address[0]),
                rkey=int(peer.rkey[n, 0]),
            )
            if error := link.receives.fill():
                raise BackendError(f"ibv_post_recv on {rail.device.name}: errno {error}")
            links.append(link)
    group.allgather("connected")
    return links, peers
