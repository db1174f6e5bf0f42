"""A bound for one node whose chunks are mostly caps, the size at which traffic is cut: chunks
weighed in whole parts of a cap.

Let a cap weigh k, another chunk as many k-ths of a cap as fit into it, some sizes less.  Of N
equal rails one carries at least the N-th part of all weight, so nothing is done before the smallest
load that weighs as much:

    bound = min { size(load) : weight(load) >= ceil(weight of all / N) }

That beats the average where the other chunks, the remainders of cut messages, can't fill up what
caps leave of a rail.  The configuration LP (`solver/local/lp.py`) finds weights as good or better,
in some hundreds of times the time.

For every k, weights begin rounded down; each load that is too small has the weight of one of its
sizes lowered, as long as all together still ask for the same share of a rail.  A load that is too
small for some weights is so for many, so the loads found before are tried before another one is
looked for.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.kernels import kernel, part
from railopt.checker import WORK
from railopt.evidence.bounds import Witness
from railopt.solver.coupled.search import Cells

MOST = 48  # other chunks: a set of them is a number, and more of them fill up rails anyway
LEAST_PARTS, MOST_PARTS = 8, 128  # of a cap
LOADS = 32  # that are remembered
CHECKED = 16  # steps of the checker's knapsack, at most, for each chunk and each weight of a load
LARGEST = 1 << 50  # bytes together, in units: times the parts they don't wrap
NEVER = 1 << 60  # the size of a load that can't be


class CapNode(NamedTuple):
    """The node, sizes in units of their common divisor.

    others   int64 [m]: the chunks that are no caps
    cap      the size of a cap, of which there are `caps`;  rails, all equal
    """

    others: Array
    cap: int
    caps: int
    rails: int


class CapWeights(NamedTuple):
    """Weights under change.

    of      int64 [m], of the other chunks;  lost int64 [m]: what their size has beyond it, in k-ths
            of a unit
    order   int64 [m]: the others by rising loss
    """

    of: Array
    lost: Array
    order: Array


class Asked(NamedTuple):
    """What some rail carries: a weight of `share`, where a cap weighs `parts`."""

    parts: int
    share: int


class SmallLoads(NamedTuple):
    """The other chunks of loads that were too small: has int64 [LOADS, m], 1 or 0; size int64
    [LOADS].
    """

    has: Array
    size: Array


class Table(NamedTuple):
    """The smallest set of others by its weight: size, and the set as a number; int64 both."""

    size: Array
    members: Array


def of_node(cells: Cells, side: str, node: int, bound: Fraction) -> tuple[Fraction, Witness] | None:
    """The best such bound of what a node sends or receives, in seconds, where that is more than
    `bound` and its live rails are equal.
    """
    live = [rate for rate in cells.rates(side, node).tolist() if rate]
    if len(set(live)) > 1:
        return None
    sizes = cells.chunks.size[cells.node_chunks(side, node)]
    found = cap_weights(sizes, len(live), ceil(bound * live[0]))
    return None if found is None else (Fraction(found[0], live[0]), found[1])


def cap_weights(sizes: Ints, rails: int, bound: int) -> tuple[int, Witness] | None:
    """The best such bound, in bytes, where it is more than `bound` of them; sizes in descending
    order, rails equal.
    """
    unit, caps = int(np.gcd.reduce(sizes)), int(np.count_nonzero(sizes == sizes[0]))
    many_caps = caps >= rails and 0 < len(sizes) - caps <= MOST
    if not many_caps or int(sizes.sum()) // unit >= LARGEST:
        return None
    others = sizes[caps:] // unit
    node, weights = CapNode(others, int(sizes[0]) // unit, caps, rails), np.zeros_like(others)
    # so that the checker can check it: a load weighs at most a share, a chunk at most `parts`
    most = WORK // (CHECKED * len(sizes) * -(-len(sizes) // rails))
    best, parts = _best(node, -(-bound // unit), min(most, MOST_PARTS), weights)
    if not parts:
        return None
    pairs = {
        int(sizes[0]): parts,
        **dict(zip(sizes[caps:].tolist(), weights.tolist(), strict=True)),
    }
    listed = [[size, weight] for size, weight in pairs.items() if weight]
    return best * unit, {"kind": "dual", "weights": listed}


@kernel
def _best(node: CapNode, bound: int, most_parts: int, best: Array) -> tuple[int, int]:
    """(bound, parts) in units, and the weights that show it in `best` int64 [m]; parts 0 where none
    beats `bound`.
    """
    count, most = node.others.size, node.others.size * MOST_PARTS + 1
    # of one kind all: what makes arrays takes longer to compile than what uses them
    chunks, sums = np.zeros((3 + LOADS, count), np.int64), np.zeros((2, most), np.int64)
    weights, table = CapWeights(chunks[0], chunks[1], chunks[2]), Table(sums[0], sums[1])
    loads = SmallLoads(chunks[3:], np.zeros((1, LOADS), np.int64)[0])
    for i in range(count):
        weights.order[i] = i
    found = best_parts = 0
    for parts in range(LEAST_PARTS, most_parts + 1):
        total = _rounded_down(node, parts, weights)
        asked = Asked(parts, -(-total // node.rails))
        spare, load = total - (asked.share - 1) * node.rails - 1, 0
        while True:
            load = _too_small(node, loads, load, min(found, LOADS), weights, asked, bound)
            if load == min(found, LOADS):
                size, members = _smallest_load(node, table, weights, asked, bound)
                if size > bound:
                    bound, best_parts = size, parts
                    for i in range(count):
                        best[i] = weights.of[i]
                load = found % LOADS
                _remember(node, loads, load, members)
                found += 1
            lowered = _lower(node, loads.has[load], weights, spare)
            if lowered == 0:
                break
            spare -= lowered
    return bound, best_parts


@part
def _rounded_down(node: CapNode, parts: int, weights: CapWeights) -> int:
    """Weights of the others rounded down; what all chunks weigh together."""
    total = node.caps * parts
    for i in range(node.others.size):
        weights.of[i] = parts * node.others[i] // node.cap
        weights.lost[i] = parts * node.others[i] - weights.of[i] * node.cap
        total += weights.of[i]
    return total


@part
def _with_caps(node: CapNode, asked: Asked, size: int, weight: int) -> int:
    """The size of a load of other chunks of this size and weight, with as many caps as it takes to
    weigh what is asked.
    """
    caps = (max(asked.share - weight, 0) + asked.parts - 1) // asked.parts
    return size + caps * node.cap if caps <= node.caps else NEVER


@part
def _too_small(
    node: CapNode,
    loads: SmallLoads,
    begin: int,
    end: int,
    weights: CapWeights,
    asked: Asked,
    bound: int,
) -> int:
    """The first of the loads from `begin` that is no larger than `bound`; `end` where none is."""
    for load in range(begin, end):
        weight, has = 0, loads.has[load]
        for i in range(has.size):
            weight += has[i] * weights.of[i]
        if _with_caps(node, asked, loads.size[load], weight) <= bound:
            return load
    return end


@part
def _smallest_load(
    node: CapNode, table: Table, weights: CapWeights, asked: Asked, bound: int
) -> tuple[int, int]:
    """(size, its others) of the smallest load that weighs what is asked, or of some that is no
    larger than `bound`.

    The others come by rising loss: the first of them make up loads that are small for their weight.
    """
    lost, order = weights.lost, weights.order
    for i in range(1, order.size):
        chunk, place = order[i], i
        while place and lost[order[place - 1]] > lost[chunk]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = chunk
    smallest, chosen = _with_caps(node, asked, 0, 0), 0
    table.size[0], table.members[0], top = 0, 0, 0
    for i in range(order.size):
        chunk = order[i]
        weight, size = weights.of[chunk], node.others[chunk]
        if weight == 0 or smallest <= bound:
            continue
        for w in range(top + 1, top + weight + 1):
            table.size[w] = NEVER
        top += weight
        for w in range(top, weight - 1, -1):
            together = table.size[w - weight] + size
            if together < table.size[w]:
                table.size[w] = together
                table.members[w] = table.members[w - weight] | (np.int64(1) << chunk)
                with_caps = _with_caps(node, asked, together, w)
                if with_caps < smallest:
                    smallest, chosen = with_caps, table.members[w]
    return smallest, chosen


@part
def _remember(node: CapNode, loads: SmallLoads, place: int, members: int) -> None:
    """Keep a set of others among the loads."""
    loads.size[place] = 0
    for i in range(node.others.size):
        loads.has[place, i] = (members >> i) & 1
        loads.size[place] += loads.has[place, i] * node.others[i]


@part
def _lower(node: CapNode, has: Array, weights: CapWeights, spare: int) -> int:
    """Lower the weight of that chunk of a load that lost least, and of all of its size, of which
    there may be as many as `spare`; how many were lowered.
    """
    others, of, lost = node.others, weights.of, weights.lost
    least, alike = 0, 0
    for i in range(has.size):
        if has[i] and of[i] and (alike == 0 or lost[i] < lost[least]):
            same = 0
            for other in others:
                same += other == others[i]
            if same <= spare:
                least, alike = i, same
    for i in range(has.size if alike else 0):
        if others[i] == others[least]:
            of[i] -= 1
            lost[i] += node.cap
    return alike
