"""One node whose chunks are mostly of one size, the cap of cut traffic: its rails filled to the
last unit by the few others.

On a rail of capacity T that takes other chunks of sum s, caps of size P fill what is left but for
(T - s) mod P: the rail's waste.  All rails together may waste `rails * T - total` and no more.
So the others are dealt out by their residues mod P alone: rail after rail gets some at random and a
pair that leaves the least waste; what the last three rails, which decide, take is searched
exhaustively.
"""

from __future__ import annotations

import numpy as np

from railopt.arrays import Array, Ints
from railopt.kernels import kernel_part, njit
from railopt.solver.local.state import LARGEST

MOST = 96  # other chunks: with more of them the plain search has all the freedom it needs
MAX_TYPES = 80
LAST = 10  # chunks that the last three rails share out in all ways


def suits(sizes: Ints, rails: int) -> bool:
    """Few sizes, many of them repeated, and more chunks a rail than `solve_local` gives to the
    configuration LP: what `configurations` is for.
    """
    types = len(np.unique(sizes))
    return 12 * rails < len(sizes) and types <= MAX_TYPES and 2 * types < len(sizes)


def filled(sizes: Ints, rails: int, capacity: int, tries: int, seed: int) -> Ints | None:
    """The rail of each size (descending, bytes) on `rails` equal rails, none above `capacity`
    bytes; None where no try succeeds.
    """
    unit = int(np.gcd.reduce(sizes))
    rail = np.zeros(len(sizes), np.int64)
    if rails < 3 or rails * (capacity // unit) >= LARGEST:
        return None
    return rail if _fill(sizes // unit, rails, capacity // unit, tries, seed, rail) else None


@njit(cache=True)
def _fill(sizes: Array, rails: int, capacity: int, tries: int, seed: int, rail: Array) -> bool:
    """`filled` in units of the sizes' common divisor, into `rail` int64 [n]."""
    cap, caps = _most_frequent(sizes)
    others, slack = sizes.size - caps, rails * capacity - sizes.sum()
    if slack < 0 or caps < rails or others < 2 or others > MOST:
        return False
    np.random.seed(seed)
    place, residue, k = np.empty(others, np.int64), np.empty(others, np.int64), 0
    for i in range(sizes.size):
        if sizes[i] != cap:
            place[k], residue[k] = i, sizes[i] % cap
            k += 1
    given, order = np.empty(others, np.int64), np.arange(others)
    for _ in range(tries):
        if _deal(residue, order, rails, capacity % cap, cap, slack, given):
            for k in range(others):
                rail[place[k]] = given[k]
            if _add_caps(sizes, rails, capacity, cap, rail):
                return True
    return False


@kernel_part(cache=True)
def _most_frequent(sizes: Array) -> tuple[int, int]:
    """(size, how many) of the longest run."""
    best, most, run = 0, 0, 0
    for i in range(sizes.size):
        run = run + 1 if i and sizes[i] == sizes[i - 1] else 1
        if run > most:
            best, most = sizes[i], run
    return best, most


@kernel_part(cache=True)
def _less(room: int, taken: int, cap: int) -> int:
    """(room - taken) mod cap, of residues."""
    left = room - taken
    return left + cap if left < 0 else left


@kernel_part(cache=True)
def _deal(
    residue: Array, order: Array, rails: int, room: int, cap: int, slack: int, rail: Array
) -> bool:
    """One try to deal chunks with these residues to rails whose capacity has residue `room`;
    shuffles `order`.
    """
    left = order.size
    for n in range(rails - 3):
        waste = room
        for _ in range(max(1, left // (rails - n) - 2)):  # the rail's even share, but for the pair
            if left > 0:
                j = np.random.randint(0, left)
                left -= 1
                order[j], order[left] = order[left], order[j]
                rail[order[left]] = n
                waste = _less(waste, residue[order[left]], cap)
        waste, a, b = _best_pair(residue, order, left, waste, cap)
        slack -= waste
        if slack < 0:
            return False
        for i in (max(a, b), min(a, b)):
            if i >= 0:
                left -= 1
                order[i], order[left] = order[left], order[i]
                rail[order[left]] = n
    return _last_three(residue, order, left, rails - 3, room, cap, slack, rail)


@kernel_part(cache=True)
def _best_pair(
    residue: Array, order: Array, left: int, room: int, cap: int
) -> tuple[int, int, int]:
    """(waste, i, j): the two of order[:left], or one (j = -1), or none, that leave the least of
    `room`.
    """
    waste, a, b = room, -1, -1
    for i in range(left):
        one = _less(room, residue[order[i]], cap)
        if one < waste:
            waste, a, b = one, i, -1
        for j in range(i):
            two = _less(one, residue[order[j]], cap)
            if two < waste:
                waste, a, b = two, i, j
        if waste == 0:
            break
    return waste, a, b


@kernel_part(cache=True)
def _last_three(
    residue: Array,
    order: Array,
    left: int,
    first: int,
    room: int,
    cap: int,
    slack: int,
    rail: Array,
) -> bool:
    """All ways to share order[:LAST] among the rails first, first + 1, first + 2, after the others
    left went to them in turn.
    """
    rooms, free = np.full(3, room, np.int64), min(left, LAST)
    for i in range(free, left):
        rail[order[i]] = first + i % 3
        rooms[i % 3] = _less(rooms[i % 3], residue[order[i]], cap)
    sums, half = np.zeros(1 << free, np.int64), 1
    for i in range(free):
        for mask in range(half):
            sums[half + mask] = _less(sums[mask], cap - residue[order[i]], cap)
        half *= 2
    for a in range(half):
        waste = _less(rooms[0], sums[a], cap)
        if waste > slack:
            continue
        others = half - 1 - a
        b = others
        while True:
            if (
                waste + _less(rooms[1], sums[b], cap) + _less(rooms[2], sums[others ^ b], cap)
                <= slack
            ):
                for i in range(free):
                    rail[order[i]] = first + (0 if (a >> i) & 1 else 1 if (b >> i) & 1 else 2)
                return True
            if b == 0:
                break
            b = (b - 1) & others
    return False


@kernel_part(cache=True)
def _add_caps(sizes: Array, rails: int, capacity: int, cap: int, rail: Array) -> bool:
    """The caps into the rooms that the others left, rail after rail; False where the others
    overfill one.
    """
    rooms, n = np.full(rails, capacity, np.int64), 0
    for i in range(sizes.size):
        if sizes[i] != cap:
            rooms[rail[i]] -= sizes[i]
    if rooms.min() < 0:
        return False
    for i in range(sizes.size):
        if sizes[i] == cap:
            while rooms[n] < cap:
                n += 1
            rail[i] = n
            rooms[n] -= cap
    return True
