"""The record sender: writes what the verbs sender would post, as a table, and moves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from railopt.base.errors import InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout, rows_of, stages, write_list
from railopt.runtime.senders.config import SenderConfig, require_ranks
from railopt.runtime.senders.protocol import Carrier
from railopt.runtime.senders.report import Report, rail_reports
from railopt.runtime.verbs.rails import Options

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

    `nodes` are those whose requests are wanted (all by default), `options` those of the verbs
    sender, of which `batch` and `max_message` act.
    """

    name = "record"

    def __init__(
        self,
        out: TextIO,
        *,
        nodes: Sequence[int] | None = None,
        options: Options | None = None,
    ) -> None:
        self._out, self._nodes, self._options = out, nodes, options or Options()
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
        size, devices = plan.chunks.size[sent], ["record"] * plan.fabric.rails
        rails = rail_reports(devices, plan.rail[sent], size)
        return RecordRun(Report(self.name, plan.policy, int(size.sum()), len(sent), 0.0, rails))

    def _rows(
        self, plan: Plan, layout: Layout, node: int, stage: int | None
    ) -> Iterator[tuple[str, ...]]:
        batch, largest = self._options.batch, self._options.max_message
        work = write_list(plan, layout, rows_of(plan, node, stage), max_message=largest)
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
                signaled = (index + 1) % batch == 0 or index + 1 == stop - start
                yield (
                    *head,
                    str(index // batch),
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
    launch = config.launch
    if config.out is None:
        raise InputError("the record sender needs a file to write to")
    if launch.size > 1:
        require_ranks(config)
    nodes = None if launch.size == 1 else [launch.rank]
    yield Carrier(Record(config.out, nodes=nodes, options=config.options), config.seen)
