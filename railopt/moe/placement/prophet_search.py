"""The search of `pro_prophet` on layers that are not large, around the best placement so far.

The total is a maximum of many times, so most single copies change nothing.  Three kinds of turns
leave the best placement, each blind where another sees:
    single moves   kept by threshold accepting: placements a little worse than the last one are
                   accepted, ever less so; some turns add a share of the links' mean to what they
                   compare, which tells placements of one total apart
    in the dark    a few moves whatever they cost, then single toggles and pairs of toggles while
                   the total falls (after each turn of single moves as well); on small layers
    over lines     the best of all 2^4 - 1 ways to toggle four pairs of two experts or two GPUs,
                   kept by threshold; on small layers
Transfers come in steps (the busiest link has one copy more or less), and far fewer copies may be
needed to save one: every other turn of moves and of lines therefore begins with the homes alone and
caps the transfers at or below those of the best placement. Integers and a fixed sequence of dice:
the same plan on every machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from railopt.arrays import Ints
from railopt.moe.placement.layer_times import (
    GPUS,
    NODES,
    TOKEN,
    UNFIT,
    Bools,
    Layer,
    best_toggles,
    flip,
    least_total,
    terms,
)

SMALL = 64  # (GPU, expert) pairs beyond the homes up to which a layer is small
LONG, SHORT = 15_000, 2000  # moves of a turn of single moves, on small layers and on others
HOT, COOL = (
    20,
    100,
    # the share of the best total that such a turn begins with accepting on top of the last: 1/20,
    # 1/100
)
WEIGHTS = (0, 4, 1, 0, 16, 1, 0, 4, 4, 1, 0, 16, 1, 0, 4, 0)  # of the links' mean in these turns
DARK = 200  # turns in the dark, on small layers
LINES, CHOICES = 96, 1250  # turns over lines, and choices in each
PAIRS, WARM = (
    4,
    50,
)  # pairs in a choice; the share of the best total that such a turn begins with accepting: 1/50
WHOLE, ANY = (
    2,
    12,
    # sides of the dice that choose a move: a whole expert on 0 and 1, two pairs on 2 to 6, else one
    # pair
)
FAR = 8  # a turn of single moves never goes more than 1/8 above the best, or above where it began


@njit(cache=True, error_model="numpy")
def local_search(
    best: int, copies: int, layer: Layer, room: Ints, limit: int, holds: Bools, times: Ints
) -> Bools:
    """The best placement found, from the one given; bool [E, D]."""
    devices, small = len(layer.place), holds.size - len(holds) <= SMALL
    chosen, done, dice = holds.copy(), np.empty(holds.size, np.int64), np.int64(12345)
    alone = np.zeros_like(holds)
    for e in range(len(holds)):
        alone[e, layer.home[e]] = True
    least = least_total(layer.tokens.sum(), devices, layer.scalars[TOKEN])
    for turn in range(len(WEIGHTS)):
        if best == least:
            break
        cap = UNFIT
        if turn % 2 == 1:
            trans = terms(devices, times, layer.scalars)[2]
            cap = (trans - 1, trans * 3 // 4, trans // 2, trans // 4)[turn // 2 % 4]
            copies += _restore(alone, layer, room, holds, times)
        steps, slack = (LONG, HOT) if small else (SHORT, COOL)
        found, copies, dice = _threshold(
            best,
            cap,
            copies,
            dice,
            WEIGHTS[turn],
            steps,
            slack,
            layer,
            room,
            limit,
            holds,
            times,
            done,
            chosen,
        )
        if cap == UNFIT or found < best:
            copies += _restore(chosen, layer, room, holds, times)
        best = found
        if small:
            total = terms(devices, times, layer.scalars)[4]
            total, copies = _pairs(total, copies, layer, room, limit, holds, times)
            if total < best:
                best = total
                _keep(holds, chosen)
        copies += _restore(chosen, layer, room, holds, times)
    for turn in range(DARK if small and best > least else 0):
        whole = turn % 2 == 0  # one expert, or a few pairs
        for _ in range(1 if whole else 2 + turn // 2 % 6):
            _, copies, dice = _move(
                dice, WHOLE if whole else ANY, copies, layer, room, limit, holds, times, done
            )
        total = terms(len(layer.place), times, layer.scalars)[4]
        total, copies = _pairs(total, copies, layer, room, limit, holds, times)
        if total < best:
            best = total
            _keep(holds, chosen)
        copies += _restore(chosen, layer, room, holds, times)
    for turn in range(LINES if small and best > least else 0):
        cap = UNFIT
        if turn % 2 == 1:
            trans = terms(devices, times, layer.scalars)[2]
            cap = (trans, trans - 1, trans, UNFIT)[turn // 2 % 4]
            copies += _restore(alone, layer, room, holds, times)
        best, copies, dice = _lines(
            best, cap, copies, dice, layer, room, limit, holds, times, done, chosen
        )
        copies += _restore(chosen, layer, room, holds, times)
    return chosen


@njit(cache=True, error_model="numpy", _nrt=False)
def _keep(holds: Bools, chosen: Bools) -> None:
    """Note a placement (numba takes seconds to compile a slice assignment)."""
    for e in range(holds.shape[0]):
        for d in range(holds.shape[1]):
            chosen[e, d] = holds[e, d]


@njit(cache=True, error_model="numpy", _nrt=False)
def _restore(chosen: Bools, layer: Layer, room: Ints, holds: Bools, times: Ints) -> int:
    """Go back to a placement; the change in copies."""
    change = 0
    for e in range(holds.shape[0]):
        for d in range(holds.shape[1]):
            if holds[e, d] != chosen[e, d]:
                change += flip(d * len(holds) + e, layer, room, holds, times)
    return change


@njit(cache=True, error_model="numpy")
def _threshold(
    best: int,
    cap: int,
    copies: int,
    dice: int,
    weight: int,
    steps: int,
    slack: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
    done: Ints,
    chosen: Bools,
) -> tuple[int, int, int]:
    """Random moves, each kept unless it is worse than the last kept by more than a slack that
    shrinks to 0, or Trans exceeds a cap.

    Leaves the best placement in `chosen`; (its total, copies now, dice).
    """
    devices = len(layer.place)
    links = devices + 2 * layer.scalars[NODES]
    far = max(best + best // FAR, terms(devices, times, layer.scalars)[4])
    last = 4 * far
    for step in range(steps):
        count, copies, dice = _move(dice, ANY, copies, layer, room, limit, holds, times, done)
        if count == 0:
            continue
        _, _, trans, _, total, _ = terms(devices, times, layer.scalars)
        score = total + weight * (times[devices : devices + links].sum() // links)
        if trans > cap or total > far or score > last + best // slack * (steps - step) // steps:
            for i in range(count):
                copies += flip(done[i], layer, room, holds, times)
            continue
        last = score
        if total < best:
            best = total
            _keep(holds, chosen)
    return best, copies, dice


@njit(cache=True, error_model="numpy")
def _lines(
    best: int,
    cap: int,
    copies: int,
    dice: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
    some: Ints,
    chosen: Bools,
) -> tuple[int, int, int]:
    """A few pairs of two experts or of two GPUs at a time: the best other state they allow, kept by
    a threshold as in `_threshold`.

    Leaves the best placement in `chosen`; (its total, copies now, dice).
    """
    last = terms(len(layer.place), times, layer.scalars)[4]
    for step in range(CHOICES):
        count, dice = _draw(dice, layer, some)
        total, bits = best_toggles(some[:count], cap, copies, layer, room, limit, holds, times)
        if total > last + best // WARM * (CHOICES - step) // CHOICES:
            continue
        last = total
        for i in range(count):
            if (bits >> i) & 1:
                copies += flip(some[i], layer, room, holds, times)
        if total < best:
            best = total
            _keep(holds, chosen)
    return best, copies, dice


@njit(cache=True, error_model="numpy", _nrt=False)
def _draw(dice: int, layer: Layer, some: Ints) -> tuple[int, int]:
    """Up to PAIRS pairs of two experts or two GPUs, homes left out, into `some`; (how many,
    dice).
    """
    experts, devices = layer.tokens.shape
    dice = _roll(dice)
    of_experts = (dice >> 8) % 2 == 0
    lines, length = (experts, devices) if of_experts else (devices, experts)
    dice = _roll(dice)
    first = (dice >> 8) % lines
    dice = _roll(dice)
    second, count = (dice >> 8) % lines, 0
    for i in range(2 * length if first != second else length):
        line, other = first if i < length else second, i % length
        e, d = (line, other) if of_experts else (other, line)
        if layer.home[e] != d:
            some[count] = d * experts + e
            count += 1
    for i in range(min(PAIRS, count)):
        dice = _roll(dice)
        j = i + (dice >> 8) % (count - i)
        some[i], some[j] = some[j], some[i]
    return min(PAIRS, count), dice


@njit(cache=True, error_model="numpy", _nrt=False)
def _move(
    dice: int,
    kinds: int,
    copies: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
    done: Ints,
) -> tuple[int, int, int]:
    """Toggle one pair, two pairs of one expert or GPU, or a whole expert; (toggled pairs, noted in
    `done`; copies; dice).
    """
    experts, devices = holds.shape
    gpus = layer.scalars[GPUS]
    dice = _roll(dice)
    kind = (dice >> 8) % kinds
    dice = _roll(dice)
    pair = (dice >> 8) % holds.size
    dice = _roll(dice)
    other, count = dice >> 8, 0
    if kind > 1:
        count, copies = _add(pair, count, copies, layer, room, limit, holds, times, done)
        if kind > 6:
            return count, copies, dice
        second = (
            other % devices * experts + pair % experts
            if kind <= 4
            else pair - pair % experts + other % experts
        )
        if second != pair:
            count, copies = _add(second, count, copies, layer, room, limit, holds, times, done)
        return count, copies, dice
    expert = pair % experts
    for d in range(devices):  # to every GPU, to one GPU of every node, or home alone
        wanted = other % 3 == 0 or (other % 3 == 1 and d % gpus == (other // 3) % gpus)
        if holds[expert, d] != wanted:
            count, copies = _add(
                d * experts + expert, count, copies, layer, room, limit, holds, times, done
            )
    return count, copies, dice


@njit(cache=True, error_model="numpy", _nrt=False)
def _roll(dice: int) -> int:
    return (dice * 1103515245 + 12345) % 2147483648


@njit(cache=True, error_model="numpy", _nrt=False)
def _add(
    pair: int,
    count: int,
    copies: int,
    layer: Layer,
    room: Ints,
    limit: int,
    holds: Bools,
    times: Ints,
    done: Ints,
) -> tuple[int, int]:
    """`_try`, noted in `done`; (pairs noted, copies)."""
    change = _try(pair, copies, layer, room, limit, holds, times)
    if change:
        done[count] = pair
    return count + (change != 0), copies + change


@njit(cache=True, error_model="numpy", _nrt=False)
def _pairs(
    best: int, copies: int, layer: Layer, room: Ints, limit: int, holds: Bools, times: Ints
) -> tuple[int, int]:
    """Single toggles and pairs of toggles while the total falls; (total, copies)."""
    devices, improved = len(layer.place), True
    while improved:
        improved = False
        for p in range(holds.size):
            first = _try(p, copies, layer, room, limit, holds, times)
            if first == 0:
                continue
            total = terms(devices, times, layer.scalars)[4]
            if total < best:
                best, copies, improved = total, copies + first, True
                continue
            for q in range(p + 1, holds.size):
                second = _try(q, copies + first, layer, room, limit, holds, times)
                if second == 0:
                    continue
                total = terms(devices, times, layer.scalars)[4]
                if total < best:
                    best, copies, improved = total, copies + first + second, True
                    break
                flip(q, layer, room, holds, times)
            else:
                flip(p, layer, room, holds, times)
    return best, copies


@njit(cache=True, error_model="numpy", _nrt=False)
def _try(
    pair: int, copies: int, layer: Layer, room: Ints, limit: int, holds: Bools, times: Ints
) -> int:
    """Toggle a (GPU, expert) pair if it is no home and fits; the change in copies, 0 if nothing was
    done.
    """
    d, e = pair // len(holds), pair % len(holds)
    if layer.home[e] == d or (not holds[e, d] and (room[d] < 1 or copies >= limit)):
        return 0
    return flip(pair, layer, room, holds, times)
