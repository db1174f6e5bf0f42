"""Links that come back: a dead link is probed in the background and admitted again between runs.

The rank with the lower number calls ("probe"), the other answers ("answer"): each end makes a new
queue pair for the link, and a trial that writes a page there and back. When both pages were right
the caller says so ("tested"). Whoever begins the next run first asks the other end to admit the
link in that round ("admit", "admitted"), and waits for the answer. So both ends change over in the
same round, and a run never sees a link come back in its middle.

The old queue pair is destroyed at both ends before the first probe, so none of its bytes is in
flight. All state is under the lock of the rounds; a thread of its own opens, polls and closes
trials.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from railopt.base.errors import BackendError
from railopt.runtime.rendezvous.wire import PeerLost, read_number
from railopt.runtime.senders.report import Readmission
from railopt.runtime.senders.rounds import Rounds
from railopt.runtime.verbs.engine import Link
from railopt.runtime.verbs.trial import Trial, TrialCard

POLL_S = 0.002
LinkPlace = tuple[int, int]


@dataclass
class Absent:
    """A dead link on its way back.

    link      the dead one, and `renewed` the one over a new queue pair, while it is tried
    flaps     how often it died soon after its return
    probes    how often it was called; the number of the trial under way
    there     the other end's card, once it is known
    tested    both pages were right
    asked     whether the other end was asked to admit it, and has not answered
    round     in which both ends admit it
    """

    link: Link
    flaps: int
    died: float
    wait_s: float
    due: float
    probes: int = 0
    trial: Trial | None = None
    renewed: Link | None = None
    there: TrialCard | None = None
    deadline: float = 0.0
    tested: bool = False
    asked: bool = False
    round: int | None = None


class Failback:
    """Probes the dead links of rounds and admits them again."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds, self._options = rounds, rounds.wiring.options
        self.absent: dict[LinkPlace, Absent] = {}
        self._returned: dict[LinkPlace, tuple[float, int]] = {}  # when, and flaps until then
        self._changed = threading.Condition(rounds.lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    # -- what a run asks

    def died(self, link: Link) -> None:
        """A link in use, or one that both ends have agreed to admit, is dead."""
        place = link.peer, link.lane
        pending = self.absent.get(place)
        if pending is not None and pending.renewed is link:
            return  # `admit` puts it in use, dead
        now, damping = time.monotonic(), self._options.damping
        back, flaps = self._returned.get(place, (-1e9, -1))
        flaps = flaps + 1 if now - back < damping.window_s else 0
        wait = damping.first_wait_s(flaps)
        self.absent[place] = Absent(link, flaps, now, wait, now + wait)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name="railopt-probe", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def pending(self, peer: int, lane: int) -> Link | None:
        """The link that both ends have agreed to admit in a round to come."""
        absent = self.absent.get((peer, lane))
        return None if absent is None or absent.round is None else absent.renewed

    def propose(self) -> None:
        """Between runs: ask the peers of tested links to admit them in the next round, and wait for
        their word.
        """
        group, round_ = self.rounds.group, self.rounds.round + 1
        with self._changed:
            for (peer, lane), absent in self.absent.items():
                if absent.tested and absent.round is None:
                    absent.asked = True
                    group.send(peer, {"admit": lane, "round": round_})
            deadline = time.monotonic() + self._options.stall_s
            while waiting := [a.link.peer for a in self.absent.values() if a.asked]:
                group.check()
                if time.monotonic() > deadline:
                    name = group.names[waiting[0]]
                    raise PeerLost(f"{name} did not say whether a link may be admitted again")
                self._changed.wait(0.05)

    def admit(self, round_: int) -> list[Readmission]:
        """A round begins: put the links in use that were agreed for it."""
        now, found = time.monotonic(), []
        for place, absent in list(self.absent.items()):
            if absent.round != round_:
                continue
            link = absent.renewed
            assert link is not None
            assert absent.trial is not None
            absent.trial.close(keep=True)
            del self.absent[place]
            self.rounds.wiring.put(link)
            self._returned[place] = now, absent.flaps
            rank, down = self.rounds.group.rank, now - absent.died
            found.append(Readmission(rank, link.peer, link.rail, down, absent.probes))
            if not link.alive:
                self.died(link)
        return found

    def spoil(self, link: Link) -> None:
        """A link that is being tried failed."""
        for absent in self.absent.values():
            if absent.renewed is link:
                self.fail(absent)

    # -- what a peer says, in the reader's thread

    def on_message(self, peer: int, body: dict[str, Any]) -> None:
        """A peer's word on a link that may come back."""
        group = self.rounds.group
        if "admit" in body:
            lane, round_ = body["admit"], read_number(body["round"])
            absent = self.absent.get((peer, lane))
            tested = absent is not None and absent.tested
            yes = tested and self.rounds.round < round_
            if absent is not None and yes:
                absent.round = round_
            word = {"admitted": lane, "round": round_, "yes": yes, "stands": tested}
            group.send(peer, word)
            return
        words = [key for key in _WORDS if key in body]
        if len(words) != 1:
            raise ValueError("not one known word")
        place = peer, body[words[0]]
        absent = self.absent.get(place)
        if "admitted" in body:
            self._admitted(place, absent, read_number(body["round"]), body["yes"] is True)
            if absent is not None and absent.round is None and body["stands"] is not True:
                self.fail(absent)  # the other end gave the trial up before this end's message came
        elif "probe" in body:
            self._called(place, absent, body)
        elif absent is not None and read_number(body["try"]) == absent.probes and absent.trial:
            if "answer" in body and absent.there is None:
                self._answered(absent, body["card"])
            elif "tested" in body:
                absent.tested = True
        self._changed.notify_all()

    def _admitted(self, place: LinkPlace, absent: Absent | None, round_: int, yes: bool) -> None:
        """The peer's answer to `propose`; a link that failed since then is dead there too."""
        if absent is not None and absent.asked:
            absent.asked = False
            absent.round = round_ if yes else absent.round
        elif yes and (absent is None or absent.round is None):
            word = {"down": place[1], "seen": 0, "cause": "it failed before it was admitted"}
            self.rounds.group.send(place[0], word)

    def _called(self, place: LinkPlace, absent: Absent | None, body: dict[str, Any]) -> None:
        """The peer probes a link: the thread answers."""
        if absent is None or absent.round is not None or absent.link.confirmed is None:
            word = {"answer": place[1], "try": read_number(body["try"]), "card": None}
            self.rounds.group.send(place[0], word)
            return
        self._end(absent)
        absent.probes, absent.there = read_number(body["try"]), TrialCard.from_list(body["card"])

    def _answered(self, absent: Absent, card: Any) -> None:
        if card is None:
            self.fail(absent)
        else:
            absent.there = TrialCard.from_list(card)

    # -- the thread

    def _work(self) -> None:
        try:
            with contextlib.suppress(PeerLost), self._changed:
                while not self._closed:
                    now = time.monotonic()
                    for absent in list(self.absent.values()):
                        if not absent.tested:
                            self._attempt(absent, now)
                    self._changed.wait(self._pause())
        except BaseException as error:  # raised where a run is waited for
            self.rounds.broken(error)

    def _pause(self) -> float | None:
        """Seconds until there is something to do."""
        open_ = [absent for absent in self.absent.values() if not absent.tested]
        if any(absent.trial is not None or absent.there is not None for absent in open_):
            return POLL_S
        due = [absent.due for absent in open_ if self._calls(absent)]
        return max(POLL_S, min(due) - time.monotonic()) if due else None

    def _calls(self, absent: Absent) -> bool:
        return self.rounds.group.rank < absent.link.peer

    def _attempt(self, absent: Absent, now: float) -> None:
        """One step of a probe."""
        try:
            if self._calls(absent):
                self._call(absent, now)
            else:
                self._answer(absent)
            if absent.trial is not None and now > absent.deadline:
                raise BackendError("the trial took too long")
        except PeerLost:
            raise
        except BackendError:
            self.fail(absent)

    def _call(self, absent: Absent, now: float) -> None:
        link, group = absent.link, self.rounds.group
        if absent.trial is None:
            if now < absent.due or link.confirmed is None:
                return
            absent.probes += 1
            trial = self._open(absent)
            word = {"probe": link.lane, "try": absent.probes, "card": trial.card.as_list()}
            group.send(link.peer, word)
        elif absent.there is not None and absent.renewed is None:
            self._connect(absent, absent.trial, absent.there)
            absent.trial.write(2 * absent.probes)
        elif absent.renewed is not None and absent.trial.arrived(2 * absent.probes + 1):
            absent.tested = True
            group.send(link.peer, {"tested": link.lane, "try": absent.probes})

    def _answer(self, absent: Absent) -> None:
        link = absent.link
        if absent.trial is None:
            if absent.there is None:
                return
            trial = self._open(absent)
            self._connect(absent, trial, absent.there)
            word = {"answer": link.lane, "try": absent.probes, "card": trial.card.as_list()}
            self.rounds.group.send(link.peer, word)
        elif absent.trial.arrived(2 * absent.probes):
            absent.trial.write(2 * absent.probes + 1)

    def _open(self, absent: Absent) -> Trial:
        link, rounds = absent.link, self.rounds
        rounds.forget(link)
        trial = absent.trial = Trial(rounds.wiring.rails[link.rail], self._options)
        absent.deadline = time.monotonic() + self._options.damping.limit_s(absent.probes)
        return trial

    def _connect(self, absent: Absent, trial: Trial, there: TrialCard) -> None:
        place = absent.link.peer, absent.link.lane
        trial.connect(there)
        absent.renewed = self.rounds.wiring.link(place, trial.qp, there.port, there.link)

    def fail(self, absent: Absent) -> None:
        """A probe failed: wait longer, then try again."""
        if not self._calls(absent) and absent.there is not None and absent.renewed is None:
            word = {"answer": absent.link.lane, "try": absent.probes, "card": None}
            self.rounds.group.send(absent.link.peer, word)
        self._end(absent)
        damping = self._options.damping
        absent.wait_s = max(absent.wait_s, min(2 * absent.wait_s, damping.most_s))
        absent.due = time.monotonic() + absent.wait_s

    def _end(self, absent: Absent) -> None:
        """Close a trial and what it made."""
        if absent.renewed is not None:
            self.rounds.forget(absent.renewed)
        if absent.trial is not None:
            absent.trial.close()
        absent.trial = absent.renewed = absent.there = None
        absent.tested = absent.asked = False
        self._changed.notify_all()

    def close(self) -> None:
        """End the thread and close every trial."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            for absent in self.absent.values():
                self._end(absent)


_WORDS = "admitted", "probe", "answer", "tested"
