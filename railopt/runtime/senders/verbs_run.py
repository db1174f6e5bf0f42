"""A run of the verbs sender: the handle that is polled or waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from railopt.base.arrays import Ints
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout, rows_of, stages
from railopt.runtime.rendezvous.wire import PeerLost
from railopt.runtime.senders.report import (
    LinkFault,
    Place,
    Readmission,
    Report,
    link_reports,
    rail_reports,
)
from railopt.runtime.senders.rounds import Rounds
from railopt.runtime.verbs.engine import Link

if TYPE_CHECKING:
    from railopt.runtime.senders.one_node import Sizes

# poll this long without a pause; then nap between polls, longer the longer nothing happens
SPIN_S = 0.0005
NAPS_S = 0.0001, 0.002


class VerbsRun:
    """A run under way, stage after stage; without progress for the options' `stall_s` it is given
    up, naming who was waited for.

    plan, layout  what is carried out, and where its chunks lie
    digest        of what all ranks must agree on
    alone         where each node plans alone: what the ranks tell each other before bytes move
    rail          int64 [C]: the rail that each chunk takes, as planned or as planned again
    done          the immediate that ends a job of the present round
    awaits        SIZES or READY while peers still have to say it, else None; and `lacking`: which
    """

    def __init__(
        self,
        rounds: Rounds,
        plan: Plan,
        layout: Layout,
        digest: str,
        alone: Sizes | None,
        faults: list[LinkFault],
    ) -> None:
        self.plan, self.layout, self.digest, self.alone = plan, layout, digest, alone
        self.rail = plan.rail.astype(np.int64)
        self.faults, self.readmissions = faults, list[Readmission]()
        self.done, self.lacking = 0, set[int]()
        self.awaits: int | None = None
        self._rounds, self._stall_s = rounds, rounds.wiring.options.stall_s
        self._begun = time.perf_counter()
        self._stages, self._rows = stages(plan), rows_of(plan, rounds.group.rank)
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
            self._rounds.begin(self, self._stages.pop(0))

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._begun

    def moved(self, link: Link, rows: Ints, rails: Ints) -> None:
        """Chunks that go over other links than planned, because `link` is dead."""
        self.rail[rows] = rails
        for i, fault in reversed(list(enumerate(self.faults))):
            if (fault.peer, fault.rail) == (link.peer, link.rail):
                self.faults[i] = replace(fault, moved=fault.moved + len(rows))
                return

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
        for region in self._rounds.wiring.recv:
            region.store()
        self._report = self._reported(self._rows, self._times())
        self._rounds.running = None

    def so_far(self) -> Report:
        """What a run that failed had seen: its events and the links that are dead, no bytes."""
        return replace(self._reported(self._rows[:0], {}), rails=(), failed=True)

    def _reported(self, rows: Ints, times: Mapping[Place, tuple[float, float]]) -> Report:
        """The report of a run in which these chunks were sent."""
        wiring, rail, size = self._rounds.wiring, self.rail[rows], self.plan.chunks.size[rows]
        links, rank = wiring.by_place.values(), self._rounds.group.rank
        places = {(rank, link.peer, link.rail) for link in links}
        living = {(rank, link.peer, link.rail) for link in links if link.alive}
        dead = {place[2] for place in places} - {place[2] for place in living}
        events = tuple(self.faults), tuple(self.readmissions)
        return Report(
            "verbs",
            self.plan.policy,
            int(size.sum()),
            len(rows),
            self.seconds,
            rail_reports([r.device.name for r in wiring.rails], rail, size, dead),
            None,
            *events,
            link_reports(self.plan, rows, rail, times, events, places - living),
        )

    def _times(self) -> dict[Place, tuple[float, float]]:
        """First post and last completion of the links that were used, since the run began."""
        begun, rank = self._begun, self._rounds.group.rank
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
