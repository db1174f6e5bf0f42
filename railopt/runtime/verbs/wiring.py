"""All rails of a process, wired to every peer: links, registered memory, and the peers' memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from railopt.base.errors import BackendError
from railopt.runtime.payload.layout import WriteList
from railopt.runtime.payload.memory import Memory
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.verbs import devices
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.card import Card
from railopt.runtime.verbs.engine import Link
from railopt.runtime.verbs.lib import Library, VerbsError, libibverbs
from railopt.runtime.verbs.objects import Address, Qp
from railopt.runtime.verbs.rails import Options, Rail
from railopt.runtime.verbs.regions import Region, registered
from railopt.runtime.verbs.work import Writes


@dataclass(frozen=True)
class Peer:
    """A peer's receive buffers: address uint64 [B], bytes a buffer, and key uint32 [rail, B]."""

    address: npt.NDArray[np.uint64]
    length: list[int]
    rkey: npt.NDArray[np.uint32]


class Wiring:
    """Open rails and a link to each peer on each of them.

    rails     this node's devices, in rail order
    links     by their index, those that are being tried included; `by_place` has the link that is
              in force of each (peer, lane), in their order: lane = rail * queue pairs per rail + k
    peers     rank -> its receive memory
    send, recv  this rank's buffers
    """

    def __init__(
        self,
        group: Group,
        names: Sequence[str],
        send: Sequence[Memory],
        recv: Sequence[Memory],
        options: Options,
        lib: Library | None = None,
    ) -> None:
        self.group, self.options = group, options
        self.rails: list[Rail] = []
        self.links: list[Link] = []
        self._spare: list[int] = []  # indices of links that are gone
        self.peers: dict[int, Peer] = {}
        self.send: list[Region] = []
        self.recv: list[Region] = []
        others = [rank for rank in range(group.size) if rank != group.rank]
        try:
            for name in names:
                rail = Rail(lib or libibverbs(), name, others, options, devices.is_roce_v2)
                self.rails.append(rail)
            local = s.IBV_ACCESS_LOCAL_WRITE
            self.send = [registered(self.rails, memory, local) for memory in send]
            self.recv = [registered(self.rails, memory) for memory in recv]
            self._connect()
        except BaseException:
            self.close()
            raise
        self.by_place = {(link.peer, link.lane): link for link in self.links}
        self._to: dict[int, list[Link]] = {}  # a peer's links in the order of their lanes
        for link in self.links:
            self._to.setdefault(link.peer, []).append(link)

    def _connect(self) -> None:
        """Exchange cards and bring every queue pair up."""
        group = self.group
        others = [rank for rank in range(group.size) if rank != group.rank]
        mine = {rank: self._card(rank).as_dict() for rank in others}
        told = group.exchange([mine.get(rank) for rank in range(group.size)])
        cards = {rank: Card.from_dict(told[rank], group.names[rank]) for rank in others}
        most = max((len(card.recv) for card in cards.values()), default=1)
        self._send = np.array([region.memory.address for region in self.send], np.uint64)
        keys = [[region.rails[n].lkey for region in self.send] for n in range(len(self.rails))]
        self._send_keys = np.array(keys, np.uint32)
        self._address = np.zeros((group.size, most), np.uint64)
        self._rkeys = np.zeros((group.size, len(self.rails), most), np.uint32)
        for rank, card in cards.items():
            self._connect_peer(rank, card)
        group.allgather("connected")

    def _card(self, peer: int) -> Card:
        """What one peer must know."""
        lanes = range(self.options.queue_pairs)
        return Card(
            tuple(r.device.name for r in self.rails),
            tuple(r.address for r in self.rails),
            tuple([(r.qps[peer, k].number, r.qps[peer, k].psn) for k in lanes] for r in self.rails),
            tuple(tuple(r.rails[n].rkey for r in self.recv) for n in range(len(self.rails))),
            tuple((r.memory.address, r.memory.length) for r in self.recv),
        )

    def _connect_peer(self, rank: int, card: Card) -> None:
        name = self.group.names[rank]
        if len(card.devices) != len(self.rails):
            raise BackendError(
                f"{name} has {len(card.devices)} rails ({', '.join(card.devices)}), this node has "
                f"{len(self.rails)}"
            )
        buffers = len(card.recv)
        address, rkey = self._address[rank, :buffers], self._rkeys[rank, :, :buffers]
        address[:], rkey[:] = [start for start, _ in card.recv], card.rkeys
        self.peers[rank] = Peer(address, [length for _, length in card.recv], rkey)
        for n, rail in enumerate(self.rails):
            there = card.ports[n]
            if there.ethernet != rail.address.ethernet:
                raise BackendError(
                    f"rail {n} is {'RoCE' if rail.address.ethernet else 'InfiniBand'} here and not "
                    f"at {name}: check --ib-dev"
                )
            pairs, mine = card.queue_pairs[n], self.options.queue_pairs
            if len(pairs) != mine:
                raise BackendError(
                    f"{name} has {len(pairs)} queue pairs for this node on rail {n}, this node has "
                    f"{mine}: give all ranks the same --qp"
                )
            for k, pair in enumerate(pairs):
                self.link((rank, n * mine + k), rail.qps[rank, k], there, pair)

    def link(self, place: tuple[int, int], qp: Qp, there: Address, pair: tuple[int, int]) -> Link:
        """A link over a queue pair, connected to `pair` of the peer at `there`, that can receive.
        The engine knows it by its index; it is in force once it is in `by_place`.
        """
        options, (rank, lane) = self.options, place
        n = lane // options.queue_pairs
        rail, peer = self.rails[n], self.peers[rank]
        there = options.within_mtu(there)
        qp.connect(*pair, rail.address, there, options.patience, options.sl, options.tclass)
        index = self._spare.pop() if self._spare else len(self.links)
        link = Link(
            index,
            rank,
            n,
            qp,
            depth=options.depth,
            batch=options.batch,
            remote=int(peer.address[0]),
            rkey=int(peer.rkey[n, 0]),
        )
        link.lane = lane
        if error := link.receives.fill():
            raise BackendError(f"ibv_post_recv on {rail.device.name}: errno {error}")
        self.links[index : index + 1] = [link]
        return link

    def put(self, link: Link) -> None:
        """Bring a link into force."""
        self.by_place[link.peer, link.lane] = self._to[link.peer][link.lane] = link
        k = link.lane % self.options.queue_pairs
        self.rails[link.rail].qps[link.peer, k] = link.qp

    def spare(self, link: Link) -> None:
        """The index of a link whose queue pair is closed, and whose completions were taken, may be
        used again.
        """
        if self.links[link.index] is link and link.index not in self._spare:
            self._spare.append(link.index)

    @property
    def max_message(self) -> int:
        """Bytes of the largest work request that all rails take."""
        return min(rail.max_message for rail in self.rails)

    def living(self, peer: int) -> list[Link]:
        """Links to a peer that live, in rail order."""
        return [link for link in self._to[peer] if link.alive]

    def on(self, peer: int, rail: int) -> list[Link]:
        """The links in force to a peer on one rail."""
        each = self.options.queue_pairs
        return self._to[peer][rail * each : (rail + 1) * each]

    def to(self, peer: int) -> list[Link]:
        """The links in force to a peer."""
        return self._to[peer]

    def writes(self, work: WriteList) -> Writes:
        """The requests of a list of writes, with addresses and keys."""
        of_link = np.repeat(np.arange(len(work.peer)), np.diff(work.starts))
        peer, rail = work.peer[of_link], work.rail[of_link]
        local, remote = work.local_buffer, work.remote_buffer
        return Writes(
            self._send[local] + work.local_offset.astype(np.uint64),
            self._address[peer, remote] + work.remote_offset.astype(np.uint64),
            work.length.astype(np.uint32),
            self._send_keys[rail, local],
            self._rkeys[peer, rail, remote],
        )

    def close(self) -> None:
        """Retire the queue pairs, then release them, the completion queues, the memory and the
        devices, in this order.
        """
        for rail in self.rails:
            for qp in rail.qps.values():
                with contextlib.suppress(VerbsError):
                    qp.retire()
                qp.close()  # before the memory that it may still read or write
        for rail in self.rails:
            rail.device.close()
