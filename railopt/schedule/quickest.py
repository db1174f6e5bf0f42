"""The stages of few servers that last shortest, where it is known what a start-up takes."""

from __future__ import annotations

from itertools import product
from math import fsum

import numpy as np

from railopt.base.arrays import Array
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule.compact import compact
from railopt.schedule.decompose import longest_line, shifted
from railopt.schedule.order import by_length, taper
from railopt.schedule.pieces import node_matrix
from railopt.schedule.rates import equal_bytes, pair_rates, real_bytes
from railopt.schedule.value import Schedule

SHARES = (20, 8)
"""Of L to spare, for fewer stages, as parts of it."""
LEVELS = 3
"""Of the length of a stage that are tried."""
FEW_UNITS = 1 << 10
"""L up to which stages are made of whole ones, too."""


def quickest(
    fabric: Fabric, traffic: Traffic, part: int, startup: int, ends: tuple[int, int, int]
) -> tuple[Array, Array]:
    """The compact stages that last shortest, of up to ten lists: tapered (see `taper` for `ends`),
    or with one of the two shortest first and one of the two longest last.  Each is tried in bytes
    and in units that all NICs send in the same time, if `traffic` is few of them (chunks).

    startup   in bytes between two servers; 0 stands for a part of a byte
    """
    real, rates = node_matrix(traffic.bytes, traffic.nodes), pair_rates(fabric)
    equal, found = equal_bytes(real, rates.up, rates.down), list[Schedule]()
    lost, unit = max(startup, 0.25), rates.fastest // fabric.living_rates[0]
    for size in sorted({1, unit if longest_line(equal) < unit * FEW_UNITS else 1}):
        peer, sent = by_length(*_fewer(-(-equal // size), part, lost / size), False)
        sent *= size
        count, tried = len(peer), [taper(peer, sent, *ends)]
        for first, last in product(range(count)[:2], range(count)[-2:]):
            rest = (s for s in range(count) if s not in (first, last))
            order = [first, *rest, last][:count]
            tried.append((peer[order], sent[order]))
        for each in tried:
            stages = real_bytes(real, *each, rates.up, rates.down)
            found.append(Schedule(fabric, traffic, "compact", "ascending", *stages))
    best = min(found, key=lambda made: lasts(made, lost / rates.fastest))
    return best.peer, best.sent


def _fewer(matrix: Array, part: int, startup: float) -> tuple[Array, Array]:
    """The stages whose lengths and start-ups add up to least: of `compact` with L // `part` or more
    to spare; or of `shifted`, each server opposite the first, each stage as long as one of its
    `LEVELS` longest transfers, and what is left of these by `compact`.
    """
    n, longest = len(matrix), longest_line(matrix)
    tried = (compact(matrix, longest // share) for share in (part, *SHARES))
    best = min(tried, key=lambda each: _cost(each[1], startup))
    least = _cost(best[1], startup)
    for k in range(1, n if n != 3 else 2):
        name = np.arange(n, dtype=np.int32)
        name[n // 2], name[k] = k, n // 2
        peer, sent = shifted(np.ascontiguousarray(matrix[name][:, name]))
        peer, sent = np.append(name, np.int32(-1))[peer[:, name]], sent[:, name]
        for lengths in product(*np.sort(sent)[:, : -LEVELS - 1 : -1]):
            kept, rest = np.minimum(sent, np.array(lengths)[:, None]), matrix.copy()
            np.subtract.at(rest, (np.arange(n), peer), kept)
            kept, among = kept[kept.any(axis=1)], peer[kept.any(axis=1)]
            left = longest_line(rest)
            if _cost(kept, startup) + left + startup * (left > 0) < least:
                more = compact(rest, left // SHARES[0])
                both = np.concatenate([among, more[0]]), np.concatenate([kept, more[1]])
                best = both if _cost(both[1], startup) < least else best
                least = _cost(best[1], startup)
    return best


def _cost(sent: Array, startup: float) -> float:
    """What stages last, each with a start-up."""
    return len(sent) * startup + float(sent.max(axis=1, initial=0).sum())


def lasts(made: Schedule, startup: float) -> float:
    """What a schedule takes in seconds: a stage its start-up and what its busiest NIC sends, and no
    less than SpreadOut inside servers: the balance of the next stage, the redistribution of the one
    before and, beside the longest, what stays inside.
    """
    fabric, (stage, rail, source, target, _, size) = made.fabric, made.pieces()
    n, m, rails, each = fabric.nodes, fabric.gpus, fabric.rails, np.arange(fabric.gpus)
    wire = np.zeros((2, made.stages + 2, n, rails), np.int64)
    np.add.at(wire[0], (stage + 1, source // m, rail), size)
    np.add.at(wire[1], (stage + 1, target // m, rail), size)
    rates = np.maximum(1, np.stack([fabric.tx, fabric.rx]))
    went = (wire / rates[:, None]).max(axis=(0, 2, 3))
    moves = np.zeros((made.stages + 2, n, m, m), np.int64)
    owner = rail.astype(np.int64) * m // rails
    np.add.at(moves, (stage, source // m, source % m, owner), size)
    np.add.at(moves, (stage + 2, target // m, owner, target % m), size)
    moves[went.argmax()] += made.traffic.bytes.reshape(n, m, n, m)[range(n), :, range(n)]
    shifts = [moves[:, :, each, (each + d) % m].max(axis=2) for d in range(1, m)]
    inside = sum(shifts, np.zeros((made.stages + 2, n))).max(axis=1) / fabric.scaleup
    return fsum(np.maximum(went + startup * (went > 0), inside))
