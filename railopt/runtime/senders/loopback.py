"""The loopback sender: all nodes of the plan in this process, real buffers, one worker thread per
rail.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import MUCH, Ints, by_key, require_type
from railopt.base.errors import InputError, say
from railopt.base.units import format_bytes
from railopt.model.plan import Plan
from railopt.runtime.payload import pattern
from railopt.runtime.payload.layout import Layout, stages
from railopt.runtime.payload.memory import Memory, memory_of, refuse_overlap
from railopt.runtime.payload.staging import Staging
from railopt.runtime.senders.carrier import Carrier
from railopt.runtime.senders.config import SenderConfig
from railopt.runtime.senders.report import Place, Report, link_reports, rail_reports

CHUNK_S, LONG_S = 75e-6, 60  # CPU seconds of a chunk that is filled, copied and compared; many


class Loopback:
    """Moves a plan's bytes between buffers of this process.

    Without buffers it allocates them, fills the send side with a pattern and verifies every payload
    on the receive side. With `send` and `recv` (one buffer per node) it moves the user's bytes and
    compares checksums of both sides. With `stage` it carries out the plan's copies inside nodes
    too, through buffers of its own.
    """

    name = "loopback"

    def __init__(
        self,
        send: Sequence[Any] | None = None,
        recv: Sequence[Any] | None = None,
        *,
        verify: bool = True,
        stage: bool = False,
    ) -> None:
        if (send is None) != (recv is None):
            raise InputError("give both send and recv buffers, or neither")
        self._send = None if send is None else [memory_of(b, writable=False) for b in send]
        self._recv = None if recv is None else [memory_of(b, writable=True) for b in recv]
        if any(memory.cuda for memory in (*(self._send or ()), *(self._recv or ()))):
            raise InputError("loopback copies with the CPU, which can't reach memory of a GPU")
        self._verify, self._stage, self._round = verify, stage, 0
        self._last: LoopbackRun | None = None
        self._own: dict[str, list[Memory]] = {}

    def run(self, plan: Plan) -> LoopbackRun:
        """Start the rails' threads on a plan, one at a time."""
        require_type(plan, Plan, "plan", "a Plan")
        if self._last is not None and not self._last.poll():
            raise InputError("the last run is not done: wait for it before the next one")
        self._round += 1
        layout = Layout.packed(plan.chunks)
        own = self._send is None
        if own:
            self._say_much(plan)
        send = self._send if self._send is not None else self._allocated("send", layout.send_bytes)
        recv = self._recv if self._recv is not None else self._allocated("recv", layout.recv_bytes)
        _check_size("send", send, layout.send_bytes)
        _check_size("recv", recv, layout.recv_bytes)
        refuse_overlap(send, recv)
        source = _addresses(send)[plan.chunks.src] + layout.send_offset
        target = _addresses(recv)[plan.chunks.dst] + layout.recv_offset
        seed = np.uint64(self._round)
        keys = np.arange(len(plan.chunks), dtype=np.uint64)
        if own:
            pattern.fill_pattern(source, plan.chunks.size, keys, seed)

        def wrong() -> int | None:
            if not self._verify:
                return None
            if own:
                return int(
                    pattern.wrong_chunks(
                        target, plan.chunks.size, keys, seed, np.empty(len(keys), np.bool_)
                    )
                )
            return _checksum_wrong(plan, source, target)

        ways = ChunkAddresses(source, target, source, target)
        if self._stage:
            ways = self._staged(plan, layout, source, target)
        self._last = LoopbackRun(plan, ways, wrong, keep=(send, recv, dict(self._own)))
        return self._last

    def _say_much(self, plan: Plan) -> None:
        """Say before it begins that a run takes long or much memory: each byte is in two buffers,
        in four where it is staged.
        """
        chunks, copies = plan.chunks, 4 if self._stage else 2
        seconds, taken = len(chunks) * CHUNK_S * self._verify, chunks.total * copies
        if seconds > LONG_S or taken > MUCH:
            say(
                f"loopback: {len(chunks)} chunks take about {taken / 1e9:.1f} GB of buffers and "
                f"{seconds:.0f} s of CPU per run"
            )

    def _staged(self, plan: Plan, layout: Layout, source: Ints, target: Ints) -> ChunkAddresses:
        """Addresses on the way: in staging buffers where the plan copies inside a node."""
        staging = Staging.of(plan, layout)
        first, last = source.copy(), target.copy()
        for side, rows, address, node, offset in (
            ("send", staging.before, first, plan.chunks.src, layout.send_offset),
            ("recv", staging.after, last, plan.chunks.dst, layout.recv_offset),
        ):
            sizes = layout.send_bytes if side == "send" else layout.recv_bytes
            base = _addresses(self._allocated(f"staged {side}", sizes))
            address[rows] = base[node[rows]] + offset[rows]
        return ChunkAddresses(source, target, first, last)

    def _allocated(self, side: str, sizes: Ints) -> list[Memory]:
        """Own buffers, one per node, kept from run to run while they are large enough; touched, so
        that no page is missing.
        """
        kept = self._own.get(side, [])
        if len(kept) != len(sizes) or any(
            m.length < n for m, n in zip(kept, sizes[:, 0].tolist(), strict=True)
        ):
            _check_memory(int(sizes.sum()))
            kept = [
                memory_of(np.full(int(size), 0xEE, np.uint8), writable=True) for size in sizes[:, 0]
            ]
            self._own[side] = kept
        return kept


