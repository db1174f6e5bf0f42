"""Links that die: retired at both ends, and only then is what had not arrived planned again.

Each end tells the other over the rendezvous what it had seen on the link ("down"); the sender then
plans the missing chunks over the living rails and says how many jobs come instead ("moved"). So no
byte of an old queue pair can land in memory that its owner already uses again.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from railopt.base.errors import printable
from railopt.runtime.payload.layout import write_list
from railopt.runtime.rendezvous.wire import read_number
from railopt.runtime.senders.failback import Failback
from railopt.runtime.senders.replan import replan
from railopt.runtime.senders.report import LinkFault
from railopt.runtime.senders.rounds import READY, SIZES, Rounds
from railopt.runtime.verbs.engine import Link, LinkJob
from railopt.runtime.verbs.lib import VerbsError
from railopt.runtime.verbs.objects import Device


class Moved(NamedTuple):
    """A peer's word that in `round` it sends `jobs` jobs of a dead link over other links: how many
    over each.
    """

    peer: int
    round: int
    jobs: int
    to: list[tuple[Link, int]]


class Failover:
    """Mends the rounds it is made for; `failback` brings its links back."""

    def __init__(self, rounds: Rounds, failback: Failback) -> None:
        self.rounds, self.failback = rounds, failback
        self._between: list[LinkFault] = []  # seen between runs: reported by the next one
        self._later: list[Moved] = []  # of rounds to come
        rounds.failover = self

    def between_runs(self) -> list[LinkFault]:
        """Faults since the last run, handed over."""
        faults, self._between = self._between, []
        return faults

    def resume(self) -> None:
        """A round begins: what arrived too early, and what dead links still hold."""
        later, self._later = self._later, []
        for moved in later:
            self._moved(moved)
        for link in self.rounds.wiring.by_place.values():
            if not link.alive and link.unfinished:
                self._move(link)

    def fail(self, link: Link, cause: str) -> None:
        """Retire a link here and tell the peer what we have seen on it."""
        rounds = self.rounds
        if link is not self._link(link.peer, link.lane):
            self.failback.spoil(link)
            return
        with contextlib.suppress(VerbsError):
            link.qp.retire()
        rounds.engine.drain(link.rail)  # what landed before counts
        link.alive = False
        link.jobs.clear()
        link.flight.clear()
        self._report(link, cause)
        rounds.group.send(link.peer, {"down": link.lane, "seen": link.seen, "cause": cause})
        rounds.owed[link.peer] += link.expect - link.seen
        link.expect = link.seen
        self._move(link)
        self.failback.died(link)

    def _report(self, link: Link, cause: str) -> None:
        rounds, running = self.rounds, self.rounds.running
        link.cause = "; ".join([cause, *_events(rounds.wiring.rails[link.rail].device)])
        fault = LinkFault(
            rounds.group.rank,
            link.peer,
            link.rail,
            link.cause,
            0,
            running.seconds if running is not None else 0.0,
        )
        (running.faults if running is not None else self._between).append(fault)

    def _move(self, link: Link) -> None:
        """Both ends are retired: plan what the peer has not seen again, over the living rails."""
        rounds, run = self.rounds, self.rounds.running
        self._confirm(link)
        living = rounds.living(link.peer)
        if link.confirmed is None or run is None or rounds.failure is not None:
            return
        for kind in (SIZES, READY):  # not before: its bytes must not land twice
            rounds.tell(link.peer, kind, instead_of=link)
        confirmed, link.confirmed = link.confirmed, link.sent
        lost = [job for job in link.unfinished if job.ordinal > confirmed]
        link.unfinished.clear()
        link.jobs.clear()
        if not lost:
            return
        rows = np.unique(np.concatenate([job.rows[job.acked :] for job in lost]))
        rails, policy = replan(
            run.plan, rows, rounds.group.rank, link.peer, sorted({one.rail for one in living})
        )
        work = write_list(run.plan, run.layout, rows, rails, rounds.wiring.max_message)
        given = rounds.queue(work, again=True)
        if not given:  # all writes were acknowledged, only the immediate was not
            job = LinkJob(rounds.wiring.writes(work), work.chunk, run.done)
            rounds.engine.give(living[0], job)
            given = {living[0].lane: 1}
        run.moved(link, rows, rails)
        rounds.group.send(
            link.peer,
            {
                "moved": link.lane,
                "round": rounds.round,
                "jobs": len(lost),
                "to": {str(n): k for n, k in given.items()},
                "policy": policy,
            },
        )

    def _confirm(self, link: Link) -> None:
        """Jobs whose end was acknowledged, but not seen: the peer's queue pair lost their
        completions. Their bytes have arrived, so nothing is sent again.
        """
        done = link.sent - len(link.unfinished)
        if link.confirmed is not None and link.confirmed < done:
            jobs, link.confirmed = done - link.confirmed, done
            # of the round that the peer is in, whichever it is here: it can't end that without them
            word = {"moved": link.lane, "round": 0, "jobs": jobs, "to": {}}
            self.rounds.group.send(link.peer, word)

    def on_message(self, peer: int, body: dict[str, Any]) -> bool:
        """A peer's word on a link that died, or on one that may come back."""
        if "down" in body:
            link = self._link(peer, body["down"])
            self._down(link, read_number(body["seen"]), printable(body["cause"]))
        elif "moved" in body:
            to = [(self._link(peer, int(n)), read_number(k)) for n, k in body["to"].items()]
            self._moved(Moved(peer, read_number(body["round"]), read_number(body["jobs"]), to))
        else:
            self.failback.on_message(peer, body)
            return False
        return True

    def _link(self, peer: int, lane: int) -> Link:
        """The link that a message of the peer is about: what both ends have agreed to admit, or
        what is in use.
        """
        pending = self.failback.pending(peer, lane)
        return pending or self.rounds.wiring.by_place[peer, lane]

    def _down(self, link: Link, seen: int, cause: str) -> None:
        if link.confirmed is not None:
            return  # of a link that this end gave up while it was tried: there is only the old one
        link.confirmed = seen
        if link.alive:
            self.fail(link, f"retired by {self.rounds.group.names[link.peer]}: {cause}")
        else:
            self._move(link)

    def _moved(self, moved: Moved) -> None:
        rounds = self.rounds
        if moved.round > rounds.round or rounds.running is None:
            self._later.append(moved)
            return
        rounds.owed[moved.peer] -= moved.jobs
        for link, jobs in moved.to:
            rounds.expect(link, jobs)


def _events(device: Device) -> list[str]:
    """What a device says of itself; whatever fails there must not hide why its link died."""
    try:
        return device.events()
    except Exception as error:
        return [f"its events can't be read ({printable(error, 80)})"]
