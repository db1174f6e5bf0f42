"""The local search of `pro_prophet` on small layers: single toggles and pairs of toggles, restarted from changed placements."""

from __future__ import annotations

from numba import njit

from railopt.arrays import Ints
from railopt.moe.kernels import Bools, Layer, terms, toggle

RESTARTS = 80


@njit(cache=True, error_model="numpy")
def local_search(
    best: int,
    copies: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
) -> Bools:
    """Local search from the greedy's placement, then from the best one with a few copies changed, as often as is cheap."""
    best, copies = _search(best, copies, layer, room, limit, holds, times)
    chosen, dice = holds.copy(), 12345
    for turn in range(RESTARTS):
        dice = (dice * 1103515245 + 12345) % 2147483648
        expert = (dice >> 8) % len(layer.home)
        for step in range(len(layer.place) if turn % 2 else 2 + turn % 6):
            dice = (dice * 1103515245 + 12345) % 2147483648
            pair = (dice >> 8) % layer.tokens.size
            if turn % 2:  # one expert everywhere, or nowhere but at home
                pair = step * len(layer.home) + expert
            copies += _try(pair, room, copies, limit, layer, holds, times)
        total = terms(len(layer.place), times, layer.scalars)[4]
        total, copies = _search(total, copies, layer, room, limit, holds, times)
        if total < best:
            best = total
            chosen[:] = holds
        elif total > best:
            for pair in range(layer.tokens.size):
                d, e = pair // len(layer.home), pair % len(layer.home)
                if holds[e, d] != chosen[e, d]:
                    change = 1 if chosen[e, d] else -1
                    toggle(d, e, layer, holds, times)
                    room[d] -= change
                    copies += change
    return chosen


@njit(cache=True, error_model="numpy", _nrt=False)
def _search(
    best: int,
    copies: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
) -> tuple[int, int]:
    """Single toggles and pairs of toggles while the total falls; (total, copies)."""
    improved = True
    while improved:
        improved = False
        for p in range(layer.tokens.size):
            first = _try(p, room, copies, limit, layer, holds, times)
            if first == 0:
                continue
            total = terms(len(layer.place), times, layer.scalars)[4]
            if total < best:
                best, copies, improved = total, copies + first, True
                continue
            for q in range(p + 1, layer.tokens.size):
                second = _try(q, room, copies + first, limit, layer, holds, times)
                if second == 0:
                    continue
                total = terms(len(layer.place), times, layer.scalars)[4]
                if total < best:
                    best, copies, improved = total, copies + first + second, True
                    break
                _undo(q, second, room, layer, holds, times)
            else:
                _undo(p, first, room, layer, holds, times)
    return best, copies


@njit(cache=True, error_model="numpy", _nrt=False)
def _try(
    pair: int,
    room: Ints,
    copies: int,
    limit: int,
    layer: Layer,
    holds: Bools,
    times: Ints,
) -> int:
    """Toggle a (GPU, expert) pair if it is no home and fits; the change in copies, 0 if nothing was done."""
    d, e = pair // len(layer.home), pair % len(layer.home)
    if layer.home[e] == d:
        return 0
    change = -1 if holds[e, d] else 1
    if change > 0 and (room[d] < 1 or copies >= limit):
        return 0
    toggle(d, e, layer, holds, times)
    room[d] -= change
    return change


@njit(cache=True, error_model="numpy", _nrt=False)
def _undo(
    pair: int,
    change: int,
    room: Ints,
    layer: Layer,
    holds: Bools,
    times: Ints,
) -> None:
    d, e = pair // len(layer.home), pair % len(layer.home)
    toggle(d, e, layer, holds, times)
    room[d] += change
