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

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.kernels import part
from railopt.moe.placement.layer_times import (
    GPUS,
    NODES,
    TOKEN,
    UNFIT,
    State,
    best_toggles,
    flip,
    least_total,
    terms,
)

SMALL = 64  # (GPU, expert) pairs beyond the homes up to which a layer is small

# Turns of single moves: moves of a turn, and the share of the best total that it begins with
# accepting on top of the last kept, 1/20 or 1/100; on small layers and on others.
LONG, HOT = 15_000, 20
SHORT, COOL = 2000, 100
WEIGHTS = (0, 4, 1, 0, 16, 1, 0, 4, 4, 1, 0, 16, 1, 0, 4, 0)  # of the links' mean in these turns
FAR = 8  # such a turn never goes more than 1/8 above the best, or above where it began

# Sides of the dice that choose a move: a whole expert below WHOLE, two pairs of one expert below
# OF_EXPERT, two pairs of one GPU below OF_GPU, else one pair.
WHOLE, OF_EXPERT, OF_GPU, SIDES = 2, 5, 7, 12

DARK = 200  # turns in the dark
DARKEST = 6  # such a turn makes 2 to 7 moves of pairs, or one of a whole expert

LINES, CHOICES = 96, 1250  # turns over lines, and choices in each
PAIRS = 4  # pairs in a choice
WARM = 50  # the share of the best total that a turn over lines begins with accepting: 1/50

# The dice: a linear congruential sequence modulo 2^31, whose low bits are too regular to use.
SEED, FACTOR, STEP, MODULUS, LOW_BITS = 12345, 1103515245, 12345, 1 << 31, 8


class Search(NamedTuple):
    """A search around the best placement so far.

    chosen  bool [E, D]: that placement;  alone  bool [E, D]: the homes alone
    pairs   int64 [E * D]: scratch, the pairs that a move toggled or a choice has drawn
    dice    int64 [1]
    """

    state: State
    chosen: Bools
    alone: Bools
    pairs: Ints
    dice: Ints


@part(error_model="numpy")
def local_search(best: int, state: State) -> Bools:
    """The best placement found, from the one given, whose total is `best`; bool [E, D]."""
    layer, holds = state.layer, state.holds
    alone = np.zeros_like(holds)
    for e in range(len(holds)):
        alone[e, layer.home[e]] = True
    dice = np.full(1, SEED)
    search = Search(state, holds.copy(), alone, np.empty(holds.size, np.int64), dice)
    least = least_total(layer.tokens.sum(), len(layer.place), layer.scalars[TOKEN])
    small = holds.size - len(holds) <= SMALL
    best = _single_moves(best, least, small, search)
    if small and best > least:
        best = _in_the_dark(best, search)
    if small and best > least:
        _over_lines(best, search)
    return search.chosen


