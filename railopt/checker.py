"""The trusted checker: re-checks certificates (JSON) and plans (.npz) with integers and fractions.

    python3 -S railopt/checker.py FILE...       exit 0: all hold, 4: one fails, 1: one is unreadable

One file of the standard library alone, to be read from top to bottom by someone who trusts
nothing.  Its parts, in order:

    what a verdict says, and how foreign text becomes values
    witnesses about the rails of one node, from the simplest to the hardest
    witnesses about all nodes at once
    what a plan or an assignment attains
    certificates about time, about what is moved inside nodes, about copies of experts in spare
    slots, about every placement of a layer, and about links above leaves
    the verdict

A function that checks a witness is headed by the theorem that makes it sound, in the words of
`proofs/THEOREMS.toml`, where each of them is proved in Coq.

Words.  A *chunk*, or *job*, is a number of bytes that travels over one *rail*.  A *bound* T says
that nothing is done before T.  It is shown by refuting the opposite: before T a rail of speed v
carries at most ``ceil(T v) - 1`` bytes, its *capacity*, and a *witness* shows that the jobs can't
be carried within the capacities.  A bound that rests on a solver's word is *claimed*, and never
called proved.

No file makes this program run long or wide.  Reading n bytes costs a fixed multiple of n, and a
check that needs more than `WORK` steps (of a tenth to a fifth of a microsecond) is refused before
it takes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import zipfile
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, compress, repeat
from math import ceil, gcd, prod
from operator import add, and_, eq, floordiv, mul, sub
from typing import Any, BinaryIO, NamedTuple, TextIO

WORK = 20_000_000  # steps of one check
MOST = 1 << 20  # nodes, rails, GPUs per node
MEMORY = 1 << 28  # bytes of a parsed certificate
DIRECTORY = 1 << 16  # bytes of a plan file's list of members
SETS = 1_500_000  # sets of jobs in either half of a cover's list, of some 200 bytes each
SUMS = 100_000  # up to which the sums of a NIC's chunks are looked for, in units
DIGITS = 1300  # of one whole number
LONG = re.compile(rb"(?<![0-9])[0-9]{%d}" % (DIGITS + 1))
PRINTED = 200  # characters of a message

Rates = list[list[int]]  # [node][rail], bytes per second; 0 is a dead rail
Column = Sequence[int]  # one number per chunk
Witness = dict[str, Any]


# ================================================================ what is said, and when it is not


@dataclass(frozen=True)
class Verdict:
    """What the checker found.

    ok        the file shows what it claims
    optimal   of its plan or assignment: the value meets a bound whose witness was checked
    kind      what was checked: the kind of witness, "claimed by NAME", or "plan"
    message   why, in words
    bound     nothing is faster: bytes for a local problem of equal rails and for stages (kind
              "line"), else seconds; or, of kind "moved", nothing in time moves fewer bytes; or, of
              kind "split", the fullest GPU has as many tokens whatever is copied
    value     what its plan, assignment or flow takes, or moves, or the tokens of its fullest GPU
    best      what the best solution takes that the file holds
    optimum   "known" or "claimed" if that one meets the bound, "open" otherwise
    content   of a file: the digest of what was read, a plan's own or blake2b of a certificate's
              bytes, so that what else is said of the file is said of the same content
    """

    ok: bool
    optimal: bool
    kind: str
    message: str
    bound: Fraction | None = None
    value: Fraction | None = None
    best: Fraction | None = None
    optimum: str = "open"
    content: str = ""


class Rejected(Exception):
    """The certificate or plan does not show what it claims."""


def need(condition: bool, message: str) -> None:
    """Reject unless `condition` holds."""
    if not condition:
        raise Rejected(message)


class Meter:
    """Counts steps, and refuses the one that would exceed the limit before it is taken."""

    def __init__(self, limit: int) -> None:
        self.limit, self.spent = limit, 0

    def spend(self, steps: int) -> None:
        """Take `steps` more."""
        self.spent += steps
        self.afford(0)

    def afford(self, steps: int) -> None:
        """Refuse here if `steps` more, which are sure to come, would be too many."""
        if self.spent + steps > self.limit:
            raise Rejected(f"refused: the check needs more than {self.limit} steps")


def printable(text: object) -> str:
    """Foreign text on one line: what is not printable as an escape, cut at `PRINTED` characters."""
    shown = str(text)[: PRINTED + 1]
    escaped = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return escaped if len(escaped) <= PRINTED else escaped[:PRINTED] + "..."


# ================================================================ reading


def parsed(data: bytes, floats: Callable[[str], float] = float) -> Any:
    """The JSON value in `data`: no number longer than `DIGITS`, no key twice, no more than `MEMORY`
    bytes, counted at 250 a list, object or key and 40 an element before anything is parsed.
    """
    lists, keys = data.count(b"[") + data.count(b"{"), data.count(b":")
    if 250 * (lists + keys) + 40 * data.count(b",") + 4 * len(data) > MEMORY:
        raise ValueError(f"more than {MEMORY >> 20} MiB to read")
    if LONG.search(data):
        raise ValueError(f"a number of more than {DIGITS} digits")
    return json.loads(
        data.decode(), object_pairs_hook=distinct, parse_float=floats, parse_constant=floats
    )


def no_float(text: str) -> float:
    """Refuse a number that may be written in several ways."""
    raise ValueError(f"{text[:40]}: expected whole numbers alone")


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("an object has a key twice")
    return record


def fields(record: Any, where: str, required: str, optional: str = "") -> dict[str, Any]:
    """`record` as an object that has every required key and no unknown one."""
    wanted, known = {*required.split()}, {*required.split(), *optional.split()}
    need(
        isinstance(record, dict) and wanted <= set(record) <= known,
        f"{where}: expected the fields {required}" + f", perhaps {optional}" * bool(optional),
    )
    return dict(record)


def integer(value: Any, where: str, low: int = 0, high: int = 1 << 4096) -> int:
    """`value` as a whole number from `low` to `high`; true and 1.0 are none."""
    need(
        type(value) is int and low <= value <= high,
        f"{where}: {str(value)[:40]} is not a whole number in its range",
    )
    return int(value)


def integers(values: Any, where: str, low: int = 0, high: int = 1 << 4096) -> list[int]:
    """A list of whole numbers from `low` to `high`."""
    need(isinstance(values, list), f"{where}: expected a list of whole numbers")
    suspects = [min(values), max(values)] if {*map(type, values)} == {int} else values
    for value in suspects:
        integer(value, where, low, high)
    return list(values)


def matrix(rows: Any, where: str, height: int = 0, width: int = 0) -> Rates:
    """Rows of whole numbers, all of one width; `height` and `width` 0 are any but none."""
    need(
        isinstance(rows, list) and len(rows) > 0 and height in (0, len(rows)),
        f"{where}: expected {height or 'some'} rows",
    )
    numbers = [integers(row, where) for row in rows]
    expected = width or len(numbers[0]) or 1
    need(
        all(len(row) == expected for row in numbers),
        f"{where}: expected {expected} numbers in every row",
    )
    return numbers


def fraction(text: Any, where: str) -> Fraction:
    """ "p" or "p/q" as a number of at least 0."""
    form = rf"[0-9]{{1,{DIGITS}}}(/0*[1-9][0-9]{{0,{DIGITS}}})?"
    well = isinstance(text, str) and len(text) < 3 * DIGITS and re.fullmatch(form, text)
    need(bool(well), f'{where}: {str(text)[:40]!r}, expected "p" or "p/q"')
    return Fraction(text)


def kind_of(witness: Any) -> str:
    """The kind that a witness says it is; empty if it says none."""
    return str(witness.get("kind"))[:40] if isinstance(witness, dict) else ""


def claimant(witness: Any) -> str:
    """Whose word a bound rests on; empty where its witness has to be checked."""
    if kind_of(witness) == "node":
        return claimant(witness.get("witness"))
    if kind_of(witness) != "claimed":
        return ""
    by = fields(witness, "witness", "kind by")["by"]
    need(
        isinstance(by, str) and 0 < len(by) <= 200,
        "claimed by nobody: expected a name and a version",
    )
    return printable(by)


# ================================================================ jobs on the rails of one node


class Packing(NamedTuple):
    """What a local witness has to refute: that jobs of these sizes can be put on rails so that none
    carries more than its capacity.

    sizes        falling, counted in `unit`
    capacities   of the live rails, counted in `unit` and rounded down: sums of sizes are multiples
    unit         the sizes' greatest common divisor, in bytes
    """

    sizes: list[int]
    capacities: list[int]
    unit: int


def prove_local(
    sizes: Sequence[int], speeds: Sequence[int], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """Check that jobs of these sizes on rails of these speeds (0 is dead) are not done before
    `bound`; the kind of witness.
    """
    live = [speed for speed in speeds if speed]
    need(bool(live) or not sizes, "bytes without a live rail")
    need(bool(sizes) or bound <= 0, "a time for no bytes")
    unit, different = gcd(*sizes) or 1, set(live)
    meter.spend(20 * words(bound.numerator + bound.denominator) * len(different))
    capacity = {speed: (ceil(bound * speed) - 1) // unit for speed in different}
    counted = sorted((size // unit for size in sizes), reverse=True)
    return refute(Packing(counted, [capacity[speed] for speed in live], unit), witness, meter)


def refute(packing: Packing, witness: Any, meter: Meter) -> str:
    """Check the witness that `packing` can't be done; its kind."""
    kind = kind_of(witness)
    need(kind in LOCAL, f"witness of kind {kind!r}: expected one of {', '.join(LOCAL)}")
    rule, capacities = LOCAL[kind], packing.capacities
    fields(witness, f"witness {kind}", f"kind {rule.required}", "capacity")
    same = len(set(capacities)) <= 1
    need(same or not (rule.one_speed or "capacity" in witness), f"{kind}: the speeds differ")
    if max(capacities, default=-1) < 0:
        return kind  # a bound of 0: no rail has to be done before it
    meter.spend(len(packing.sizes) + len(capacities))
    stated = integer(witness.get("capacity", capacities[0] * packing.unit), "capacity")
    need(
        stated // packing.unit == capacities[0], f"capacity {stated} is not what the bound refutes"
    )
    need(rule.checker(packing, witness, meter), f"the {kind} witness does not show the bound")
    return kind


# ---------------------------------------------------------------- by sums and counts


def average(packing: Packing, witness: Witness, meter: Meter) -> bool:
    """T7a, average, largest, pair: All rails together carry all bytes; some rail carries the
    largest chunk; of N + 1 chunks two share a rail.

    Here the first of the three: all bytes are more than all capacities.
    """
    return sum(packing.sizes) > sum(packing.capacities)


