"""The kernel of `rotate` for equal rails: the chunks of each (sender, receiver) in turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cuda, int32

from railopt.cuda.block import prefix_sums
from railopt.cuda.cut import AT_ONCE, Made, Shape, Work, cutter, describer

__all__ = ["by_pair", "rotate"]


@cache
def by_pair(shape: Shape) -> Callable[..., Any]:
    """A device function `flow -> its place`, where flows for one node stand together, in order."""
    ranks, gpus = shape.ranks, shape.gpus

    @cuda.jit(device=True)
    def run(i: int) -> int:
        g, h = i // ranks, i % ranks
        return (h // gpus * gpus + g) * gpus + h % gpus

    return run


@cache
def rotate(shape: Shape) -> Callable[..., Any]:
    """From rail (src + dst) mod N on."""
    threads, flows, ranks, gpus = shape.threads, shape.flows, shape.ranks, shape.gpus
    rails, pair = shape.rails, shape.gpus * shape.gpus
    cut, describe, sums, place = (
        cutter(shape),
        describer(shape),
        prefix_sums(threads),
        by_pair(shape),
    )

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made) -> None:
        space = cuda.shared.array((2, threads), int32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, turn = first + b, work.turn[b]
        base = cuda.shared.array(flows, int32)  # a copy: it is searched for every chunk
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        for i in range(t, flows, threads):
            base[i] = work.base[b, i]
            turn[place(i)] = work.base[b, i + 1] - base[i]
        cuda.syncthreads()
        sums(turn, flows, space)
        chunks, whose = cuda.local.array(AT_ONCE, int32), cuda.local.array(AT_ONCE, int32)
        for begin in range(t, count, AT_ONCE * threads):
            for j in range(AT_ONCE):
                chunks[j] = begin + j * threads if begin + j * threads < count else -1
            describe(counts, k, base, made, chunks, whose)
            for j in range(AT_ONCE):
                c, i = chunks[j], whose[j]
                f = i % ranks // gpus
                nth = turn[place(i)] - turn[f * pair] + c - base[i]
                if c >= 0:
                    made.rail[b, c] = (k + f + nth) % rails

    return kernel