@part(error_model="numpy")
def _single_moves(best: int, least: int, small: bool, search: Search) -> int:
    """Turns of single moves, each from the best placement or from the homes alone; the best
    total.
    """
    state = search.state
    steps, slack = (LONG, HOT) if small else (SHORT, COOL)
    for turn in range(len(WEIGHTS)):
        if best == least:
            break
        cap = UNFIT
        if turn % 2 == 1:
            trans = _trans(state)
            cap = (trans - 1, trans * 3 // 4, trans // 2, trans // 4)[turn // 2 % 4]
            _restore(search.alone, state)
        found = _threshold(best, cap, WEIGHTS[turn], steps, slack, search)
        if cap == UNFIT or found < best:
            _restore(search.chosen, state)
        best = found
        if small:
            best = _settle(best, search)
        _restore(search.chosen, state)
    return best


@part(error_model="numpy")
def _in_the_dark(best: int, search: Search) -> int:
    """Turns of a few moves whatever they cost, one whole expert or some pairs; the best total."""
    for turn in range(DARK):
        whole = turn % 2 == 0
        for _ in range(1 if whole else 2 + turn // 2 % DARKEST):
            _move(WHOLE if whole else SIDES, search)
        best = _settle(best, search)
        _restore(search.chosen, search.state)
    return best


@part(error_model="numpy")
def _over_lines(best: int, search: Search) -> int:
    """Turns over lines, each from the best placement or from the homes alone; the best total."""
    state = search.state
    for turn in range(LINES):
        cap = UNFIT
        if turn % 2 == 1:
            trans = _trans(state)
            cap = (trans, trans - 1, trans, UNFIT)[turn // 2 % 4]
            _restore(search.alone, state)
        best = _lines(best, cap, search)
        _restore(search.chosen, state)
    return best


@part(error_model="numpy")
def _trans(state: State) -> int:
    return terms(len(state.layer.place), state.times, state.layer.scalars)[2]


@part(error_model="numpy")
def _total(state: State) -> int:
    return terms(len(state.layer.place), state.times, state.layer.scalars)[4]


@part(error_model="numpy")
def _settle(best: int, search: Search) -> int:
    """Single toggles and pairs of toggles while they help, noted if that is the best so far; the
    best total.
    """
    total = _pairs(_total(search.state), search.state)
    if total < best:
        best = total
        _keep(search)
    return best


@part(error_model="numpy")
def _keep(search: Search) -> None:
    """Note a placement (numba takes seconds to compile a slice assignment)."""
    holds, chosen = search.state.holds, search.chosen
    for e in range(holds.shape[0]):
        for d in range(holds.shape[1]):
            chosen[e, d] = holds[e, d]


@part(error_model="numpy")
def _restore(chosen: Bools, state: State) -> None:
    """Go back to a placement."""
    holds = state.holds
    for e in range(holds.shape[0]):
        for d in range(holds.shape[1]):
            if holds[e, d] != chosen[e, d]:
                flip(d * len(holds) + e, state)


@part(error_model="numpy")
def _threshold(best: int, cap: int, weight: int, steps: int, slack: int, search: Search) -> int:
    """Random moves, each kept unless it is worse than the last kept by more than a slack that
    shrinks from 1/slack of the best to 0, or Trans exceeds a cap.

    Leaves the best placement in `chosen`; its total.
    """
    state = search.state
    times, scalars, devices = state.times, state.layer.scalars, len(state.layer.place)
    links = devices + 2 * scalars[NODES]
    far = max(best + best // FAR, _total(state))
    last = 4 * far
    for step in range(steps):
        count = _move(np.int64(SIDES), search)
        if count == 0:
            continue
        _, _, trans, _, total, _ = terms(devices, times, scalars)
        score = total + weight * (times[devices : devices + links].sum() // links)
        if trans > cap or total > far or score > last + best // slack * (steps - step) // steps:
            for i in range(count):
                flip(search.pairs[i], state)
            continue
        last = score
        if total < best:
            best = total
            _keep(search)
    return best


@part(error_model="numpy")
def _lines(best: int, cap: int, search: Search) -> int:
    """A few pairs of two experts or of two GPUs at a time: the best other state they allow, kept by
    a threshold as in `_threshold`.

    Leaves the best placement in `chosen`; its total.
    """
    state, pairs = search.state, search.pairs
    last = _total(state)
    for step in range(CHOICES):
        count = _draw(search)
        total, bits = best_toggles(pairs[:count], cap, state)
        if total > last + best // WARM * (CHOICES - step) // CHOICES:
            continue
        last = total
        for i in range(count):
            if (bits >> i) & 1:
                flip(pairs[i], state)
        if total < best:
            best = total
            _keep(search)
    return best


@part(error_model="numpy")
def _roll(dice: Ints) -> int:
    """The next of the sequence, 0 to 2^23 - 1."""
    dice[0] = (dice[0] * FACTOR + STEP) % MODULUS
    return dice[0] >> LOW_BITS


@part(error_model="numpy")
def _draw(search: Search) -> int:
    """Up to PAIRS pairs of two experts or two GPUs, homes left out, into `pairs`; how many."""
    layer, some = search.state.layer, search.pairs
    experts, devices = layer.tokens.shape
    of_experts = _roll(search.dice) % 2 == 0
    lines, length = (experts, devices) if of_experts else (devices, experts)
    first = _roll(search.dice) % lines
    second, count = _roll(search.dice) % lines, 0
    for i in range(2 * length if first != second else length):
        line, other = first if i < length else second, i % length
        e, d = (line, other) if of_experts else (other, line)
        if layer.home[e] != d:
            some[count] = d * experts + e
            count += 1
    for i in range(min(PAIRS, count)):
        j = i + _roll(search.dice) % (count - i)
        some[i], some[j] = some[j], some[i]
    return min(PAIRS, count)


@part(error_model="numpy")
def _move(sides: int, search: Search) -> int:
    """Toggle one pair, two pairs of one expert or GPU, or a whole expert, by dice of so many sides;
    how many pairs were toggled, noted in `pairs`.
    """
    holds, gpus = search.state.holds, search.state.layer.scalars[GPUS]
    experts, devices = holds.shape
    kind = _roll(search.dice) % sides
    pair = _roll(search.dice) % holds.size
    other = _roll(search.dice)
    count: Any = np.int64(0)
    if kind >= WHOLE:
        count = _add(pair, count, search)
        if kind >= OF_GPU:
            return count
        second = (
            other % devices * experts + pair % experts
            if kind < OF_EXPERT
            else pair - pair % experts + other % experts
        )
        return _add(second, count, search) if second != pair else count
    expert = pair % experts
    for d in range(devices):  # to every GPU, to one GPU of every node, or home alone
        wanted = other % 3 == 0 or (other % 3 == 1 and d % gpus == (other // 3) % gpus)
        if holds[expert, d] != wanted:
            count = _add(d * experts + expert, count, search)
    return count


@part(error_model="numpy")
def _add(pair: int, count: int, search: Search) -> int:
    """`_try`, noted in `pairs` after `count` others; how many are noted."""
    if not _try(pair, search.state):
        return count
    search.pairs[count] = pair
    return count + 1


@part(error_model="numpy")
def _pairs(best: int, state: State) -> int:
    """Single toggles and pairs of toggles while the total falls; the total."""
    size, improved = state.holds.size, True
    while improved:
        improved = False
        for p in range(size):
            if not _try(p, state):
                continue
            total = _total(state)
            if total < best:
                best, improved = total, True
                continue
            for q in range(p + 1, size):
                if not _try(q, state):
                    continue
                total = _total(state)
                if total < best:
                    best, improved = total, True
                    break
                flip(q, state)
            else:
                flip(p, state)
    return best


@part(error_model="numpy")
def _try(pair: int, state: State) -> bool:
    """Toggle a (GPU, expert) pair if it is no home and fits; whether it was toggled."""
    holds = state.holds
    d, e = pair // len(holds), pair % len(holds)
    full = state.room[d] < 1 or state.copies[0] >= state.limit
    if state.layer.home[e] == d or (not holds[e, d] and full):
        return False
    flip(pair, state)
    return True
