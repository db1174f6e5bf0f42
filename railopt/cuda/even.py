"""The kernel of `even-excess`, for any rails.

What stays on a GPU's own rails is decided for all destinations at once, since those do not touch
each other; what is left goes, in order, through one thread that keeps a destination's rails in
registers, while the others write the chunks' columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import cuda, int32, int64

from railopt.arrays import Array
from railopt.cuda.block import prefix_sums
from railopt.cuda.cut import AT_ONCE, Made, Shape, Work, cutter, describer
from railopt.policies.even_rails import DEBT

__all__ = ["Nics", "even_excess"]

_WARP = 32


class Nics(NamedTuple):
    """tx int64 [S, rails], rx int64 [nodes, rails]: shares; near_rails, near_first: whose rails are
    whose, as `near_lists` says.
    """

    tx: Array
    rx: Array
    near_rails: Array
    near_first: Array


@cache
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


@cache
def _stay(shape: Shape) -> Callable[..., Any]:
    """A device function `(flow, i, nics, over, work, made) -> whether it has an excess`: the chunks
    of flow `i` stay on its GPU's emptiest own rail as long as half of one is due there; those that
    don't are noted in `work.excess[b, 0, i]`:

        destination, own rail or `rails`, first chunk, how many of the cap's size,
        last chunk, its bytes or 0
    """
    ranks, gpus, rails, cap = shape.ranks, shape.gpus, shape.rails, shape.cap

    @cuda.jit(device=True)
    def run(flow: int, i: int, nics: Nics, over: Any, work: Work, made: Made) -> bool:
        b, f, g = cuda.blockIdx.x, i % ranks // gpus, i // ranks
        c, end, left = work.base[b, i], work.base[b, i + 1], flow
        own, first, many, rest = rails, 0, 0, 0
        near = nics.near_first[g + 1] - nics.near_first[g]
        while c < end:
            own = rails
            for at in range(nics.near_first[g], nics.near_first[g + 1]):
                n = nics.near_rails[at]
                alive = nics.tx[b, n] > 0 and nics.rx[f, n] > 0
                if alive and (own == rails or over[f, n] < over[f, own]):
                    own = n
            size, alone = min(left, cap), own < rails and near == 1
            if alone and size == cap and over[f, own] + (size >> 1) <= 0:
                stays = min(left // cap, (-over[f, own] - (cap >> 1)) // cap + 1)
                over[f, own] += stays * cap
                for staying in range(c, c + stays):
                    made.rail[b, staying] = own
                c, left = c + stays, left - stays * cap
            elif own < rails and over[f, own] + (size >> 1) <= 0:
                over[f, own] += size
                made.rail[b, c] = own
                c, left = c + 1, left - size
            elif size == cap:  # as the others of its size
                first, many = c, left // cap
                c, left = c + many, left % cap
            else:
                rest, c = size, end
        if many + rest == 0:
            return False
        excess = work.excess[b, 0, i]
        excess[0], excess[1], excess[2] = f, own, first
        excess[3], excess[4], excess[5] = many, end - 1, rest
        return True

    return run


@cache
def _words(shape: Shape) -> Callable[..., Any]:
    """A device function `(nics, k, over, debts)` for all threads: `debts` [rails] become the bytes
    that rails carry beyond what is due; `over` [nodes, rails] words `bytes over | order`, where
    rails are in order from (src + dst) mod N on, after 0 for an own rail.
    """
    threads, nodes, rails = shape.threads, shape.nodes, shape.rails
    at = rails.bit_length()

    @cuda.jit(device=True)
    def run(nics: Nics, k: int, over: Any, debts: Any) -> None:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        for n in range(t, rails, threads):
            debts[n] = 0
            for f in range(nodes):
                debts[n] += max(over[f, n], 0)
        cuda.syncthreads()
        for i in range(t, nodes * rails, threads):
            f, n = i // rails, i % rails
            dead = nics.tx[b, n] == 0 or nics.rx[f, n] == 0
            over[f, n] = (_DEAD if dead else over[f, n] << at) | (1 + (n - k - f) % rails)
        cuda.syncthreads()

    return run


_DEAD = 1 << 61


@cache
def _put(shape: Shape) -> Callable[..., Any]:
    """A device function `(words, late, debts, size) -> rail`: puts `size` bytes on the rail of
    least `words + late`; `late` is what counts of `debts`, as a word.
    """
    rails = shape.rails
    at, bits = rails.bit_length(), (rails - 1).bit_length()
    half = 1 << max(bits - 1, 0)

    @cuda.jit(device=True)
    def run(words: Any, late: Any, debts: Any, size: int) -> int:
        low, best = cuda.local.array(rails, int64), 0
        for n in range(rails):
            low[n] = words[n] + late[n]
        for level in range(bits):
            for n in range(half):
                if n < half >> level and n + (half >> level) < rails:
                    low[n] = min(low[n], low[n + (half >> level)])
        for n in range(rails):
            if words[n] + late[n] == low[0]:
                before = max(words[n] >> at, 0)
                words[n] += size << at
                after = max(words[n] >> at, 0)
                if after > before:
                    debts[n] += after - before
                    late[n] = debts[n] >> DEBT << at
                best = n
        return best

    return run


@cache
def _settle(shape: Shape) -> Callable[..., Any]:
    """A device function for one thread: each chunk of the `many` flows in `work.excess[b, 1]` to
    the rail that is furthest below what is due to its destination, debts elsewhere counted too.
    """
    rails, cap, put = shape.rails, shape.cap, _put(shape)
    at = rails.bit_length()
    order = (1 << at) - 1

    @cuda.jit(device=True)
    def run(many: int, over: Any, debts: Any, work: Work, made: Made) -> None:
        words, late = cuda.local.array(rails, int64), cuda.local.array(rails, int64)
        debt, entry = cuda.local.array(rails, int64), cuda.local.array(6, int32)
        ahead, b = cuda.local.array(6, int32), cuda.blockIdx.x
        listed = work.excess[b, 1]
        for n in range(rails):
            debt[n] = debts[n]
            late[n] = debts[n] >> DEBT << at
        for j in range(6):
            entry[j] = listed[0, j]
        for i in range(many):
            for j in range(6):
                ahead[j] = listed[min(i + 1, many - 1), j]
            f, own, c = entry[0], entry[1], entry[2]
            for n in range(rails):
                words[n] = over[f, n]
                if n == own:
                    words[n] &= ~order
            for _ in range(entry[3]):
                made.rail[b, c] = put(words, late, debt, cap)
                c += 1
            if entry[5] > 0:
                made.rail[b, entry[4]] = put(words, late, debt, entry[5])
            for n in range(rails):
                over[f, n] = words[n] | (over[f, n] & order)
            for j in range(6):
                entry[j] = ahead[j]

    return run


@cache
def _listed(shape: Shape) -> Callable[..., Any]:
    """A device function `(work, space) -> how many` for all threads: the flows whose `work.turn` is
    1, their excess in order in `work.excess[b, 1]`.
    """
    threads, flows, sums = shape.threads, shape.flows, prefix_sums(shape.threads)

    @cuda.jit(device=True)
    def run(work: Work, space: Any) -> int:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        turn = work.turn[b]
        many = sums(turn, flows, space)
        if t == 0:
            turn[flows] = many
        cuda.syncthreads()
        for i in range(t, flows, threads):
            if turn[i + 1] > turn[i]:
                for j in range(6):
                    work.excess[b, 1, turn[i], j] = work.excess[b, 0, i, j]
        cuda.syncthreads()
        return many

    return run


@cache
def even_excess(shape: Shape, apart: bool) -> Callable[..., Any]:
    """apart: no two GPUs of a node share a NIC, so that each is looked at alone."""
    threads, nodes, gpus, rails = shape.threads, shape.nodes, shape.gpus, shape.rails
    flows, ranks = shape.flows, shape.ranks
    lanes, together = (gpus, 1) if apart else (1, gpus)
    cut, describe, listed = cutter(shape), describer(shape), _listed(shape)
    due, stay, as_words, settle = _due(shape), _stay(shape), _words(shape), _settle(shape)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made, nics: Nics) -> None:
        over = cuda.shared.array((nodes, rails), int64)
        debts = cuda.shared.array(rails, int64)
        parts = cuda.shared.array((nodes, gpus), int64)
        space = cuda.shared.array((2, threads), int32)
        base = cuda.shared.array(flows, int32)  # a copy: it is searched for every chunk
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k = first + b
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        for i in range(t, flows, threads):
            base[i] = work.base[b, i]
        due(counts, nics, k, over, parts)
        for p in range(t, nodes * lanes, threads):
            f, begin = p // lanes, p % lanes * together
            for g in range(begin, begin + together):
                for i in range(g * ranks + f * gpus, g * ranks + (f + 1) * gpus):
                    left = f != k and stay(counts[b, i], i, nics, over, work, made)
                    work.turn[b, i] = 1 if left else 0
        cuda.syncthreads()
        many = listed(work, space)
        as_words(nics, k, over, debts)
        if t == 0:
            settle(many, over, debts, work, made)
        elif t >= _WARP:
            chunks, whose = cuda.local.array(AT_ONCE, int32), cuda.local.array(AT_ONCE, int32)
            for begin in range(t - _WARP, count, AT_ONCE * (threads - _WARP)):
                for j in range(AT_ONCE):
                    c = begin + j * (threads - _WARP)
                    chunks[j] = c if c < count else -1
                describe(counts, k, base, made, chunks, whose)

    return kernel
