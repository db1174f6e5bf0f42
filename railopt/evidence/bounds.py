"""Lower bounds on the time of any plan, each with a witness that the trusted checker re-checks.

One node and one side (what it sends, or what it receives) is a scheduling problem of its own: its
chunks on its N rails.  Whatever bounds that from below bounds every plan of the coupled problem.
Witnesses are the dicts of `certificate.py`:

    average      all rails together carry all bytes; loads are whole multiples of the sizes' common
                 divisor
    pigeonhole   of the l largest chunks some k of N equal rails carry
                 lam = k (l div N) + min(k, l mod N), at least the bytes of the lam smallest of
                 them; contains the average (k = N, all chunks), the largest chunk (k = l = 1) and
                 p_N + p_{N+1} (k = 1, l = N + 1).  Haouari, Gharbi, Jemmali (2006)
    count        the same idea for rails of different speed: in less than T a rail takes at most the
                 number of the smallest of the l largest chunks that fit; together fewer than l
    leaf         what leaves or enters a group of nodes crosses the links above its leaves

Sizes are bytes, speeds bytes per second (0 = dead), bounds Fractions of seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np

from railopt.base.arrays import Array, Floats, Ints, by_key, total
from railopt.base.errors import Infeasible
from railopt.base.kernels import added_up, kernel
from railopt.base.units import exact
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic

Witness = dict[str, Any]
PROMISING = 2  # counts of jobs that are looked at exactly
SURELY = 1 - 1e-9  # times a float: less than its exact value, whatever was rounded
ALL_DEAD = "traffic at a node whose NICs are all dead: no time is enough"


@dataclass(frozen=True)
class Bound:
    """No plan is faster than `value` seconds, because of what `node` has to send or receive
    (`side`).
    """

    value: Fraction
    node: int
    side: str
    witness: Witness

    @property
    def lifted(self) -> Witness:
        """The witness as one about the coupled problem."""
        return {"kind": "node", "node": self.node, "side": self.side, "witness": self.witness}


@kernel
def _best_pigeonhole(prefix: Ints, rails: int) -> tuple[int, int, int]:
    """(bound, l, k) that maximises ceil(sum of the lam smallest of the l largest / k), where lam is
    k (l div rails) + min(k, l mod rails).

    prefix int64 [n + 1]: sums of sizes in descending order.  Ties keep the first, and all chunks on
    all rails (the average) comes first.
    """
    n = prefix.size - 1
    best, jobs, some = (prefix[n] + rails - 1) // rails, n, rails
    for l in range(1, n + 1):
        whole, rest = l // rails, l % rails
        for k in range(1, rails + 1):
            lam = k * whole + min(k, rest)
            held = prefix[l] - prefix[l - lam]
            if held > best * k:
                best, jobs, some = (held + k - 1) // k, l, k
    return best, jobs, some


def pigeonhole(sizes: Ints, rails: int) -> tuple[int, Witness]:
    """The best pigeonhole bound, in bytes, for sizes in descending order on `rails` equal rails."""
    if not len(sizes):
        return 0, {"kind": "average"}
    unit = int(np.gcd.reduce(sizes))
    prefix = np.concatenate([[0], np.cumsum(sizes // unit)])
    bound, jobs, some = _best_pigeonhole(prefix, rails)
    return int(bound) * unit, {"kind": "pigeonhole", "jobs": int(jobs), "rails": int(some)}


def average(sizes: Ints, speeds: Sequence[int]) -> tuple[Fraction, Witness]:
    """The least T at which rails of these speeds can hold all bytes in whole multiples of the
    sizes' common divisor.
    """
    unit = int(np.gcd.reduce(sizes))
    need, live = total(sizes) // unit, [speed for speed in speeds if speed]
    fluid = Fraction(need, sum(live))
    held = [fluid * speed // 1 for speed in live]
    steps = [
        (Fraction(h + 1, speed), i) for i, (h, speed) in enumerate(zip(held, live, strict=True))
    ]
    heapq.heapify(steps)
    time = fluid
    for _ in range(need - sum(held)):
        time, i = steps[0]
        held[i] += 1
        heapq.heapreplace(steps, (Fraction(held[i] + 1, live[i]), i))
    return time * unit, {"kind": "average"}


def count(sizes: Ints, speeds: Sequence[int], jobs: int) -> tuple[Fraction, Witness]:
    """The least T in which rails of these speeds can take `jobs` jobs, each as small as the
    smallest of the `jobs` largest.
    """
    sums = [0, *np.cumsum(sizes[:jobs][::-1]).tolist()]
    steps = [(Fraction(sums[1], speed), speed, 1) for speed in speeds if speed]
    heapq.heapify(steps)
    time = Fraction(0)
    for _ in range(jobs):
        time, speed, taken = steps[0]
        if taken == jobs:
            heapq.heappop(steps)
        else:
            heapq.heapreplace(steps, (Fraction(sums[taken + 1], speed), speed, taken + 1))
    return time, {"kind": "count", "jobs": jobs}


def local_bound(sizes: Ints, speeds: Sequence[int]) -> tuple[Fraction, Witness]:
    """The best of the bounds above for one node and side; sizes in descending order."""
    live = [speed for speed in speeds if speed]
    if not len(sizes):
        return Fraction(0), {"kind": "average"}
    if not live:
        raise Infeasible(ALL_DEAD)
    if len(set(live)) == 1:
        bound, witness = pigeonhole(sizes, len(live))
        return Fraction(bound, live[0]), witness
    tried = counted_times(sizes, live)
    promising = np.argsort(-tried, kind="stable")[:PROMISING] + 1
    return max(
        [average(sizes, live), *(count(sizes, live, jobs) for jobs in promising.tolist())],
        key=lambda found: found[0],
    )


def counted_times(sizes: Ints, live: Sequence[int]) -> Floats:
    """About what `count` finds for one job, two, and so on, up to four per rail."""
    speeds = np.array(live, np.float64)
    found = np.zeros(min(len(sizes), 4 * len(live)))
    for jobs in range(1, len(found) + 1):
        most = min(jobs, 4 + int(2 * jobs * speeds.max() / speeds.sum()))  # on one rail, about
        sums = np.cumsum(sizes[jobs - most : jobs][::-1].astype(np.float64))
        times = (sums[:, None] / speeds).ravel()
        found[jobs - 1] = np.partition(times, jobs - 1)[jobs - 1] if jobs <= len(times) else 0.0
    return found


def node_sizes(chunks: Chunks, side: str, node: int) -> Ints:
    """The sizes of what a node sends or receives, largest first."""
    return np.sort(chunks.size[_ends(chunks, side) == node])[::-1]


def lower_bound(fabric: Fabric, chunks: Chunks) -> Bound:
    """The best local bound over all nodes and both sides.

    Nodes go by falling average load; one is skipped when even what list scheduling attains there,
    which no local bound exceeds, can't beat what is known.  Let each chunk go to the rail that is
    done with it first.  The last one to end, of p bytes, would have ended no earlier on any of the
    m rails.  So all are busy until then but for p bytes each, and T times their speeds is at most
    all bytes and m - 1 times p.
    """
    best, grouped = Bound(Fraction(0), 0, "send", {"kind": "average"}), dict[str, list[Ints]]()
    for _, attained_s, side, node, _ in by_load(fabric, chunks):
        if attained_s < SURELY * float(best.value):
            continue
        if best.value:  # few problems come to ask for more than the first
            if side not in grouped:
                grouped[side] = _by_node(chunks, side)
            sizes = np.sort(grouped[side][node])[::-1]
        else:
            sizes = node_sizes(chunks, side, node)
        value, witness = local_bound(sizes, fabric.rates(side)[node].tolist())
        if value > best.value:
            best = Bound(value, node, side, witness)
    return best


@dataclass(frozen=True)
class LeafCut:
    """No plan is faster than `value` seconds: `bytes` leave (`side` "send") or enter ("recv") the
    nodes of leaf group `group`, and its links to the tier above carry `capacity` bytes per second.
    """

    group: int
    side: str
    bytes: int
    capacity: int

    @property
    def value(self) -> Fraction:
        return Fraction(self.bytes, self.capacity) if self.bytes else Fraction(0)

    @property
    def witness(self) -> Witness:
        """The witness in a certificate of kind "leaves"."""
        return {"kind": "leaf", "group": self.group, "side": self.side}

    def as_dict(self) -> Witness:
        """JSON values; the bound in seconds as "p/q"."""
        return exact({**asdict(self), "bound": self.value})


def uplink_bound(fabric: Fabric, what: Chunks | Traffic) -> LeafCut | None:
    """The cut between a leaf group and the rest that takes longest; None without leaves, or with
    one group.

    A plan chooses rails, so the cut is of all leaves of the group: each carries no more than its
    links, nor than the group's NICs below it.
    """
    leaves = fabric.leaves
    if leaves is None or leaves.groups(fabric.nodes) == 1:
        return None
    src: Array
    dst: Array
    if isinstance(what, Chunks):
        src, dst, size = what.src, what.dst, what.size
    else:
        src, dst = np.nonzero(what.node_matrix)
        size = what.node_matrix[src, dst]
    away = src // leaves.nodes != dst // leaves.nodes
    starts = np.arange(0, fabric.rails, leaves.rails)
    found = []
    for side, ends in (("send", src), ("recv", dst)):
        below = np.add.reduceat(fabric.rates(side), starts, axis=1)
        carried = np.zeros(leaves.groups(fabric.nodes), np.int64)
        np.add.at(carried, ends[away] // leaves.nodes, size[away])
        for each, bytes_ in enumerate(carried.tolist()):
            mine = below[each * leaves.nodes : (each + 1) * leaves.nodes]
            capacity = sum(min(leaves.capacity, total(leaf)) for leaf in mine.T)
            found.append(LeafCut(each, side, bytes_, capacity))
    if any(cut.bytes and not cut.capacity for cut in found):
        raise Infeasible(ALL_DEAD)
    return max(found, key=lambda cut: cut.value)


def _ends(chunks: Chunks, side: str) -> Array:
    return chunks.src if side == "send" else chunks.dst


def _by_node(chunks: Chunks, side: str) -> list[Ints]:
    """The sizes of what each node sends or receives: one pass, where many nodes are asked for."""
    ends = _ends(chunks, side)
    until = np.cumsum(np.bincount(ends, minlength=chunks.nodes))
    return np.split(chunks.size[by_key(ends)], until[:-1])


def by_load(fabric: Fabric, chunks: Chunks) -> list[tuple[float, float, str, int, int]]:
    """(seconds of its bytes on all its living rails, seconds that list scheduling attains at most,
    side, node, bytes), the most loaded first; the seconds are rounded.
    """
    found = list[tuple[float, float, str, int, int]]()
    sends, receives = ("send", chunks.src, fabric.tx), ("recv", chunks.dst, fabric.rx)
    for side, ends, rates in (sends, receives):
        loads = added_up(ends, chunks.size, fabric.nodes)
        live = np.count_nonzero(rates, axis=1)
        if loads[live == 0].any():
            raise Infeasible(ALL_DEAD)
        node = np.flatnonzero(loads)
        speed = rates[node].sum(axis=1, dtype=np.float64)
        mean = loads[node] / speed
        attained = mean + (live[node] - 1) * chunks.largest / speed
        columns = (mean.tolist(), attained.tolist(), node.tolist(), loads[node].tolist())
        found += [
            (mean_s, most_s, side, *rest) for mean_s, most_s, *rest in zip(*columns, strict=True)
        ]
    return sorted(found, key=itemgetter(0), reverse=True)
