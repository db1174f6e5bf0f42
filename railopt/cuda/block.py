"""What the threads of a block do together: prefix sums and a sort."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cuda, int32, int64, uint32

__all__ = ["prefix_sums", "sorter"]

_RUN_BITS = 5
RUN = 1 << _RUN_BITS  # keys that are ranked by looking at all of them


@cache
def prefix_sums(threads: int) -> Callable[..., Any]:
    """A device function `(values, count, space) -> total`: `values[:count]` become the sums of what
    stood before each; all `threads` of the block call it, and the total is below 2**31.

    space   shared int32 [2, threads]
    """
    steps = (threads - 1).bit_length()

    @cuda.jit(device=True)
    def run(values: Any, count: int, space: Any) -> int:
        t = cuda.threadIdx.x
        each = (count + threads - 1) // threads
        begin, end = min(t * each, count), min((t + 1) * each, count)
        own = 0
        for i in range(begin, end):
            own += values[i]
        space[0, t] = own
        cuda.syncthreads()
        now = 0
        for step in range(steps):
            reached = space[now, t]
            if t >= 1 << step:
                reached += space[now, t - (1 << step)]
            now = 1 - now
            space[now, t] = reached
            cuda.syncthreads()
        before, total = space[now, t] - own, int64(space[now, threads - 1])
        for i in range(begin, end):
            value = values[i]
            values[i] = before
            before += value
        cuda.syncthreads()
        return total

    return run


@cache
def sorter(count: int, threads: int, kind: Any) -> Callable[..., Any]:
    """A device function that sorts `keys[:count]` of type `kind`, all different, in place: runs of
    `RUN` keys by rank, then pairs of runs merged, each key looked up in the other run.
    """
    each, last = -(-count // threads), int32(count - 1)

    @cuda.jit(device=True)
    def run(keys: Any) -> None:
        key, place = cuda.local.array(each, kind), cuda.local.array(each, int32)
        other = cuda.local.array(each, int32)
        t = cuda.threadIdx.x
        for j in range(each):
            i = t + j * threads
            if i < count:
                first = i // RUN * RUN
                key[j], place[j] = keys[i], first
                for beside in range(first, min(first + RUN, count)):
                    place[j] += keys[beside] < key[j]
        bits = _RUN_BITS
        while True:
            cuda.syncthreads()
            for j in range(each):
                if t + j * threads < count:
                    keys[place[j]] = key[j]
            cuda.syncthreads()
            width = 1 << bits
            if width >= count:
                return
            for j in range(each):
                key[j] = keys[min(t + j * threads, count - 1)]
                place[j] = 0
                other[j] = ((t + j * threads) >> bits ^ 1) << bits
            half = width
            while half > 0:  # all of a thread's keys are looked up at once: none waits for another
                for j in range(each):
                    reached = int32(place[j] + half)
                    at = int32(other[j] + reached - 1)
                    less = keys[uint32(min(at, last))] < key[j]
                    if less & (reached <= width) & (at <= last):
                        place[j] = reached
                half >>= 1
            for j in range(each):
                i = t + j * threads
                place[j] += i - width if i >> bits & 1 else i
            bits += 1

    return run
