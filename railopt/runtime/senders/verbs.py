"""The verbs sender: one process a node, one reliable queue pair a (peer, rail), RDMA WRITEs exactly
as planned.

A round is one stage of one run. A receiver tells each peer that will write to it that its memory is
ready (an immediate); the peer then posts its writes, and one immediate a link after them. A link
that dies is retired at both ends, each end tells the other over the rendezvous what it had seen,
and only then are the missing chunks planned again: no byte of an old queue pair can land in memory
that its owner already uses again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from railopt.errors import BackendError, InputError
from railopt.plans import Plan
from railopt.runtime.payload.layout import Layout, WriteList, rows_of, write_list
from railopt.runtime.payload.memory import Memory, memory_of
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.senders.protocol import Fault, PeerLost
from railopt.runtime.senders.replan import replan
from railopt.runtime.senders.verbs_run import VerbsRun
from railopt.runtime.verbs import devices
from railopt.runtime.verbs.engine import PROTECTION, Engine, Link, LinkJob, describe
from railopt.runtime.verbs.lib import Library, VerbsError, libibverbs
from railopt.runtime.verbs.rails import Options, Rail, connect
from railopt.runtime.verbs.work import Writes

READY, DONE = 0, 1
# how long a run that failed waits for news of a dead peer before it says what it saw itself
NEWS_S = 2.0
ROUNDS = 1 << 15


def immediate(kind: int, round_: int, digest: str) -> int:
    """kind (1 bit), round (15 bits), 16 bits of the plan's digest: 32 bits."""
    return kind << 31 | round_ % ROUNDS << 16 | int(digest[:4], 16)