def pigeonhole(packing: Packing, witness: Witness, meter: Meter) -> bool:
    """T7b, pigeonhole: Of the l largest chunks some k of N equal rails carry at least
    lam = k (l div N) + min(k, l mod N), hence at least the lam smallest of them.

    These are more than k capacities.  (The largest chunk is l = k = 1, the pair l = N + 1, k = 1.)
    """
    sizes, rails = packing.sizes, len(packing.capacities)
    largest = integer(witness["jobs"], "jobs", 1, len(sizes))
    some = integer(witness["rails"], "rails", 1, rails)
    carried = some * (largest // rails) + min(some, largest % rails)
    return sum(sizes[largest - carried : largest]) > some * packing.capacities[0]


def count(packing: Packing, witness: Witness, meter: Meter) -> bool:
    """T7c, count: Before time T a rail of speed v takes at most as many of the j largest chunks as
    their smallest fit into its capacity; together fewer than j is a contradiction.
    """
    jobs = integer(witness["jobs"], "jobs", 1, len(packing.sizes))
    smallest_first = reversed(packing.sizes[:jobs])
    sums = list(accumulate(smallest_first))
    return sum(bisect_right(sums, capacity) for capacity in packing.capacities) < jobs


def subset_sums(sizes: Iterable[int], top: int, meter: Meter) -> int:
    """The sums up to `top` of all sets of jobs, as the bits of one number: bit s is set if some
    jobs have the sum s.
    """
    fitting = [size for size in sizes if size <= top]
    meter.spend((top // 64 + 1) * (len(fitting) + 1))
    sums, up_to_top = 1, (2 << top) - 1
    for size in fitting:
        sums |= (sums << size) & up_to_top
    return sums


# ---------------------------------------------------------------- by weights


def dual(packing: Packing, witness: Witness, meter: Meter) -> bool:
    """T7d, integer dual: If all chunks weigh more than the heaviest loads that the rails can hold
    before T, no plan is done before T.

    Weights are [size in bytes, weight] pairs; a size that is not named weighs nothing.
    """
    sizes, capacities = packing.sizes, packing.capacities
    of, named = dict.fromkeys(sizes, 0), set[int]()
    for size, weight in matrix(witness["weights"], "weights", width=2):
        job, rest = divmod(size, packing.unit)
        once = rest == 0 and job in of and job not in named
        need(once, f"two weights for size {size}, or no such job")
        named.add(job)
        of[job] = weight
    total = sum(of[size] for size in sizes)
    # on equal rails a heaviest load of less than this leaves a contradiction anyway
    enough = max(0, total - 1) // len(capacities) if len(set(capacities)) == 1 else 0
    most = {
        capacity: max(enough, heaviest(sizes, of, capacity, enough, meter))
        for capacity in sorted(set(capacities))
    }
    return sum(most[capacity] for capacity in capacities) < total


def heaviest(
    sizes: list[int], weights: dict[int, int], capacity: int, enough: int, meter: Meter
) -> int:
    """The largest weight of jobs of at most `capacity` together, where it is more than `enough`;
    otherwise anything up to `enough`.

    Jobs are offered by falling weight per size.  Of the sets met so far only (sum, weight) pairs
    are kept that no other beats in both, and that the jobs to come can still make heavier than
    the heaviest known: by what fits, by all their weight, by their weight per size.
    """
    meter.spend(len(sizes))
    jobs = [(size, weights[size]) for size in sizes if weights[size] and size <= capacity]
    each = 12 * words(capacity + sum(weight for _, weight in jobs))
    meter.spend(each * each // 8 * len(jobs))
    jobs.sort(key=lambda job: Fraction(*job))
    smallest_after = [*accumulate((size for size, _ in reversed(jobs)), min, initial=capacity + 1)]
    best, to_come, kept = enough, sum(weight for _, weight in jobs), [(0, 0)]
    for size, weight in jobs:
        meter.spend(each * (len(kept) + 1))
        with_it = [(s + size, w + weight) for s, w in kept if s + size <= capacity]
        smallest_after.pop()
        fits, to_come = smallest_after[-1], to_come - weight
        met, kept, heaviest_below = sorted(kept + with_it), [], -1
        for s, w in met:
            if w > heaviest_below:
                heaviest_below, room = w, capacity - s
                if w > best:
                    best = w
                if fits <= room and w + to_come > best and w * size + room * weight > best * size:
                    kept.append((s, w))
    return best


def words(number: int) -> int:
    """How many times as long a step takes with numbers of this length as with small ones, about."""
    return 1 + number.bit_length() // 64


# ---------------------------------------------------------------- by following every way

Stock = tuple[int, ...]  # how many are left of each kind: kinds of rails, then kinds of jobs
FEW = 8  # ways: up to so many, loads are listed anew at each of them


def cover(packing: Packing, witness: Witness, meter: Meter) -> bool:
    """T7f, cover: If following every way to cover the chunks with possible loads ends in a dead
    end, no plan keeps the capacity.

    Equal jobs are of one *kind*, rails of equal capacity too.  The *first* job left, by falling
    size, lies on some rail together with others: in some *load* of that rail.  Every load that it
    may lie in is tried, then the first job left after that, until no job is left (then there is a
    plan) or no load (a dead end).

    Not every set of jobs is a possible load: all rails together may waste no more than the *slack*,
    capacities less sizes.
    """
    capacities, counts = Counter(packing.capacities), Counter(packing.sizes)
    whole_stock = (*capacities.values(), *counts.values())
    search = Search(list(capacities), list(counts), whole_stock, meter)
    slack = sum(packing.capacities) - sum(packing.sizes)
    return search.is_dead_end(whole_stock, slack, Listing(search, whole_stock, slack), 1)


class Load(NamedTuple):
    """Jobs that may lie on one rail.

    waste    what the rail has room for beyond them
    needs    (kind, how many) of all that it takes: one rail, and its jobs
    takes    the same as a stock, with a number for every kind
    better   kinds of jobs of which none may be left: one would fit into this load, alone or in
             place of a smaller one that is not of its first kind
    """

    waste: int
    needs: tuple[tuple[int, int], ...]
    takes: Stock
    better: tuple[int, ...]


class Search:
    """All ways to cover jobs with loads.

    Stocks known to end in a dead end are skipped, and loads that would be better with a job that is
    left.  If there is a plan with such a load, then exchange the jobs: that rail is fuller, its
    first job is still there, and the other rail is no fuller than before.  Repeat until no exchange
    is left: there is a plan whose load is not skipped.

    A *set* of jobs is one number, so that many are made quickly.  From its low end it holds how
    many of each kind there are (at the bits `counted`), and their sum (from bit `sum_at`), each
    with room for the largest.  Sets without a job in common add up.
    """

    def __init__(
        self,
        capacities: list[int],
        order: list[int],
        stock: Stock,
        meter: Meter,
    ) -> None:
        self.capacities, self.rails = capacities, len(capacities)
        self.jobs = range(self.rails, self.rails + len(order))  # their kinds
        self.size = [0] * self.rails + order  # of each kind; a rail takes nothing
        self.counted = [*accumulate(map(int.bit_length, stock), initial=0)]
        self.sum_at = self.counted[-1]
        self.rising = sorted(self.jobs, key=self.size.__getitem__)  # kinds of jobs
        self.sizes_rising = sorted(order)
        self.dead_ends: set[Stock] = set()
        self.meter, self.each = meter, 1 + words(1 << self.sum_at)  # steps of a set

    def is_dead_end(self, left: Stock, slack: int, listing: Listing, ways: int) -> bool:
        """Whether the jobs left do not fit on the rails left, which may waste `slack` together.

        listing   of loads from a stock of which the one left is a part
        ways      how many ways there were to come here, about
        """
        first = next(compress(self.jobs, left[self.rails :]), None)
        if first is None:
            return False
        possible = listing.possible(left, slack, first)
        ways *= len(possible)
        self.meter.spend(30 + (44 + len(left) // 8) * len(possible))
        for load in possible:
            after = tuple(map(sub, left, load.takes))
            if after in self.dead_ends or any(map(after.__getitem__, load.better)):
                continue
            rest = slack - load.waste
            below = listing if ways > FEW else Listing(self, after, rest)
            if not self.is_dead_end(after, rest, below, ways):
                return False
            self.dead_ends.add(after)
        return True

    def listed(self, stock: Stock, slack: int, first: int) -> list[Load]:
        """Every possible load from `stock` with a job of kind `first` and others of later kinds.

        All sets of every other kind, and all sets of the kinds between, are listed by their sum;
        a load is a set of each, together in the window from capacity - slack to capacity.
        """
        rails = [rail for rail in range(self.rails) if stock[rail]]
        room = max((self.capacities[rail] for rail in rails), default=0) - self.size[first]
        if room < 0 or slack < 0:
            return []
        left = [(kind, stock[kind] - (kind == first)) for kind in range(first, len(stock))]
        ones, others = self.sets(left[::2], room), self.sets(left[1::2], room)
        totals, sums = ([one >> self.sum_at for one in some] for some in (ones, others))
        found = []
        for rail in rails:
            high = self.capacities[rail] - self.size[first]
            fitting = bisect_right(totals, high)
            self.meter.spend(5 * fitting)
            for i in range(fitting):
                left_over = high - totals[i]
                begin, end = bisect_left(sums, left_over - slack), bisect_right(sums, left_over)
                self.meter.spend(5 + (end - begin) * (21 + len(stock) // 4))
                for j in range(begin, end):
                    taken = {rail: 1, first: 0, **self.kinds_of(ones[i] + others[j], first)}
                    taken[first] += 1
                    found.append(self.load(first, left_over - sums[j], taken))
        return found

    def sets(self, kinds: list[tuple[int, int]], room: int) -> list[int]:
        """All sets of at most so many of these kinds that have `room`, by their sum."""
        found, beyond = [0], room + 1 << self.sum_at
        for kind, number in kinds:
            size, with_it = self.size[kind], list[int]()
            one = (size << self.sum_at) + (1 << self.counted[kind])
            for n in range(1, min(number, room // size) + 1):
                self.meter.spend(self.each * len(found) + 3)
                few = 2 * len(found) + len(with_it) <= SETS
                need(few, "refused: too many sets of jobs")
                fitting = found[: bisect_left(found, beyond - n * one)]
                with_it += map((n * one).__add__, fitting)
            found = sorted(found + with_it)
        return found

    def kinds_of(self, some: int, first: int) -> dict[int, int]:
        """How many a set has of each of the kinds from `first` on that are in it."""
        taken, last_first = {}, f"{some:b}"[::-1]
        for kind in range(first, len(self.size)):
            field = last_first[self.counted[kind] : self.counted[kind + 1]]
            if "1" in field:
                taken[kind] = int(field[::-1], 2)
        return taken

    def load(self, first: int, waste: int, taken: dict[int, int]) -> Load:
        """The load of these jobs, which leaves `waste` of its rail."""
        better = set[int]()
        for kind in taken:
            if kind != first:  # the rail stands for no job: something is added
                size = self.size[kind]
                larger = bisect_right(self.sizes_rising, size)
                fitting = bisect_right(self.sizes_rising, size + waste)
                better.update(self.rising[larger:fitting])
        self.meter.spend(10 * len(taken) + sum(taken.values()) + 2 * len(better))
        takes = [0] * len(self.size)
        for kind, number in taken.items():
            takes[kind] = number
        return Load(waste, tuple(taken.items()), tuple(takes), tuple(better))


class Listed(NamedTuple):
    """Loads with one first kind, by rising waste.  A set of them is a number: its bit i stands for
    loads[i].

    wastes    of each load
    at_most   (kind, n) -> the set of loads that take at most n of that kind, where some take more
    """

    loads: list[Load]
    wastes: list[int]
    at_most: dict[tuple[int, int], int]


class Listing:
    """The loads possible from one stock, listed when a first kind is asked for."""

    def __init__(self, search: Search, stock: Stock, slack: int) -> None:
        self.search, self.stock, self.slack = search, stock, slack
        self.known: dict[int, Listed] = {}

    def possible(self, left: Stock, slack: int, first: int) -> list[Load]:
        """The loads with this first kind that waste no more than `slack`, and take no more than is
        left.
        """
        if first not in self.known:
            self.known[first] = self.listed(first)
        loads, wastes, at_most = self.known[first]
        usable = (1 << bisect_right(wastes, slack)) - 1
        limited = at_most.keys() & enumerate(left)
        self.search.meter.spend(len(limited) * (1 + len(loads) // 4096))
        for kind_and_number in limited:
            usable &= at_most[kind_and_number]
        return [loads[i] for i in bits_of(usable)]

    def listed(self, first: int) -> Listed:
        """All loads with this first kind."""
        loads = sorted(self.search.listed(self.stock, self.slack, first), key=lambda l: l.waste)
        more: dict[tuple[int, int], list[int]] = {}
        for i, load in enumerate(loads):
            for kind, number in load.needs:
                for n in range(number):
                    more.setdefault((kind, n), []).append(i)
        self.search.meter.spend(len(more) * (1 + len(loads) // 4096))
        everything = (1 << len(loads)) - 1
        at_most = {
            pair: everything ^ number_of(members, len(loads)) for pair, members in more.items()
        }
        return Listed(loads, [load.waste for load in loads], at_most)


def number_of(members: list[int], length: int) -> int:
    """The number whose bits these are, all below `length`."""
    octets = bytearray(length // 8 + 1)
    for member in members:
        octets[member // 8] |= 1 << member % 8
    return int.from_bytes(octets, "little")


def bits_of(number: int) -> list[int]:
    """Which bits of a number are set, the highest first."""
    members = []
    while number:
        members.append(number.bit_length() - 1)
        number ^= 1 << members[-1]
    return members


class Rule(NamedTuple):
    """How witnesses of one kind are checked: by what, their fields beside `kind`, and whether all
    rails must be of one speed.
    """

    checker: Callable[[Packing, Witness, Meter], bool]
    required: str = ""
    one_speed: bool = False


LOCAL = {
    "average": Rule(average),
    "pigeonhole": Rule(pigeonhole, "jobs rails", one_speed=True),
    "count": Rule(count, "jobs"),
    "dual": Rule(dual, "weights"),
    "cover": Rule(cover),
}


# ================================================================ chunks between all nodes at once

Demand = dict[tuple[int, int], int]  # (source, destination) -> bytes, of pairs that have some


def node(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """T7g, one node bounds all: What one node has to send (or receive) is a local problem; no plan
    of the coupled problem is faster than its optimum.
    """
    fields(witness, "witness node", "kind node side witness")
    which = integer(witness["node"], "node", 0, len(tx) - 1)
    need(witness["side"] in ("send", "recv"), "side: expected send or recv")
    src, dst, size = chunks
    ends, rates = (src, tx) if witness["side"] == "send" else (dst, rx)
    sizes = [bytes_ for end, bytes_ in zip(ends, size, strict=True) if end == which]
    return "node " + prove_local(sizes, rates[which], bound, witness["witness"], meter)


# ---------------------------------------------------------------- some sides together

Rooms = tuple[int, ...]  # of one rail: the room that it has left at each of the sides
Way = tuple[Rooms, ...]  # of all rails, in order: rails alike are interchangeable


class Side(NamedTuple):
    """What one node sends, or receives: the room of each rail before the bound, and what each chunk
    takes of it (0 if it does not touch this side), counted in the sizes' common divisor.
    """

    rooms: list[int]
    taken: list[int]


class Piece(NamedTuple):
    """A chunk in the order of the search: what it takes at each side, and for each side the sums
    that the chunks after it can have (as bits, or none) and what they have all together.
    """

    takes: Rooms
    sums: Rooms
    to_come: Rooms


def prove_joint(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """T7i, several sides at once: Put the chunks of some senders and receivers on rails, one by one
    in every way, as long as the rooms that these sides leave before T hold what is to come: if no
    way is left, no plan is done before T.
    """
    sides = named_sides(tx, rx, chunks, bound, witness, meter)
    start: Way = tuple(sorted(zip(*(side.rooms for side in sides), strict=True)))
    ways = {start}
    for piece in in_order(sides, meter):
        words = sum(map(int.bit_length, (*piece.sums, *piece.to_come))) // 64
        each = len(start) * (18 * len(sides) + words)
        before, ways = ways, set()
        for way in before:
            meter.spend(each)
            for after in placed(way, piece, meter):
                ways.add(after)
                meter.afford(each * len(ways))
    need(not ways, "the joint witness does not show the bound")
    return "joint"


def named_sides(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> list[Side]:
    """The sides that the witness names, the tightest first."""
    fields(witness, "witness joint", "kind send recv")
    src, dst, size = chunks
    unit, sides = gcd(*size) or 1, []
    for name, ends, rates in (("send", src, tx), ("recv", dst, rx)):
        for which in dict.fromkeys(integers(witness[name], name, 0, len(rates) - 1)):
            meter.spend(len(ends) * 4 + len(rates[which]) * 20)
            taken = [
                bytes_ // unit if end == which else 0
                for end, bytes_ in zip(ends, size, strict=True)
            ]
            most = sum(taken)
            rooms = [min(max(0, ceil(bound * v) - 1) // unit, most) for v in rates[which]]
            sides.append(Side(rooms, taken))
    return sorted(sides, key=lambda side: sum(side.rooms) - sum(side.taken))


def in_order(sides: list[Side], meter: Meter) -> list[Piece]:
    """The chunks that touch a side: those of the tightest sides first, of several before those of
    one, then by falling size.  Without sums where these would take too many bits.
    """
    touching = [*filter(any, zip(*(side.taken for side in sides), strict=True))]
    words = len(touching) * sum(map(sum, touching)) // 16
    summed = words <= WORK // 4
    meter.spend(len(touching) * (10 * len(sides) + 20) + words * summed)
    last_first = sorted(touching, key=lambda takes: ([take > 0 for take in takes], max(takes)))
    sums, totals, pieces = (1,) * len(sides) * summed, (0,) * len(sides), []
    for takes in last_first:
        pieces.append(Piece(takes, sums, totals))
        sums = tuple(bits | bits << take for bits, take in zip(sums, takes, strict=summed))
        totals = tuple(map(int.__add__, totals, takes))
    return pieces[::-1]


def placed(way: Way, piece: Piece, meter: Meter) -> list[Way]:
    """Every way to put the piece on a rail that has room for it at all sides, and after which the
    rooms hold what is to come.  Of rails alike one is tried.
    """
    others = [useful(rooms, piece.sums) for rooms in way]
    held = [sum(rooms) for rooms in zip(*others, strict=True)]
    found, tried = [], set[Rooms]()
    for rail, rooms in enumerate(way):
        if rooms in tried or not all(map(int.__ge__, rooms, piece.takes)):
            continue
        tried.add(rooms)
        fuller = useful(tuple(map(sub, rooms, piece.takes)), piece.sums)
        holds = map(int.__add__, map(sub, held, others[rail]), fuller)
        if all(map(int.__ge__, holds, piece.to_come)):
            meter.spend(len(way))
            found.append(tuple(sorted([*others[:rail], fuller, *others[rail + 1 :]])))
    return found


def useful(rooms: Rooms, sums: Rooms) -> Rooms:
    """Of each room as much as the chunks to come can fill: the largest of their sums within it; all
    of it without sums.
    """
    if not sums:
        return rooms
    return tuple(
        [
            (bits & ((2 << room) - 1)).bit_length() - 1
            for room, bits in zip(rooms, sums, strict=True)
        ]
    )


# ---------------------------------------------------------------- by prices at all NICs


class Prices(NamedTuple):
    """Prices of a byte at every NIC, [node][rail], none below 0."""

    send: Rates
    recv: Rates

    def earned(self, sent: Rates, received: Rates) -> int:
        """What all NICs are paid for sending and receiving so many bytes."""
        both = ((self.send, sent), (self.recv, received))
        return sum(sum(map(mul, *rows)) for pair in both for rows in zip(*pair, strict=True))


def read_prices(witness: Witness, nodes: int, rails: int) -> Prices:
    """Those of a witness."""
    return Prices(
        matrix(witness["send"], "send", nodes, rails), matrix(witness["recv"], "recv", nodes, rails)
    )


def priced(tx: Rates, rx: Rates, demand: Demand, witness: Any, meter: Meter) -> tuple[Prices, int]:
    """The prices of a witness, and what the bytes of `demand` cost, each at the cheapest rail that
    is live at both its ends.
    """
    fields(witness, f"witness {kind_of(witness)}", "kind send recv")
    nodes, rails = len(tx), len(tx[0])
    prices = read_prices(witness, nodes, rails)
    a, b = prices
    meter.spend((len(demand) + nodes) * (2 * rails + 15) * words(max(map(max, a + b))))
    sending, receiving = ([[rate > 0 for rate in row] for row in side] for side in (tx, rx))
    cost = 0
    for (k, f), bytes_ in demand.items():
        live = [*compress(map(add, a[k], b[f]), map(and_, sending[k], receiving[f]))]
        need(bool(live), f"no live rail from node {k} to node {f}")
        cost += bytes_ * min(live)
    return prices, cost


def prove_fluid(
    tx: Rates, rx: Rates, demand: Demand, bound: Fraction, witness: Any, meter: Meter
) -> str:
    """T7h, fluid dual: With non-negative prices a byte of a NIC, what all bytes cost at their
    cheapest live rail over what all NICs earn in a second bounds every plan from below.
    """
    need(kind_of(witness) == "fluid", "witness: expected fluid or claimed")
    prices, cost = priced(tx, rx, demand, witness, meter)
    earned = prices.earned(tx, rx)
    need(bound * earned <= cost, f"the prices show {cost}/{earned}, not {bound}")
    need(earned > 0 or bound <= 0, "prices of 0 show nothing")
    return "fluid"


def fluid(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """T7h, fluid dual: With non-negative prices a byte of a NIC, what all bytes cost at their
    cheapest live rail over what all NICs earn in a second bounds every plan from below.

    Chunks that may be cut at will are no slower than whole ones.
    """
    return prove_fluid(tx, rx, demanded(len(tx), *chunks), bound, witness, meter)


def prove_whole_chunks(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """T7k, prices of whole chunks: Before T a NIC carries a sum of its node's chunks, and of those
    for one far end a sum that the NIC there has room for too: if all bytes cost more, at their
    cheapest live rail, than all NICs are paid for the largest such sums, no plan is done before T.
    """
    prices, cost = priced(tx, rx, demanded(len(tx), *chunks), witness, meter)
    earned = prices.earned(*held(tx, rx, chunks, bound, meter))
    need(cost > earned, f"all bytes cost {cost}, and NICs can be paid {earned}")
    return "whole"


def held(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, meter: Meter
) -> tuple[Rates, Rates]:
    """Bytes that each NIC can send before `bound`, and that it can receive, in whole chunks."""
    src, dst, size = chunks
    unit = gcd(*size) or 1
    meter.spend(8 * len(size) + 40 * len(tx) * len(tx[0]))
    sent, received = (
        [[max(0, ceil(bound * speed) - 1) // unit for speed in row] for row in side]
        for side in (tx, rx)
    )
    both = []
    for ends, fars, rooms, others in ((src, dst, sent, received), (dst, src, received, sent)):
        own: list[dict[int, list[int]]] = [{} for _ in rooms]  # node -> far end -> sizes in units
        for end, far, bytes_ in zip(ends, fars, size, strict=True):
            own[end].setdefault(far, []).append(bytes_ // unit)
        both.append(
            [
                [unit * sum_ for sum_ in held_at(row, sizes, others, meter)]
                for row, sizes in zip(rooms, own, strict=True)
            ]
        )
    return both[0], both[1]


def held_at(
    rooms: list[int], sizes: dict[int, list[int]], others: Rates, meter: Meter
) -> list[int]:
    """What each rail of a node can hold of its chunks, counted in units: `sizes` of each far end,
    which has rooms of its own.
    """
    apart = {far: Sums(jobs, meter) for far, jobs in sizes.items()}
    known: dict[tuple[int, ...], Sums] = {}  # far ends -> the sums of their chunks
    most = []
    for n, room in enumerate(rooms):
        meter.spend(len(sizes) * (10 + min(room, SUMS) // 512))
        live = tuple(far for far in sizes if others[far][n])
        if live not in known:
            meter.spend(sum(len(sizes[far]) for far in live))
            known[live] = Sums([job for far in live for job in sizes[far]], meter)
        each = sum(apart[far].within(min(room, others[far][n])) for far in live)
        most.append(min(known[live].within(room), each))
    return most


class Sums:
    """The sums that some jobs can have, looked for up to `SUMS`."""

    def __init__(self, jobs: list[int], meter: Meter) -> None:
        meter.spend(len(jobs))
        self.total = sum(jobs)
        self.bits = subset_sums(jobs, min(self.total, SUMS), meter)

    def within(self, room: int) -> int:
        """The largest of them within `room`, or, beyond `SUMS`, a number that none exceeds."""
        most = min(room, self.total)
        return most if most > SUMS else (self.bits & ((2 << most) - 1)).bit_length() - 1


COUPLED = {"node": node, "joint": prove_joint, "fluid": fluid, "whole": prove_whole_chunks}


# ================================================================ what a plan attains


def summed(places: Iterable[int], sizes: Iterable[int], length: int) -> list[int]:
    """The bytes at each of `length` places."""
    loads = [0] * length
    for place, size in zip(places, sizes, strict=True):
        loads[place] += size
    return loads


def slowest(loads: Iterable[int], speeds: Iterable[int]) -> Fraction:
    """When the last rail or NIC is done, in seconds."""
    used = [(load, speed) for load, speed in zip(loads, speeds, strict=True) if load]
    need(all(speed for _, speed in used), "bytes on a dead rail")
    most: dict[int, int] = {}
    for load, speed in used:
        most[speed] = max(load, most.get(speed, 0))
    return max((Fraction(load, speed) for speed, load in most.items()), default=Fraction(0))


def check_columns(nodes: int, src: Column, dst: Column, size: Column) -> None:
    """Every chunk has bytes, and goes from one node to another."""
    need(len(src) == len(dst) == len(size), "chunks: columns of different lengths")
    need(
        min(src, default=0) >= 0
        and max(src, default=0) < nodes
        and min(dst, default=0) >= 0
        and max(dst, default=0) < nodes
        and min(size, default=1) > 0
        and not any(map(eq, src, dst)),
        f"chunks: expected bytes between different nodes of {nodes}",
    )


def demanded(nodes: int, src: Column, dst: Column, size: Column) -> Demand:
    """Bytes from node to node; checks the columns."""
    check_columns(nodes, src, dst, size)
    demand: Demand = {}
    for source, target, bytes_ in zip(src, dst, size, strict=True):
        demand[source, target] = demand.get((source, target), 0) + bytes_
    return demand


def completion(
    tx: Rates, rx: Rates, src: Column, dst: Column, size: Column, rail: Column
) -> tuple[Fraction, Rates]:
    """(seconds, [bytes that each NIC sends, bytes that it receives]) of chunks on these rails."""
    nodes, rails = len(tx), len(tx[0])
    check_columns(nodes, src, dst, size)
    need(
        len(rail) == len(src) and min(rail, default=0) >= 0 and max(rail, default=0) < rails,
        f"expected one of {rails} rails for every chunk",
    )
    times, loads = [], []
    for ends, rates in ((src, tx), (dst, rx)):
        nics = (end * rails + n for end, n in zip(ends, rail, strict=True))
        load = summed(nics, size, nodes * rails)
        times.append(slowest(load, (rate for row in rates for rate in row)))
        loads.append(load)
    return max(times), loads


# ---------------------------------------------------------------- plan files

ITEM = {
    "|i1": "b",
    "|u1": "B",
    "<i2": "h",
    "<u2": "H",
    "<i4": "i",
    "<u4": "I",
    "<i8": "q",
    "<u8": "Q",
}
NPY = re.compile(
    r"\{'descr': '([|<][iu][1248])', 'fortran_order': False, "
    r"'shape': (\((?:[0-9]{1,18},?(?: [0-9]{1,18})?)?\)), \} *\n"
)
COLUMNS = ("src", "dst", "size", "rail")
ALSO = ("src_gpu", "dst_gpu", "flow", "offset")  # columns of chunks, of which times do not depend


class PlanFile(NamedTuple):
    """What a plan file holds: rates, the chunks' columns src, dst and size, how long it takes; and
    the rest of it, of which only what is moved inside nodes makes use.
    """

    tx: Rates
    rx: Rates
    chunks: list[Column]
    value: Fraction
    digest: str
    header: dict[str, Any]
    arrays: dict[str, Member]


class Member(NamedTuple):
    """An array of a plan file: its shape, its integers in C order, and what a digest covers of it
    but for its name.
    """

    shape: tuple[int, ...]
    values: array[int]
    covered: bytes


def read_member(data: bytes) -> Member:
    """A .npy array of integers, of one or two dimensions, as numpy writes it."""
    end = 10 + int.from_bytes(data[8:10], "little")
    form = NPY.fullmatch(data[10:end].decode("latin1"))
    if data[:8] != b"\x93NUMPY\x01\x00" or form is None or sys.byteorder != "little":
        raise ValueError("an array that is not of integers, in C order and little-endian")
    shape = tuple(int(n) for n in re.findall("[0-9]+", form[2]))
    item = array(ITEM[form[1]])
    if prod(shape) * item.itemsize != len(data) - end:
        raise ValueError(f"an array of shape {form[2]} in {len(data) - end} bytes")
    item.frombytes(data[end:])
    return Member(shape, item, f"|{form[1]}|{form[2]}|".encode() + data[end:])


def unpacked(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Member]]:
    """(header, arrays) of a railopt .npz; raises ValueError for anything else."""
    length = need_plain_zip(file)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        size = sum(entry.file_size for entry in entries)
        if len(set(names)) < len(names) or "header.json" not in names:
            raise ValueError("a member twice, or no header.json")
        if size > length:
            raise ValueError(f"members of {size} bytes, more than the file has")
        for entry in entries:
            plain = entry.compress_type == zipfile.ZIP_STORED
            if entry.flag_bits & 1 or not plain or entry.compress_size != entry.file_size:
                raise ValueError("a member that is encrypted or compressed")
            if not entry.filename.endswith(".npy") and entry.filename != "header.json":
                raise ValueError("a member that is no array")
        header = parsed(archive.read("header.json"), no_float)
        arrays = {
            name[:-4]: read_member(archive.read(name)) for name in names if name != "header.json"
        }
    if not isinstance(header, dict):
        raise ValueError("a header that is no object")
    return header, arrays


def need_plain_zip(file: BinaryIO) -> int:
    """A zip ends with its directory and a record that says how long that is: refuse a long one, and
    other ways to end, before the directory is read; and members under another name than there.
    How many bytes the file has.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 42))
    end = file.read()
    length, first = (int.from_bytes(end[at : at + 4], "little") for at in (-10, -6))
    large = end[:4] == b"PK\x06\x07"  # a record for files beyond 4 GiB
    if end[-22:-18] != b"PK\x05\x06" or large or length > DIRECTORY:
        raise ValueError("a zip with a comment, of many members or beyond 4 GiB")
    file.seek(first)
    listed, at = file.read(length), 0
    while at < length:
        fields = [int.from_bytes(listed[at + i : at + i + 2], "little") for i in (28, 30, 32)]
        name = listed[at + 46 : at + 46 + fields[0]]
        file.seek(int.from_bytes(listed[at + 42 : at + 46], "little"))
        head = file.read(30 + fields[0])
        if head[26:28] != listed[at + 28 : at + 30] or head[30:] != name:
            raise ValueError("a member under another name")
        at += 46 + sum(fields)
    return size


def read_plan(file: BinaryIO) -> PlanFile:
    """The plan in a railopt .npz; its digest, loads and makespan must be what its chunks give."""
    try:
        header, arrays = unpacked(file)
    except OSError:
        raise
    except Exception as error:  # whatever a damaged zip makes the standard library raise
        raise ValueError(f"not a readable plan ({error})") from error
    version = header.get("version")
    need(
        header.get("railopt") == "plan" and type(version) is int and version == 1,
        "expected a plan of version 1",
    )
    stated = header.pop("digest", None)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].covered)
    need(found.hexdigest() == stated, "the content does not match its digest")
    need_coherent(header, arrays)
    tx, rx = table(arrays["tx"]), table(arrays["rx"])
    stated_loads = [arrays["send"].values.tolist(), arrays["recv"].values.tolist()]
    need(min(map(min, tx + rx)) >= 0, "a rate below 0")
    columns = [arrays[name].values for name in COLUMNS]
    value, loads = completion(tx, rx, *columns)
    need(
        header.get("makespan") == str(value) and stated_loads == loads,
        f"it claims other loads or makespan than its chunks have, {value} s",
    )
    return PlanFile(tx, rx, list(columns[:3]), value, found.hexdigest(), header, arrays)


def need_coherent(header: dict[str, Any], arrays: dict[str, Member]) -> None:
    """What a plan file says twice it says alike: nodes, rails, chunks, and the nodes of GPUs."""
    tables, columns = {"tx", "rx", "send", "recv"}, {*COLUMNS, *ALSO}
    missing, unknown = (tables | columns) - set(arrays), set(arrays) - tables - columns
    need(not missing, f"a plan without {', '.join(sorted(missing))}")
    need(unknown <= {"stage", "targets"}, "a plan with arrays that are not a plan's")
    fabric: Any = header.get("fabric")
    need(isinstance(fabric, dict), "a plan without a fabric")
    shape = tuple(
        integer(fabric.get(name), f"{name} of the plan", 1, MOST) for name in ("nodes", "rails")
    )
    need(
        all(arrays[name].shape == shape for name in tables), f"tables of another shape than {shape}"
    )
    gpus = integer(header.get("chunk_gpus"), "chunk_gpus", 1, MOST)
    known = gpus in (1, integer(fabric.get("gpus"), "gpus of the plan", 1, MOST))
    need(known, "chunks of other GPUs than those of the fabric")
    count = prod(arrays["size"].shape)
    expected = dict.fromkeys([*columns, "stage"], (count,))
    for name, form in {**expected, "targets": (count, -(-gpus // 8))}.items():
        need(name not in arrays or arrays[name].shape == form, f"{name} of another shape")
    for name in {"flow", "offset", "stage"} & set(arrays):
        need(min(arrays[name].values, default=0) >= 0, f"{name} below 0")
    for ends, here in (("src_gpu", "src"), ("dst_gpu", "dst")):
        nodes = map(floordiv, arrays[ends].values, repeat(gpus))
        need(all(map(eq, nodes, arrays[here].values)), "GPUs in other nodes than their chunks")
    if "targets" in arrays:
        need_targets(arrays["targets"], arrays["dst_gpu"], gpus)


def need_targets(targets: Member, ends: Member, gpus: int) -> None:
    """Rows of bits, one per GPU of the node, are empty or have the chunk's own end among them."""
    width, octets = -(-gpus // 8), targets.values.tobytes()
    need(len(octets) == len(ends.values) * width, "targets: expected bits in octets")
    for i, end in enumerate(ends.values):
        row = int.from_bytes(octets[i * width : (i + 1) * width], "big")
        bits = row >> (8 * width - gpus)
        need(bits << (8 * width - gpus) == row, "targets: expected bits of a node's GPUs alone")
        listed = bits >> (gpus - 1 - end % gpus) & 1
        need(not bits or bool(listed), "a dst_gpu that is not one of its targets")


def table(member: Member) -> Rates:
    """A two-dimensional array as rows."""
    values, width = member.values.tolist(), member.shape[1]
    return [values[i : i + width] for i in range(0, len(values), width)]


# ================================================================ certificates


class Confirmed(NamedTuple):
    """What a certificate shows of its problem.

    kind    of the witness that was checked; or "claimed by NAME"
    value   what its plan, assignment or flow takes; None if it holds none
    best    what the best plan known takes, if the certificate holds another than that
    """

    kind: str
    value: Fraction | None
    best: Fraction | None


class Problem(NamedTuple):
    """A certificate's record, its bound, where plan files lie, and the steps to be had."""

    record: dict[str, Any]
    bound: Fraction
    directory: str
    meter: Meter


def check_local(problem: Problem) -> Confirmed:
    """T7, certificates are sound: What a certificate's witness shows holds for every plan of its
    instance: the executable check, if it says yes, implies the bound.

    The instance is a list of sizes on `rails` equal rails (bounds in bytes, as at speed 1), or on
    rails of the `speeds` given.
    """
    record, bound, _, meter = problem
    instance = fields(record["problem"], "problem", "kind sizes", "rails speeds traffic")
    need(("rails" in instance) != ("speeds" in instance), "problem: expected rails or speeds")
    sizes = integers(instance["sizes"], "sizes", 1)
    if "rails" in instance:
        speeds = [1] * integer(instance["rails"], "rails", 1, 1 << 20)
    else:
        speeds = integers(instance["speeds"], "speeds")

    def time_of(assignment: Any) -> Fraction:
        rails = integers(assignment, "assignment", 0, len(speeds) - 1)
        need(len(rails) == len(sizes), f"assignment: expected a rail for {len(sizes)} jobs")
        return slowest(summed(rails, sizes, len(speeds)), speeds)

    witness = record["witness"]
    by = claimant(witness)
    kind = f"claimed by {by}" if by else prove_local(sizes, speeds, bound, witness, meter)
    value = time_of(record["assignment"]) if "assignment" in record else None
    other = fields(record["best"], "best", "assignment") if "best" in record else None
    return Confirmed(kind, value, time_of(other["assignment"]) if other else None)


def check_coupled(problem: Problem) -> Confirmed:
    """T7, certificates are sound: What a certificate's witness shows holds for every plan of its
    instance: the executable check, if it says yes, implies the bound.

    The instance is chunks between nodes, in full or as those of a plan file.
    """
    record, bound, directory, meter = problem
    need("flow" not in record, "a flow is for divisible traffic")
    instance = fields(record["problem"], "problem", "kind nodes rails tx rx", "chunks plan traffic")
    need(("chunks" in instance) != ("plan" in instance), "problem: expected chunks or a plan")
    nodes, rails = integer(instance["nodes"], "nodes", 1), integer(instance["rails"], "rails", 1)
    tx, rx = (matrix(instance[side], side, nodes, rails) for side in ("tx", "rx"))
    value, named = None, None
    if "plan" in instance:
        need("assignment" not in record, "an assignment beside a plan")
        named = read_named(instance["plan"], directory)
        need((named.tx, named.rx) == (tx, rx), "other rates than those of the plan")
        chunks, value = named.chunks, named.value
    else:
        columns = fields(instance["chunks"], "chunks", "src dst size")
        chunks = [integers(columns[name], name) for name in ("src", "dst", "size")]
        check_columns(nodes, *chunks)
        if "assignment" in record:
            src, dst, size = chunks
            rail = integers(record["assignment"], "assignment")
            value = completion(tx, rx, src, dst, size, rail)[0]
    best = None
    if "best" in record:
        best = best_of(record["best"], (tx, rx), chunks, named, directory)
    by, witness = claimant(record["witness"]), record["witness"]
    if by:
        lifted = "node " * (kind_of(witness) == "node")
        return Confirmed(f"{lifted}claimed by {by}", value, best)
    kind = kind_of(witness)
    need(kind in COUPLED, f"witness of kind {kind!r}: expected one of {', '.join(COUPLED)}")
    return Confirmed(COUPLED[kind](tx, rx, chunks, bound, witness, meter), value, best)


def best_of(
    best: Any,
    rates: tuple[Rates, Rates],
    chunks: Sequence[Column],
    plan: PlanFile | None,
    directory: str,
) -> Fraction:
    """What the best plan known takes: rails for the same chunks, or a plan file of them; beside a
    `plan`, of the very same: GPUs, offsets and all else that the files say of their chunks.
    """
    if isinstance(best, dict) and "file" in best:
        named = read_named(best, directory)
        same = [list(a) == list(b) for a, b in zip(named.chunks, chunks, strict=True)]
        need((named.tx, named.rx) == rates and all(same), "best: a plan of another problem")
        alike = plan is None or identity(named) == identity(plan)
        need(alike, "best: a plan of chunks that are not those of this plan")
        return named.value
    rail = integers(fields(best, "best", "assignment")["assignment"], "best")
    (tx, rx), (src, dst, size) = rates, chunks
    return completion(tx, rx, src, dst, size, rail)[0]


PLANNED = {"rail", "stage", "send", "recv"}  # what plans of the same chunks may differ in


def identity(plan: PlanFile) -> dict[str, Any]:
    """What a plan file says of its chunks, by column, and of their fabric."""
    said = {name: each.covered for name, each in plan.arrays.items() if name not in PLANNED}
    header = [plan.header["chunk_gpus"], plan.header["fabric"]]
    return {**said, "": json.dumps(header, sort_keys=True)}


def read_named(named: Any, directory: str) -> PlanFile:
    """The plan file that a certificate names; it lies beside the certificate."""
    name, digest = (fields(named, "plan", "file digest")[key] for key in ("file", "digest"))
    need(
        isinstance(name, str) and name != "" and os.path.basename(name) == name,
        "plan: expected a file beside the certificate",
    )
    with open(os.path.join(directory, name), "rb") as file:
        found = read_plan(file)
    need(
        found.digest == digest,
        f"{name} is not the plan that the certificate names: its digest is {found.digest}",
    )
    return found


def check_fluid(problem: Problem) -> Confirmed:
    """T7h, fluid dual: With non-negative prices a byte of a NIC, what all bytes cost at their
    cheapest live rail over what all NICs earn in a second bounds every plan from below.

    The instance is bytes from node to node that may be cut at will.
    """
    record, bound, _, meter = problem
    need("best" not in record, "divisible traffic has one flow, no best plan beside it")
    instance = fields(record["problem"], "problem", "kind tx rx demand", "traffic")
    tx = matrix(instance["tx"], "tx")
    nodes = len(tx)
    rx = matrix(instance["rx"], "rx", nodes, len(tx[0]))
    rows = matrix(instance["demand"], "demand", nodes, nodes)
    demand = {
        (k, f): rows[k][f] for k in range(nodes) for f in range(nodes) if k != f and rows[k][f]
    }
    by = claimant(record["witness"])
    kind = f"claimed by {by}" if by else ""
    kind = kind or prove_fluid(tx, rx, demand, bound, record["witness"], meter)
    if "flow" not in record:
        return Confirmed(kind, None, None)
    flow = fields(record["flow"], "flow", "unit src dst rail amount")
    unit = integer(flow["unit"], "unit", 1)
    src, dst, amount, rail = (integers(flow[name], name) for name in FLOW)
    wanted = {pair: unit * bytes_ for pair, bytes_ in demand.items()}
    diagonal = any(rows[k][k] for k in range(nodes))
    need(demanded(nodes, src, dst, amount) == wanted and not diagonal, "flow: it is not the demand")
    return Confirmed(kind, completion(tx, rx, src, dst, amount, rail)[0] / unit, None)


FLOW = ("src", "dst", "amount", "rail")


# ---------------------------------------------------------------- bytes moved inside nodes


class InsideNode(NamedTuple):
    """The inside of every node: how many GPUs, and for each rail those near its NIC.  A set of GPUs
    is a number: its bit g stands for GPU g.
    """

    gpus: int
    near: list[int]

    def costs(self, gpu: int, needs: int) -> list[int]:
        """How often a byte of this GPU is moved, by the rail that it takes.  It is moved before the
        rail if the GPU is not near its NIC, and after it to each GPU that needs it but one that is
        near.
        """
        return [
            1 - (near >> gpu & 1) + needs.bit_count() - ((near & needs) != 0) for near in self.near
        ]


class Units(NamedTuple):
    """Units between nodes: the GPU of each (node * gpus + its number there), the node that gets it,
    its bytes, and the set of GPUs there that need it.
    """

    src_gpu: Column
    dst: Column
    size: Column
    needs: Column


def as_set(members: Iterable[int]) -> int:
    """A set of GPUs as a number."""
    found = 0
    for member in members:
        found |= 1 << member
    return found


class Moving(NamedTuple):
    """What is claimed: no plan of these units within `time` moves fewer bytes than `bound`."""

    tx: Rates
    rx: Rates
    inside: InsideNode
    units: Units
    time: Fraction
    bound: Fraction


def prove_moved(moving: Moving, witness: Any, meter: Meter) -> str:
    """T14a, prices of moved bytes: With non-negative prices a byte of a NIC, what all units cost at
    their cheapest live rail, moved bytes included, less what all NICs earn in time T is no more
    than what any plan of time T moves inside nodes.

    Prices are counted in 1 / unit.  Whole units move whole bytes, so the bound may be rounded up.
    """
    kind = kind_of(witness)
    need(kind == "moved", f"witness of kind {kind!r}: expected moved or claimed")
    fields(witness, "witness moved", "kind unit send recv")
    tx, rx, inside, units, time, bound = moving
    unit, rails = integer(witness["unit"], "unit", 1), range(len(tx[0]))
    prices = read_prices(witness, len(tx), len(rails))
    meter.spend(5 * len(units.size))
    alike: dict[tuple[int, int, int], int] = {}
    for source, f, bytes_, needs in zip(*units, strict=True):
        alike[source, f, needs] = alike.get((source, f, needs), 0) + bytes_
    paid, costs = 0, dict[tuple[int, int], list[int]]()
    for (source, f, needs), bytes_ in alike.items():
        meter.spend(3 * len(rails))
        k, gpu = divmod(source, inside.gpus)
        if (gpu, needs) not in costs:
            meter.spend(10 * len(rails))
            costs[gpu, needs] = inside.costs(gpu, needs)
        a, b, moves = prices.send[k], prices.recv[f], costs[gpu, needs]
        live = [unit * moves[n] + a[n] + b[n] for n in rails if tx[k][n] and rx[f][n]]
        need(bool(live), f"no live rail from node {k} to node {f}")
        paid += bytes_ * min(live)
    shown = ceil((paid - time * prices.earned(tx, rx)) / unit)
    need(bound <= shown, f"the witness does not show {bound} bytes")
    return kind


def check_moved(problem: Problem) -> Confirmed:
    """T14a, prices of moved bytes: With non-negative prices a byte of a NIC, what all units cost at
    their cheapest live rail, moved bytes included, less what all NICs earn in time T is no more
    than what any plan of time T moves inside nodes.

    The instance is units between nodes, in full or as those of a plan file, and the time T.
    """
    record, bound, directory, meter = problem
    need("flow" not in record and "best" not in record, "moved bytes are those of one plan")
    instance = fields(record["problem"], "problem", "kind time tx rx gpus near", "units plan")
    need(("units" in instance) != ("plan" in instance), "problem: expected units or a plan")
    time, tx = fraction(instance["time"], "time"), matrix(instance["tx"], "tx")
    rx = matrix(instance["rx"], "rx", len(tx), len(tx[0]))
    inside = read_inside(instance, len(tx[0]))
    rail = record.get("assignment")
    if "plan" in instance:
        need(rail is None, "an assignment beside a plan")
        named = read_named(instance["plan"], directory)
        need((named.tx, named.rx) == (tx, rx), "other rates than those of the plan")
        need(inside_of(named) == inside, "gpus, near: not those of the plan")
        units = units_of(named, inside, meter)
        rail = named.arrays["rail"].values.tolist()
    else:
        units = read_units(instance["units"], inside)
    src = [source // inside.gpus for source in units.src_gpu]
    check_columns(len(tx), src, units.dst, units.size)
    by, witness = claimant(record["witness"]), record["witness"]
    if by:
        kind = f"claimed by {by}"
    else:
        kind = prove_moved(Moving(tx, rx, inside, units, time, bound), witness, meter)
    if rail is None:
        return Confirmed(kind, None, None)
    taken = integers(rail, "assignment")
    took = completion(tx, rx, src, units.dst, units.size, taken)[0]
    need(took <= time, f"the plan takes {took} seconds, more than {time}")
    return Confirmed(kind, Fraction(moved_by(inside, units, taken, meter)), None)


def moved_by(inside: InsideNode, units: Units, rail: Column, meter: Meter) -> int:
    """The bytes that units on these rails move."""
    costs: dict[tuple[int, int], list[int]] = {}
    total = 0
    for source, bytes_, needs, n in zip(units.src_gpu, units.size, units.needs, rail, strict=True):
        gpu = source % inside.gpus
        if (gpu, needs) not in costs:
            meter.spend(10 * len(inside.near))
            costs[gpu, needs] = inside.costs(gpu, needs)
        total += bytes_ * costs[gpu, needs][n]
    return total


def read_inside(instance: dict[str, Any], rails: int) -> InsideNode:
    """The inside of nodes: `gpus`, and `near`, a list of GPUs for each rail."""
    gpus, near = integer(instance["gpus"], "gpus", 1, 1 << 12), instance["near"]
    need(isinstance(near, list) and len(near) == rails, f"near: expected GPUs of {rails} rails")
    return InsideNode(gpus, [as_set(integers(row, "near", 0, gpus - 1)) for row in near])


def read_units(units: Any, inside: InsideNode) -> Units:
    """Units in full; their targets as lists of GPUs of the node."""
    columns = fields(units, "units", "src_gpu dst size targets")
    src_gpu, dst, size = (integers(columns[name], name) for name in ("src_gpu", "dst", "size"))
    targets, last = columns["targets"], inside.gpus - 1
    need(isinstance(targets, list) and len(targets) == len(size), "targets: expected one per unit")
    return Units(src_gpu, dst, size, [as_set(integers(row, "targets", 0, last)) for row in targets])


def inside_of(plan: PlanFile) -> InsideNode:
    """The inside of a plan file's nodes, whose chunks must name their GPUs: as it says, or in the
    usual order, as many NICs per GPU, or GPUs per NIC, as there are.
    """
    fabric, rails = plan.header["fabric"], len(plan.tx[0])
    gpus = integer(fabric["gpus"], "gpus of the plan", 1, 1 << 12)
    need(plan.header["chunk_gpus"] == gpus, "a plan whose chunks name no GPUs")
    if "inside" in fabric:
        said = fabric["inside"]
        need(isinstance(said, dict), "inside: expected an object")
        return read_inside({"gpus": gpus, "near": said.get("near")}, rails)
    near = [0] * rails
    for gpu in range(gpus):
        first, past = gpu * rails // gpus, (gpu + 1) * rails // gpus
        for rail in range(first, max(past, first + 1)):
            near[rail] |= 1 << gpu
    return InsideNode(gpus, near)


def units_of(plan: PlanFile, inside: InsideNode, meter: Meter) -> Units:
    """The units of a plan file whose nodes have this inside."""
    arrays, gpus = plan.arrays, inside.gpus
    src_gpu, dst_gpu = (arrays[name].values.tolist() for name in ("src_gpu", "dst_gpu"))
    _, dst, size = plan.chunks
    if "targets" not in arrays:
        return Units(src_gpu, dst, size, [1 << target % gpus for target in dst_gpu])
    width, octets = -(-gpus // 8), arrays["targets"].values.tobytes()
    need(len(octets) == len(size) * width, "targets: expected bits in octets")
    rows = [octets[i : i + width] for i in range(0, len(octets), width)]
    found = {*rows}
    meter.spend(2 * len(found) * gpus)
    sets = {row: as_set(g for g in range(gpus) if row[g // 8] >> (7 - g % 8) & 1) for row in found}
    return Units(src_gpu, dst, size, [sets[row] for row in rows])


# ================================================================ copies in spare slots


class Slots(NamedTuple):
    """Experts on GPUs, and spare slots for copies of others; a case of a proof has more held, fewer
    slots, or copies that are barred.

    counts   tokens of each expert
    holds    of each GPU, the experts that it holds
    spare    of each GPU, how many copies it may take
    node     of each GPU, where copies stay on nodes that hold their expert; else None
    homes    of each expert, the nodes that hold it
    barred   (GPU, expert): not copied there
    """

    counts: list[int]
    holds: list[set[int]]
    spare: list[int]
    node: list[int] | None
    homes: list[set[int]]
    barred: set[tuple[int, int]]

    def may(self, gpu: int, expert: int) -> bool:
        """Whether a GPU that does not hold the expert may take a copy, slots aside."""
        near = self.node is None or self.node[gpu] in self.homes[expert]
        return near and (gpu, expert) not in self.barred


def by_room(slots: Slots, witness: Any, most: int, meter: Meter) -> bool:
    """T15, room for a set of experts: Of a set of experts a GPU takes at most what it holds, the
    largest others that its spare slots may take, and no more than T in all; if the set has more
    tokens than all GPUs take of it, some GPU has more than T.
    """
    named = fields(witness, "witness room", "kind experts")["experts"]
    chosen = {*integers(named, "experts", 0, len(slots.counts) - 1)}
    largest_first = sorted(chosen, key=lambda expert: -slots.counts[expert])
    room = 0
    for gpu, held in enumerate(slots.holds):
        meter.spend(2 * len(largest_first) + 1)
        takes, left = 0, slots.spare[gpu]
        for expert in largest_first:
            if expert in held:
                takes += slots.counts[expert]
            elif left and slots.may(gpu, expert):
                takes, left = takes + slots.counts[expert], left - 1
        room += min(takes, most)
    return room < sum(slots.counts[expert] for expert in chosen)


def by_cases(slots: Slots, witness: Any, most: int, meter: Meter) -> bool:
    """T15a, with a copy and without: A plan has a copy of an expert on a GPU, or it has not: what
    holds of all plans in both cases holds of all plans.

    With it, the GPU holds the expert and has a slot less; without, the copy is barred.
    """
    fields(witness, "witness cases", "kind copy with without")
    expert, gpu = matrix([witness["copy"]], "copy", width=2)[0]
    known = expert < len(slots.counts) and gpu < len(slots.holds)
    need(known and slots.spare[gpu] > 0, "copy: no such expert, GPU or slot")
    need(expert not in slots.holds[gpu] and slots.may(gpu, expert), "copy: held or barred already")
    slots.holds[gpu].add(expert)
    slots.spare[gpu] -= 1
    shown = shows(slots, witness["with"], most, meter)
    slots.holds[gpu].remove(expert)
    slots.spare[gpu] += 1
    slots.barred.add((gpu, expert))
    shown = shown and shows(slots, witness["without"], most, meter)
    slots.barred.remove((gpu, expert))
    return shown


SPLIT = {"room": by_room, "cases": by_cases}


def shows(slots: Slots, witness: Any, most: int, meter: Meter) -> bool:
    """Whether a witness shows that some GPU has more than `most` tokens, whatever the plan."""
    kind = kind_of(witness)
    need(kind in SPLIT, f"witness of kind {kind!r}: expected one of {', '.join(SPLIT)}, claimed")
    meter.spend(1)
    return SPLIT[kind](slots, witness, most, meter)


def check_split(problem: Problem) -> Confirmed:
    """T15b, witnesses of spare slots are sound: What a room, or cases that end in rooms, show holds
    for every choice of copies and every split of the tokens over them.

    The instance is experts on GPUs, spare slots, and tokens; a plan is [expert, GPU, tokens] rows.
    """
    record, bound, _, meter = problem
    need("flow" not in record and "best" not in record, "a split is one plan")
    slots = read_slots(record["problem"], meter)
    witness, most = record["witness"], ceil(bound) - 1
    by = claimant(witness)
    if by:
        kind = f"claimed by {by}"
    else:
        kind = kind_of(witness)
        shown = shows(slots, witness, most, meter) or most < 0
        need(shown, f"the {kind} witness does not show {bound} tokens")
    rows = record.get("assignment")
    value = None if rows is None else Fraction(fullest(slots, matrix(rows, "assignment", width=3)))
    return Confirmed(kind, value, None)


def read_slots(problem: Any, meter: Meter) -> Slots:
    """The instance: `counts`, `holds` (experts of each GPU), `spare` and perhaps `node`, of each
    GPU.
    """
    instance = fields(problem, "problem", "kind counts holds spare", "node")
    counts, held = integers(instance["counts"], "counts"), instance["holds"]
    need(isinstance(held, list) and len(held) > 0, "holds: expected the experts of some GPUs")
    holds = [{*integers(row, "holds", 0, len(counts) - 1)} for row in held]
    spare = integers(instance["spare"], "spare")
    node = integers(instance["node"], "node") if "node" in instance else None
    need(len(spare) == len(holds), "spare: expected one number per GPU")
    need(node is None or len(node) == len(holds), "node: expected one number per GPU")
    homes: list[set[int]] = [set() for _ in counts]
    for gpu, row in enumerate(holds):
        meter.spend(len(row))
        for expert in row:
            homes[expert].add(gpu if node is None else node[gpu])
    need(all(homes), "an expert without a GPU")
    return Slots(counts, holds, spare, node, homes, set())


def fullest(slots: Slots, rows: Rates) -> int:
    """The largest load of a GPU, where every token is on a GPU that holds its expert or has a copy
    in a slot.
    """
    loads, put = [0] * len(slots.holds), [0] * len(slots.counts)
    copies: set[tuple[int, int]] = set()
    for expert, gpu, tokens in rows:
        need(expert < len(put) and gpu < len(loads), "assignment: no such expert or GPU")
        loads[gpu], put[expert] = loads[gpu] + tokens, put[expert] + tokens
        if expert not in slots.holds[gpu]:
            need(slots.may(gpu, expert), f"assignment: no copy of {expert} may lie on GPU {gpu}")
            copies.add((gpu, expert))
    taken = summed([gpu for gpu, _ in copies], [1] * len(copies), len(loads))
    fits = all(used <= free for used, free in zip(taken, slots.spare, strict=True))
    need(fits, "assignment: more copies than spare slots")
    need(put == slots.counts, "assignment: not the tokens of the micro-batch")
    return max(loads)


# ---------------------------------------------------------------- a layer, whatever is copied


def check_layer(problem: Problem) -> Confirmed:
    """T16, prices bound every placement: With any prices, none negative, of a token sent, of a
    token received and of a slot, the NICs' bytes at their prices are at least what the cheapest way
    to hold each expert costs, less the price of all slots.

    The instance is tokens of experts on nodes, slots, and the bytes per second of each node's NICs;
    `holds` says which nodes have a copy of an expert already, beside the slots.  A bound is of
    every placement in the slots and every split of the tokens over it, in seconds.
    """
    record, bound, _, meter = problem
    for key in ("assignment", "flow", "best"):
        need(key not in record, "a layer's bound is of all plans")
    instance = fields(record["problem"], "problem", "kind tokens slots tx rx token_bytes", "holds")
    slots, tx, rx = (integers(instance[name], name) for name in ("slots", "tx", "rx"))
    nodes, bytes_ = len(slots), integer(instance["token_bytes"], "token_bytes")
    need(nodes > 0 and len(tx) == nodes and len(rx) == nodes, "expected a number per node")
    tokens = matrix(instance["tokens"], "tokens", width=nodes)
    held = matrix(instance.get("holds", [[0] * nodes] * len(tokens)), "holds", len(tokens), nodes)
    by = claimant(record["witness"])
    if by:
        return Confirmed(f"claimed by {by}", None, None)
    need(kind_of(record["witness"]) == "node prices", "witness: expected node prices or claimed")
    witness = fields(record["witness"], "witness node prices", "kind recv send slot")
    recv, send, slot = (integers(witness[name], name) for name in ("recv", "send", "slot"))
    need(all(len(row) == nodes for row in (recv, send, slot)), "expected a price per node")
    meter.spend(4 * nodes * nodes * len(tokens))
    room = sum(map(mul, recv, rx)) + sum(map(mul, send, tx))
    paid = -sum(map(mul, slot, slots))
    for row, there in zip(tokens, held, strict=True):
        unheld = [0 if copy else price for copy, price in zip(there, slot, strict=True)]
        paid += cheapest(row, recv, send, unheld)
    need(room > 0, "prices that NICs are not paid at")
    need(bound * room <= bytes_ * max(paid, 0), f"the prices do not show {bound} s")
    return Confirmed("node prices", None, None)


def cheapest(tokens: list[int], recv: list[int], send: list[int], slot: list[int]) -> int:
    """The cheapest way to hold one expert: at a node, and at every other one that does not rather
    send its tokens there.
    """
    ways = []
    for at, price in enumerate(recv):
        others = (
            slot[node] if node == at else min(slot[node], number * (send[node] + price))
            for node, number in enumerate(tokens)
        )
        ways.append(sum(others))
    return min(ways)


# ---------------------------------------------------------------- rails of several leaves


class LeafSwitch(NamedTuple):
    """Leaf switches: each has the NICs of `nodes` nodes on `rails` rails, and `uplinks` links of
    `rate` bytes per second, each way, to the tier above; link u of all leaves leads to one switch.
    """

    nodes: int
    rails: int
    uplinks: int
    rate: int


def check_leaves(problem: Problem) -> Confirmed:
    """T17, uplinks bound every plan: What leaves a group of nodes, or enters it, crosses the links
    above the group's leaves: over what these can carry, each no more than its links and no more
    than the group's NICs below it, it bounds every plan.

    The instance is chunks between nodes whose rails span leaves.  An assignment is a rail per
    chunk, which is spread over all links of its leaves, or [rail, link] per chunk.  What bounds a
    plan by its NICs alone, bounds it here.
    """
    record, bound, _, meter = problem
    for key in ("flow", "best"):
        need(key not in record, f"{key}: rails of several leaves have an assignment alone")
    instance = fields(record["problem"], "problem", "kind tx rx leaf chunks", "traffic")
    tx = matrix(instance["tx"], "tx")
    nodes, rails = len(tx), len(tx[0])
    rx = matrix(instance["rx"], "rx", nodes, rails)
    given = fields(instance["leaf"], "leaf", "nodes rails uplinks rate")
    leaf = LeafSwitch(
        *(integer(given[name], f"leaf {name}", 1, 1 << 64) for name in LeafSwitch._fields)
    )
    need(leaf.uplinks <= MOST, "leaf: more uplinks than are checked")
    columns = fields(instance["chunks"], "chunks", "src dst size")
    chunks = [integers(columns[name], name) for name in ("src", "dst", "size")]
    check_columns(nodes, *chunks)
    meter.spend(20 * len(chunks[0]) + 10 * nodes * rails)
    value = None
    if "assignment" in record:
        value = time_above(tx, rx, leaf, chunks, record["assignment"])
    by, witness = claimant(record["witness"]), record["witness"]
    kind = kind_of(witness)
    need(by != "" or kind == "leaf" or kind in COUPLED, f"witness of kind {kind!r}: expected leaf")
    if by:
        return Confirmed(f"claimed by {by}", value, None)
    if kind != "leaf":
        return Confirmed(COUPLED[kind](tx, rx, chunks, bound, witness, meter), value, None)
    return Confirmed(leaf_cut(tx, rx, leaf, chunks, bound, witness), value, None)


def leaf_cut(
    tx: Rates, rx: Rates, leaf: LeafSwitch, chunks: Sequence[Column], bound: Fraction, witness: Any
) -> str:
    """T17, uplinks bound every plan: What leaves a group of nodes, or enters it, crosses the links
    above the group's leaves: over what these can carry, each no more than its links and no more
    than the group's NICs below it, it bounds every plan.
    """
    fields(witness, "witness leaf", "kind group side")
    nodes, rails = len(tx), len(tx[0])
    group = integer(witness["group"], "group", 0, (nodes - 1) // leaf.nodes)
    need(witness["side"] in ("send", "recv"), "side: expected send or recv")
    src, dst, size = chunks
    ends, fars, rates = (src, dst, tx) if witness["side"] == "send" else (dst, src, rx)
    crossing = sum(
        bytes_
        for end, far, bytes_ in zip(ends, fars, size, strict=True)
        if end // leaf.nodes == group != far // leaf.nodes
    )
    own = rates[group * leaf.nodes : (group + 1) * leaf.nodes]
    capacity = sum(
        min(leaf.uplinks * leaf.rate, sum(sum(row[first : first + leaf.rails]) for row in own))
        for first in range(0, rails, leaf.rails)
    )
    need(capacity > 0 or not crossing, "bytes without a live rail")
    need(bound * capacity <= crossing, f"the cut shows {crossing}/{capacity}, not {bound}")
    need(capacity > 0 or bound <= 0, "a cut without capacity shows nothing")
    return "leaf"


def time_above(
    tx: Rates, rx: Rates, leaf: LeafSwitch, chunks: Sequence[Column], assignment: Any
) -> Fraction:
    """When the last NIC and the last link above leaves is done, in seconds."""
    src, dst, size = chunks
    places = assignment if isinstance(assignment, list) else []
    need(len(places) == len(src), "assignment: expected a rail, or [rail, link], per chunk")
    sprayed = not any(isinstance(place, list) for place in places)
    if sprayed:
        rail, link = integers(places, "assignment"), [0] * len(places)
    else:
        pairs = [integers(place, "assignment") for place in places]
        need(all(len(pair) == 2 for pair in pairs), "assignment: expected [rail, link] per chunk")
        rail, link = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    need(max(link, default=0) < leaf.uplinks, f"assignment: expected one of {leaf.uplinks} links")
    time, _ = completion(tx, rx, src, dst, size, rail)
    loads: dict[tuple[str, int, int, int], int] = {}  # way, group, rails of the leaf, link
    for k, f, bytes_, n, u in zip(src, dst, size, rail, link, strict=True):
        for way, end in (("up", k), ("down", f)) if k // leaf.nodes != f // leaf.nodes else ():
            place = (way, end // leaf.nodes, n // leaf.rails, u)
            loads[place] = loads.get(place, 0) + bytes_
    rate = leaf.rate * (leaf.uplinks if sprayed else 1)
    return max(time, Fraction(max(loads.values(), default=0), rate))


# ---------------------------------------------------------------- stages


def check_staged(problem: Problem) -> Confirmed:
    """T13a, a line bounds all stages: Of stages in which no server sends twice and none receives
    twice, the lengths add up to at least what any server sends and what any server receives.

    The instance is bytes from server to server; a stage lasts as long as its largest transfer.
    """
    record, bound, _, meter = problem
    for key in ("assignment", "flow", "best"):
        need(key not in record, "a staged schedule has stages")
    instance = fields(record["problem"], "problem", "kind demand", "traffic")
    rows = matrix(instance["demand"], "demand")
    servers = len(rows)
    matrix(rows, "demand", servers, servers)
    need(not any(rows[k][k] for k in range(servers)), "demand: bytes from a server to itself")
    meter.spend(2 * servers * servers)
    by = claimant(record["witness"])
    kind = f"claimed by {by}" if by else line(rows, bound, record["witness"])
    if "stages" not in record:
        return Confirmed(kind, None, None)
    return Confirmed(kind, Fraction(staged_total(rows, record["stages"], meter)), None)


def line(rows: Rates, bound: Fraction, witness: Any) -> str:
    """T13a, a line bounds all stages: Of stages in which no server sends twice and none receives
    twice, the lengths add up to at least what any server sends and what any server receives.
    """
    need(kind_of(witness) == "line", "witness: expected line or claimed")
    fields(witness, "witness line", "kind node side")
    which = integer(witness["node"], "node", 0, len(rows) - 1)
    need(witness["side"] in ("send", "recv"), "side: expected send or recv")
    total = sum(rows[which]) if witness["side"] == "send" else sum(row[which] for row in rows)
    need(bound <= total, f"the line has {total} bytes, not {bound}")
    return "line"


def staged_total(rows: Rates, stages: Any, meter: Meter) -> int:
    """What the lengths of the stages add up to: lists of [server, server, bytes] that carry
    exactly these bytes, no server twice in one as sender or as receiver.
    """
    need(isinstance(stages, list), "stages: expected a list")
    left, total, last = [list(row) for row in rows], 0, len(rows) - 1
    for stage in stages:
        need(isinstance(stage, list), "stages: expected lists of transfers")
        meter.spend(10 * len(stage) + 10)
        moves = [integers(transfer, "stages") for transfer in stage]
        need(all(len(move) == 3 for move in moves), "stages: expected [server, server, bytes]")
        for src, dst, bytes_ in moves:
            need(src <= last and dst <= last and src != dst and bytes_ > 0, "stages: no transfer")
            left[src][dst] -= bytes_
        for ends in ([move[0] for move in moves], [move[1] for move in moves]):
            need(len({*ends}) == len(ends), "a server twice in a stage")
        total += max((move[2] for move in moves), default=0)
    need(not any(map(any, left)), "the stages do not carry the demand")
    return total


PROBLEMS = {
    "staged": check_staged,
    "local": check_local,
    "coupled": check_coupled,
    "fluid": check_fluid,
    "moved": check_moved,
    "split": check_split,
    "layer": check_layer,
    "leaves": check_leaves,
}


# ================================================================ the verdict


class Claim(NamedTuple):
    """What a certificate says of itself: numbers, whether its plan is optimal, and whether the
    optimum is known ("known", "claimed" or "open"), which the file calls "proved".
    """

    bound: Fraction
    value: Fraction | None
    best: Fraction | None
    optimal: bool
    optimum: str


def read_claim(record: Any) -> Claim:
    """The claim of a certificate of version 1 or 2.  Version 1 has one word, `proved`, for both
    facts, and no best plan beside its own.
    """
    more = "assignment flow best stages" if record.get("version") == 2 else "assignment flow"
    fields(record, "certificate", "railopt version problem claim witness", more)
    if record["version"] == 1:
        claim = fields(record["claim"], "claim", "bound proved", "value")
        optimal, optimum = claim["proved"], "known" if claim["proved"] is True else "open"
    else:
        claim = fields(record["claim"], "claim", "bound optimal optimum", "value best")
        optimal, optimum = claim["optimal"], claim["optimum"]
        need(optimum in ("proved", "claimed", "open"), "optimum: expected proved, claimed or open")
        optimum = "known" if optimum == "proved" else optimum
    need(isinstance(optimal, bool), "claim: expected true or false")
    bound, value, best = (
        fraction(claim[name], name) if name in claim else None
        for name in ("bound", "value", "best")
    )
    assert bound is not None
    return Claim(bound, value, best, optimal, optimum)


def judged(claim: Claim, confirmed: Confirmed) -> Verdict:
    """The verdict, where what is claimed is no more than what is confirmed."""
    bound, value = claim.bound, confirmed.value
    need(claim.value == value, f"the value attained is {value}, not {claim.value}")
    need(
        claim.best in (None, confirmed.best or value),
        f"the best value is {confirmed.best or value}",
    )
    need(confirmed.best is None or claim.best is not None, "a best plan without its value")
    best = value if confirmed.best is None else confirmed.best
    need(best is None or bound <= best, f"the value {best} is below the bound")
    need(value is None or best is None or best <= value, "the best plan is worse than this one")
    checked = "claimed by" not in confirmed.kind
    optimal = checked and value == bound
    known = "open" if best != bound else "known" if checked else "claimed"
    need(
        optimal or not claim.optimal,
        "it claims to be optimal, but a value and a checked bound do not meet",
    )
    need(claim.optimum in ("open", known), f"it claims an optimum {claim.optimum}, it is {known}")
    message = (
        "value and bound meet"
        if optimal
        else "the best plan meets the bound"
        if known == "known"
        else "the bound holds"
        if checked
        else "nothing is proved"
    )
    return Verdict(True, optimal, confirmed.kind, message, bound, value, best, known)


def check_certificate(
    record: Any, directory: str | os.PathLike[str] | None = None, work: int = WORK
) -> Verdict:
    """Check a certificate (parsed JSON); a plan that it names lies in `directory`; `work` limits
    the steps taken.
    """
    kind, bound = "certificate", None
    try:
        need(isinstance(record, dict) and record.get("railopt") == "certificate", "no certificate")
        version = record.get("version")
        need(type(version) is int and version in (1, 2), "expected a certificate of version 1 or 2")
        claim = read_claim(record)
        bound = claim.bound
        which = kind_of(record["problem"])
        need(which in PROBLEMS, f"problem: expected kind {', '.join(PROBLEMS)}")
        need(which == "staged" or "stages" not in record, "stages of a problem that has none")
        read_traffic(record["problem"])
        where = os.fspath(directory or ".")
        shown = PROBLEMS[which](Problem(record, claim.bound, where, Meter(work)))
        kind = shown.kind
        return judged(claim, shown)
    except (RecursionError, MemoryError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else "not enough memory"
        return Verdict(False, False, kind, f"refused: {why}", bound)
    except (Rejected, ValueError, OSError) as error:
        return Verdict(False, False, kind, printable(error), bound)


def read_traffic(problem: dict[str, Any]) -> str:
    """The digest of the traffic that a problem says it was cut from; empty if it does not say."""
    named = problem.get("traffic", "")
    well = isinstance(named, str) and re.fullmatch("([0-9a-f]{32})?", named)
    need(bool(well), "traffic: expected a digest of 32 hexadecimal digits")
    beside = "plan" in problem and "traffic" in problem
    need(not beside, "traffic beside a plan, whose chunks say what it sends: leave it out")
    return str(named)


def check(path: str | os.PathLike[str], work: int = WORK) -> Verdict:
    """Check a certificate, or a plan: its digest, columns, dead rails, loads and makespan; raises
    OSError or ValueError for a file that is neither.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            start = file.read(2)
            if start != b"PK":
                data = start + file.read(MEMORY)
                verdict = check_certificate(parsed(data), os.path.dirname(name), work)
                return replace(verdict, content=content_of(data))
            plan = read_plan(file)
    except Rejected as error:
        return Verdict(False, False, "plan", printable(error))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"neither a certificate (JSON) nor a plan (.npz): {printable(error)}"
        ) from error
    said = f"{len(plan.chunks[0])} chunks on live rails, digest {plan.digest}"
    return Verdict(True, False, "plan", said, None, plan.value, plan.value, content=plan.digest)


def content_of(data: bytes) -> str:
    """The digest of a certificate's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def say(line: str, stream: TextIO) -> None:
    """Print a line, escaping what the stream's encoding does not have."""
    encoding = stream.encoding or "ascii"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def main(paths: Sequence[str]) -> int:
    """Check the files, a line each; the exit code."""
    code = 0
    for path in paths:
        try:
            verdict = check(path)
        except (OSError, ValueError) as error:
            say(f"{printable(path)}: unreadable: {printable(error)}", sys.stderr)
            code = code or 1
            continue
        word = "optimal" if verdict.optimal else "ok" if verdict.ok else "FAILED"
        bound, value = printable(verdict.bound), printable(verdict.value)
        numbers = f"bound {bound}, value {value}, optimum {verdict.optimum}"
        say(f"{printable(path)}: {word}, {verdict.kind}, {numbers}: {verdict.message}", sys.stdout)
        code = code if verdict.ok else 4
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if sys.argv[1:] else "usage: python3 -S railopt/checker.py FILE...")
