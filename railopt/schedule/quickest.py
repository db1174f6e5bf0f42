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
    fabric: Fabric,
    traffic: Traffic,
    usual: tuple[Array, Array],
    part: int,
    startup: int,
    ends: tuple[int, int, int],
) -> Schedule:
    """The compact stages that last shortest, of several lists: tapered (see `taper` for `ends`), or
    with one of the two shortest first and one of the two longest last; where NICs are alike, also
    with stages of several rows.  Each is tried in bytes and in units that all NICs send in the same
    time, if `traffic` is few of them (chunks).

    usual     what there would be without a start-up, also tried
    startup   in bytes between two servers; 0 stands for a part of a byte
    """
    real, rates = node_matrix(traffic.bytes, traffic.nodes), pair_rates(fabric)
    equal, found = equal_bytes(real, rates.up, rates.down), list[Schedule]()
    lost, unit = max(startup, 0.25), rates.fastest // fabric.living_rates[0]
    found.append(Schedule(fabric, traffic, "compact", "ascending", *usual))
    sizes = sorted({1, unit if longest_line(equal) < unit * FEW_UNITS else 1})
    for size, most in product(sizes, sorted({1, fabric.gpus if fabric.is_uniform else 1})):
        peer, sent = by_length(*_fewer(-(-equal // size), part, lost / size, most), False)
        sent *= size
        tried = [(*taper(peer, sent, *ends), None)] if most == 1 else []
        stages = _together(sent, lost, most)[1]
        for order in _orders(len(stages)):
            rows = [row for k in order for row in stages[k]]
            stage = np.repeat(np.arange(len(order)), [len(stages[k]) for k in order])
            tried.append((peer[rows], sent[rows], stage if most > 1 else None))
        for peers, bytes_, stage in tried:
            to, went = real_bytes(real, peers, bytes_, rates.up, rates.down)
            if stage is None or len(stage) == len(to):
                found.append(Schedule(fabric, traffic, "compact", "ascending", to, went, stage))
    return min(found, key=lambda made: lasts(made, lost / rates.fastest))


def _orders(count: int) -> list[list[int]]:
    """Of stages in ascending order: one of the two shortest first, one of the two longest last."""
    every = [*range(count)]
    return [
        [first, *(k for k in every if k not in (first, last)), last]
        for first, last in product(every[:2], every[-2:])
        if first != last
    ] or [every]


def _together(sent: Array, startup: float, most: int) -> tuple[float, list[list[int]]]:
    """What rows in ascending order last at least, each stage with a start-up, and these stages:
    neighbours that share the rails, as many as divide `most`.
    """
    length = sent.max(axis=1, initial=0).tolist()
    lasts: list[tuple[float, list[list[int]]]] = [(0.0, [])]
    for end in range(1, len(length) + 1):
        tried = (end - k for k in range(1, min(end, most) + 1) if most % k == 0)
        took = ((lasts[k][0] + startup + (end - k) * length[end - 1], k) for k in tried)
        least, first = min(took)
        lasts.append((least, [*lasts[first][1], [*range(first, end)]]))
    return lasts[-1]


def _fewer(matrix: Array, part: int, startup: float, most: int) -> tuple[Array, Array]:
    """The rows whose stages, of up to `most` rows, last shortest: of `compact` with L // `part` or
    more to spare; or of `shifted`, each server opposite the first, each row as long as one of its
    `LEVELS` longest transfers, and what is left of these by `compact`.
    """
    n, longest = len(matrix), longest_line(matrix)
    tried = (compact(matrix, longest // share) for share in (part, *SHARES))
    best = min(tried, key=lambda each: _cost(each[1], startup, most))
    least = _cost(best[1], startup, most)
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
            if _cost(kept, startup, most) + left + startup * (left > 0) < least:
                more = compact(rest, left // SHARES[0])
                both = np.concatenate([among, more[0]]), np.concatenate([kept, more[1]])
                best = both if _cost(both[1], startup, most) < least else best
                least = _cost(best[1], startup, most)
    return best


def _cost(sent: Array, startup: float, most: int) -> float:
    """What rows in any order last at least."""
    return _together(np.sort(sent.max(axis=1, initial=0))[:, None], startup, most)[0]


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
