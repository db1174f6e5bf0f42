"""The verbs sender with everything around a run: meeting the ranks, buffers, payloads, checks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from railopt.model.plan import Plan
from railopt.runtime.payload import verify
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.staging import Staging
from railopt.runtime.rendezvous.meet import meet
from railopt.runtime.senders.config import SenderConfig, require_ranks
from railopt.runtime.senders.protocol import Carrier
from railopt.runtime.senders.report import Report
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.devices import list_devices, rail_map

SHOWN = 5  # wrong chunks that are named


@contextmanager
def opened(config: SenderConfig) -> Iterator[Carrier]:
    """Meet the others, open this node's devices and register buffers, once for all plans."""
    require_ranks(config)
    launch = config.launch
    with meet(launch, config.run, config.meeting) as group:
        found = list_devices(gids=False)
        rails = rail_map(config.devices, found, config.options.port, config.rails)
        send, recv = (
            [np.zeros(int(side[launch.rank, 0]), np.uint8) for _ in range(1 + config.stage)]
            for side in (config.room.send_bytes, config.room.recv_bytes)
        )
        with Verbs(group, rails, send, recv, options=config.options) as sender:
            yield VerbsCarrier(sender, config)


class VerbsCarrier(Carrier):
    """Runs plans on all ranks at once. Every run has a pattern of its own, so that bytes of another
    run are wrong bytes.
    """

    def __init__(self, sender: Verbs, config: SenderConfig) -> None:
        super().__init__(sender, config.seen)
        self._verbs, self._config = sender, config
        self._round = 0
        self._plan: Plan | None = None
        self._layout: Layout | None = None
        self._staging: Staging | None = None

    def _carried(self, plan: Plan) -> Report:
        """Copies inside nodes count in the run's time."""
        sender, layout = self._verbs, self._layout_of(plan)
        self._round += 1
        if self._config.verify:
            verify.fill(plan, layout, sender.group.rank, sender.send, self._round)
        sender.group.allgather("start")
        report = self._run(plan, layout)
        self._say(report)
        return replace(report, wrong=self._wrong(plan, layout)) if self._config.verify else report

    def _run(self, plan: Plan, layout: Layout) -> Report:
        sender, staging, rank = self._verbs, self._staging, self._verbs.group.rank
        if staging is None:
            return self._wait(plan, layout)
        begun = time.perf_counter()
        staging.stage(plan, sender.send, rank)
        report = self._wait(plan, staging.layout)
        staging.pass_on(plan, sender.recv, rank)
        return replace(report, seconds=time.perf_counter() - begun)

    def _wait(self, plan: Plan, layout: Layout) -> Report:
        """Run, and report what was seen, also of a run that fails."""
        run = self._verbs.run(plan, layout)
        try:
            return run.wait()
        except BaseException:
            self._say(run.so_far())
            if self._seen is not None:
                self._seen(plan, run.so_far())
            raise

    def _say(self, report: Report) -> None:
        for event in (*report.readmissions, *report.faults):
            self._config.say(str(event))

    def _layout_of(self, plan: Plan) -> Layout:
        if self._layout is None or plan is not self._plan:
            self._plan, self._layout = plan, Layout.packed(plan.chunks)
            self._staging = Staging.of(plan, self._layout) if self._config.stage else None
        return self._layout

    def _wrong(self, plan: Plan, layout: Layout) -> int:
        """How many chunks of this node have wrong bytes."""
        sender, group = self._verbs, self._verbs.group
        wrong = verify.wrong(plan, layout, group.rank, sender.recv, self._round)
        for chunk in wrong[:SHOWN].tolist():
            self._config.say(
                f"chunk {chunk} from {group.names[plan.chunks.src[chunk]]} on rail "
                f"{plan.rail[chunk]} is wrong"
            )
        return len(wrong)

    def _gather(self, value: Any) -> list[Any]:
        return self._verbs.group.allgather(value)
