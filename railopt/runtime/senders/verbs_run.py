"""A run of the verbs sender: the handle that is polled or waited for."""

from __future__ import annotations

import math
import time

import numpy as np

from railopt.runtime.payload.layout import rows_of, stages
from railopt.runtime.rendezvous.wire import PeerLost
from railopt.runtime.senders.report import Place, RailReport, Report, link_reports
from railopt.runtime.senders.rounds import Rounds, Transfer

# poll this long without a pause; then nap between polls, longer the longer nothing happens
SPIN_S = 0.0005
NAPS_S = 0.0001, 0.002


class VerbsRun:
    """A run under way, stage after stage; without progress for `stall_s` it is given up, naming who
    was waited for.
    """

    def __init__(self, rounds: Rounds, transfer: Transfer, stall_s: float) -> None:
        self._rounds, self._transfer, self._stall_s = rounds, transfer, stall_s
        self._stages = stages(transfer.plan)
        self._rows = rows_of(transfer.plan, rounds.group.rank)
        self._checked = -1
        self._idle_s, self._looked = 0.0, time.monotonic()
        self._report: Report | None = None
        for link in rounds.wiring.by_place.values():
            link.first = link.last = 0.0
        for region in (*rounds.wiring.send, *rounds.wiring.recv):  # what nobody writes stays
            region.fetch()
        self._next_stage()

    def _next_stage(self) -> None:
        self._checked = -1
        with self._rounds.lock:
            self._rounds.begin(self._transfer, self._stages.pop(0))

    def poll(self) -> bool:
        """One step; whether the run is done."""
        if self._report is None:
            self._step()
        return self._report is not None

    def _step(self) -> bool:
        rounds = self._rounds
        try:
            busy = rounds.step()
            with rounds.lock:
                changed = busy or rounds.activity != self._checked
                self._checked = rounds.activity
                if changed and rounds.complete():
                    if self._stages:
                        self._next_stage()
                    else:
                        self._finish()
            self._rest(changed)
        except BaseException as error:
            rounds.give_up(error)
            raise
        return changed

    def _rest(self, changed: bool) -> None:
        """Count the time without progress, and give up after too much of it. Nobody looks while a
        caller computes: what passes between two steps counts for half the stall time at most.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        self._idle_s = 0.0 if changed else self._idle_s + min(passed, self._stall_s / 2)
        if self._idle_s > self._stall_s and self._report is None:
            raise PeerLost(
                f"no progress for {self._stall_s:g} s; waiting for {self._rounds.waiting_for()}"
            )

    def _finish(self) -> None:
        rounds, run, rows = self._rounds, self._transfer, self._rows
        for region in rounds.wiring.recv:
            region.store()
        rail, size = run.rail[rows], run.plan.chunks.size[rows]
        links = rounds.wiring.by_place.values()
        dead = {link.rail for link in links} - {link.rail for link in links if link.alive}
        rails = tuple(
            RailReport(
                n, r.device.name, int(size[rail == n].sum()), int((rail == n).sum()), n not in dead
            )
            for n, r in enumerate(rounds.wiring.rails)
        )
        self._report = Report(
            "verbs",
            run.plan.policy,
            int(size.sum()),
            len(rows),
            run.seconds,
            rails,
            faults=tuple(run.faults),
            readmissions=tuple(run.readmissions),
            links=link_reports(
                run.plan,
                rows,
                rail,
                self._times(),
                (run.faults, run.readmissions),
                self._dead(),
            ),
        )
        rounds.running = None

    def so_far(self) -> Report:
        """What a run that failed had seen: its events and the links that are dead, no bytes."""
        run, none = self._transfer, np.zeros(0, np.int64)
        return Report(
            "verbs",
            run.plan.policy,
            0,
            0,
            run.seconds,
            (),
            faults=tuple(run.faults),
            readmissions=tuple(run.readmissions),
            links=link_reports(
                run.plan, none, none, {}, (run.faults, run.readmissions), self._dead()
            ),
            failed=True,
        )

    def _times(self) -> dict[Place, tuple[float, float]]:
        """First post and last completion of the links that were used, since the run began."""
        begun, rank = self._transfer.begun, self._rounds.group.rank
        found: dict[Place, tuple[float, float]] = {}
        for link in self._rounds.wiring.by_place.values():
            if link.first:
                place, first, last = (rank, link.peer, link.rail), link.first, link.last
                before = found.get(place, (math.inf, 0.0))
                found[place] = (
                    min(before[0], first - begun),
                    max(before[1], first - begun, last - begun),
                )
        return found

    def _dead(self) -> set[Place]:
        """Links without a living queue pair."""
        rank, links = self._rounds.group.rank, self._rounds.wiring.by_place.values()
        alive = {(rank, link.peer, link.rail) for link in links if link.alive}
        return {(rank, link.peer, link.rail) for link in links} - alive

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done."""
        start = time.monotonic()
        while self._report is None:
            if self._step():
                continue
            if timeout_s is not None and self._looked - start > timeout_s:
                raise TimeoutError(f"the run is not done after {timeout_s:g} s")
            if self._idle_s > SPIN_S:
                time.sleep(min(max(NAPS_S[0], self._idle_s / 8), NAPS_S[1]))
        return self._report
