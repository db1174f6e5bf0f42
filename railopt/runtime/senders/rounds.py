"""Rounds between this rank and its peers, over the links of an engine.

A round is one stage of one run. A receiver tells each peer that will write to it that its memory is
READY (an immediate); the peer then posts its writes, and one immediate DONE per link after
them.
Where each node plans alone (one_node.py), a round begins with an immediate SIZES to every peer,
which brings what comes from here, and READY brings where to put it. What a dead link still owes is
counted here; how it is paid over the living ones is failover.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import WriteList, rows_of, write_list
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.wire import PeerLost, understood
from railopt.runtime.verbs.engine import PROTECTION, Engine, Link, LinkJob, describe
from railopt.runtime.verbs.wiring import Wiring
from railopt.runtime.verbs.work import Writes

if TYPE_CHECKING:
    from railopt.runtime.senders.failover import Failover
    from railopt.runtime.senders.verbs_run import VerbsRun

READY, DONE, SIZES = 0, 1, 2
ROUNDS = 1 << 14
# how long a run that failed waits for news of a dead peer before it says what it saw itself
NEWS_S = 2.0
# how long nothing may happen before the drivers are asked whether the queue pairs live
LOOK_S = 0.25


def immediate(kind: int, round_: int, digest: str) -> int:
    """kind (2 bits), round (14 bits), 16 bits of what all ranks agree on: 32 bits."""
    return kind << 30 | round_ % ROUNDS << 16 | int(digest[:4], 16)


def full_round(value: int, near: int) -> int:
    """The round of an immediate: the one nearest to `near` with its 14 bits."""
    return near + ((value >> 16) - near + ROUNDS // 2) % ROUNDS - ROUNDS // 2


def in_turn(writes: Writes, rows: Ints, count: int) -> list[tuple[Writes, Ints]]:
    """A link's writes and their chunks, divided between so many queue pairs: chunk after chunk in
    turn, all writes of a chunk together; as many parts as there are chunks, at most.
    """
    if count == 1:
        return [(writes, rows)]
    number = np.cumsum(np.append(0, rows[1:] != rows[:-1])) if len(rows) else rows
    masks = [number % count == k for k in range(count)]
    return [(writes.take(mask), rows[mask]) for mask in masks if mask.any()]


class Rounds:
    """What is owed in the present round, by us and to us; the engine's watcher.

    owed     peer -> its jobs that died with a link and were not announced again yet
    activity counts what came over the rendezvous: a run looks again when it changed
    failover mends them; it enters itself here
    """

    failover: Failover

    def __init__(self, group: Group, wiring: Wiring) -> None:
        self.group, self.wiring = group, wiring
        self.engine = Engine([rail.cq for rail in wiring.rails], self)
        self.engine.links = wiring.links
        self.lock = threading.RLock()
        self.round, self.activity, self.closed = 0, 0, False
        self.running: VerbsRun | None = None
        self.owed = dict.fromkeys(wiring.peers, 0)
        self.failure: BackendError | None = None  # how the run failed, unless better news comes
        self._failed_at = 0.0
        self._idle_since, self._look_s = 0.0, LOOK_S
        self._error: BaseException | None = None
        # (peer, SIZES or READY) -> (round, digest bits) of its last word
        self._last_words: dict[tuple[int, int], tuple[int, int]] = {}
        self._said: dict[tuple[int, int], Link] = {}  # and the link on which we said it
        self._unfinished: Link | None = None

    # -- a round

    def begin(self, run: VerbsRun, stage: int | None) -> None:
        """Start the round of one stage: tell the peers that our memory is ready, queue our jobs,
        know what to expect; or, where each node plans alone, tell them what comes.
        """
        self.running, self.round = run, self.round + 1
        run.done = immediate(DONE, self.round, run.digest)
        run.readmissions += self.failover.failback.admit(self.round)
        self._said.clear()
        self._unfinished = None
        for link in self.wiring.by_place.values():
            link.open = False
        if run.alone is not None:
            self._await(SIZES, self.wiring.peers)
            for peer in self.wiring.peers:
                self.tell(peer, SIZES)
            self._advance()
            return
        for peer in self._expect(run.plan, stage):
            self.tell(peer, READY)
        self._queue_planned(run, stage)

    def _queue_planned(self, run: VerbsRun, stage: int | None) -> None:
        rows, most = rows_of(run.plan, self.group.rank, stage), self.wiring.max_message
        self.queue(write_list(run.plan, run.layout, rows, max_message=most))
        for peer in self.wiring.peers:
            self._open(peer)
        self.failover.resume()

    def _await(self, kind: int, peers: Iterable[int]) -> None:
        assert self.running is not None
        self.running.awaits = kind
        self.running.lacking = {peer for peer in peers if not self._has_said(peer, kind)}

    def _advance(self) -> None:
        """Where each node plans alone: go on when the peers that are waited for have spoken."""
        run = self.running
        assert run is not None
        if run.awaits == SIZES and not run.lacking:
            assert run.alone is not None
            for peer, rail, count in run.alone.read_sizes(self.round):
                for link in self.wiring.on(peer, rail)[:count]:
                    self.expect(link, 1)
            for peer in run.alone.sources:
                self.tell(peer, READY)
            self._await(READY, run.alone.targets)
        if run.awaits == READY and not run.lacking:
            assert run.alone is not None
            run.awaits = None
            run.alone.place(run.plan.chunks, run.layout)
            self._queue_planned(run, None)

    def _expect(self, plan: Plan, stage: int | None) -> list[int]:
        """Count one job of every link over which something will come: the peers that send it."""
        rows = rows_of(plan, self.group.rank, stage, side="recv")
        rails = plan.fabric.rails
        places = plan.chunks.src[rows].astype(np.int64) * rails + plan.rail[rows]
        incoming, chunks = np.unique(places, return_counts=True)
        for place, count in zip(incoming.tolist(), chunks.tolist(), strict=True):
            for link in self.wiring.on(*divmod(place, rails))[:count]:
                self.expect(link, 1)
        return sorted({place // rails for place in incoming.tolist()})

    def expect(self, link: Link, jobs: int) -> None:
        """The peer will finish so many jobs on a link; what a dead one can't bring is owed."""
        if link.alive:
            link.expect += jobs
        else:
            self.owed[link.peer] += jobs

    def queue(self, work: WriteList, *, again: bool = False) -> dict[int, int]:
        """Give a list's writes to their links, chunk by chunk in turn where there are several; jobs
        a lane. What is planned `again` goes to living links alone.
        """
        assert self.running is not None
        given: dict[int, int] = {}
        writes_of_all, starts = self.wiring.writes(work), work.starts.tolist()
        for i, (peer, rail) in enumerate(zip(work.peer.tolist(), work.rail.tolist(), strict=True)):
            part = slice(starts[i], starts[i + 1])
            links = [link for link in self.wiring.on(peer, rail) if link.alive or not again]
            parts = in_turn(writes_of_all.take(part), work.chunk[part], len(links))
            for link, (writes, mine) in zip(links, parts, strict=False):
                self.engine.give(link, LinkJob(writes, mine, self.running.done))
                given[link.lane] = given.get(link.lane, 0) + 1
        return given

    def tell(self, peer: int, kind: int, *, instead_of: Link | None = None) -> None:
        """Say SIZES or READY of this round over the first living link to the peer. `instead_of` one
        that died: only if it was that one.
        """
        run = self.running
        if run is None or self._said.get((peer, kind)) is not instead_of:
            return
        living = self.living(peer)
        if not living:
            return
        link = self._said[peer, kind] = living[0]
        parcel = None
        if run.alone is not None:
            parcel = run.alone.parcel(peer, kind, link.rail, self.round)
        if error := link.signal(immediate(kind, self.round, run.digest), parcel=parcel):
            self.on_fault(link, 0, error)

    def _has_said(self, peer: int, kind: int) -> bool:
        """Whether a peer has said SIZES or READY of this round, with what is run here."""
        assert self.running is not None
        round_, digest = self._last_words.get((peer, kind), (-1, 0))
        if round_ == self.round and digest != self.running.done & 0xFFFF:
            raise InputError(
                f"{self.group.names[peer]} runs another plan than this node: give all ranks the "
                f"same file"
            )
        return round_ >= self.round

    def _open(self, peer: int) -> None:
        """Let jobs to a peer start if it is ready for this round with this plan."""
        if self._has_said(peer, READY):
            for link in self.wiring.to(peer):
                link.open = True

    def complete(self) -> bool:
        """Whether this round is done: all our jobs and words acknowledged, all that we expect
        seen.
        """
        if self.failure is not None or any(self.owed.values()):
            return False
        if self.running is not None and self.running.awaits is not None:
            return False
        if self._unfinished is None or not self._unfinished.waiting:  # the one found last first
            links = self.wiring.by_place.values()
            self._unfinished = next((link for link in links if link.waiting), None)
        if self._unfinished is not None:
            return False
        # what was said to a peer that sends nothing back would be lost with its link
        return not any(link.immediates for link in self._said.values())

    def waiting_for(self) -> str:
        """The peers that keep this round from ending."""
        return ", ".join(self.group.names[peer] for peer in self._waited_for()) or "nobody"

    def _waited_for(self) -> list[int]:
        peers = {link.peer for link in self.wiring.by_place.values() if link.waiting}
        lacking = self.running.lacking if self.running is not None else set()
        return sorted(peers | lacking | {peer for peer, owed in self.owed.items() if owed})

    # -- what the engine tells us

    def on_immediate(self, link: Link, value: int) -> None:
        """READY opens the links to a peer, SIZES says what comes from it, DONE counts a finished
        job of its.
        """
        kind, run = value >> 30, self.running
        if kind != DONE:
            word = full_round(value, self.round), value & 0xFFFF
            self._last_words[link.peer, kind] = max(
                word, self._last_words.get((link.peer, kind), word)
            )
            if run is None:
                return
            if run.awaits is None:
                self._open(link.peer)
            elif run.awaits == kind and self._has_said(link.peer, kind):
                run.lacking.discard(link.peer)
                self._advance()
            return
        link.seen += 1
        if self.running is not None and value != self.running.done:
            raise InputError(
                f"{self.group.names[link.peer]} runs another plan or round than this node"
            )

    def on_fault(self, link: Link, status: int, error: int) -> None:
        """A bad completion: a wrong request ends the run, anything else ends the link."""
        cause = describe(status, error)
        if status not in PROTECTION:
            self.failover.fail(link, cause)
            return
        # also what a peer's memory says when its process is being torn down
        self.fail(
            BackendError(
                f"rail {link.rail} to {self.group.names[link.peer]}: a write was refused "
                f"({cause}): wrong memory key or address; were the buffers freed or registered "
                f"anew?"
            )
        )
        link.alive = False

    def forget(self, link: Link) -> None:
        """Destroy the queue pair of a dead link; its index may be used again."""
        link.alive = False
        link.qp.close()
        self.engine.drain(link.rail)  # nothing more of it comes after this
        self.wiring.spare(link)

    # -- how a run ends badly

    def living(self, peer: int) -> list[Link]:
        """Links to a peer that live; without any the run fails, unless the two are done with
        each other: one that ends first closes its links.
        """
        links = self.wiring.living(peer)
        if not links and peer in self._waited_for():
            why = "; ".join(self._causes(peer))
            self.fail(PeerLost(f"no living rail is left to {self.group.names[peer]} ({why})"))
        return links

    def _causes(self, peer: int) -> list[str]:
        """Why the links to a peer died, each cause once."""
        rails: dict[str, list[str]] = {}
        for link in self.wiring.by_place.values():
            if link.peer == peer and link.cause:
                rails.setdefault(link.cause, []).append(str(link.rail))
        return [f"rail {', '.join(dict.fromkeys(n))}: {cause}" for cause, n in rails.items()]

    def fail(self, error: BackendError) -> None:
        """This run can't succeed. If a peer died, a message that says so arrives soon and explains
        more: `step` waits for it a little.
        """
        if self.failure is None:
            self.failure, self._failed_at = error, time.monotonic()

    def on_message(self, peer: int, body: dict[str, Any]) -> None:
        """In the reader's thread: a peer's word on a link that died or may come back."""
        try:
            with understood(self.group.names[peer], "a message"), self.lock:
                if not self.closed:
                    self.activity += self.failover.on_message(peer, body)
        except BaseException as error:  # raised where the run is waited for
            self.broken(error)

    def broken(self, error: BaseException) -> None:
        """In another thread: what the next step of a run raises."""
        self._error = error

    def step(self) -> bool:
        """One sweep of the engine; raises what went wrong here or elsewhere."""
        with self.lock:
            if self._error is not None:
                raise self._error
            self.group.check()
            if self.failure is not None and time.monotonic() - self._failed_at > NEWS_S:
                raise self.failure
            if self.engine.sweep():
                self._idle_since = 0.0
                return True
            self._look()
            return False

    def _look(self) -> None:
        """While nothing happens, ask after the queue pairs to the peers that are waited for, less
        and less often: a queue pair that is gone reports no completion.
        """
        now = time.monotonic()
        if not self._idle_since:
            self._idle_since, self._look_s = now, LOOK_S
        if now - self._idle_since < self._look_s:
            return
        self._look_s *= 2
        for peer in self._waited_for():
            for link in self.wiring.living(peer):
                if cause := link.qp.lost():
                    self.failover.fail(link, cause)

    def give_up(self, error: BaseException) -> None:
        """End the run here and tell the others why."""
        self.running = None
        self.group.abort(error)
