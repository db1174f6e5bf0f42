"""T15: copies of experts in spare slots, every small instance tried.

GPUs hold experts and may take copies of others, one a spare slot; then every token goes to a GPU
that has its expert.  The *least* is the least tokens of the fullest GPU over all copies and splits.
For given copies it is, by Hall's condition, the largest mean of a set of experts over the GPUs that
have one of them, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

from railopt.checker import Meter, Slots, shows
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import accepts

Prove = Callable[..., Any]
Homes = tuple[int, ...]
STEPS = 10**6  # of the checker, for one witness

TREES = ((2, (0, 0, 1)), (2, (0, 0, 0)), (3, (0, 0, 1)), (3, (0, 1, 2)), (3, (0, 0, 0)))


def slots_of(counts: tuple[int, ...], homes: Homes, spare: tuple[int, ...]) -> Slots:
    """Experts with one GPU each, as the checker has them."""
    holds = [{e for e, home in enumerate(homes) if home == gpu} for gpu in range(len(spare))]
    return Slots([*counts], holds, [*spare], None, [{home} for home in homes], set())


def subsets(experts: int) -> Iterator[tuple[int, ...]]:
    """Every set of experts but none."""
    for size in range(1, experts + 1):
        yield from combinations(range(experts), size)


def least(slots: Slots) -> int:
    """The least tokens of the fullest GPU, over every choice of copies."""
    everyone = {*range(len(slots.counts))}
    return least_of(slots.counts, slots.holds, [everyone] * len(slots.holds), slots.spare)


def least_of(
    counts: list[int], holds: list[set[int]], able: list[set[int]], spare: list[int]
) -> int:
    """As `least`, where copies may lie on GPUs that are `able` to hold them."""
    choices = []
    for held, could, free in zip(holds, able, spare, strict=True):
        others = sorted(could - held)
        choices.append([{*held, *more} for more in combinations(others, min(free, len(others)))])
    return min(_split(counts, has) for has in product(*choices))


def _split(counts: list[int], has: tuple[set[int], ...]) -> int:
    means = [0]
    for chosen in subsets(len(counts)):
        gpus = sum(not held.isdisjoint(chosen) for held in has)
        means.append(-(-sum(counts[e] for e in chosen) // gpus))
    return max(means)


def _instances(quick: bool) -> Iterator[Slots]:
    for gpus, homes in TREES[:2] if quick else TREES:
        for counts in product((0, 1, 4), repeat=len(homes)):
            for spare in product((0, 1), repeat=gpus):
                yield slots_of(counts, homes, spare)


def room(quick: bool = False, *, prove: Prove = shows) -> Result:
    """T15: no set of experts is accepted for more than the least; some show it exactly."""
    failures, tried, exact = [], 0, 0
    for slots in _instances(quick):
        known, best = least(slots), 0
        for chosen in subsets(len(slots.counts)):
            witness = {"kind": "room", "experts": [*chosen]}
            best = max(
                best,
                *(
                    most + 1
                    for most in range(-1, known + 1)
                    if accepts(prove, slots, witness, most, Meter(STEPS))
                ),
                0,
            )
        tried, exact = tried + 1, exact + (best == known > 0)
        if best > known:
            failures.append(f"{slots}: {best} shown, the least is {known}")
    if not 4 * exact >= tried:
        failures.append(f"only {exact} of {tried} shown exactly")
    return verdict("exhaustive", f"{tried} instances of 2 or 3 GPUs and 3 experts", failures)


def cases(quick: bool = False, *, prove: Prove = shows) -> Result:
    """T15a, T15b: cases that end in sets of experts show the least exactly, and no more."""
    failures, tried = [], 0
    for slots in _instances(quick):
        known, tried = least(slots), tried + 1
        for most, true in ((known - 1, True), (known, False)):
            if most >= 0 and accepts(prove, slots, _tree(slots, most), most, Meter(STEPS)) != true:
                failures.append(f"{slots}: more than {most} tokens, {'not ' * true}shown")
    return verdict("exhaustive", f"{tried} instances of 2 or 3 GPUs and 3 experts", failures)


def _tree(slots: Slots, most: int) -> dict[str, Any]:
    """Cases on every copy, one after the other, until a set of experts shows it."""
    everyone = range(len(slots.counts))
    leaves = [{"kind": "room", "experts": [*chosen]} for chosen in subsets(len(slots.counts))]
    for leaf in leaves:
        if accepts(shows, slots, leaf, most, Meter(STEPS)):
            return leaf
    open_ = [
        (e, gpu)
        for gpu, held in enumerate(slots.holds)
        for e in everyone
        if slots.spare[gpu] and e not in held and slots.may(gpu, e)
    ]
    if not open_:
        return leaves[-1]
    expert, gpu = open_[0]
    holds = [held | {expert} if g == gpu else held for g, held in enumerate(slots.holds)]
    spare = [free - (g == gpu) for g, free in enumerate(slots.spare)]
    return {
        "kind": "cases",
        "copy": [expert, gpu],
        "with": _tree(slots._replace(holds=holds, spare=spare), most),
        "without": _tree(slots._replace(barred=slots.barred | {(gpu, expert)}), most),
    }
