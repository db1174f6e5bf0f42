"""The kernel of `even-excess`, for any rails.

What stays on a GPU's own rails is decided for all destinations at once, since those do not touch
each other; what is left goes, in order, through one thread that keeps a destination's rails in
registers, while the others write the chunks' columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from numba import cuda, int32, int64

from railopt.arrays import Array
from railopt.cuda.block import prefix_sums
from railopt.cuda.cut import Made, Shape, Work, cutter, describer
from railopt.policies.even_rails import DEBT

__all__ = ["Nics", "even_excess"]

_WARP = 32


class Nics(NamedTuple):
    """tx int64 [S, rails], rx int64 [nodes, rails]: shares; near_rails, near_first: `near_lists`."""

    tx: Array
    rx: Array
    near_rails: Array
    near_first: Array


@lru_cache(maxsize=None)
def _due(shape: Shape) -> Callable[..., Any]:
    """A device function for all threads: `over` [nodes, rails] becomes minus the bytes that each
    rail should carry to a destination.  parts: shared int64 [nodes, gpus]
    """
    threads, nodes, gpus, rails, ranks = (
        shape.threads,
        shape.nodes,
        shape.gpus,
        shape.rails,
        shape.ranks,
    )

    @cuda.jit(device=True)
    def run(counts: Any, nics: Nics, k: int, over: Any, parts: Any) -> None:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        for i in range(t, nodes * gpus, threads):
            f, g, due = i // gpus, i % gpus, 0
            for j in range(gpus):
                due += counts[b, g * ranks + f * gpus + j]
            parts[f, g] = 0 if f == k else due
        cuda.syncthreads()
        for i in range(t, nodes * rails, threads):
            f, n, due, whole = i // rails, i % rails, 0, 0
            for g in range(gpus):
                due += parts[f, g]
            for other in range(rails):
                whole += min(nics.tx[b, other], nics.rx[f, other])
            share = min(nics.tx[b, n], nics.rx[f, n])
            over[f, n] = 0
            if due > 0:
                over[f, n] = -(due // whole * share + due % whole * share // whole)
        cuda.syncthreads()

    return run


@lru_cache(maxsize=None)
def _stay(shape: Shape) -> Callable[..., Any]:
    """A device function `(flow, i, nics, over, work, made) -> whether it has an excess`: the chunks
    of flow `i` stay on its GPU's emptiest own rail as long as half of one is due there; those that
    don't are noted in `work.excess`:

        destination, own rail or `rails`, first chunk, how many of the cap's size,
        last chunk, its bytes or 0
    """
    ranks, gpus, rails, cap = shape.ranks, shape.gpus, shape.rails, shape.cap

    @cuda.jit(device=True)
    def run(flow: int, i: int, nics: Nics, over: Any, work: Work, made: Made) -> bool:
        b, f, g = cuda.blockIdx.x, i % ranks // gpus, i // ranks
        c, end, excess = work.base[b, i], work.base[b, i + 1], work.excess
        excess[b, i, 3] = excess[b, i, 5] = 0
        own, left = rails, flow
        while c < end:
            own = rails
            for at in range(nics.near_first[g], nics.near_first[g + 1]):
                n = nics.near_rails[at]
                if nics.tx[b, n] > 0 and nics.rx[f, n] > 0:
                    if own == rails or over[f, n] < over[f, own]:
                        own = n
            size = min(left, cap)
            if own < rails and over[f, own] + (size >> 1) <= 0:
                over[f, own] += size
                made.rail[b, c] = own
                c, left = c + 1, left - size
            elif size == cap:  # as the others of its size
                excess[b, i, 2], excess[b, i, 3] = c, left // cap
                c, left = c + left // cap, left % cap
            else:
                excess[b, i, 5] = size
                c = end
        excess[b, i, 0], excess[b, i, 1], excess[b, i, 4] = f, own, end - 1
        return excess[b, i, 3] > 0 or excess[b, i, 5] > 0

    return run


@lru_cache(maxsize=None)
def _settle(shape: Shape) -> Callable[..., Any]:
    """A device function for one thread: each chunk of the `many` flows in `work.left` to the rail
    that is furthest below what is due to its destination, debts elsewhere counted too.

    A word is `bytes over | order`: 0 for the own rail, then from rail (src + dst) mod N on.
    """
    rails, cap = shape.rails, shape.cap
    at = rails.bit_length()

    @cuda.jit(device=True)
    def put(words: Any, debts: Any, size: int) -> int:
        lowest = words[0] + (debts[0] >> DEBT << at)
        for n in range(1, rails):
            lowest = min(lowest, words[n] + (debts[n] >> DEBT << at))
        best = 0
        for n in range(rails):
            if words[n] + (debts[n] >> DEBT << at) == lowest:
                before = max(words[n] >> at, 0)
                words[n] += size << at
                debts[n] += max(words[n] >> at, 0) - before
                best = n
        return best

    @cuda.jit(device=True)
    def run(many: int, nics: Nics, k: int, over: Any, work: Work, made: Made) -> None:
        words, debts = cuda.local.array(rails, int64), cuda.local.array(rails, int64)
        b = cuda.blockIdx.x
        listed, excess = work.left[b], work.excess[b]
        for n in range(rails):
            debts[n] = 0
            for f in range(over.shape[0]):
                debts[n] += max(over[f, n], 0)
        for i in range(many):
            row = listed[i]
            f, own, c = excess[row, 0], excess[row, 1], excess[row, 2]
            for n in range(rails):
                order = 0 if n == own else 1 + (n - k - f) % rails
                dead = nics.tx[b, n] == 0 or nics.rx[f, n] == 0
                words[n] = _NEVER | order if dead else (over[f, n] << at) | order
            for _ in range(excess[row, 3]):
                made.rail[b, c] = put(words, debts, cap)
                c += 1
            if excess[row, 5] > 0:
                made.rail[b, excess[row, 4]] = put(words, debts, excess[row, 5])
            for n in range(rails):
                if words[n] < _NEVER:
                    over[f, n] = words[n] >> at

    return run


_NEVER = 1 << 61  # a dead rail's word


@lru_cache(maxsize=None)
def even_excess(shape: Shape, apart: bool) -> Callable[..., Any]:
    """apart: no two GPUs of a node share a NIC, so that each is looked at alone."""
    threads, nodes, gpus, rails, flows, ranks = (
        shape.threads,
        shape.nodes,
        shape.gpus,
        shape.rails,
        shape.flows,
        shape.ranks,
    )
    lanes, together = (gpus, 1) if apart else (1, gpus)
    cut, describe, sums = cutter(shape), describer(shape), prefix_sums(threads)
    due, stay, settle = _due(shape), _stay(shape), _settle(shape)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made, nics: Nics) -> None:
        over = cuda.shared.array((nodes, rails), int64)
        parts = cuda.shared.array((nodes, gpus), int64)
        space = cuda.shared.array((2, threads), int32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, turn = first + b, work.turn[b]
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        due(counts, nics, k, over, parts)
        for p in range(t, nodes * lanes, threads):
            f, begin = p // lanes, p % lanes * together
            for g in range(begin, begin + together):
                for j in range(gpus):
                    i = g * ranks + f * gpus + j
                    turn[i] = f != k and stay(counts[b, i], i, nics, over, work, made)
        cuda.syncthreads()
        many = sums(turn, flows, space)
        if t == 0:
            turn[flows] = many
        cuda.syncthreads()
        listed = work.left[b]
        for i in range(t, flows, threads):
            if turn[i + 1] > turn[i]:
                listed[turn[i]] = i
        cuda.syncthreads()
        if t == 0:
            settle(many, nics, k, over, work, made)
        elif t >= _WARP:
            for c in range(t - _WARP, count, threads - _WARP):
                describe(counts, k, work, made, c)

    return kernel
