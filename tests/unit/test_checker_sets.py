"""The trusted checker's hot loops against plain ones that look at every set of jobs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from railopt.checker import Listing, Meter, Search, Stock, heaviest, subset_sums

Taken = tuple[int, ...]


def some_jobs(dice: random.Random) -> tuple[list[int], dict[int, int]]:
    """Sizes, some of them equal, falling, and what they weigh: anything, or about their size, as
    the prices of a linear program do.
    """
    sizes = sorted((dice.randint(1, 60) for _ in range(dice.randint(1, 11))), reverse=True)
    about = dice.choice([0, 1000])
    weights = {size: dice.randint(0, 40) + about * size for size in sizes}
    return sizes, {size: weight * dice.choice([0, 1, 1, 1]) for size, weight in weights.items()}


def all_sets(sizes: list[int]) -> Iterator[list[int]]:
    for chosen in product([False, True], repeat=len(sizes)):
        yield [size for size, taken in zip(sizes, chosen, strict=True) if taken]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_heaviest_load_is_that_of_all_sets(part: int) -> None:
    dice = random.Random(part)
    for _ in range(150):
        sizes, weights = some_jobs(dice)
        capacity = dice.randint(0, sum(sizes) + 3)
        plain = max(
            sum(weights[size] for size in some) for some in all_sets(sizes) if sum(some) <= capacity
        )
        enough = dice.choice([0, dice.randint(0, plain + 5), plain])
        found = heaviest(sizes, weights, capacity, enough, Meter(10**7))
        assert max(found, enough) == max(plain, enough), (sizes, weights, capacity, enough)


def test_the_sums_are_those_of_all_sets() -> None:
    dice = random.Random(5)
    for _ in range(100):
        sizes, _ = some_jobs(dice)
        top = dice.randint(0, sum(sizes) + 3)
        plain = {sum(some) for some in all_sets(sizes)}
        bits = subset_sums(sizes, top, Meter(10**7))
        assert {s for s in range(top + 1) if bits >> s & 1} == {s for s in plain if s <= top}


def plain_loads(search: Search, stock: Stock, slack: int, first: int) -> Counter[tuple[int, Taken]]:
    """(waste, what it takes) of every possible load with a job of kind `first`."""
    found: Counter[tuple[int, Taken]] = Counter()
    counts = [range(number + 1) for number in stock[search.rails :]]
    for taken in product(*counts):
        before = first - search.rails
        if any(taken[:before]) or not taken[before]:
            continue
        jobs = [0] * search.rails + list(taken)
        total = sum(map(int.__mul__, jobs, search.size))
        for rail in range(search.rails):
            waste = search.capacities[rail] - total
            if stock[rail] and 0 <= waste <= slack:
                takes = [int(kind == rail) for kind in range(search.rails)] + list(taken)
                found[waste, tuple(takes)] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_loads_listed_are_those_of_all_sets(part: int) -> None:
    dice, listed = random.Random(part), 0
    for _ in range(250):
        sizes, _ = some_jobs(dice)
        capacities = sorted({dice.randint(5, sum(sizes) + 5) for _ in range(dice.randint(1, 3))})
        order = list(dict.fromkeys(dice.sample(sizes, len(sizes))))
        counts = Counter(sizes)
        whole = (*(1 for _ in capacities), *(counts[size] for size in order))
        search = Search(capacities, order, whole, Meter(10**8))
        stock = tuple(dice.randint(0, number) for number in whole)
        kinds = [kind for kind in search.jobs if stock[kind]]
        if not kinds:
            continue
        first = kinds[0]
        slack = dice.randint(0, max(capacities))
        loads = search.listed(stock, slack, first)
        plain = plain_loads(search, stock, slack, first)
        assert Counter((one.waste, one.takes) for one in loads) == plain
        assert all(dict(one.needs).items() <= dict(enumerate(one.takes)).items() for one in loads)
        # of a larger stock's list those are possible that take no more, and waste no more
        possible = Listing(search, whole, slack + 5).possible(stock, slack, first)
        assert Counter((one.waste, one.takes) for one in possible) == plain
        listed += len(loads)
    assert listed > 100
