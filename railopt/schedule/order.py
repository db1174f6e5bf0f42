"""Stages in order of their length, and short stages at both ends of a schedule.

`peer` and `sent` are [stages, n] everywhere, as `decompose` returns them.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.schedule.decompose import most


@kernel
def by_length(peer: Array, sent: Array, descending: bool) -> tuple[Array, Array]:
    """The stages ordered by their length (largest transfer); equal ones stay in order."""
    stages, n = sent.shape
    key, order, merged = (
        np.zeros(stages, np.int64),
        np.empty(stages, np.int64),
        np.empty(stages, np.int64),
    )
    for s in range(stages):
        order[s] = s
        for i in range(n):
            key[s] = max(key[s], sent[s, i])
        key[s] *= -1 if descending else 1
    width = 1  # merge sort from below: np.argsort takes longer to compile than all else here
    while width < stages:
        for start in range(0, stages, 2 * width):
            middle, end = min(start + width, stages), min(start + 2 * width, stages)
            a, b = start, middle
            for k in range(start, end):
                if a < middle and (b >= end or key[order[a]] <= key[order[b]]):
                    merged[k] = order[a]
                    a += 1
                else:
                    merged[k] = order[b]
                    b += 1
        order, merged = merged, order
        width *= 2
    peers, bytes_ = np.empty_like(peer), np.empty_like(sent)
    for s in range(stages):
        for i in range(n):
            peers[s, i], bytes_[s, i] = peer[order[s], i], sent[order[s], i]
    return peers, bytes_


@part
def _split(
    peer: Array, sent: Array, stage: int, parts: int, step: int, rising: bool
) -> tuple[Array, Array]:
    """One stage in parts: of x bytes x >> (step * p) are left before part p, so the parts shrink
    (or grow, if rising).

    The total stays: each part grows with the whole, so one server has the largest of them all.
    """
    stages, n = sent.shape
    peers, bytes_ = np.empty((stages + parts, n), np.int32), np.empty((stages + parts, n), np.int64)
    count = 0
    for s in range(stages):
        for nth in range(parts if s == stage else 1):
            p = parts - 1 - nth if rising else nth
            busy = False
            for i in range(n):
                size = sent[s, i]
                if s == stage:
                    size = (size >> (step * p)) - (size >> (step * (p + 1)) if p + 1 < parts else 0)
                peers[count, i], bytes_[count, i] = peer[s, i] if size else -1, size
                busy |= size > 0
            count += busy
    return peers[:count].copy(), bytes_[:count].copy()


@kernel
def taper(peer: Array, sent: Array, least: int) -> tuple[Array, Array]:
    """The stages in ascending order, with short ones at both ends, for what nothing hides; no part
    shorter than `least` bytes.

    The last stage halves up to four times: each part hides the redistribution of the one before,
    and 1/16 is left to redistribute at the end.  The first comes as 1/16, 3/16 and 3/4 unless it is
    short already: a rail sends its own bytes first, so the first part needs little balance or none.
    """
    if len(sent) == 0:
        return peer, sent
    peer, sent = by_length(peer, sent, np.bool_(False))
    first, last = most(sent[0]), most(sent[-1])
    parts = 1
    while parts < 5 and last >> parts >= max(1, least):
        parts += 1
    peer, sent = _split(peer, sent, len(sent) - 1, parts, np.int64(1), np.bool_(False))
    if first <= last // 4 or most(sent[0]) >> 4 < max(1, least):
        return peer, sent
    return _split(peer, sent, np.int64(0), np.int64(3), np.int64(2), np.bool_(True))
