"""T18: how good any rule can be that sees its own row, by trying every rule of a small range.

A rule is what one sender does with b unit chunks for a node: how many of them go on each rail.  It
sees b and the sender, not who else sends.  The adversary chooses senders and their chunks, N in
all at most: another plan then has one chunk per NIC, so what it makes a rail receive is the ratio.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from math import comb

from railopt.base.arrays import Ints
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import Instance
from railopt.symbolic.statements.granularity import (
    any_size_instances,
    equal_chunk_instances,
    violations,
)

Row = tuple[int, ...]
Rule = dict[int, Row]
"""Of one sender: chunks -> how many go on each rail."""


def deals(rails: int, chunks: int) -> Iterator[Row]:
    """Every way to put so many chunks on rails."""
    for chosen in combinations_with_replacement(range(rails), chunks):
        yield tuple(chosen.count(n) for n in range(rails))


def worst_load(rules: Sequence[Rule], rails: int) -> int:
    """The most chunks that any rail receives, over all choices of senders with `rails` chunks in
    all at most.
    """
    most = 0
    for n in range(rails):
        best = [0] * (rails + 1)  # by chunks spent
        for rule in rules:
            best = [
                max(
                    [
                        best[spent],
                        *(best[spent - b] + row[n] for b, row in rule.items() if b <= spent),
                    ]
                )
                for spent in range(rails + 1)
            ]
        most = max(most, best[rails])
    return most


def lower(rails: int, senders: int) -> int:
    """T18: what some traffic costs every rule, where another plan costs 1."""
    return max(min(-(-senders * b // rails), rails // b) for b in range(1, rails + 1))


# ---------------------------------------------------------------- one destination, exactly
def nested(rails: int) -> list[Rule]:
    """Every rule that puts a sender's chunks on rails in an order of its own."""
    return [
        {b: tuple(int(n in order[:b]) for n in range(rails)) for b in range(1, rails + 1)}
        for order in permutations(range(rails))
    ]


def few(rails: int) -> list[Rule]:
    """Every rule for one and for two chunks."""
    return [{1: one, 2: two} for one in deals(rails, 1) for two in deals(rails, 2)]


def some_rules(rules: Sequence[Rule], senders: int, rails: int, most: int) -> bool:
    """Whether so many of these, repetitions allowed, leave no rail more than `most`; tries all."""

    def extended(chosen: list[Rule], start: int) -> bool:
        if len(chosen) == senders:
            return True
        return any(
            worst_load([*chosen, rules[i]], rails) <= most and extended([*chosen, rules[i]], i)
            for i in range(start, len(rules))
        )

    return extended([], 0)


RANKINGS: tuple[Row, ...] = (
    *((1, 2, 3, 4, 5), (2, 5, 3, 4, 1), (2, 1, 3, 5, 4), (2, 1, 3, 5, 4), (1, 2, 4, 3, 5)),
    *((2, 5, 3, 1, 4), (5, 2, 3, 4, 1), (2, 5, 1, 3, 4), (5, 2, 3, 1, 4), (2, 4, 1, 5, 3)),
    *((5, 2, 3, 4, 1), (2, 5, 1, 4, 3), (5, 2, 3, 1, 4)),
)
"""Of each of 13 senders: at which of its chunks it comes to each of five rails.  No rail receives
more than 3, so r (r + 1) senders are not the most that keep r.  Found by CP-SAT."""


def one_destination(quick: bool = False, *, more: int = 0) -> Result:
    """T18e: of each (N, r) tried, r (r + 1) senders, and `more`, keep the ratio r < N, and one more
    does not; on five rails the 13 RANKINGS keep 3.
    """
    failures = []
    known = [(2, 1), (3, 1), (3, 2), (4, 1), (4, 3), (5, 1), *(() if quick else [(4, 2), (5, 4)])]
    for rails, r in known:
        senders = r * (r + 1) + more
        if not some_rules(nested(rails), senders, rails, r):
            failures.append(f"N = {rails}, {senders} senders: no rule within {r}")
        if lower(rails, senders + 1) <= r and some_rules(few(rails), senders + 1, rails, r):
            failures.append(f"N = {rails}, {senders + 1} senders: a rule within {r}")
        if failures:  # one is enough: to refute all rules of more senders takes hours
            break
    ranked = [{b: tuple(int(at <= b) for at in places) for b in range(1, 6)} for places in RANKINGS]
    if any(sorted(places) != [1, 2, 3, 4, 5] for places in RANKINGS) or len(RANKINGS) != 13:
        failures.append("N = 5: expected 13 rankings of the rails")
    if (found := worst_load(ranked, 5)) != 3:
        failures.append(f"N = 5, 13 senders: {found} chunks on a rail, expected 3")
    covered = ", ".join(f"{rails} {r}" for rails, r in known)
    assumed = ("one destination", "unit chunks, the optimum is 1")
    return verdict(
        "exhaustive", f"(N, r) = {covered}: all rules; N = 5: 13 rankings", failures, assumed
    )


# ---------------------------------------------------------------- rules that attain it


