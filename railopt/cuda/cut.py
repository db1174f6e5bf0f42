"""A node's flows cut into chunks on the device: where each flow's chunks begin, and their columns.

Flow i of a node goes from its GPU i // ranks to GPU i % ranks of the fabric; its chunks stand
together, in order, all of `cap` bytes but the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, int64

from railopt.arrays import Array
from railopt.cuda.block import prefix_sums

__all__ = [
    "AT_ONCE",
    "CAPACITY",
    "NEGATIVE",
    "UNJOINED",
    "Made",
    "Shape",
    "Work",
    "cutter",
    "describer",
]

AT_ONCE = 4  # chunks that a thread describes at once

# what `Made.status` says of a node
CAPACITY, NEGATIVE, UNJOINED = 1, 2, 3


class Shape(NamedTuple):
    """What a kernel is compiled for.  capacity: chunks that a node's columns hold."""

    nodes: int
    gpus: int
    rails: int
    cap: int
    capacity: int
    threads: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus

    @property
    def flows(self) -> int:
        return self.gpus * self.ranks


class Made(NamedTuple):
    """What a kernel makes for S senders, on the device; a row's chunks are its first `count`.

    src_gpu, dst_gpu   int32 [S, capacity], GPU ids
    offset, size       int64 [S, capacity], bytes
    rail               int16 [S, capacity]
    count, status      int32 [S]; where a status is not 0 the count is
    """

    src_gpu: Array
    dst_gpu: Array
    offset: Array
    size: Array
    rail: Array
    count: Any
    status: Any


class Work(NamedTuple):
    """A kernel's own memory on the device, int32 unless said.

    base     [S, flows + 1]: the first chunk of each flow, and how many there are
    turn     [S, flows + 1]: the same of the chunks that take the rails in turn
    order    [S, flows]: flows, what remains of them largest first
    keys     int64 [S, flows + 8]: what is sorted where 32 bits don't hold it
    left     [S, nodes + 1]: before each pair, the largest chunks that whole rounds leave
    slot     [S, nodes * rails]: which they are; got: their rails
    excess   [S, 2, flows, 6]: of `even_excess`, by flow and then in order
    """

    base: Array
    turn: Array
    order: Array
    keys: Array
    left: Array
    slot: Array
    got: Array
    excess: Array


@cache
def cutter(shape: Shape) -> Callable[..., Any]:
    """A device function `(counts, joined, k, work, made, space) -> how many chunks`, -1 where
    there is something wrong with the counts; it fills `work.base`.

    counts   int64 [S, flows], bytes      joined   bool [S, nodes]: who can be sent to
    space    of `prefix_sums`
    """
    threads, flows, ranks, gpus = shape.threads, shape.flows, shape.ranks, shape.gpus
    cap, capacity = shape.cap, shape.capacity
    sums = prefix_sums(threads)

    @cuda.jit(device=True)
    def run(counts: Any, joined: Any, k: int, work: Work, made: Made, space: Any) -> int:
        b, t, wrong = cuda.blockIdx.x, cuda.threadIdx.x, 0
        base = work.base[b]
        for i in range(t, flows, threads):
            flow, f, pieces = counts[b, i], i % ranks // gpus, 0
            if f != k and flow != 0:
                pieces = (flow - 1) // cap + 1
                if pieces > capacity:
                    wrong, pieces = max(wrong, CAPACITY), 0
                if flow < 0:
                    wrong = max(wrong, NEGATIVE)
                elif not joined[b, f]:
                    wrong = max(wrong, UNJOINED)
            base[i] = pieces
        if t == 0:
            made.status[b] = 0
        count = -1
        if cuda.syncthreads_or(wrong):
            if wrong:
                cuda.atomic.max(made.status, b, wrong)
        else:
            count = sums(base, flows, space)
            if count > capacity:
                count = -1
                if t == 0:
                    made.status[b] = CAPACITY
        if t == 0:
            base[flows] = count
            made.count[b] = max(count, 0)
        cuda.syncthreads()
        return count

    return run


@cache
def describer(shape: Shape) -> Callable[..., Any]:
    """A device function `(counts, k, base, made, chunks, flows)` that writes the columns, rails
    left out, of `AT_ONCE` chunks, and into `flows` whose they are; a chunk of -1 is none.

    base     the node's row of `Work.base`, or a copy
    chunks, flows   local int32 [AT_ONCE]: looked up at once, so that none waits for another
    """
    count, ranks, gpus, cap = shape.flows, shape.ranks, shape.gpus, shape.cap
    steps = (count - 1).bit_length()

    @cuda.jit(device=True)
    def run(counts: Any, k: int, base: Any, made: Made, chunks: Any, flows: Any) -> None:
        b = cuda.blockIdx.x
        for j in range(AT_ONCE):
            flows[j] = 0
        for step in range(steps):  # the last flow that begins at the chunk or before
            half = 1 << (steps - 1 - step)
            for j in range(AT_ONCE):
                at = flows[j] + half
                if (at < count) & (base[min(at, count - 1)] <= chunks[j]):
                    flows[j] = at
        for j in range(AT_ONCE):
            c, i = chunks[j], flows[j]
            if c >= 0:
                offset = int64(c - base[i]) * cap
                made.src_gpu[b, c] = k * gpus + i // ranks
                made.dst_gpu[b, c] = i % ranks
                made.offset[b, c] = offset
                made.size[b, c] = min(counts[b, i] - offset, cap)

    return run
