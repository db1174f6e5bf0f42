"""A run of the verbs sender: the handle that is polled or waited for."""

from __future__ import annotations

import math
import time

from railopt.runtime.payload.layout import rows_of, stages
from railopt.runtime.rendezvous.wire import PeerLost
from railopt.runtime.senders.exchange import Exchange, Transfer
from railopt.runtime.senders.report import Place, RailReport, Report, link_reports

# poll this long without a pause; then nap between polls, longer the longer nothing happens
SPIN_S = 0.0005
NAPS_S = 0.0001, 0.002


class VerbsRun:
    """A run under way, stage after stage; without progress for `stall_s` it is given up."""

    def __init__(self, exchange: Exchange, transfer: Transfer, stall_s: float) -> None:
        self._exchange, self._transfer, self._stall_s = exchange, transfer, stall_s
        self._stages = stages(transfer.plan)
        self._rows = rows_of(transfer.plan, exchange.group.rank)
        self._checked = -1
        self._report: Report | None = None
        for link in exchange.wiring.by_place.values():
            link.first = link.last = 0.0
        self._next_stage()

    def _next_stage(self) -> None:
        self._checked = -1
        with self._exchange.lock:
            self._exchange.begin(self._transfer, self._stages.pop(0))

    def poll(self) -> bool:
        """One step; whether the run is done."""
        if self._report is None:
            self._step()
        return self._report is not None

    def _step(self) -> bool:
        exchange = self._exchange
        try:
            busy = exchange.step()
            with exchange.lock:
                changed = busy or exchange.activity != self._checked
                self._checked = exchange.activity
                if changed and exchange.complete():
                    if self._stages:
                        self._next_stage()
                    else:
                        self._finish()
                    return True
        except BaseException as error:
            exchange.give_up(error)
            raise
        return busy

    def _finish(self) -> None:
        exchange, run, rows = self._exchange, self._transfer, self._rows
        rail, size = run.rail[rows], run.plan.chunks.size[rows]
        dead = {link.rail for link in exchange.wiring.by_place.values() if not link.alive}
        rails = tuple(
            RailReport(
                n, r.device.name, int(size[rail == n].sum()), int((rail == n).sum()), n not in dead
            )
            for n, r in enumerate(exchange.wiring.rails)
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
        exchange.running = None

    def _times(self) -> dict[Place, tuple[float, float]]:
        """First post and last completion of the links that were used, since the run began."""
        begun, rank = self._transfer.begun, self._exchange.group.rank
        found: dict[Place, tuple[float, float]] = {}
        for link in self._exchange.wiring.by_place.values():
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
        rank, links = self._exchange.group.rank, self._exchange.wiring.by_place.values()
        alive = {(rank, link.peer, link.rail) for link in links if link.alive}
        return {(rank, link.peer, link.rail) for link in links} - alive

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done; a run without progress for `stall_s` is given up, naming who was
        waited for.
        """
        start = last = time.monotonic()
        activity = self._exchange.activity
        while self._report is None:
            if self._step() or self._exchange.activity != activity:
                activity, last = self._exchange.activity, time.monotonic()
                continue
            now = time.monotonic()
            if timeout_s is not None and now - start > timeout_s:
                raise TimeoutError(f"the run is not done after {timeout_s:g} s")
            if now - last > self._stall_s:
                self._give_up()
            if now - last > SPIN_S:
                time.sleep(min(max(NAPS_S[0], (now - last) / 8), NAPS_S[1]))
        return self._report

    def _give_up(self) -> None:
        error = PeerLost(
            f"no progress for {self._stall_s:g} s; waiting for {self._exchange.waiting_for()}"
        )
        self._exchange.give_up(error)
        raise error
