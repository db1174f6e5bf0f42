"""All rails of a process, wired to every peer: links, registered memory, and the peers' memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from railopt.base.errors import BackendError
from railopt.runtime.payload.layout import WriteList
from railopt.runtime.payload.memory import Memory
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.card import Card
from railopt.runtime.verbs.engine import Link
from railopt.runtime.verbs.lib import Library, VerbsError, libibverbs
from railopt.runtime.verbs.objects import Address, Qp
from railopt.runtime.verbs.rails import Options, Rail
from railopt.runtime.verbs.regions import Region, registered
from railopt.runtime.verbs.work import Writes


class Wiring:
    """Open rails and a link to each peer on each of them.

    rails     this node's devices, in rail order
    links     by their index, those that are being tried included; `by_place` has the link that is
              in use of each (peer, lane), in their order: lane = rail * queue pairs per rail + k
    peers     rank -> bytes of its receive buffers; their `addresses` uint64 [rank, B], and `rkeys`
              uint32 [rank, rail, B]
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
        self.peers: dict[int, list[int]] = {}
        self.send: list[Region] = []
        self.recv: list[Region] = []
        others = [rank for rank in range(group.size) if rank != group.rank]
        try:
            for name in names:
                self.rails.append(Rail(lib or libibverbs(), name, others, options))
            local = s.IBV_ACCESS_LOCAL_WRITE
            self.send = [registered(self.rails, memory, local) for memory in send]
            self.recv = [registered(self.rails, memory) for memory in recv]
            self._connect()
        except BaseException:
            self.close()
            raise
        self.by_place = {(link.peer, link.lane): link for link in self.links}

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
        self.addresses = np.zeros((group.size, most), np.uint64)
        self.rkeys = np.zeros((group.size, len(self.rails), most), np.uint32)
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
        self.addresses[rank, :buffers] = [start for start, _ in card.recv]
        self.rkeys[rank, :, :buffers] = card.rkeys
        self.peers[rank] = [length for _, length in card.recv]
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
        The engine knows it by its index; it is in use once it is in `by_place`.
        """
        options, (rank, lane) = self.options, place
        n = lane // options.queue_pairs
        rail = self.rails[n]
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
            remote=int(self.addresses[rank, 0]),
            rkey=int(self.rkeys[rank, n, 0]),
        )
        link.lane = lane
        if error := link.receives.fill():
            raise BackendError(f"ibv_post_recv on {rail.device.name}: errno {error}")
        self.links[index : index + 1] = [link]
        return link

    def put(self, link: Link) -> None:
        """Make a new link the one in use."""
        self.by_place[link.peer, link.lane] = link
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

    def on(self, peer: int, rail: int) -> list[Link]:
        """The links in use to a peer on one rail."""
        each = self.options.queue_pairs
        return [self.by_place[peer, rail * each + k] for k in range(each)]

    def to(self, peer: int) -> list[Link]:
        """The links in use to a peer, in rail order."""
        return [link for rail in range(len(self.rails)) for link in self.on(peer, rail)]

    def living(self, peer: int) -> list[Link]:
        """Those that live."""
        return [link for link in self.to(peer) if link.alive]

    def writes(self, work: WriteList) -> Writes:
        """The requests of a list of writes, with addresses and keys."""
        of_link = np.repeat(np.arange(len(work.peer)), np.diff(work.starts))
        peer, rail = work.peer[of_link], work.rail[of_link]
        local, remote = work.local_buffer, work.remote_buffer
        return Writes(
            self._send[local] + work.local_offset.astype(np.uint64),
            self.addresses[peer, remote] + work.remote_offset.astype(np.uint64),
            work.length.astype(np.uint32),
            self._send_keys[rail, local],
            self.rkeys[peer, rail, remote],
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
