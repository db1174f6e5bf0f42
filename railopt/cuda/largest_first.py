"""The kernels of `lpt` and `lpt-local` for equal rails.

Chunks of the cap's size need no sorting: they take the rails in turn, and a prefix sum says whose
turn it is.  What remains of each flow is sorted by all threads, as words `unit - size | flow`, and
put on rails by one thread that keeps the loads in registers, while the others write the chunks'
columns.  Words are 32 bits wide where all sizes are multiples of a power of two that makes them fit
(whole tokens are), else 64 and not in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cuda, int32, int64, uint32

from railopt.cuda.block import prefix_sums, sorter
from railopt.cuda.cut import AT_ONCE, Made, Shape, Work, cutter, describer
from railopt.cuda.in_turn import by_pair
from railopt.policies import equal_rails
from railopt.policies.lpt import PAIR_WEIGHT

__all__ = ["lpt", "lpt_local"]

_AHEAD = 8  # chunks whose sizes are read before their rails are chosen
_WARP = 32
_SORTED_8 = (  # Batcher's network
    *((0, 4), (1, 5), (2, 6), (3, 7), (0, 2), (1, 3), (4, 6), (5, 7), (2, 4), (3, 5)),
    *((0, 1), (2, 3), (4, 5), (6, 7), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6)),
)

# the host's rule itself, compiled for the device
_after_rounds, _put_on_least, _exchange = (
    cuda.jit(device=True)(getattr(rule, "py_func", rule))
    for rule in (equal_rails.after_rounds, equal_rails.put_on_least, equal_rails.exchange)
)


def _padded(shape: Shape) -> int:
    return -(-shape.flows // _AHEAD) * _AHEAD


def _shift(most: int, rails: int) -> int:
    """By how many bits sizes must be shifted so that the words of loads up to `most` bytes fit in
    31 bits.
    """
    return max(0, (most << (rails - 1).bit_length()).bit_length() - 31)


@cache
def _sorted_sizes(shape: Shape, kind: Any, shift: int) -> Callable[..., Any]:
    """A device function `(counts, unit, work, keys)` for all threads: `keys`, of type `kind`,
    become what the flows' remainders add to the words of loads, largest first, and `work.order`
    the flows.  A remainder is less than `unit`; sizes are counted in 2**shift bytes.
    """
    threads, flows, cap, padded = shape.threads, shape.flows, shape.cap, _padded(shape)
    load_at, flow_bits = (shape.rails - 1).bit_length(), (flows - 1).bit_length()
    sort = sorter(flows, threads, kind)

    @cuda.jit(device=True)
    def run(counts: Any, unit: int, work: Work, keys: Any) -> None:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        base, order = work.base[b], work.order[b]
        for i in range(t, flows, threads):
            flow = counts[b, i] if base[i + 1] > base[i] else 0
            size = flow % cap if unit == cap else flow * (flow != unit)
            keys[i] = (((unit - size) >> shift) << flow_bits) | i
        cuda.syncthreads()
        sort(keys)
        for i in range(t, flows, threads):
            key = keys[i]
            order[i] = key & ((1 << flow_bits) - 1)
            keys[i] = ((unit >> shift) - (key >> flow_bits)) << load_at
        for i in range(flows + t, padded, threads):
            keys[i] = 0
        cuda.syncthreads()

    return run


@cache
def _uneven(shape: Shape, shift: int) -> Callable[..., Any]:
    """A device function `(counts, unit, work) -> whether a size is no multiple of 2**shift`."""
    threads, flows, odd = shape.threads, shape.flows, (1 << shift) - 1

    @cuda.jit(device=True)
    def run(counts: Any, unit: int, work: Work) -> int:
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        found = unit & odd
        for i in range(t, flows, threads):
            if work.base[b, i + 1] > work.base[b, i]:
                found |= counts[b, i] & odd
        return cuda.syncthreads_or(int32(found))

    return run


@cache
def _on_least(shape: Shape, kind: Any, shift: int) -> Callable[..., Any]:
    """A device function `(keys, items, whole)` for one thread: sorted sizes, each to the least
    loaded rail; the word of its load, with the rail in its low bits, is left in the size's place.
    Loads are of type `kind`, `whole` chunks of the cap's size have gone round.
    """
    rails, cap = shape.rails, shape.cap
    load_at = (rails - 1).bit_length()

    @cuda.jit(device=True)
    def run(keys: Any, items: int, whole: int) -> None:
        loads, added = cuda.local.array(rails, kind), cuda.local.array(_AHEAD, kind)
        _after_rounds(loads, whole % rails, cap >> shift, load_at, rails)
        for i in range(0, items, _AHEAD):
            for j in range(_AHEAD):
                added[j] = keys[i + j]
            if rails == _AHEAD and loads[0] + added[_AHEAD - 1] > loads[rails - 1]:
                # each of these chunks lifts its rail above all: they take the rails in order
                for n in range(rails):
                    keys[i + n] = loads[n]
                    loads[n] += added[n]
                _exchange(loads, _SORTED_8)
            else:
                for j in range(_AHEAD):
                    keys[i + j] = loads[0]
                    _put_on_least(loads, added[j], rails)

    return run


@cache
def lpt(shape: Shape) -> Callable[..., Any]:
    """Each sender's chunks, largest first, to its least loaded rail."""
    threads, flows, rails, cap = shape.threads, shape.flows, shape.rails, shape.cap
    padded, shift = _padded(shape), _shift((flows + 1) * cap, rails)
    on_rail = (1 << (rails - 1).bit_length()) - 1
    cut, describe, sums = cutter(shape), describer(shape), prefix_sums(threads)
    uneven = _uneven(shape, shift)
    sizes, wide_sizes = _sorted_sizes(shape, int32, shift), _sorted_sizes(shape, int64, 0)
    on_least, wide_on_least = _on_least(shape, int32, shift), _on_least(shape, int64, 0)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made) -> None:
        keys = cuda.shared.array(padded, int32)
        space = cuda.shared.array((2, threads), int32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, base, turn = first + b, work.base[b], work.turn[b]
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        for i in range(t, flows, threads):
            turn[i] = counts[b, i] // cap if base[i + 1] > base[i] else 0
        wide = uneven(counts, cap, work)
        whole = sums(turn, flows, space)
        if wide:
            wide_sizes(counts, cap, work, work.keys[b])
        else:
            sizes(counts, cap, work, keys)
        if t == 0:
            if wide:
                wide_on_least(work.keys[b], count - whole, whole)
            else:
                on_least(keys, count - whole, whole)
        elif t >= _WARP:
            chunks, whose = cuda.local.array(AT_ONCE, int32), cuda.local.array(AT_ONCE, int32)
            for begin in range(t - _WARP, count, AT_ONCE * (threads - _WARP)):
                for j in range(AT_ONCE):
                    c = begin + j * (threads - _WARP)
                    chunks[j] = c if c < count else -1
                describe(counts, k, base, made, chunks, whose)
                for j in range(AT_ONCE):
                    c, i = chunks[j], whose[j]
                    if c >= 0 and made.size[b, c] == cap:
                        made.rail[b, c] = (turn[i] + c - base[i]) % rails
        cuda.syncthreads()
        for at in range(t, count - whole, threads):
            load = work.keys[b, at] if wide else keys[at]
            made.rail[b, base[work.order[b, at] + 1] - 1] = load & on_rail

    return kernel


@cache
def _put_on_best(rails: int, kind: Any) -> Callable[..., Any]:
    """A device function `(out, here, added) -> order`: puts on the rail of least `out + here`, and
    says how far that is from the first of its pair.

    A load `out[n]` is `bytes | 0`, a pair's `here[n]` is `PAIR_WEIGHT * bytes | n - start mod N`:
    their sums are all different.  Only `out` is changed.
    """
    bits = (rails - 1).bit_length()
    half = 1 << max(bits - 1, 0)

    @cuda.jit(device=True)
    def run(out: Any, here: Any, added: int) -> int:
        low = cuda.local.array(rails, kind)
        for n in range(rails):
            low[n] = out[n] + here[n]
        for level in range(bits):
            for n in range(half):
                if n < half >> level and n + (half >> level) < rails:
                    low[n] = min(low[n], low[n + (half >> level)])
        for n in range(rails):
            if kind(out[n] + here[n]) == low[0]:
                out[n] += added
        return low[0] & ((1 << bits) - 1)

    return run


@cache
def _spread(shape: Shape, kind: Any, shift: int) -> Callable[..., Any]:
    """A device function for one thread: largest chunks of unfinished rounds, then sorted sizes,
    each to the rail with the fewest bytes, those for the same receiver counted `PAIR_WEIGHT` times
    more; the rail, counted from the first of its pair, is left in the size's place.

    target   int32 [items + 1]: the receivers, by size
    pairs    [nodes, rails] of type `kind`: what `_put_on_best` calls `here`, read a chunk ahead
    """
    nodes, rails = shape.nodes, shape.rails
    load_at, put = (rails - 1).bit_length(), _put_on_best(rails, kind)

    @cuda.jit(device=True)
    def run(keys: Any, items: int, unit: int, k: int, work: Work, target: Any, pairs: Any) -> None:
        out, here = cuda.local.array(rails, kind), cuda.local.array(rails, kind)
        ahead = cuda.local.array(rails, kind)
        left, got = work.left[cuda.blockIdx.x], work.got[cuda.blockIdx.x]
        for n in range(rails):
            out[n] = 0
        full = (unit >> shift) << load_at
        for f in range(nodes):
            for at in range(left[f], left[f + 1]):
                for n in range(rails):
                    here[n] = pairs[f, n]
                best = (put(out, here, full) + k + f) % rails
                got[at] = best
                pairs[f, best] += PAIR_WEIGHT * full
        f = target[0]
        for n in range(rails):
            here[n] = pairs[f, n]
        added = keys[0]
        for i in range(items):
            then, follows = target[i + 1], keys[i + 1]
            for n in range(rails):
                ahead[n] = pairs[then, n]
            order = put(out, here, added)
            keys[i] = order
            best = uint32(order + uint32(k + f) % uint32(rails))
            if best >= rails:
                best -= uint32(rails)
            cuda.atomic.add(pairs, (f, best), kind(PAIR_WEIGHT * added))  # nothing waits for it
            for n in range(rails):
                here[n] = ahead[n]
            if then == f:
                for n in range(rails):
                    here[n] = pairs[f, n]
            f, added = then, follows

    return run


@cache
def _left_by_rounds(shape: Shape) -> Callable[..., Any]:
    """A device function `(counts, work, space, largest) -> (unit, all)` for all threads: bytes of
    the largest chunk, of which `work.turn` counts those before each flow's (in the order of
    `by_pair`) and `work.left` those before each pair's that whole rounds leave.
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


@cache
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


@cache
def lpt_local(shape: Shape) -> Callable[..., Any]:
    """As `lpt`, and each receiver's share spread over the rails too."""
    threads, nodes, rails, ranks = shape.threads, shape.nodes, shape.rails, shape.ranks
    length, gpus = _padded(shape) + 1, shape.gpus
    shift = _shift((1 + PAIR_WEIGHT) * (shape.flows + nodes * rails) * shape.cap, rails)
    cut, describe, uneven = cutter(shape), describer(shape), _uneven(shape, shift)
    sizes, wide_sizes = _sorted_sizes(shape, int32, shift), _sorted_sizes(shape, int64, 0)
    left_by_rounds, in_rounds = _left_by_rounds(shape), _in_rounds(shape)
    spread, wide_spread = _spread(shape, int32, shift), _spread(shape, int64, 0)

    @cuda.jit
    def kernel(counts: Any, joined: Any, first: int, work: Work, made: Made) -> None:
        keys = cuda.shared.array(length, int32)
        target = cuda.shared.array(length, int32)
        space = cuda.shared.array((2, threads), int32)
        largest = cuda.shared.array(1, int32)
        pairs = cuda.shared.array((nodes, rails), int32)
        wide_pairs = cuda.shared.array((nodes, rails), int64)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        k, base = first + b, work.base[b]
        count = cut(counts, joined, k, work, made, space)
        if count <= 0:
            return
        unit, whole = left_by_rounds(counts, work, space, largest)
        items, wide = count - whole, uneven(counts, unit, work)
        if wide:
            wide_sizes(counts, unit, work, work.keys[b])
        else:
            sizes(counts, unit, work, keys)
        for i in range(t, length, threads):
            target[i] = work.order[b, i] % ranks // gpus if i < items else 0
        for i in range(t, nodes * rails, threads):
            f, n = i // rails, i % rails
            wide_pairs[f, n] = pairs[f, n] = (n - k - f) % rails
        cuda.syncthreads()
        if t == 0:
            if wide:
                wide_spread(work.keys[b], items, unit, k, work, target, wide_pairs)
            else:
                spread(keys, items, unit, k, work, target, pairs)
        elif t >= _WARP:
            chunks, whose = cuda.local.array(AT_ONCE, int32), cuda.local.array(AT_ONCE, int32)
            for begin in range(t - _WARP, count, AT_ONCE * (threads - _WARP)):
                for j in range(AT_ONCE):
                    c = begin + j * (threads - _WARP)
                    chunks[j] = c if c < count else -1
                describe(counts, k, base, made, chunks, whose)
                for j in range(AT_ONCE):
                    c, i = chunks[j], whose[j]
                    if c >= 0 and made.size[b, c] == unit:
                        in_rounds(work, made, i, c)
        cuda.syncthreads()
        for at in range(t, items, threads):
            order = work.keys[b, at] if wide else keys[at]
            made.rail[b, base[work.order[b, at] + 1] - 1] = (order + k + target[at]) % rails
        for at in range(t, work.left[b, nodes], threads):
            made.rail[b, work.slot[b, at]] = work.got[b, at]

    return kernel
