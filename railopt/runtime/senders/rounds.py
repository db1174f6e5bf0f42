"""Rounds between this rank and its peers, over the links of an engine.

A round is one stage of one run. A receiver tells each peer that will write to it that its memory is
READY (an immediate); the peer then posts its writes, and one immediate DONE a link after them. What
a dead link still owes is counted here; how it is paid over the living ones is failover.py.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, InputError, printable
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout, WriteList, rows_of, write_list
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.wire import PeerLost
from railopt.runtime.senders.report import LinkFault, Readmission
from railopt.runtime.verbs.engine import PROTECTION, Engine, Link, LinkJob, describe
from railopt.runtime.verbs.wiring import Wiring
from railopt.runtime.verbs.work import Writes

if TYPE_CHECKING:
    from railopt.runtime.senders.failover import Failover

READY, DONE = 0, 1
ROUNDS = 1 << 15
# how long a run that failed waits for news of a dead peer before it says what it saw itself
NEWS_S = 2.0
# how long nothing may happen before the drivers are asked whether the queue pairs live
LOOK_S = 0.25


def immediate(kind: int, round_: int, digest: str) -> int:
    """kind (1 bit), round (15 bits), 16 bits of the plan's digest: 32 bits."""
    return kind << 31 | round_ % ROUNDS << 16 | int(digest[:4], 16)


