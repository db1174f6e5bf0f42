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

from railopt.checker import Meter, Rejected, Slots, shows
from railopt.symbolic.result import Result, verdict

Prove = Callable[..., Any]
Homes = tuple[int, ...]

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
                    if _accepted(prove, slots, witness, most)
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
            if most >= 0 and _accepted(prove, slots, _tree(slots, most), most) != true:
                failures.append(f"{slots}: more than {most} tokens, {'not ' * true}shown")
    return verdict("exhaustive", f"{tried} instances of 2 or 3 GPUs and 3 experts", failures)


def _accepted(prove: Prove, slots: Slots, witness: Any, most: int) -> bool:
    try:
        return bool(prove(slots, witness, most, Meter(10**6)))
    except Rejected:
        return False


def _tree(slots: Slots, most: int) -> dict[str, Any]:
    """Cases on every copy, one after the other, until a set of experts shows it."""
    everyone = range(len(slots.counts))
    leaves = [{"kind": "room", "experts": [*chosen]} for chosen in subsets(len(slots.counts))]
    for leaf in leaves:
        if _accepted(shows, slots, leaf, most):
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


def enough(quick: bool = False, *, fewer: int = 0) -> Result:
    """T15c: m experts on every GPU, m spare slots on each: the mean, rounded up, is reached.

    `fewer` slots are not enough.
    """
    failures, tried = [], 0
    for gpus, each, counts in (
        (2, 1, range(5)),
        (3, 1, range(5)),
        (3, 2, (0, 5)),
    ):
        homes = tuple(e // each for e in range(gpus * each))
        for tokens in product(counts, repeat=len(homes)):
            tried += 1
            reached = least(slots_of(tokens, homes, (each - fewer,) * gpus))
            if reached != -(-sum(tokens) // gpus):
                failures.append(f"{tokens} on {gpus} GPUs: {reached} tokens on the fullest")
    return verdict("exhaustive", f"{tried} instances of up to 3 GPUs and 6 experts", failures)


def no_fewer(quick: bool = False, *, fewer: int = 1) -> Result:
    """T15d: m - 1 slots of the GPU that has nothing to do leave the mean out of reach."""
    failures, covered = [], []
    for gpus, each in ((2, 1), (3, 1), (3, 2)):
        homes = tuple(e // each for e in range(gpus * each))
        tokens = tuple(0 if e < each else gpus for e in range(gpus * each))
        spare = (each - fewer, *(each for _ in range(gpus - 1)))
        covered.append(f"{gpus} GPUs of {each}")
        if least(slots_of(tokens, homes, spare)) * gpus <= sum(tokens):
            failures.append(f"{tokens}: the mean is reached with {spare} slots")
    return verdict("exhaustive", ", ".join(covered), failures)
