"""What Python costs on the data path, in CPU time, against a null driver; and the loopback sender
against a plain memory copy.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from railopt import Chunks, Fabric, Plan
from railopt.runtime.senders.loopback import Loopback
from railopt.runtime.senders.one_node import RowSender
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.engine import Engine, Link, LinkJob
from railopt.runtime.verbs.objects import Cq, Mr, Patience, Pd, Qp, open_device
from railopt.runtime.verbs.rails import Options
from railopt.runtime.verbs.work import WriteRing, Writes, work_id
from tests.bench import Row, best, in_steps, in_turns, judged_once, plain_steps
from tests.contract.sender_world import World
from tests.doubles.null_verbs import Q_RECVS, NullLibrary


class _Silent:
    def on_immediate(self, link: Link, value: int) -> None: ...

    def on_fault(self, link: Link, status: int, error: int) -> None:
        raise RuntimeError((status, error))


def _world(rails: int, peers: int) -> tuple[NullLibrary, list[Cq], list[Qp], int]:
    """Queue pairs to `peers` on each of `rails` null devices that carry nothing out."""
    lib = NullLibrary([f"{side}{i}" for side in "np" for i in range(rails)], copy=False)
    memory = np.zeros(4096, np.uint8)
    cqs, qps, key = [], [], 0
    for rail in range(rails):
        here, there = open_device(lib, f"n{rail}"), open_device(lib, f"p{rail}")
        cq, sink = Cq(here, 1 << 15), Cq(there, 1 << 15)
        pd, far = Pd(here), Pd(there)
        key = Mr(far, memory.ctypes.data, 4096, memory).rkey
        cqs.append(cq)
        for _ in range(peers):
            qp, other = Qp(pd, cq, 1 << 12, 32), Qp(far, sink, 1 << 12, 32)
            qp.connect(other.number, other.psn, here.address(), there.address(), Patience())
            other.connect(qp.number, qp.psn, there.address(), here.address(), Patience())
            lib.word(other.pointer, Q_RECVS).value = 1 << 60  # receives without end
            qps.append(qp)
    return lib, cqs, qps, key


def _writes(count: int) -> Writes:
    wide, narrow = np.zeros(count, np.uint64), np.zeros(count, np.uint32)
    return Writes(wide, wide, narrow, narrow, narrow)


def rows() -> Iterator[Row]:
    lib, (cq,), (qp,), _ = _world(1, 1)
    for batch in (16, 64, 256):
        ring, writes = WriteRing(qp, 4, batch, work_id(0, 0)), _writes(4 * batch)

        def post(ring: WriteRing = ring, writes: Writes = writes, batch: int = batch) -> None:
            for i in range(200):
                ring.post(i % 4, writes, i % 4 * batch)

        def drain() -> None:
            while cq.poll():
                pass

        seconds = min(_then(post, drain) for _ in range(40)) / (200 * batch)
        name = f"refill and post, {batch} requests a list, a request"
        goal = 0.05e-6 if batch == 256 else None
        yield from judged_once(name, seconds, "us", goal, "null driver included")
    empty = best(lambda: [cq.poll() for _ in range(1000)], repeats=40, cpu=True) / 1000
    yield from judged_once("poll an empty completion queue, a call", empty, "us", 1.5e-6)
    del lib
    yield from _sweeps()
    for nodes in (8, 64):
        yield from _local_runs(nodes)
    yield from _loopback()


def _then(call: Callable[[], None], after: Callable[[], None]) -> float:
    """CPU seconds of one call; what follows is not timed."""
    start = time.process_time()
    call()
    took = time.process_time() - start
    after()
    return took


def _sweeps() -> Iterator[Row]:
    """8 rails x 7 peers, 1024 requests a link: the whole engine, from jobs given to all completions
    taken.
    """
    lib, cqs, qps, key = _world(8, 7)
    engine = Engine(cqs, _Silent())
    for i, qp in enumerate(qps):
        link = Link(i, i % 7, i // 7, qp, depth=512, batch=64, remote=0, rkey=key)
        link.open = True
        engine.links.append(link)
    writes, chunks = _writes(1024), np.zeros(1024, np.int64)

    def carry() -> None:
        for link in engine.links:
            engine.give(link, LinkJob(writes, chunks, 0))
        while any(link.unfinished for link in engine.links):
            engine.sweep()

    total = len(qps) * 1024
    yield Row(
        "engine, 8 rails x 7 peers, lists of 64",
        best(carry, repeats=15, cpu=True) / total * 1e6,
        "us/WR",
    )
    for _ in range(3):
        carry()
    before = sys.getallocatedblocks()
    for _ in range(10):
        carry()
    yield Row(
        "blocks still allocated after ten such rounds",
        sys.getallocatedblocks() - before,
        "blocks",
        8,
        note="the counter itself and the loop's last integers",
    )
    del lib


def _local_runs(nodes: int) -> Iterator[Row]:
    """Rows with one chunk per pair of GPUs, 8 rails, each node planning alone: ranks meet on
    localhost, and one thread plays them in turns, so that none waits for another.
    """
    fabric = Fabric.uniform(nodes, 8)
    given = np.random.default_rng(0).integers(1, 64, (nodes, 8, 8 * nodes))
    made: list[RowSender] = []
    met, over = threading.Barrier(nodes, timeout=300), threading.Event()
    took: list[tuple[float, float]] = []

    def once() -> None:
        begun = time.process_time()
        runs = [rows.run(given[rows.sender.group.rank]) for rows in made]
        while any(run.awaits is not None for run in runs):  # sizes are exchanged
            for run in runs:
                run.poll()
        sized = time.process_time() - begun
        while runs:
            runs = [run for run in runs if not run.poll()]
        took.append((sized / nodes, (time.process_time() - begun) / nodes))

    def work(sender: Verbs) -> None:
        made.append(RowSender(sender, fabric, "even-excess", "1GiB"))
        if met.wait() == 0:
            for _ in range(12 if nodes < 64 else 3):
                once()
            over.set()
        over.wait(300)

    begun = time.process_time()
    world = World(nodes, 8, Options(batch=4, depth=16), join_s=300, limit_s=600)
    failed = [result for result in world.run(work, 1 << 18) if result is not None]
    if failed:
        raise RuntimeError(failed[0])
    sized, done = np.median(took[2:], axis=0) * 1e3
    name, goal = f"{nodes} ranks x 8 GPUs, a row of one chunk per pair", 3 if nodes == 8 else None
    yield Row(f"{name}: planned, sizes exchanged, per rank", sized, "ms", goal, note="CPU time")
    yield Row(f"{name}: the whole run, per rank", done, "ms")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    setup = (time.process_time() - begun - sum(t for _, t in took) * nodes) / nodes
    yield Row(
        f"{name}: to meet, connect and part, a rank", setup, "s", note=f"peak {memory:.0f} MB"
    )


def _loopback() -> Iterator[Row]:
    """10,000 chunks of 256 bytes, verified, against one memory copy and one read of the same
    bytes.
    """
    count, size = 10_000, 256
    rng = np.random.default_rng(0)
    src = rng.integers(0, 8, count)
    chunks = Chunks.from_arrays(
        src=src, dst=(src + rng.integers(1, 8, count)) % 8, size=np.full(count, size), nodes=8
    )
    plan = Plan(Fabric.uniform(8, 8), chunks, (np.arange(count) % 8).astype(np.int16))
    sender = Loopback()

    def carry() -> None:
        report = sender.run(plan).wait()
        if report.wrong:
            raise RuntimeError(f"{report.wrong} chunks are wrong")

    source, target = np.ones(count * size, np.uint8), np.ones(count * size, np.uint8)
    copies, carried, loop = in_turns([partial(np.copyto, target, source), carry, plain_steps]).T
    beyond = (carried - copies) / count
    yield Row(
        "loopback, 10,000 chunks, pattern, moved and verified",
        carried.min(),
        "s",
        note=f"CPU time of all threads; memory copy alone {copies.min():.3f} s",
    )
    yield Row("loopback, a chunk beyond the memory copy", beyond.min() * 1e6, "us")
    yield in_steps(beyond, loop, 1e-6)
