"""The kernels of `lpt` and `lpt-local` for equal rails.

Chunks of the cap's size need no sorting: they take the rails in turn, and a prefix sum says whose
turn it is.  What remains of each flow is sorted by all threads, as words `cap - size | flow`, and
put on rails by one thread that keeps the loads in registers, while the others write the chunks'
columns.  Loads are 32 bits wide where all sizes are multiples of a power of two that makes them fit
(tokens are), else 64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from numba import cuda, int32, int64

from railopt.cuda.block import prefix_sums, sorter
from railopt.cuda.cut import Made, Shape, Work, cutter, describer
from railopt.cuda.in_turn import by_pair
from railopt.policies import equal_rails
from railopt.policies.lpt import PAIR_WEIGHT

__all__ = ["lpt", "lpt_local", "shared_bytes"]

_AHEAD = 8  # chunks whose sizes are read before their rails are chosen
_LOW = (1 << 32) - 1
_WARP = 32

_after_rounds = cuda.jit(device=True)(getattr(equal_rails.after_rounds, "py_func", None))
_put_on_least = cuda.jit(device=True)(getattr(equal_rails.put_on_least, "py_func", None))


def _padded(shape: Shape) -> int:
    return -(-shape.flows // _AHEAD) * _AHEAD


def shared_bytes(shape: Shape) -> int:
    """Shared memory of a block of `lpt_local`, and at most that of `lpt`."""
    return 8 * _padded(shape) + 8 * shape.threads + 12 * shape.nodes * shape.rails + 64


def _shift(most: int, rails: int) -> int:
    """By how many bits sizes must be shifted so that the words of loads up to `most` bytes fit in
    31 bits.
    """
    return max(0, (most << (rails - 1).bit_length()).bit_length() - 31)


@lru_cache(maxsize=None)
def _on_least(shape: Shape, kind: Any, shift: int) -> Callable[..., Any]:
    """A device function for one thread: sorted keys, each to the least loaded rail, which is left
    in the key's upper half.  Loads are of type `kind`, in units of 2**shift bytes.
    """
    rails, cap = shape.rails, shape.cap
    load_at = (rails - 1).bit_length()
    on_rail = (1 << load_at) - 1

    @cuda.jit(device=True)
    def run(keys: Any, items: int, whole: int) -> None:
        loads = cuda.local.array(rails, kind)
        _after_rounds(loads, whole % rails, cap >> shift, load_at, rails)
        key, got = cuda.local.array(_AHEAD, int64), cuda.local.array(_AHEAD, int64)
        for i in range(0, items, _AHEAD):
            for j in range(_AHEAD):
                key[j] = keys[i + j]
            for j in range(_AHEAD):
                size = (cap - (key[j] >> 32)) >> shift
                got[j] = loads[0] & on_rail
                _put_on_least(loads, loads.dtype.type(size << load_at), rails)
            for j in range(_AHEAD):
                keys[i + j] = (got[j] << 32) | (key[j] & _LOW)

    return run


@lru_cache(maxsize=None)
def lpt(shape: Shape) -> Callable[..., Any]:
    """Each sender's chunks, largest first, to its least loaded rail."""
    threads, flows, rails, cap = shape.threads, shape.flows, shape.rails, shape.cap
    padded, shift = _padded(shape), _shift((flows + 1) * cap, rails)
    odd = (1 << shift) - 1
    cut, describe, sums = cutter(shape), describer(shape), prefix_sums(threads)
    sort = sorter(flows, threads)
    narrow_on_least, wide_on_least = _on_least(shape, int32, shift), _on_least(shape, int64, 0)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made) -> None:
        keys = cuda.shared.array(padded, int64)
        space = cuda.shared.array((2, threads), int32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, base, turn = first + b, work.base[b], work.turn[b]
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        uneven = cap & odd
        for i in range(t, flows, threads):
            flow = counts[b, i] if base[i + 1] > base[i] else 0
            turn[i] = flow // cap
            size = flow % cap
            uneven |= size & odd
            keys[i] = ((cap - size) << 32) | i
        for i in range(flows + t, padded, threads):
            keys[i] = (cap << 32) | i
        wide = cuda.syncthreads_or(uneven)
        whole = sums(turn, flows, space)
        sort(keys)
        if t == 0:
            if wide:
                wide_on_least(keys, count - whole, whole)
            else:
                narrow_on_least(keys, count - whole, whole)
        elif t >= _WARP:
            for c in range(t - _WARP, count, threads - _WARP):
                i = describe(counts, k, work, made, c)
                if made.size[b, c] == cap:
                    made.rail[b, c] = (turn[i] + c - base[i]) % rails
        cuda.syncthreads()
        for at in range(t, count - whole, threads):
            made.rail[b, base[(keys[at] & _LOW) + 1] - 1] = keys[at] >> 32

    return kernel


@lru_cache(maxsize=None)
def _put_on_best(rails: int) -> Callable[..., Any]:
    """A device function `(out, here, added) -> rail`, counted from the first of its pair: puts on
    the rail of least `out + here`.

    A load `out[n]` is `bytes | 0`, a pair's `here[n]` is `PAIR_WEIGHT * bytes | n - start mod N`:
    their sums are all different.
    """
    on_rail = (1 << (rails - 1).bit_length()) - 1

    @cuda.jit(device=True)
    def run(out: Any, here: Any, added: int) -> int:
        lowest = out.dtype.type(out[0] + here[0])
        for n in range(1, rails):
            lowest = min(lowest, out.dtype.type(out[n] + here[n]))
        for n in range(rails):
            if out.dtype.type(out[n] + here[n]) == lowest:
                out[n] += added
                here[n] += PAIR_WEIGHT * added
        return lowest & on_rail

    return run


@lru_cache(maxsize=None)
def _spread(shape: Shape, kind: Any, shift: int) -> Callable[..., Any]:
    """A device function for one thread: largest chunks of unfinished rounds, then sorted keys, each
    to the rail with the fewest bytes, those for the same receiver counted `PAIR_WEIGHT` times more.

    pairs   [nodes, rails] of type `kind`: what `_put_on_best` calls `here`, read a chunk ahead
    """
    nodes, ranks, gpus, rails = shape.nodes, shape.ranks, shape.gpus, shape.rails
    load_at, last, put = (rails - 1).bit_length(), _padded(shape) - 1, _put_on_best(rails)

    @cuda.jit(device=True)
    def run(keys: Any, items: int, unit: int, k: int, work: Work, pairs: Any) -> None:
        out, here = cuda.local.array(rails, kind), cuda.local.array(rails, kind)
        ahead = cuda.local.array(rails, kind)
        left, got = work.left[cuda.blockIdx.x], work.got[cuda.blockIdx.x]
        for n in range(rails):
            out[n] = 0
        for f in range(nodes):
            for at in range(left[f], left[f + 1]):
                for n in range(rails):
                    here[n] = pairs[f, n]
                got[at] = (put(out, here, (unit >> shift) << load_at) + k + f) % rails
                for n in range(rails):
                    pairs[f, n] = here[n]
        key = keys[0]
        f = (key & _LOW) % ranks // gpus
        for n in range(rails):
            here[n] = pairs[f, n]
        for i in range(items):
            follows = keys[min(i + 1, last)]
            then = (follows & _LOW) % ranks // gpus
            for n in range(rails):
                ahead[n] = pairs[then, n]
            size = (unit - (key >> 32)) >> shift
            best = (put(out, here, out.dtype.type(size << load_at)) + k + f) % rails
            keys[i] = (best << 32) | (key & _LOW)
            for n in range(rails):
                pairs[f, n] = here[n]
            if then != f:
                for n in range(rails):
                    here[n] = ahead[n]
            key, f = follows, then

    return run


@lru_cache(maxsize=None)
def _left_by_rounds(shape: Shape) -> Callable[..., Any]:
    """A device function `(counts, work, space, largest) -> (unit, all)` for all threads: bytes of the largest
    chunk, of which `work.turn` counts those before each flow's (in the order of `by_pair`) and
    `work.left` those before each pair's that whole rounds leave.
    """
    threads, flows, cap = shape.threads, shape.flows, shape.cap
    nodes, rails, pair = shape.nodes, shape.rails, shape.gpus * shape.gpus
    sums, place = prefix_sums(threads), by_pair(shape)

    @cuda.jit(device=True)
    def run(counts: Any, work: Work, space: Any, largest: Any) -> tuple[int, int]:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        base, turn, left = work.base[b], work.turn[b], work.left[b]
        most = 0
        for i in range(t, flows, threads):
            if base[i + 1] > base[i]:
                most = max(most, min(counts[b, i], cap))
        if t == 0:
            largest[0] = cap
        if not cuda.syncthreads_or(1 if most == cap else 0):
            if t == 0:
                largest[0] = 0
            cuda.syncthreads()
            cuda.atomic.max(largest, 0, most)
            cuda.syncthreads()
        unit = int64(largest[0])
        for i in range(t, flows, threads):
            flow = counts[b, i] if base[i + 1] > base[i] else 0
            turn[place(i)] = flow // cap if unit == cap else flow == unit
        cuda.syncthreads()
        whole = sums(turn, flows, space)
        if t == 0:
            turn[flows] = whole
        cuda.syncthreads()
        for f in range(t, nodes, threads):
            left[f] = (turn[(f + 1) * pair] - turn[f * pair]) % rails
        cuda.syncthreads()
        together = sums(left, nodes, space)
        if t == 0:
            left[nodes] = together
        cuda.syncthreads()
        return unit, whole

    return run


@lru_cache(maxsize=None)
def _in_rounds(shape: Shape) -> Callable[..., Any]:
    """A device function `(work, made, i, c)`: chunk `c` of flow `i`, of the largest size, on its
    rail of a whole round; or noted in `work.slot`, for an unfinished one.
    """
    ranks, gpus, rails, pair = shape.ranks, shape.gpus, shape.rails, shape.gpus * shape.gpus
    place = by_pair(shape)

    @cuda.jit(device=True)
    def run(work: Work, made: Made, i: int, c: int) -> None:
        b, f = cuda.blockIdx.x, i % ranks // gpus
        turn, left = work.turn[b], work.left[b]
        nth = turn[place(i)] - turn[f * pair] + c - work.base[b, i]
        begun = turn[(f + 1) * pair] - turn[f * pair] - (left[f + 1] - left[f])
        if nth < begun:
            made.rail[b, c] = nth % rails
        else:
            work.slot[b, left[f] + nth - begun] = c

    return run


@lru_cache(maxsize=None)
def lpt_local(shape: Shape) -> Callable[..., Any]:
    """As `lpt`, and each receiver's share spread over the rails too."""
    threads, flows, nodes, rails = shape.threads, shape.flows, shape.nodes, shape.rails
    cap, padded = shape.cap, _padded(shape)
    shift = _shift((1 + PAIR_WEIGHT) * (flows + nodes * rails) * cap, rails)
    odd = (1 << shift) - 1
    cut, describe, sort = cutter(shape), describer(shape), sorter(flows, threads)
    left_by_rounds, in_rounds = _left_by_rounds(shape), _in_rounds(shape)
    narrow_spread, wide_spread = _spread(shape, int32, shift), _spread(shape, int64, 0)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made) -> None:
        keys = cuda.shared.array(padded, int64)
        space = cuda.shared.array((2, threads), int32)
        largest = cuda.shared.array(1, int32)
        wide_pairs = cuda.shared.array((nodes, rails), int64)
        narrow_pairs = cuda.shared.array((nodes, rails), int32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, base = first + b, work.base[b]
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        unit, whole = left_by_rounds(counts, work, space, largest)
        uneven = unit & odd
        for i in range(t, flows, threads):
            flow = counts[b, i] if base[i + 1] > base[i] else 0
            size = flow % cap if unit == cap else flow * (flow != unit)
            uneven |= size & odd
            keys[i] = ((unit - size) << 32) | i
        for i in range(t, nodes * rails, threads):
            f, n = i // rails, i % rails
            wide_pairs[f, n] = narrow_pairs[f, n] = (n - k - f) % rails
        wide = cuda.syncthreads_or(uneven)
        sort(keys)
        if t == 0:
            if wide:
                wide_spread(keys, count - whole, unit, k, work, wide_pairs)
            else:
                narrow_spread(keys, count - whole, unit, k, work, narrow_pairs)
        elif t >= _WARP:
            for c in range(t - _WARP, count, threads - _WARP):
                i = describe(counts, k, work, made, c)
                if made.size[b, c] == unit:
                    in_rounds(work, made, i, c)
        cuda.syncthreads()
        for at in range(t, count - whole, threads):
            made.rail[b, base[(keys[at] & _LOW) + 1] - 1] = keys[at] >> 32
        for at in range(t, work.left[b, nodes], threads):
            made.rail[b, work.slot[b, at]] = work.got[b, at]

    return kernel
