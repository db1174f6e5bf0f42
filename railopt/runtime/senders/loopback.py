"""The loopback sender: all nodes of the plan in this process, real buffers, one worker thread per
rail.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import MUCH, Array, Floats, Ints, groups, require_type
from railopt.base.errors import InputError, say
from railopt.base.units import format_bytes
from railopt.model.plan import Plan
from railopt.runtime.payload import pattern
from railopt.runtime.payload.layout import Layout, stages
from railopt.runtime.payload.pattern import Payloads
from railopt.runtime.payload.staging import Staging
from railopt.runtime.senders.config import SenderConfig
from railopt.runtime.senders.protocol import Carrier
from railopt.runtime.senders.report import Place, Report, link_reports, rail_reports


class Loopback:
    """Moves a plan's bytes between buffers of its own, of which it fills the send side with a
    pattern and verifies every payload on the receive side. With `stage` it carries out the plan's
    copies inside nodes too.
    """

    name = "loopback"

    def __init__(self, *, verify: bool = True, stage: bool = False) -> None:
        self._verify, self._stage, self._round = verify, stage, 0
        self._last: LoopbackRun | None = None
        self._kept: dict[str, list[Array]] = {}

    def run(self, plan: Plan) -> LoopbackRun:
        """Start the rails' threads on a plan, one at a time."""
        require_type(plan, Plan, "plan", "a Plan")
        if self._last is not None and not self._last.poll():
            raise InputError("the last run is not done: wait for it before the next one")
        self._round += 1
        self._say_much(plan)
        chunks, seed = plan.chunks, np.uint64(self._round)
        layout, keys = Layout.packed(chunks), np.arange(len(chunks), dtype=np.uint64)
        send = self._allocated("send", layout.send_bytes)
        recv = self._allocated("recv", layout.recv_bytes)
        source = Payloads(send, chunks.src.astype(np.int64), layout.send_offset, chunks.size)
        target = Payloads(recv, chunks.dst.astype(np.int64), layout.recv_offset, chunks.size)
        source.fill(keys, seed)

        def wrong() -> int | None:
            return int(target.wrong(keys, seed).sum()) if self._verify else None

        ways = ChunkPlaces(source, target, source, target)
        if self._stage:
            ways = self._staged(plan, layout, source, target)
        self._last = LoopbackRun(plan, ways, wrong)
        return self._last

    def _say_much(self, plan: Plan) -> None:
        """Say before it begins that a run takes much memory: each byte is in two buffers, in four
        where it is staged.
        """
        taken = plan.chunks.total * (4 if self._stage else 2)
        if taken > MUCH:
            say(f"loopback: {len(plan.chunks)} chunks take about {taken / 1e9:.1f} GB of buffers")

    def _staged(
        self, plan: Plan, layout: Layout, source: Payloads, target: Payloads
    ) -> ChunkPlaces:
        """Places on the way: in staging buffers where the plan copies inside a node."""
        staged = Staging.of(plan, layout).layout
        first, last = (
            place._replace(
                memory=[*place.memory, *self._allocated(side, sizes)],
                number=place.number + plan.fabric.nodes * buffer,
            )
            for place, side, sizes, buffer in (
                (source, "staged send", layout.send_bytes, staged.send_buffer),
                (target, "staged recv", layout.recv_bytes, staged.recv_buffer),
            )
        )
        return ChunkPlaces(source, target, first, last)

    def _allocated(self, side: str, sizes: Ints) -> list[Array]:
        """Buffers, one per node, kept from run to run while they are large enough; touched, so that
        no page is missing.
        """
        kept = self._kept.get(side, [])
        if len(kept) != len(sizes) or any(
            len(memory) < size for memory, size in zip(kept, sizes[:, 0].tolist(), strict=True)
        ):
            _check_memory(int(sizes.sum()))
            kept = [np.full(size, 0xEE, np.uint8) for size in sizes[:, 0].tolist()]
            self._kept[side] = kept
        return kept


@contextmanager
def opened(config: SenderConfig) -> Iterator[Carrier]:
    """A carrier with buffers of its own."""
    yield Carrier(Loopback(verify=config.verify, stage=config.stage), config.seen)


