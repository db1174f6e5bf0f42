"""All rails of a process, wired to every peer: links, registered memory, and the peers' memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from railopt.base.errors import BackendError
from railopt.runtime.payload.layout import WriteList
from railopt.runtime.payload.memory import Memory, memory_of
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.verbs import devices
from railopt.runtime.verbs.card import Card
from railopt.runtime.verbs.engine import Link
from railopt.runtime.verbs.lib import Library, VerbsError, libibverbs
from railopt.runtime.verbs.objects import Address, Qp
from railopt.runtime.verbs.rails import Options, Rail
from railopt.runtime.verbs.work import Writes

_EMPTY = bytearray(4096)


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
        self._send = np.array([m.address for m in send], np.uint64)
        others = [rank for rank in range(group.size) if rank != group.rank]
        send, recv = ([_registrable(m) for m in side] for side in (send, recv))
        try:
            for name in names:
                rail = Rail(lib or libibverbs(), name, others, options, devices.is_roce_v2)
                self.rails.append(rail)
                rail.register(send, recv)
            self._connect(recv)
        except BaseException:
            self.close()
            raise
        self.by_place = {(link.peer, link.lane): link for link in self.links}

    def _connect(self, recv: Sequence[Memory]) -> None:
        """Exchange cards and bring every queue pair up."""
        group = self.group
        for rank, data in enumerate(group.exchange(self._card(recv).as_dict())):
            if rank != group.rank:
                self._connect_peer(rank, Card.from_dict(data, group.names[rank]))
        group.allgather("connected")

    def _card(self, recv: Sequence[Memory]) -> Card:
        return Card(
            tuple(r.device.name for r in self.rails),
            tuple(r.address for r in self.rails),
            tuple(self._numbers(rail) for rail in self.rails),
            tuple(tuple(r.recv_keys) for r in self.rails),
            tuple((m.address, m.length) for m in recv),
        )

    def _numbers(self, rail: Rail) -> dict[int, list[tuple[int, int]]]:
        """(number, first packet) of a rail's queue pairs to each peer."""
        found: dict[int, list[tuple[int, int]]] = {}
        for (peer, _), qp in rail.qps.items():
            found.setdefault(peer, []).append((qp.number, qp.psn))
        return found

    def _connect_peer(self, rank: int, card: Card) -> None:
        name = self.group.names[rank]
        if len(card.devices) != len(self.rails):
            raise BackendError(
                f"{name} has {len(card.devices)} rails ({', '.join(card.devices)}), this node has "
                f"{len(self.rails)}"
            )
        self.peers[rank] = Peer(
            np.array([address for address, _ in card.recv], np.uint64),
            [length for _, length in card.recv],
            np.array(card.rkeys, np.uint32),
        )
        for n, rail in enumerate(self.rails):
            there = card.ports[n]
            if there.ethernet != rail.address.ethernet:
                raise BackendError(
                    f"rail {n} is {'RoCE' if rail.address.ethernet else 'InfiniBand'} here and not "
                    f"at {name}: check --ib-dev"
                )
            pairs, mine = card.queue_pairs[n].get(self.group.rank, []), self.options.queue_pairs
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

    def living(self, peer: int) -> list[Link]:
        """Links to a peer that live, in rail order."""
        return [link for n in range(len(self.rails)) for link in self.on(peer, n) if link.alive]

    def on(self, peer: int, rail: int) -> list[Link]:
        """The links in force to a peer on one rail."""
        each = self.options.queue_pairs
        return [self.by_place[peer, lane] for lane in range(rail * each, (rail + 1) * each)]

    def writes(self, work: WriteList, link: int) -> Writes:
        """The requests of link number `link` of a list of writes, with addresses and keys."""
        part = slice(int(work.starts[link]), int(work.starts[link + 1]))
        peer, rail = self.peers[int(work.peer[link])], int(work.rail[link])
        local, remote = work.local_buffer[part], work.remote_buffer[part]
        return Writes(
            self._send[local] + work.local_offset[part].astype(np.uint64),
            peer.address[remote] + work.remote_offset[part].astype(np.uint64),
            work.length[part].astype(np.uint32),
            self.rails[rail].send_keys[local],
            peer.rkey[rail, remote],
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


def _registrable(memory: Memory) -> Memory:
    """Drivers refuse empty regions: a node that only sends still registers a page."""
    return memory if memory.length else memory_of(_EMPTY, writable=True)
