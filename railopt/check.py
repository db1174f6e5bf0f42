"""The trusted kernel: re-checks certificates (JSON) and plans (.npz) with integers and fractions
only.

Standard library only, runs alone: ``python3 -S railopt/check.py FILE...``; exit 0 all hold, 4 one
fails, 1 unreadable. A lower bound T is proved by refuting "every rail is done before T": a rail of
speed v then carries at most ``ceil(T v) - 1`` bytes, its
*capacity*; sizes and capacities are counted in the sizes' greatest common divisor.  How each kind
of witness refutes stands at its function; a check of more than `WORK` steps (seconds) is refused.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
import zipfile
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import accumulate, pairwise
from math import ceil, gcd, prod
from typing import Any

Rates = list[list[int]]
Column = Sequence[int]
WORK, MAX_BYTES = 40_000_000, 1 << 31


class Rejected(Exception):
    """The certificate or plan does not show what it claims."""


@dataclass(frozen=True)
class Verdict:
    """`ok`: it shows what it claims; `proved`: and bound == value (bytes for a problem with
    `rails`, else seconds).
    """

    ok: bool
    proved: bool
    kind: str
    message: str
    bound: Fraction | None = None
    value: Fraction | None = None


class Meter:
    def __init__(self, limit: int) -> None:
        self.limit, self.spent = limit, 0

    def spend(self, steps: int) -> None:
        self.spent += steps
        need(self.spent <= self.limit, f"refused: the check needs more than {self.limit} steps")


def need(condition: bool, message: str) -> None:
    if not condition:
        raise Rejected(message)


def fields(record: Any, where: str, required: str, optional: str = "") -> dict[str, Any]:
    """`record` as an object that has every required key and no unknown one."""
    known = {*required.split(), *optional.split()}
    need(
        isinstance(record, dict) and {*required.split()} <= set(record) <= known,
        f"{where}: expected {required} (perhaps {optional})",
    )
    return dict(record)


def integer(value: Any, where: str, low: int = 0, high: int = 1 << 4096) -> int:
    need(
        type(value) is int and low <= value <= high,
        f"{where}: {str(value)[:40]} is not a whole number in its range",
    )
    return int(value)


def integers(values: Any, where: str, low: int = 0, high: int = 1 << 4096) -> list[int]:
    need(isinstance(values, list), f"{where}: expected a list of whole numbers")
    return [integer(value, where, low, high) for value in values]


def matrix(rows: Any, where: str, height: int = 0, width: int = 0) -> Rates:
    need(
        isinstance(rows, list) and len(rows) > 0 and height in (0, len(rows)),
        f"{where}: expected {height or 1} rows",
    )
    numbers = [integers(row, where) for row in rows]
    need(
        {len(row) for row in numbers} == {width or len(numbers[0]) or 1},
        f"{where}: expected rows of {width or 1}",
    )
    return numbers


def fraction(text: Any, where: str) -> Fraction:
    well = re.fullmatch(
        r"[0-9]{1,4000}(/0*[1-9][0-9]{0,4000})?",
        text if isinstance(text, str) and len(text) < 9000 else "",
    )
    need(well is not None, f'{where} = {str(text)[:40]!r}: expected "p" or "p/q"')
    return Fraction(text)


def claimed(witness: Any) -> str:
    """ "claimed by NAME VERSION", which this kernel can't check and so never calls proved; else
    empty.
    """
    if not (isinstance(witness, dict) and witness.get("kind") == "claimed"):
        return ""
    by = fields(witness, "witness", "kind by")["by"]
    need(
        isinstance(by, str) and 0 < len(by) <= 200,
        "claimed by nobody: expected a name and a version",
    )
    return f"claimed by {by}"


# ---------------------------------------------------------------- the local problem: sizes on rails
# of some speeds
def prove_local(
    sizes: Sequence[int], speeds: Sequence[int], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """Check that no assignment of `sizes` to rails of these speeds (0 = dead) is done before
    `bound`.
    """
    live, unit = [speed for speed in speeds if speed], gcd(*sizes) or 1
    need(bool(live) if sizes else bound <= 0, "bytes without a live rail, or a time for no bytes")
    counted, capacities = (
        [size // unit for size in sizes],
        [(ceil(bound * speed) - 1) // unit for speed in live],
    )
    return claimed(witness) or refute(
        sorted(counted, reverse=True), capacities, unit, witness, meter
    )


def refute(sizes: list[int], capacities: list[int], unit: int, witness: Any, meter: Meter) -> str:
    """Check the witness that `sizes` (descending) can't be carried within `capacities`, both
    counted in `unit`.
    """
    kind = str(witness.get("kind"))[:40] if isinstance(witness, dict) else ""
    need(kind in LOCAL, f"witness of kind {kind!r}: expected one of {', '.join(LOCAL)}")
    checker, required, one_speed = LOCAL[kind]
    fields(
        witness, f"witness {kind}", f"kind {required}", "capacity" + " weights" * (kind == "cover")
    )
    need(
        len(set(capacities)) <= 1 or not (one_speed or "capacity" in witness),
        f"{kind}: the speeds differ",
    )
    if max(capacities, default=-1) >= 0:
        stated = integer(witness.get("capacity", capacities[0] * unit), "capacity")
        need(stated // unit == capacities[0], f"capacity {stated} is not what the bound refutes")
        need(
            checker(sizes, capacities, unit, witness, meter),
            f"the {kind} witness does not show the bound",
        )
    return kind


def pigeonhole(
    sizes: list[int], capacities: list[int], unit: int, witness: dict[str, Any], meter: Meter
) -> bool:
    """Of the l largest jobs some k of N rails carry m = k (l div N) + min(k, l mod N): no less than
    the m smallest.
    """
    rails = len(capacities)
    jobs, some = (
        integer(witness["jobs"], "jobs", 1, len(sizes)),
        integer(witness["rails"], "rails", 1, rails),
    )
    return (
        sum(sizes[jobs - some * (jobs // rails) - min(some, jobs % rails) : jobs])
        > some * capacities[0]
    )


def count(
    sizes: list[int], capacities: list[int], unit: int, witness: dict[str, Any], meter: Meter
) -> bool:
    """Of the j largest jobs a rail takes no more than the number of their smallest that fit:
    together fewer than j.
    """
    sums = [0, *accumulate(reversed(sizes[: integer(witness["jobs"], "jobs", 1, len(sizes))]))]
    return sum(bisect_right(sums, capacity) - 1 for capacity in capacities) < len(sums) - 1


def subset(
    sizes: list[int], capacities: list[int], unit: int, witness: dict[str, Any], meter: Meter
) -> bool:
    """The fullest rail carries at least `from` (shown by `base`), and no jobs have a sum from there
    to the capacity.
    """
    start, top, sums = -(-integer(witness["from"], "from", 1) // unit), capacities[0], 1
    refute(sizes, [start - 1] * len(capacities), unit, witness["base"], meter)
    meter.spend((top // 64 + 1) * len(sizes))
    for size in sizes:
        sums |= (sums << size) & ((2 << top) - 1)
    return sums >> start == 0


def dual(
    sizes: list[int], capacities: list[int], unit: int, witness: dict[str, Any], meter: Meter
) -> bool:
    """Integer weights: all jobs weigh more than the heaviest loads that the rails can hold."""
    return weighed(sizes, capacities, unit, witness["weights"], meter)[1] < 0


def weighed(
    sizes: list[int], capacities: list[int], unit: int, pairs: Any, meter: Meter
) -> tuple[dict[int, int], int, dict[int, int]]:
    """(weight of each size, what the heaviest loads weigh beyond all jobs, heaviest load of each
    capacity).
    """
    weights = dict.fromkeys(sizes, 0)
    for size, weight in matrix(pairs, "weights", 0, 2):
        need(
            size % unit == 0 and weights.get(size // unit) == 0,
            f"two weights for size {size}, or no such job",
        )
        weights[size // unit] = weight
    total = sum(weights[size] for size in sizes)
    enough = max(0, total - 1) // len(capacities) if len(set(capacities)) == 1 else 0
    most = {
        capacity: heaviest(sizes, weights, capacity, enough, meter) for capacity in set(capacities)
    }
    return weights, sum(most[capacity] for capacity in capacities) - total, most


def heaviest(
    sizes: list[int], weights: dict[int, int], capacity: int, enough: int, meter: Meter
) -> int:
    """The largest weight of jobs of at most `capacity` together, or `enough` if none exceeds it:
    keeps undominated (size, weight) pairs, jobs by falling weight per size; drops a pair when
    nothing fits, or all weights left or the best weight per size left are too little.
    """
    jobs = sorted(
        ((size, weights[size]) for size in sizes if weights[size] and size <= capacity),
        key=lambda job: Fraction(*job),
    )
    best, left, pairs = enough, sum(weight for _, weight in jobs), [(0, 0)]
    smallest = list(accumulate((size for size, _ in reversed(jobs)), min, initial=capacity + 1))
    for size, weight in jobs:
        meter.spend(10 * len(pairs) + 10)
        grown = sorted(pairs + [(s + size, w + weight) for s, w in pairs if s + size <= capacity])
        left, top, pairs, _ = left - weight, -1, [], smallest.pop()
        for s, w in grown:
            if w > top:
                top, best, room = w, max(best, w), capacity - s
                if (
                    smallest[-1] <= room
                    and w + left > best
                    and w * size + room * weight > best * size
                ):
                    pairs.append((s, w))
    return best


def cover(
    sizes: list[int], capacities: list[int], unit: int, witness: dict[str, Any], meter: Meter
) -> bool:
    """Follows every way to carry the jobs to its dead end.  The first job left, in the order of the
    weights given, then by falling size, is in a *load*: jobs of at most a rail's capacity, less at
    most the slack of all rails; with weights, lighter than the heaviest by at most
    what all rails may be.  Not tried are loads with room for another job left, or for it in place
                            of a smaller one (not the first): if
    there is a way, there is one with it there; nor what was left at a dead end.  A load is a
    number: its sum, its weight and a byte for how many of each kind it takes; kinds are the sizes,
    first ones highest, then the rails of each capacity.
    """
    pairs, counts, rails = (
        witness.get("weights", [[max(sizes) * unit, 0]]),
        Counter(sizes),
        Counter(capacities),
    )
    need(
        max(*counts.values(), *rails.values()) < 256,
        "refused: the search is for at most 255 rails and jobs of one size",
    )
    weights, spare, most = weighed(sizes, capacities, unit, pairs, meter)
    kinds = [0] * len(rails) + [*dict.fromkeys([size // unit for size, _ in pairs] + sizes)][::-1]
    above, lowest, all_slack, failed = (
        8 * len(kinds),
        8 * len(rails),
        sum(capacities) - sum(sizes),
        set[int](),
    )
    top = above + sum(weights[size] for size in sizes).bit_length()
    one = [
        (size << top) + (weights.get(size, 0) << above) + (1 << 8 * kind)
        for kind, size in enumerate(kinds)
    ]
    larger = dict(
        pairwise(sorted({0, *sizes, sum(sizes + capacities) + 1}))
    )  # the next size; 0 is that of a rail's kind
    upto = dict(
        zip(
            larger,
            accumulate(255 << 8 * kinds.index(size) if size else 0 for size in larger),
            strict=True,
        )
    )  # any such jobs

    def listed(
        stock: int, slack: int, first: int
    ) -> tuple[list[tuple[int, int, int, list[int]]], dict[tuple[int, int], int]]:
        """(waste, number, jobs better there, kinds) of loads with this first kind, by waste; and
        masks: which take at most n of a kind.
        """
        loads = []
        for rail, capacity in [
            (rail, capacity) for rail, capacity in enumerate(rails) if stock >> 8 * rail & 255
        ]:
            low, high, least = (
                max(1, capacity - slack) << top,
                (capacity + 1) << top,
                (most[capacity] - spare) << above,
            )
            halves = [one[rail] + one[first]], [0]  # sets of even kinds, sets of odd kinds
            for kind in range(len(rails), first + 1):
                half, end = halves[kind % 2], high - kind % 2 * (kinds[first] << top)
                steps = range(
                    0, ((stock >> 8 * kind & 255) - (kind == first)) * one[kind] + 1, one[kind]
                )
                meter.spend(
                    (2 + above // 512) * sum(bisect_left(half, end - step) for step in steps)
                )
                half[:] = sorted(
                    [x + step for step in steps for x in half[: bisect_left(half, end - step)]]
                )
            for part in halves[0]:
                begin, end = (
                    bisect_left(halves[1], limit - (part >> top << top)) for limit in (low, high)
                )
                meter.spend(20 + (40 + len(sizes) // 4) * (end - begin))
                for load in [
                    part + x for x in halves[1][begin:end] if (part + x) % (1 << top) >= least
                ]:
                    waste, number, better = capacity - (load >> top), load % (1 << above), 0
                    within = [
                        kind for kind, n in enumerate(number.to_bytes(above // 8, "little")) if n
                    ]
                    for size in [
                        kinds[kind]
                        for kind in within[:-1]
                        if kinds[kind] + waste >= larger[kinds[kind]]
                    ]:
                        better |= upto[max(s for s in larger if s <= size + waste)] & ~upto[size]
                    loads.append((waste, number, better, within))
        table = b"".join(
            load[1].to_bytes(above // 8, "little") for load in sorted(loads, reverse=True)
        )
        return sorted(loads), {
            (kind, n): int(
                table[kind :: above // 8].translate(b"1" * (n + 1) + b"0" * (255 - n)) or b"0", 2
            )
            for kind in range(first + 1)
            for n in range(stock >> 8 * kind & 255)
        }

    def found(left: int, slack: int, lists: Any, used: list[tuple[int, int]], ways: int) -> bool:
        """Whether the jobs left fit on the rails left; `used`: how many are left of kinds of which
        the stock of `lists` has more.
        """
        loads, at_most = lists((left.bit_length() - 1) // 8)
        choices = (1 << bisect_right(loads, (slack + 1,))) - 1
        for kind_and_number in used:
            choices &= choices and at_most.get(kind_and_number, -1)
        ways *= choices.bit_count()
        meter.spend(50 + 50 * choices.bit_count())
        while choices:
            waste, number, better, within = loads[choices.bit_length() - 1]
            choices ^= 1 << choices.bit_length() - 1
            after, rest = left - number, slack - waste
            if not (after & better or after in failed):
                fewer = (
                    [(kind, after >> 8 * kind & 255) for kind in within] + used if ways > 8 else []
                )
                if after >> lowest == 0 or found(
                    after,
                    rest,
                    lists if fewer else cache(partial(listed, after, rest)),
                    fewer,
                    ways,
                ):
                    return True
                failed.add(after)
        return False

    whole = sum(1 << 8 * kinds.index(size) for size in sizes) + sum(
        n << 8 * kind for kind, n in enumerate(rails.values())
    )
    return not found(whole, all_slack, cache(partial(listed, whole, all_slack)), [], 1)


LOCAL: dict[
    str, tuple[Any, str, bool]
] = {  # kind: its checker, its fields, whether rails must have one speed
    "average": (lambda sizes, capacities, *_: sum(sizes) > sum(capacities), "", False),
    "pigeonhole": (pigeonhole, "jobs rails", True),
    "count": (count, "jobs", False),
    "dual": (dual, "weights", False),
    "subset": (subset, "from base", True),
    "cover": (cover, "", False),
}


def check_local(
    record: dict[str, Any], bound: Fraction, meter: Meter, directory: str
) -> tuple[str, Fraction | None]:
    problem = fields(record["problem"], "problem", "kind sizes", "rails speeds")
    need(("rails" in problem) != ("speeds" in problem), "problem: expected either rails or speeds")
    sizes = integers(problem["sizes"], "sizes", 1)
    speeds = integers(
        problem.get("speeds", [1] * integer(problem.get("rails", 1), "rails", 1, 1 << 20)), "speeds"
    )
    kind = prove_local(sizes, speeds, bound, record["witness"], meter)
    rails = integers(record.get("assignment", []), "assignment", 0, len(speeds) - 1)
    need(
        len(rails) == len(sizes) or "assignment" not in record,
        f"assignment: expected a rail for {len(sizes)} jobs",
    )
    return kind, slowest(
        summed(rails, sizes, len(speeds)), speeds
    ) if "assignment" in record else None


# ---------------------------------------------------------------- the coupled problem and the fluid
# one
def summed(places: Iterable[int], sizes: Iterable[int], length: int) -> list[int]:
    loads = [0] * length
    for place, size in zip(places, sizes, strict=True):
        loads[place] += size
    return loads


def slowest(loads: list[int], speeds: Iterable[int]) -> Fraction:
    """When the last rail or NIC is done, in seconds."""
    used = [(load, speed) for load, speed in zip(loads, speeds, strict=True) if load]
    need(all(speed for _, speed in used), "bytes on a dead rail")
    return max((Fraction(load, speed) for load, speed in used), default=Fraction(0))


def completion(
    tx: Rates, rx: Rates, src: Column, dst: Column, size: Column, rail: Column
) -> tuple[Fraction, Rates]:
    """(seconds, [bytes that each NIC sends, bytes that it receives]) of the chunks with these
    columns.
    """
    nodes, rails = len(tx), len(tx[0])
    demanded(nodes, src, dst, size)
    need(
        len(rail) == len(src) and set(rail) <= set(range(rails)),
        f"expected one of {rails} rails for every chunk",
    )
    loads = [
        summed((node * rails + n for node, n in zip(ends, rail, strict=True)), size, nodes * rails)
        for ends in (src, dst)
    ]
    return max(
        slowest(load, [r for row in rates for r in row])
        for load, rates in zip(loads, (tx, rx), strict=True)
    ), loads


def demanded(nodes: int, src: Column, dst: Column, size: Column) -> Rates:
    """Bytes from node to node; checks the columns."""
    need(
        len(src) == len(dst) == len(size)
        and set(src) | set(dst) <= set(range(nodes))
        and min(size, default=1) > 0
        and not any(map(int.__eq__, src, dst)),
        f"chunks: expected bytes between different nodes of {nodes}",
    )
    pairs = summed((s * nodes + d for s, d in zip(src, dst, strict=True)), size, nodes * nodes)
    return [pairs[i * nodes : (i + 1) * nodes] for i in range(nodes)]


def check_coupled(
    record: dict[str, Any], bound: Fraction, meter: Meter, directory: str
) -> tuple[str, Fraction | None]:
    """What bounds one node's sends or receives, or divisible traffic, bounds the coupled
    problem.
    """
    problem, witness = (
        fields(record["problem"], "problem", "kind nodes rails tx rx", "chunks plan"),
        record["witness"],
    )
    need(("chunks" in problem) != ("plan" in problem), "problem: expected either chunks or a plan")
    nodes, rails = integer(problem["nodes"], "nodes", 1), integer(problem["rails"], "rails", 1)
    tx, rx = (matrix(problem[side], side, nodes, rails) for side in ("tx", "rx"))
    if "plan" in problem:
        name, digest = (
            fields(problem["plan"], "plan", "file digest")["file"],
            problem["plan"]["digest"],
        )
        need(
            isinstance(name, str) and os.path.basename(name) == name,
            "plan: expected a file beside the certificate",
        )
        rates, chunks, value, found = read_plan(os.path.join(directory, name))
        need(
            found == digest,
            f"{name} is not the plan that the certificate names: its digest is {found}",
        )
        need(
            rates == (tx, rx) and "assignment" not in record,
            f"other rates than those of {name}, or an assignment",
        )
    else:
        columns, value = fields(problem["chunks"], "chunks", "src dst size"), None
        src, dst, size = chunks = [
            integers(columns[column], column) for column in ("src", "dst", "size")
        ]
        if "assignment" in record:
            value = completion(
                tx, rx, src, dst, size, integers(record["assignment"], "assignment")
            )[0]
    demand, kind = (
        demanded(nodes, *chunks),
        witness.get("kind") if isinstance(witness, dict) else "",
    )
    if kind == "joint":
        return prove_joint(tx, rx, chunks, bound, witness, meter), value
    if kind != "node":
        return prove_fluid(tx, rx, demand, bound, witness, meter), value
    node = integer(
        fields(witness, "witness node", "kind node side witness")["node"], "node", 0, nodes - 1
    )
    need(witness["side"] in ("send", "recv"), "side: expected send or recv")
    ends, mine = (chunks[0], tx[node]) if witness["side"] == "send" else (chunks[1], rx[node])
    sizes = [size for end, size in zip(ends, chunks[2], strict=True) if end == node]
    return "node " + prove_local(sizes, mine, bound, witness["witness"], meter), value


def prove_joint(
    tx: Rates, rx: Rates, chunks: Sequence[Column], bound: Fraction, witness: Any, meter: Meter
) -> str:
    """Puts the chunks of some nodes' sides on rails, one by one in every way, until no way is left.
    A way is what room each rail has at each side before `bound`, as far as sums of the chunks to
    come can fill it: together no less than these chunks need.
    """
    unit, sides = gcd(*chunks[2]) or 1, []
    for side, ends, rates in (("send", chunks[0], tx), ("recv", chunks[1], rx)):
        for node in integers(
            fields(witness, "witness joint", "kind send recv")[side], side, 0, len(rates) - 1
        ):
            meter.spend(len(ends) * (4 + len(rates[node])))
            taken = [
                size // unit if end == node else 0
                for end, size in zip(ends, chunks[2], strict=True)
            ]
            sides.append(
                (
                    [
                        min(max(0, ceil(bound * speed) - 1) // unit, sum(taken))
                        for speed in rates[node]
                    ],
                    taken,
                )
            )
    sides.sort(
        key=lambda side: sum(side[0]) - sum(side[1])
    )  # the tightest is filled first, beginning with chunks of two sides
    takes = sorted(
        filter(any, zip(*(taken for _, taken in sides), strict=True)),
        key=lambda take: ([t > 0 for t in take], max(take)),
    )
    meter.spend(len(takes) * (sum(map(sum, takes)) // 16 + 1))
    sums = accumulate(
        takes,
        lambda bits, take: tuple([b | b << t for b, t in zip(bits, take, strict=True)]),
        initial=(1,) * len(sides),
    )
    ways = {tuple(sorted(zip(*(rooms for rooms, _ in sides), strict=True)))}

    def useful(rooms: Iterable[int], sums: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            [
                (bits & ((2 << room) - 1)).bit_length() - 1
                for bits, room in zip(sums, rooms, strict=True)
            ]
        )

    for take, bits in reversed(
        list(zip(takes, sums, strict=False))
    ):  # the highest bit is the sum of all chunks to come
        before, ways = ways, set()
        for rails in before:
            meter.spend(len(rails) * (20 * len(sides) + sum(map(int.bit_length, bits)) // 64))
            others = [useful(rail, bits) for rail in rails]
            for n, rail in enumerate(rails):
                if rail not in rails[:n] and all(
                    map(int.__ge__, rail, take)
                ):  # of rails alike one is tried
                    after = [
                        *others[:n],
                        useful(map(int.__sub__, rail, take), bits),
                        *others[n + 1 :],
                    ]
                    if all(
                        sum(rooms) >= b.bit_length() - 1
                        for rooms, b in zip(zip(*after, strict=True), bits, strict=True)
                    ):
                        ways.add(tuple(sorted(after)))
    need(not ways, "the joint witness does not show the bound")
    return "joint"


def check_fluid(
    record: dict[str, Any], bound: Fraction, meter: Meter, directory: str
) -> tuple[str, Fraction | None]:
    problem = fields(record["problem"], "problem", "kind tx rx demand")
    tx = matrix(problem["tx"], "tx")
    rx, demand = (
        matrix(problem["rx"], "rx", len(tx), len(tx[0])),
        matrix(problem["demand"], "demand", len(tx), len(tx)),
    )
    kind = prove_fluid(tx, rx, demand, bound, record["witness"], meter)
    if "flow" not in record:
        return kind, None
    flow = fields(record["flow"], "flow", "unit src dst rail amount")
    unit, (src, dst, amount, rail) = (
        integer(flow["unit"], "unit", 1),
        (integers(flow[c], c) for c in ("src", "dst", "amount", "rail")),
    )
    need(
        demanded(len(tx), src, dst, amount) == [[unit * d for d in row] for row in demand],
        "flow: not the demand",
    )
    return kind, completion(tx, rx, src, dst, amount, rail)[0] / unit


def prove_fluid(
    tx: Rates, rx: Rates, demand: Rates, bound: Fraction, witness: Any, meter: Meter
) -> str:
    """LP duality: at prices a[s][n], b[d][n] a byte, a byte from s to d costs at least the least
    a[s][n] + b[d][n] of a live rail n; what all bytes cost, over what all NICs can take in a
    second, is a bound.
    """
    if claimed(witness):
        return claimed(witness)
    need(
        fields(witness, "witness", "kind send recv")["kind"] == "fluid",
        "witness: expected fluid, claimed or node",
    )
    nodes, rails, cost = len(tx), len(tx[0]), 0
    a, b = (matrix(witness[side], side, nodes, rails) for side in ("send", "recv"))
    meter.spend(nodes * nodes * rails)
    earned = sum(
        a[s][n] * tx[s][n] + b[s][n] * rx[s][n] for s in range(nodes) for n in range(rails)
    )
    for s, d in ((s, d) for s in range(nodes) for d in range(nodes) if s != d and demand[s][d]):
        prices = [a[s][n] + b[d][n] for n in range(rails) if tx[s][n] and rx[d][n]]
        need(bool(prices), f"no live rail from node {s} to node {d}")
        cost += demand[s][d] * min(prices)
    need(
        bound * earned <= cost and (earned > 0 or bound <= 0),
        f"the prices show {cost}/{earned}, not {bound}",
    )
    return "fluid"


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


def read_array(name: str, data: bytes) -> tuple[bytes, array[int]]:
    """(what a digest covers: name, dtype, shape and bytes; the integers in C order) of a .npy
    member.
    """
    end = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:end].decode("latin1"))
    values = array(ITEM[header["descr"]], data[end:])
    need(
        data[:7] == b"\x93NUMPY\x01"
        and sys.byteorder == "little"
        and not header["fortran_order"]
        and prod(header["shape"]) == len(values),
        f"{name} is not an array in C order of a little-endian machine",
    )
    return f"{name}|{header['descr']}|{header['shape']}|".encode() + data[end:], values


def read_plan(path: str) -> tuple[tuple[Rates, Rates], list[Column], Fraction, str]:
    """(rates, chunks' columns, makespan, digest) of a railopt .npz; what it claims of them and its
    loads must be so.
    """
    covered, arrays = b"", {}
    try:
        with zipfile.ZipFile(path) as archive:
            need(
                sum(info.file_size for info in archive.infolist()) <= MAX_BYTES,
                f"more than {MAX_BYTES} bytes",
            )
            header = json.loads(archive.read("header.json"))
            for name in sorted(name[:-4] for name in archive.namelist() if name != "header.json"):
                described, arrays[name] = read_array(name, archive.read(f"{name}.npy"))
                covered += described
        digest, nodes, rails = (
            header.pop("digest"),
            header["fabric"]["nodes"],
            header["fabric"]["rails"],
        )
        tx, rx = (
            [arrays[side][i * rails : (i + 1) * rails].tolist() for i in range(nodes)]
            for side in ("tx", "rx")
        )
        columns: list[Column] = [arrays[column] for column in ("src", "dst", "size", "rail")]
        stated = header["makespan"], [arrays["send"].tolist(), arrays["recv"].tolist()]
    except (
        Exception
    ) as error:  # whatever a damaged zip, header or array makes the standard library raise
        raise ValueError(f"{path} is not a readable plan ({error!r})") from error
    need(
        header.get("railopt") == "plan" and header.get("version") == 1,
        f"{path} is not a plan of version 1",
    )
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    need(
        hashlib.blake2b(text + covered, digest_size=16).hexdigest() == digest,
        f"{path} does not match its digest",
    )
    need(
        {len(row) for row in tx + rx} == {rails} and min(map(min, tx + rx)) >= 0,
        f"{path}: rates of another fabric",
    )
    value, loads = completion(tx, rx, *columns)
    need(
        stated == (str(value), loads),
        f"{path} claims other loads or makespan than its chunks have, {value} s",
    )
    return (tx, rx), columns[:3], value, digest


PROBLEMS = {"local": check_local, "coupled": check_coupled, "fluid": check_fluid}


def check_certificate(
    record: Any, directory: str | os.PathLike[str] | None = None, work: int = WORK
) -> Verdict:
    """Check a certificate (parsed JSON); a plan that it names lies in `directory`; `work` limits
    the steps taken.
    """
    kind, bound, value = "certificate", None, None
    try:
        fields(record, "certificate", "railopt version problem claim witness", "assignment flow")
        need(
            record["railopt"] == "certificate" and record["version"] == 1,
            "expected a certificate of version 1",
        )
        claim = fields(record["claim"], "claim", "bound proved", "value")
        problem = str(record["problem"].get("kind")) if isinstance(record["problem"], dict) else ""
        need(
            problem in PROBLEMS and isinstance(claim["proved"], bool),
            f"problem: expected kind {', '.join(PROBLEMS)}",
        )
        bound = fraction(claim["bound"], "bound")
        kind, value = PROBLEMS[problem](record, bound, Meter(work), os.fspath(directory or "."))
        claimed_value = fraction(claim["value"], "value") if "value" in claim else None
        need(
            claimed_value == value and (value is None or value >= bound),
            f"the value attained is {value}",
        )
        proved = value == bound and "claimed" not in kind
        need(
            proved or not claim["proved"],
            "it claims to be proved, but a value and a checked bound do not meet",
        )
    except (Rejected, ValueError, OSError, RecursionError) as error:
        return Verdict(False, False, kind, str(error), bound, value)
    how = (
        "value and bound meet"
        if proved
        else "nothing is proved"
        if "claimed" in kind
        else "the bound holds"
    )
    return Verdict(True, proved, kind, how, bound, value)


def check(path: str | os.PathLike[str], work: int = WORK) -> Verdict:
    """Check a certificate, or a plan: its digest, columns, dead rails, loads and makespan; raises
    OSError or ValueError.
    """
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES)
    try:
        if data[:2] != b"PK":
            return check_certificate(json.loads(data), os.path.dirname(os.fspath(path)), work)
        _, (src, *_), value, digest = read_plan(os.fspath(path))
        return Verdict(
            True, False, "plan", f"{len(src)} chunks on live rails, digest {digest}", None, value
        )
    except Rejected as error:
        return Verdict(False, False, "plan", str(error))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is neither a certificate (JSON) nor a plan (.npz): {error}"
        ) from error


def main(paths: Sequence[str]) -> int:
    code = 0
    for path in paths:
        try:
            verdict = check(path)
            word, code = (
                "proved" if verdict.proved else "ok" if verdict.ok else "FAILED",
                code if verdict.ok else 4,
            )
            print(
                f"{path}: {word}, {verdict.kind}, bound {verdict.bound}, value {verdict.value}: "
                f"{verdict.message}"
            )
        except (OSError, ValueError) as error:
            print(f"{path}: unreadable: {error}", file=sys.stderr)
            code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if sys.argv[1:] else "usage: python3 -S railopt/check.py FILE...")
