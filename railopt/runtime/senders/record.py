"""The record sender: writes what the verbs sender would post, as a table, and moves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from railopt.base.errors import InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import MAX_MESSAGE, Layout, rows_of, stages, write_list
from railopt.runtime.senders.carrier import Carrier
from railopt.runtime.senders.config import SenderConfig, require_ranks
from railopt.runtime.senders.report import Report, rail_reports

COLUMNS = (
    "sender",
    "round",
    "node",
    "peer",
    "rail",
    "list",
    "opcode",
    "signaled",
    "chunk",
    "local_offset",
    "remote_offset",
    "length",
)


class Record:
    """Writes tab-separated rows, one a work request, in the order in which each queue pair would
    get them.

    `nodes` are those whose requests are wanted (all by default), `batch` and `max_message` as of
    the verbs sender.
    """

    name = "record"

    def __init__(
        self,
        out: TextIO,
        *,
        nodes: Sequence[int] | None = None,
        batch: int = 64,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        self._out, self._nodes, self._batch, self._max_message = out, nodes, batch, max_message
        self._round = 0
        out.write("\t".join(COLUMNS) + "\n")

    def run(self, plan: Plan) -> RecordRun:
        """Write the rows of one run."""
        nodes = range(plan.fabric.nodes) if self._nodes is None else self._nodes
        for node in nodes:
            if not 0 <= node < plan.fabric.nodes:
                raise InputError(f"node {node}: the plan has nodes 0 to {plan.fabric.nodes - 1}")
        layout = Layout.packed(plan.chunks)
        sent = np.concatenate([rows_of(plan, node) for node in nodes])
        for stage in stages(plan):
            self._round += 1
            for node in nodes:
                self._out.writelines(
                    "\t".join(row) + "\n" for row in self._rows(plan, layout, node, stage)
                )
        size = plan.chunks.size[sent]
        return RecordRun(
            Report(
                self.name,
                plan.policy,
                int(size.sum()),
                len(sent),
                0.0,
                rail_reports(plan, lambda n: "record", sent),
            )
        )

    def _rows(
        self, plan: Plan, layout: Layout, node: int, stage: int | None
    ) -> Iterator[tuple[str, ...]]:
        work = write_list(plan, layout, rows_of(plan, node, stage), max_message=self._max_message)
        for link, (peer, rail) in enumerate(
            zip(work.peer.tolist(), work.rail.tolist(), strict=True)
        ):
            start, stop = int(work.starts[link]), int(work.starts[link + 1])
            head = (self.name, str(self._round), str(node), str(peer), str(rail))
            columns = zip(
                work.chunk[start:stop].tolist(),
                work.local_offset[start:stop].tolist(),
                work.remote_offset[start:stop].tolist(),
                work.length[start:stop].tolist(),
                strict=True,
            )
            for index, (chunk, local, remote, length) in enumerate(columns):
                signaled = (index + 1) % self._batch == 0 or index + 1 == stop - start
                yield (
                    *head,
                    str(index // self._batch),
                    "RDMA_WRITE",
                    str(int(signaled)),
                    str(chunk),
                    str(local),
                    str(remote),
                    str(length),
                )
            yield (*head, "-", "RDMA_WRITE_WITH_IMM", "1", "-", "0", "0", "0")


@dataclass(frozen=True)
class RecordRun:
    """A run of Record, done when it starts."""

    report: Report

    def poll(self) -> bool:
        """True: it is done."""
        return True

    def wait(self, timeout_s: float | None = None) -> Report:
        """The report, at once."""
        return self.report


@contextmanager
def opened(config: SenderConfig) -> Iterator[Carrier]:
    """Writes to `config.out`: this rank's requests, or all nodes' without other ranks."""
    launch, options = config.launch, config.options
    if config.out is None:
        raise InputError("the record sender needs a file to write to")
    if launch.size > 1:
        require_ranks(config)
    sender = Record(
        config.out,
        nodes=None if launch.size == 1 else [launch.rank],
        batch=options.batch,
        max_message=options.max_message,
    )
    yield Carrier(sender, config.seen)