def full_round(value: int, near: int) -> int:
    """The round of an immediate: the one nearest to `near` with its 15 bits."""
    return near + ((value >> 16) - near + ROUNDS // 2) % ROUNDS - ROUNDS // 2


class Verbs:
    """Carries out plans between the ranks of a group.

    group   the other ranks; one a node of the plan
    rails   names of this node's devices in rail order
    send    this node's send memory: one buffer, or a list of one a GPU; likewise recv. Registered
            once, here
    """

    name = "verbs"

    def __init__(
        self,
        group: Group,
        rails: Sequence[str],
        send: Any,
        recv: Any,
        *,
        options: Options | None = None,
        lib: Library | None = None,
    ) -> None:
        self.group, self.options = group, options or Options()
        self.send = [memory_of(b, writable=False) for b in _buffers(send)]
        self.recv = [memory_of(b, writable=True) for b in _buffers(recv)]
        self.round, self.running = 0, None  # type: int, VerbsRun | None
        self.lock = threading.RLock()
        self.rails: list[Rail] = []
        self.closed = False
        peers = [r for r in range(group.size) if r != group.rank]
        try:
            for name in rails:
                self.rails.append(
                    Rail(lib or libibverbs(), name, peers, self.options, devices.is_roce_v2)
                )
                self.rails[-1].register(
                    [_registrable(m) for m in self.send], [_registrable(m) for m in self.recv]
                )
            self.engine = Engine([r.cq for r in self.rails], self)
            self.engine.links, self.peers = connect(
                self.rails, group, [_registrable(m) for m in self.recv], self.options
            )
        except BaseException:
            self._close_rails()
            raise
        self.by_place = {(link.peer, link.rail): link for link in self.engine.links}
        self._between: list[Fault] = []  # seen between runs: reported by the next one
        self._ready: dict[
            int, tuple[int, int]
        ] = {}  # peer -> (round, digest bits) of its last READY
        self._owed = dict.fromkeys(
            peers, 0
        )  # peer -> jobs that died with a link and were not announced again yet
        self._later: list[tuple[int, dict[str, Any]]] = []  # "moved" messages of rounds to come
        self._error: BaseException | None = None
        self._doom: tuple[float, BackendError] | None = (
            None  # when and how the run failed, unless better news comes
        )
        self._ready_on: dict[int, Link] = {}
        self.activity = 0
        group.listen(self._on_message)

    # -- the library interface
    # ---------------------------------------------------------------------------------------

    def run(self, plan: Plan, layout: Layout | None = None) -> VerbsRun:
        """Start a run; `layout` says where the chunks lie (default: packed, see
        Layout.packed).
        """
        if self.running is not None:
            raise InputError("the last run is not done: wait for it before the next one")
        if layout is None:
            layout = Layout.packed(plan.chunks, per_gpu=len(self.send) > 1)
        self.check(plan, layout)
        run = VerbsRun(self, plan, layout)
        with self.lock:
            self.running = run
            run.faults, self._between = self._between, []
            run.next_stage()
        return run

    def check(self, plan: Plan, layout: Layout) -> None:
        """Refuse a plan that does not fit this world, these rails or these buffers."""
        group = self.group
        if plan.fabric.nodes != group.size:
            raise InputError(
                f"the plan is for {plan.fabric.nodes} nodes, this run has {group.size} ranks"
            )
        if plan.fabric.rails != len(self.rails):
            raise InputError(
                f"the plan is for {plan.fabric.rails} rails, this node has {len(self.rails)} "
                f"({', '.join(r.device.name for r in self.rails)})"
            )
        mine = [
            ("send", layout.send_bytes[group.rank], [m.length for m in self.send]),
            ("recv", layout.recv_bytes[group.rank], [m.length for m in self.recv]),
        ]
        mine += [
            (f"{group.names[k]}'s recv", layout.recv_bytes[k], p.length)
            for k, p in self.peers.items()
        ]
        for what, needed, there in mine:
            if len(needed) != len(there) or any(
                n > have for n, have in zip(needed.tolist(), there, strict=True)
            ):
                raise InputError(
                    f"{what} buffers of {there} bytes, the plan needs {needed.tolist()}"
                )

    def close(self) -> None:
        """Retire the queue pairs, then release them, the completion queues, the memory and the
        devices, in this order.
        """
        with self.lock:
            self.closed = True
            self._close_rails()

    def _close_rails(self) -> None:
        for rail in self.rails:
            for qp in rail.qps.values():
                with contextlib.suppress(VerbsError):
                    qp.retire()
                qp.close()  # before the memory that it may still read or write
        for rail in self.rails:
            rail.device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.group.abort(error)
        self.close()

    # -- rounds
    # ------------------------------------------------------------------------------------------

    def begin(self, run: VerbsRun, stage: int | None) -> None:
        """Start the round of one stage: tell the peers that our memory is ready, queue our jobs,
        know what to expect.
        """
        self.round += 1
        run.imm = immediate(DONE, self.round, run.plan.digest)
        rank, plan = self.group.rank, run.plan
        rows = rows_of(plan, rank, stage, side="recv")
        incoming = np.unique(
            plan.chunks.src[rows].astype(np.int64) * plan.fabric.rails + plan.rail[rows]
        )
        self._ready_on.clear()
        for place in incoming.tolist():
            link = self.by_place[divmod(place, plan.fabric.rails)]
            if link.alive:
                link.expect += 1
            else:
                self._owed[link.peer] += 1
        for peer in sorted({place // plan.fabric.rails for place in incoming.tolist()}):
            self._tell_ready(peer)
        for link in self.engine.links:
            link.open = False
        self._queue(
            run,
            write_list(plan, run.layout, rows_of(plan, rank, stage), max_message=run.max_message),
        )
        for peer in self.peers:
            self._open(peer)
        later, self._later = self._later, []
        for peer, body in later:
            self._moved(peer, body)
        for link in self.engine.links:
            if not link.alive and link.unfinished:
                self._move(link)

    def _queue(self, run: VerbsRun, work: WriteList) -> dict[int, int]:
        """Give a list's writes to their links; jobs a rail."""
        given: dict[int, int] = {}
        for i, (peer, rail) in enumerate(zip(work.peer.tolist(), work.rail.tolist(), strict=True)):
            part = slice(int(work.starts[i]), int(work.starts[i + 1]))
            self.engine.give(
                self.by_place[peer, rail],
                LinkJob(self._writes(work, part, peer, rail), work.chunk[part], run.imm),
            )
            given[rail] = given.get(rail, 0) + 1
        return given

    def _writes(self, work: WriteList, part: slice, peer: int, rail: int) -> Writes:
        there, here = self.peers[peer], np.array([m.address for m in self.send], np.uint64)
        local, remote = work.local_buffer[part], work.remote_buffer[part]
        return Writes(
            here[local] + work.local_offset[part].astype(np.uint64),
            there.address[remote] + work.remote_offset[part].astype(np.uint64),
            work.length[part].astype(np.uint32),
            self.rails[rail].send_keys[local],
            there.rkey[rail, remote],
        )

    def _tell_ready(self, peer: int) -> None:
        """Our memory is ready for this round: over the first living link to the peer."""
        assert self.running is not None
        living = self._living(peer)
        if not living:
            return
        link = self._ready_on[peer] = living[0]
        if error := link.signal(immediate(READY, self.round, self.running.plan.digest)):
            self.on_fault(link, 0, error)

    def _living(self, peer: int) -> list[Link]:
        """Links to a peer that live; without any the run is doomed."""
        links = [
            self.by_place[peer, n] for n in range(len(self.rails)) if self.by_place[peer, n].alive
        ]
        if not links:
            self._doomed(PeerLost(f"no living rail is left to {self.group.names[peer]}"))
        return links

    def _doomed(self, error: BackendError) -> None:
        """This run can't succeed. If a peer died, that news is on its way and says more: `step`
        waits for it a little.
        """
        self._doom = self._doom or (time.monotonic(), error)

    def _open(self, peer: int) -> None:
        """Let jobs to a peer start if it is ready for this round with this plan."""
        assert self.running is not None
        round_, digest = self._ready.get(peer, (-1, 0))
        if round_ != self.round:
            return
        if digest != self.running.imm & 0xFFFF:
            raise InputError(
                f"{self.group.names[peer]} runs another plan than this node: give all ranks the "
                f"same file"
            )
        for n in range(len(self.rails)):
            self.by_place[peer, n].open = True

    def complete(self) -> bool:
        """Whether this round is done: all our jobs acknowledged, all that we expect seen."""
        return (
            self._doom is None
            and not any(self._owed.values())
            and all(
                not link.unfinished and (not link.alive or link.seen >= link.expect)
                for link in self.engine.links
            )
        )

    def waiting_for(self) -> str:
        """The peers that keep this round from ending."""
        names = {
            link.peer
            for link in self.engine.links
            if link.unfinished or (link.alive and link.seen < link.expect)
        }
        names |= {peer for peer, owed in self._owed.items() if owed}
        return ", ".join(self.group.names[peer] for peer in sorted(names)) or "nobody"

    # -- what the engine and the peers tell us
    # -----------------------------------------------------------------------

    def on_immediate(self, link: Link, value: int) -> None:
        """READY opens the links to a peer, DONE counts a finished job of its."""
        if value >> 31 == READY:
            self._ready[link.peer] = full_round(value, self.round), value & 0xFFFF
            if self.running is not None:
                self._open(link.peer)
            return
        link.seen += 1
        if self.running is not None and value != self.running.imm:
            raise InputError(
                f"{self.group.names[link.peer]} runs another plan or round than this node"
            )

    def on_fault(self, link: Link, status: int, error: int) -> None:
        """A bad completion: a wrong request ends the run, anything else ends the link."""
        cause = describe(status, error)
        if (
            status in PROTECTION
        ):  # also what a peer's memory says when its process is being torn down
            self._doomed(
                BackendError(
                    f"rail {link.rail} to {self.group.names[link.peer]}: a write was refused "
                    f"({cause}): "
                    "wrong memory key or address; were the buffers freed or registered anew?"
                )
            )
            link.alive = False
            return
        self._fail(link, cause)

    def _fail(self, link: Link, cause: str) -> None:
        """Retire a link here and tell the peer what we have seen on it."""
        with contextlib.suppress(VerbsError):
            link.qp.retire()
        self.engine.drain(link.rail)  # what landed before counts
        link.alive = False
        link.jobs.clear()
        link.flight.clear()
        since = time.perf_counter() - self.running.begun if self.running is not None else 0.0
        events = "; ".join(self.rails[link.rail].device.events())
        fault = Fault(
            self.group.rank,
            link.peer,
            link.rail,
            f"{cause}; {events}" if events else cause,
            0,
            since,
        )
        (self.running.faults if self.running is not None else self._between).append(fault)
        self.group.send(link.peer, {"down": link.rail, "seen": link.seen, "cause": cause})
        self._owed[link.peer] += link.expect - link.seen
        link.expect = link.seen
        if self._ready_on.get(link.peer) is link and self.running is not None:
            self._tell_ready(link.peer)
        self._move(link)

    def _move(self, link: Link) -> None:
        """Both ends are retired: plan what the peer has not seen again, over the living rails."""
        living = self._living(link.peer)
        if link.heard is None or self.running is None or self._doom is not None:
            return
        run, heard = self.running, link.heard
        lost = [job for job in link.unfinished if job.ordinal > heard]
        link.unfinished.clear()
        link.jobs.clear()
        if not lost:
            return
        rows = np.unique(np.concatenate([job.rows[job.acked :] for job in lost]))
        rails, policy = replan(
            run.plan, rows, self.group.rank, link.peer, [other.rail for other in living]
        )
        given = self._queue(run, write_list(run.plan, run.layout, rows, rails, run.max_message))
        if not given:  # all writes were acknowledged, only the immediate was not
            self.engine.give(living[0], LinkJob(_no_writes(), np.zeros(0, np.int64), run.imm))
            given = {living[0].rail: 1}
        run.moved(link.peer, link.rail, rows, rails)
        self.group.send(
            link.peer,
            {
                "moved": link.rail,
                "round": self.round,
                "jobs": len(lost),
                "to": {str(n): k for n, k in given.items()},
                "policy": policy,
            },
        )

    def _on_message(self, rank: int, body: dict[str, Any]) -> None:
        """In the reader's thread: a peer's word on a dead link."""
        try:
            with self.lock:
                if self.closed:
                    return
                self.activity += 1
                if "down" in body:
                    self._down(rank, int(body["down"]), int(body["seen"]), str(body["cause"]))
                elif "moved" in body:
                    self._moved(rank, body)
        except BaseException as error:  # raised where the run is waited for
            self._error = error

    def _down(self, peer: int, rail: int, seen: int, cause: str) -> None:
        link = self.by_place[peer, rail]
        link.heard = seen
        if link.alive:
            self._fail(link, f"retired by {self.group.names[peer]}: {cause}")
        else:
            self._move(link)

    def _moved(self, peer: int, body: dict[str, Any]) -> None:
        if body["round"] > self.round or self.running is None:
            self._later.append((peer, body))
            return
        self._owed[peer] -= int(body["jobs"])
        for rail, count in body["to"].items():
            link = self.by_place[peer, int(rail)]
            if link.alive:
                link.expect += int(count)
            else:
                self._owed[peer] += int(count)

    def step(self) -> bool:
        """One sweep of the engine; raises what went wrong here or elsewhere."""
        with self.lock:
            if self._error is not None:
                raise self._error
            self.group.check()
            if self._doom is not None and time.monotonic() - self._doom[0] > NEWS_S:
                raise self._doom[1]
            return self.engine.sweep()


def _buffers(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _registrable(memory: Memory) -> Memory:
    """Drivers refuse empty regions: a node that only sends still registers a page."""
    return memory if memory.length else memory_of(_EMPTY, writable=True)


_EMPTY = bytearray(4096)


def _no_writes() -> Writes:
    none = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    return Writes(none[0], none[0], none[1], none[1], none[1])