@contextmanager
def opened(config: SenderConfig) -> Iterator[Carrier]:
    """A carrier with buffers of its own."""
    yield Carrier(Loopback(verify=config.verify, stage=config.stage), config.seen)


class ChunkAddresses(NamedTuple):
    """Addresses of every chunk, int64 [C]: in its sender's and its receiver's buffer, and where its
    rail takes it from and puts it, which differ where it is copied inside a node.
    """

    source: Ints
    target: Ints
    first: Ints
    last: Ints


class LoopbackRun:
    """A plan under way: one thread per rail, stage after stage."""

    def __init__(self, plan: Plan, ways: ChunkAddresses, wrong: Any, keep: Any) -> None:
        self._plan, self._ways, self._wrong, self._keep = plan, ways, wrong, keep
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
                rail_reports(plan, lambda n: "memory"),
                wrong,
                links=link_reports(plan, every, plan.rail.astype(np.int64), self._times),
            )
        except BaseException as error:  # handed to whoever waits
            self._error = error

    def _stage(self, stage: int | None) -> None:
        rails = range(self._plan.fabric.rails)
        now = np.True_ if stage is None else self._plan.stage == stage
        rows = [np.flatnonzero((self._plan.rail == rail) & now) for rail in rails]
        with ThreadPoolExecutor(len(rails), "railopt-rail") as pool:
            list(pool.map(self._copy, rails, rows))  # and raise what went wrong on a rail

    def _inside(self, source: Ints, target: Ints) -> None:
        """Copies inside nodes, of chunks that are not in their place."""
        rows = np.flatnonzero(source != target)
        if len(rows):
            pattern.copy_chunks(source[rows], target[rows], self._plan.chunks.size[rows])

    def _copy(self, rail: int, rows: Ints) -> None:
        """Copy one rail's chunks, link after link, the chunks of a link in the plan's order. Links
        of a NIC share it: each is said to take as long as the busier of its NICs is copied for.
        """
        if not len(rows):
            return
        chunks = self._plan.chunks
        pair = chunks.src[rows].astype(np.int64) * chunks.nodes + chunks.dst[rows]
        order = by_key(pair)
        rows = rows[order]
        columns = self._ways.first[rows], self._ways.last[rows], chunks.size[rows]
        pairs, first = np.unique(pair[order], return_index=True)
        ends = np.append(first[1:], len(rows)).tolist()
        stamps = [time.perf_counter()]
        for start, stop in zip(first.tolist(), ends, strict=True):
            pattern.copy_chunks(*(column[start:stop] for column in columns))
            stamps.append(time.perf_counter())
        begin, node, peer = stamps[0] - self._begun, pairs // chunks.nodes, pairs % chunks.nodes
        own = np.diff(stamps)
        busy = np.maximum(np.bincount(node, own)[node], np.bincount(peer, own)[peer])
        last = np.minimum(begin + busy, stamps[-1] - self._begun)  # sums of parts may round up
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


def _addresses(buffers: Sequence[Memory]) -> Ints:
    return np.array([b.address for b in buffers], np.int64)


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
            f"{format_bytes(int(match[1]) * 1024)} are "
            "available: plan less traffic, e.g. moe:tokens=512"
        )


def _check_size(side: str, buffers: Sequence[Memory], sizes: Ints) -> None:
    if len(buffers) != len(sizes):
        raise InputError(
            f"{len(buffers)} {side} buffers for a plan of {len(sizes)} nodes: expected one per node"
        )
    for node, (buffer, size) in enumerate(zip(buffers, sizes[:, 0].tolist(), strict=True)):
        if buffer.length < size:
            raise InputError(
                f"node {node}'s {side} buffer has {buffer.length} bytes, the plan needs {size}"
            )


def _checksum_wrong(plan: Plan, source: Ints, target: Ints) -> int:
    """Chunks whose checksums differ between the two sides."""
    keys = np.arange(len(plan.chunks), dtype=np.uint64)
    sums = np.empty((2, len(keys)), np.uint64)
    for out, addresses in zip(sums, (source, target), strict=True):
        pattern.checksum_chunks(addresses, plan.chunks.size, keys, out)
    return int((sums[0] != sums[1]).sum())