class ChunkPlaces(NamedTuple):
    """Where every chunk lies: in its sender's and its receiver's buffer, and where its rail takes
    it from and puts it, which differ where it is copied inside a node.
    """

    source: Payloads
    target: Payloads
    first: Payloads
    last: Payloads


class LoopbackRun:
    """A plan under way: one thread per rail, stage after stage."""

    def __init__(self, plan: Plan, ways: ChunkPlaces, wrong: Callable[[], int | None]) -> None:
        self._plan, self._ways, self._wrong = plan, ways, wrong
        self._times: dict[Place, tuple[float, float]] = {}
        self._error: BaseException | None = None
        self._report: Report | None = None
        self._thread = threading.Thread(target=self._carry, name="railopt-loopback", daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        try:
            self._begun = time.perf_counter()
            ways = self._ways
            self._inside(ways.source, ways.first)
            for stage in stages(self._plan):
                self._stage(stage)
            self._inside(ways.last, ways.target)
            plan, seconds = self._plan, time.perf_counter() - self._begun
            wrong = self._wrong()
            every = np.arange(len(plan.chunks))
            self._report = Report(
                "loopback",
                plan.policy,
                plan.chunks.total,
                len(plan.chunks),
                seconds,
                rail_reports(["memory"] * plan.fabric.rails, plan.rail, plan.chunks.size),
                wrong,
                links=link_reports(plan, every, plan.rail, self._times),
            )
        except BaseException as error:  # handed to whoever waits
            self._error = error

    def _stage(self, stage: int | None) -> None:
        rails = range(self._plan.fabric.rails)
        now = np.True_ if stage is None else self._plan.stage == stage
        rows = [np.flatnonzero((self._plan.rail == rail) & now) for rail in rails]
        with ThreadPoolExecutor(len(rails), "railopt-rail") as pool:
            list(pool.map(self._copy, rails, rows))  # and raise what went wrong on a rail

    def _inside(self, source: Payloads, target: Payloads) -> None:
        """Copies inside nodes, of chunks that are not in their place."""
        _carried(source, target, np.flatnonzero(source.number != target.number))

    def _copy(self, rail: int, rows: Ints) -> None:
        """Copy one rail's chunks, link after link, the chunks of a link in the plan's order. Links
        of a NIC share it: each is said to take as long as the busier of its NICs is copied for.
        """
        chunks = self._plan.chunks
        begin = time.perf_counter() - self._begun
        links, own = _carried(self._ways.first, self._ways.last, rows)
        node, peer = chunks.src[links], chunks.dst[links]
        busy = np.maximum(np.bincount(node, own)[node], np.bincount(peer, own)[peer])
        last = np.minimum(begin + busy, time.perf_counter() - self._begun)  # sums may round up
        for src, dst, end in zip(node.tolist(), peer.tolist(), last.tolist(), strict=True):
            before = self._times.get((src, dst, rail), (begin, end))
            self._times[src, dst, rail] = before[0], end

    def poll(self) -> bool:
        """Whether the run is done."""
        return not self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the loopback run is not done after {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report


def _carried(source: Payloads, target: Payloads, rows: Ints) -> tuple[Ints, Floats]:
    """Copy chunks, all those between the same two buffers together and in their order: the first of
    each such group, and the seconds that it took.
    """
    pair = source.number[rows] * len(target.memory) + target.number[rows]
    order, bounds = groups(pair)
    rows = rows[order]
    columns = source.offset[rows], target.offset[rows], source.size[rows]
    stamps = [time.perf_counter()]
    for start, stop in pairwise(bounds.tolist()):
        at, to, size = (column[start:stop] for column in columns)
        taken, put = source.number[rows[start]], target.number[rows[start]]
        pattern.copy_chunks(source.memory[taken], at, target.memory[put], to, size)
        stamps.append(time.perf_counter())
    return rows[bounds[:-1]], np.diff(stamps)


def _check_memory(needed: int) -> None:
    """Refuse what would drive the machine out of memory, where it says how much it has."""
    try:
        meminfo = Path("/proc/meminfo").read_text()
    except OSError:
        return
    match = re.search(r"MemAvailable:\s*(\d+) kB", meminfo)
    if match and needed > int(match[1]) * 1024:
        raise InputError(
            f"loopback needs {format_bytes(needed)} more memory for this plan, "
            f"{format_bytes(int(match[1]) * 1024)} are available: plan less traffic"
        )