def owners(quick: bool = False, *, more: int = 0) -> Result:
    """T18b: of r (r + 1) + 1 nodes, with classes by k - f, each row and each column has r pairs of
    a class at most; `more` adds as many nodes.
    """
    failures, most = [], 3 if quick else 5
    for r in range(1, most):
        nodes = r * (r + 1) + more + 1
        shared = Counter(
            (side, pair[side], (pair[0] - pair[1] - 1) % nodes % (r + 1))
            for pair in permutations(range(nodes), 2)
            for side in (0, 1)
        )
        if max(shared.values()) > r:
            failures.append(f"r = {r}, {nodes} nodes: {max(shared.values())} pairs of a class")
    return verdict("exhaustive", f"r = 1..{most - 1}, r (r + 1) + 1 nodes", failures)


def turns(quick: bool = False, *, policy: str = "rotate") -> Result:
    """T18c for railopt's `rotate`: the chunks of each pair largest first, both sides, every J."""

    def within_turns(loads: Ints, total: Ints, largest: Ints, partners: Ints, rails: int) -> Ints:
        starts = -(-4 // rails)  # of four nodes, how many share a start at most
        held: Ints = loads.max(axis=1) >= 0
        for j in range(rails):
            held &= (j + 1) * loads.max(axis=1) <= total + (j + 1) * j * starts * largest
        return held

    def largest_first(instance: Instance) -> Instance:
        return tuple(sorted(instance, key=lambda chunk: (chunk[:2], -chunk[2])))

    sized = any_size_instances(4, 2 if quick else 3, 2)
    instances = [largest_first(each) for each in sized] + equal_chunk_instances(4, 1)
    failures = [
        line
        for rails in (2, 3, 4)
        for line in violations(instances, 4, rails, policy, within_turns)
    ]
    covered = f"M = 4, N = 2, 3, 4, {policy}, {len(instances)} instances"
    return verdict("exhaustive", covered, failures, ("chunks of a pair go largest first",))


# ---------------------------------------------------------------- dice
def mean_largest(classes: Sequence[int], active: int) -> Fraction:
    """The mean, over all choices of so many senders, of the largest number in one class."""
    by_top: dict[tuple[int, int], int] = {(0, 0): 1}  # (chosen, largest) -> choices
    for size in classes:
        after: dict[tuple[int, int], int] = {}
        for (chosen, top), number in by_top.items():
            for here in range(min(size, active - chosen) + 1):
                key = (chosen + here, max(top, here))
                after[key] = after.get(key, 0) + number * comb(size, here)
        by_top = after
    every = comb(sum(classes), active)
    return sum(
        (
            Fraction(top * number, every)
            for (chosen, top), number in by_top.items()
            if chosen == active
        ),
        Fraction(0),
    )


def balanced(senders: int, rails: int) -> Row:
    """The most equal classes."""
    return tuple((senders + n) // rails for n in range(rails))


def dice(quick: bool = False, *, least: Callable[[int, int], Row] = balanced) -> Result:
    """T18f: against a random choice of senders, no split of the senders over rails has a smaller
    mean than the most equal one, `least`.
    """
    failures, most, count = [], 6 if quick else 9, 0
    for rails, senders in product((2, 3, 4), range(1, most + 1)):
        for active in range(1, senders + 1):
            best = mean_largest(least(senders, rails), active)
            for classes in deals(rails, senders):
                count += 1
                if mean_largest(classes, active) < best:
                    failures.append(f"{active} of {senders} senders: {classes} below {best}")
    covered = f"N = 2, 3, 4, up to {most} senders ({count} splits and numbers of senders)"
    return verdict("exhaustive", covered, failures, ("one chunk per sender", "one destination"))


# ---------------------------------------------------------------- an integer per destination


PATHS: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 5), (1, 5), (1, 6), (2, 6), (2, 8), (3, 8), (3, 7), (4, 7)),
    ((0, 5), (1, 5), (1, 6), (4, 6), (4, 7), (3, 7), (3, 8), (2, 8)),
)
"""Two paths of unit chunks, senders 0 to 4 and receivers 5 to 8.  Sender 3 has the same row in
both, and its destinations the same columns, but the path runs through it the other way."""


def columns(quick: bool = False, *, see: bool = False) -> Result:
    """T18i: no rule keeps both PATHS at one chunk per NIC that sees of a sender its row and the
    columns of its destinations; with `see` it sees everything.
    """

    def views(path: tuple[tuple[int, int], ...], rails: Row) -> dict[object, tuple[Row, ...]]:
        """What each sender sees -> what it does."""
        seen: dict[object, tuple[Row, ...]] = {}
        for k in range(5):
            mine = [f for sender, f in path if sender == k]
            column = [(f, tuple(sorted(j for j, g in path if g == f))) for f in mine]
            view = (k, tuple(sorted(column)), path if see else ())
            seen[view] = tuple(
                sorted((f, n) for (j, f), n in zip(path, rails, strict=True) if j == k)
            )
        return seen

    def good(path: tuple[tuple[int, int], ...], rails: Row) -> bool:
        chunks = list(zip(path, rails, strict=True))
        ends = [(side, ends[side], n) for ends, n in chunks for side in (0, 1)]
        return len(set(ends)) == len(ends)

    plans = [
        [views(path, rails) for rails in product((0, 1), repeat=len(path)) if good(path, rails)]
        for path in PATHS
    ]
    failures = [
        f"a rule keeps both: {one}"
        for one, other in product(*plans)
        if all(other.get(view, act) == act for view, act in one.items())
    ]
    if not all(plans):
        failures.append("a path has no plan of one chunk per NIC")
    return verdict(
        "exhaustive", "9 nodes, N = 2: all plans of two paths", failures, ("N = 2", "one round")
    )
