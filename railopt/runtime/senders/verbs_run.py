"""A run of the verbs sender: the handle that is polled or waited for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from railopt.arrays import Ints
from railopt.plans import Plan
from railopt.runtime.payload.layout import Layout, rows_of, stages
from railopt.runtime.senders.protocol import Fault, PeerLost, RailReport, Report

if TYPE_CHECKING:
    from railopt.runtime.senders.verbs import Verbs

# poll this long without a pause; then nap between polls, longer the longer nothing happens
SPIN_S = 0.0005
NAPS_S = 0.0001, 0.002


class VerbsRun:
    """A run under way: poll or wait for it."""

    def __init__(self, sender: Verbs, plan: Plan, layout: Layout) -> None:
        self.sender, self.plan, self.layout = sender, plan, layout
        self.max_message = min(r.max_message for r in sender.rails)
        self.imm = 0
        self.begun = time.perf_counter()
        self._stages = stages(plan)
        self._rows = rows_of(plan, sender.group.rank)
        self.rail = plan.rail.astype(np.int64)
        self.faults: list[Fault] = []
        self._checked = -1
        self.report: Report | None = None

    def next_stage(self) -> None:
        """Begin the next stage."""
        self._checked = -1
        self.sender.begin(self, self._stages.pop(0))

    def moved(self, peer: int, rail: int, rows: Ints, rails: Ints) -> None:
        """Chunks that go over other rails than planned, because the rail to this peer is dead."""
        self.rail[rows] = rails
        for i, fault in enumerate(self.faults):
            if (fault.peer, fault.rail) == (peer, rail):
                self.faults[i] = replace(fault, moved=fault.moved + len(rows))

    def poll(self) -> bool:
        """One step; whether the run is done."""
        if self.report is None:
            self._step()
        return self.report is not None

    def _step(self) -> bool:
        sender = self.sender
        try:
            busy = sender.step()
            with sender.lock:
                changed = busy or sender.activity != self._checked
                self._checked = sender.activity
                if changed and sender.complete():
                    if self._stages:
                        self.next_stage()
                    else:
                        self._finish()
                    return True
        except BaseException as error:
            sender.running = None
            sender.group.abort(error)
            raise
        return busy

    def _finish(self) -> None:
        sender, rows = self.sender, self._rows
        rail, size = self.rail[rows], self.plan.chunks.size[rows]
        dead = {link.rail for link in sender.engine.links if not link.alive}
        rails = tuple(
            RailReport(
                n, r.device.name, int(size[rail == n].sum()), int((rail == n).sum()), n not in dead
            )
            for n, r in enumerate(sender.rails)
        )
        self.report = Report(
            "verbs",
            self.plan.policy,
            int(size.sum()),
            len(rows),
            time.perf_counter() - self.begun,
            rails,
            faults=tuple(self.faults),
        )
        sender.running = None

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done; a run without progress for `stall_s` is given up, naming who was
        waited for.
        """
        start = last = time.monotonic()
        activity = self.sender.activity
        while self.report is None:
            if self._step() or self.sender.activity != activity:
                activity, last = self.sender.activity, time.monotonic()
                continue
            now = time.monotonic()
            if timeout_s is not None and now - start > timeout_s:
                raise TimeoutError(f"the run is not done after {timeout_s:g} s")
            if now - last > self.sender.options.stall_s:
                self._give_up()
            if now - last > SPIN_S:
                time.sleep(min(max(NAPS_S[0], (now - last) / 8), NAPS_S[1]))
        return self.report

    def _give_up(self) -> None:
        sender = self.sender
        error = PeerLost(
            f"no progress for {sender.options.stall_s:g} s; waiting for {sender.waiting_for()}"
        )
        sender.running = None
        sender.group.abort(error)
        raise error