def full_round(value: int, near: int) -> int:
    """The round of an immediate: the one nearest to `near` with its 15 bits."""
    return near + ((value >> 16) - near + ROUNDS // 2) % ROUNDS - ROUNDS // 2


@dataclass
class Transfer:
    """A run as its rounds see it: a plan, where its chunks lie, and what became of them.

    rail     int64 [C]: the rail that each chunk takes, as planned or as planned again
    done     the immediate that ends a job of the present round
    """

    plan: Plan
    layout: Layout
    begun: float
    rail: Ints
    faults: list[LinkFault] = field(default_factory=list)
    readmissions: list[Readmission] = field(default_factory=list)
    done: int = 0

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self.begun

    def moved(self, link: Link, rows: Ints, rails: Ints) -> None:
        """Chunks that go over other links than planned, because `link` is dead."""
        self.rail[rows] = rails
        for i, fault in reversed(list(enumerate(self.faults))):
            if (fault.peer, fault.rail) == (link.peer, link.rail):
                self.faults[i] = replace(fault, moved=fault.moved + len(rows))
                return


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
    """

    def __init__(self, group: Group, wiring: Wiring) -> None:
        self.group, self.wiring = group, wiring
        self.engine = Engine([rail.cq for rail in wiring.rails], self)
        self.engine.links = wiring.links
        self.failover: Failover | None = None
        self.lock = threading.RLock()
        self.round, self.activity, self.closed = 0, 0, False
        self.running: Transfer | None = None
        self.owed = dict.fromkeys(wiring.peers, 0)
        self.doom: BackendError | None = None  # how the run failed, unless better news comes
        self._doomed_at = 0.0
        self._idle_since, self._look_s = 0.0, LOOK_S
        self._error: BaseException | None = None
        self._ready: dict[int, tuple[int, int]] = {}  # peer -> (round, digest bits) of its READY
        self._ready_on: dict[int, Link] = {}  # peer -> the link on which we said READY

    # -- a round

    def begin(self, transfer: Transfer, stage: int | None) -> None:
        """Start the round of one stage: tell the peers that our memory is ready, queue our jobs,
        know what to expect.
        """
        assert self.failover is not None
        self.running, self.round = transfer, self.round + 1
        plan, rank = transfer.plan, self.group.rank
        transfer.done = immediate(DONE, self.round, plan.digest)
        transfer.readmissions += self.failover.admit(self.round)
        self._ready_on.clear()
        for peer in self._expect(plan, stage):
            self.tell_ready(peer)
        for link in self.wiring.by_place.values():
            link.open = False
        self.queue(
            write_list(
                plan,
                transfer.layout,
                rows_of(plan, rank, stage),
                max_message=self.wiring.max_message,
            )
        )
        for peer in self.wiring.peers:
            self._open(peer)
        self.failover.resume()

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
        for i, (peer, rail) in enumerate(zip(work.peer.tolist(), work.rail.tolist(), strict=True)):
            rows = work.chunk[int(work.starts[i]) : int(work.starts[i + 1])]
            links = [link for link in self.wiring.on(peer, rail) if link.alive or not again]
            parts = in_turn(self.wiring.writes(work, i), rows, len(links))
            for link, (writes, mine) in zip(links, parts, strict=False):
                self.engine.give(link, LinkJob(writes, mine, self.running.done))
                given[link.lane] = given.get(link.lane, 0) + 1
        return given

    def tell_ready(self, peer: int, *, instead_of: Link | None = None) -> None:
        """Our memory is ready for this round: over the first living link to the peer. `instead_of`
        one that died: only if it was that one.
        """
        if self.running is None or self._ready_on.get(peer) is not instead_of:
            return
        living = self.living(peer)
        if not living:
            return
        link = self._ready_on[peer] = living[0]
        if error := link.signal(immediate(READY, self.round, self.running.plan.digest)):
            self.on_fault(link, 0, error)

    def _open(self, peer: int) -> None:
        """Let jobs to a peer start if it is ready for this round with this plan."""
        assert self.running is not None
        round_, digest = self._ready.get(peer, (-1, 0))
        if round_ != self.round:
            return
        if digest != self.running.done & 0xFFFF:
            raise InputError(
                f"{self.group.names[peer]} runs another plan than this node: give all ranks the "
                f"same file"
            )
        for n in range(len(self.wiring.rails)):
            for link in self.wiring.on(peer, n):
                link.open = True

    def complete(self) -> bool:
        """Whether this round is done: all our jobs acknowledged, all that we expect seen."""
        return (
            self.doom is None
            and not any(self.owed.values())
            and not any(link.waiting for link in self.wiring.by_place.values())
        )

    def waiting_for(self) -> str:
        """The peers that keep this round from ending."""
        return ", ".join(self.group.names[peer] for peer in self._waited_for()) or "nobody"

    def _waited_for(self) -> list[int]:
        peers = {link.peer for link in self.wiring.by_place.values() if link.waiting}
        return sorted(peers | {peer for peer, owed in self.owed.items() if owed})

    # -- what the engine tells us

    def on_immediate(self, link: Link, value: int) -> None:
        """READY opens the links to a peer, DONE counts a finished job of its."""
        if value >> 31 == READY:
            self._ready[link.peer] = full_round(value, self.round), value & 0xFFFF
            if self.running is not None:
                self._open(link.peer)
            return
        link.seen += 1
        if self.running is not None and value != self.running.done:
            raise InputError(
                f"{self.group.names[link.peer]} runs another plan or round than this node"
            )

    def on_fault(self, link: Link, status: int, error: int) -> None:
        """A bad completion: a wrong request ends the run, anything else ends the link."""
        assert self.failover is not None
        cause = describe(status, error)
        if status not in PROTECTION:
            self.failover.fail(link, cause)
            return
        # also what a peer's memory says when its process is being torn down
        self.doomed(
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
        """Links to a peer that live; without any the run is doomed, unless the two are done with
        each other: one that ends first closes its links.
        """
        links = self.wiring.living(peer)
        if not links and peer in self._waited_for():
            why = "; ".join(self._causes(peer))
            self.doomed(PeerLost(f"no living rail is left to {self.group.names[peer]} ({why})"))
        return links

    def _causes(self, peer: int) -> list[str]:
        """Why the links to a peer died, each cause once."""
        rails: dict[str, list[str]] = {}
        for link in self.wiring.by_place.values():
            if link.peer == peer and link.cause:
                rails.setdefault(link.cause, []).append(str(link.rail))
        return [f"rail {', '.join(dict.fromkeys(n))}: {cause}" for cause, n in rails.items()]

    def doomed(self, error: BackendError) -> None:
        """This run can't succeed. If a peer died, that news is on its way and says more: `step`
        waits for it a little.
        """
        if self.doom is None:
            self.doom, self._doomed_at = error, time.monotonic()

    def on_message(self, peer: int, body: dict[str, Any]) -> None:
        """In the reader's thread: a peer's word on a link that died or may come back."""
        assert self.failover is not None
        try:
            with self.lock:
                if not self.closed:
                    self.activity += self.failover.on_message(peer, body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.broken(
                BackendError(
                    f"{self.group.names[peer]} sent a message that this railopt does not "
                    f"understand ({printable(error, 80)}): run the same version on all nodes"
                )
            )
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
            if self.doom is not None and time.monotonic() - self._doomed_at > NEWS_S:
                raise self.doom
            if self.engine.sweep():
                self._idle_since = 0.0
                return True
            self._look()
            return False

    def _look(self) -> None:
        """While nothing happens, ask after the queue pairs to the peers that are waited for, less
        and less often: one that is gone took its completions along, so none says that it failed.
        """
        assert self.failover is not None
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
