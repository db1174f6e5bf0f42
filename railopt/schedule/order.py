"""Stages in order of their length, and short stages at both ends of a schedule.

`peer` and `sent` are [stages, n] everywhere, as `decompose` returns them.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part
from railopt.schedule.decompose import Stages, most, tables


@kernel
def by_length(peer: Array, sent: Array, descending: bool) -> tuple[Array, Array]:
    """The stages ordered by their length (largest transfer); equal ones stay in order."""
    stages, n = sent.shape
    key = np.zeros(stages, np.int64)
    for s in range(stages):
        for i in range(n):
            key[s] = max(key[s], sent[s, i])
        key[s] *= -1 if descending else 1
    order = np.argsort(key, kind="mergesort")
    peers, bytes_ = np.empty_like(peer), np.empty_like(sent)
    for s in range(stages):
        for i in range(n):
            peers[s, i], bytes_[s, i] = peer[order[s], i], sent[order[s], i]
    return peers, bytes_


@part
def _add_part(stages: Stages, peer: Array, left: Array, s: int, size: int, whole: int) -> int:
    """Append the next part of stage s, if it has any bytes, and return what the rest of it lasts.
    Of each transfer so many bytes go that the rest fits into the rest of `whole`, and else about
    its share.

    left   int64 [stages, n]: what is still to send; `size` bytes of the longest go
    """
    if size == 0:
        return whole
    peers, bytes_, used = stages
    count, share = used[0], size / whole
    for i in range(left.shape[1]):
        due = max(left[s, i] - (whole - size), np.int64(left[s, i] * share))
        due = min(due, left[s, i], size)
        peers[count, i], bytes_[count, i] = peer[s, i] if due else -1, due
        left[s, i] -= due
    used[0] += 1
    return whole - size


@kernel
def taper(peer: Array, sent: Array, least: int, group: int, step: int) -> tuple[Array, Array]:
    """The stages in ascending order, with short ones at both ends, for what nothing hides.

    least   a part of less than twice as many bytes is not split
    group   parts are multiples of so many bytes; what that leaves of the stages comes last, in
            parts that fill one group after the other
    step    parts differ by a factor of 2**step

    The last stage falls to 1/16 or less: each part hides the redistribution of the one before.  The
    first comes in larger steps from 1/16 on unless it is short already: a rail sends its own bytes
    first, so the first part needs little balance or none.
    """
    peer, left = by_length(peer, sent, np.bool_(False))
    count, n = left.shape
    if count == 0:
        return peer, left
    least, room = max(1, least), count * min(group, 3) + 8
    peers, bytes_ = np.empty((room, n), np.int32), np.empty((room, n), np.int64)
    stages = Stages(peers, bytes_, np.zeros(1, np.int64))
    first, last = most(left[0]) // group * group, most(left[-1]) // group * group
    falls, rises = 0, 0
    while falls * step < 4 and last >> (falls * step + 1) >= least:
        falls += 1
    rising = last - _up(last >> step, group) if falls and count == 1 else first
    if first > last // 4 and rising >> 4 >= least:
        rises = 3 // (step + 1) + 1
    for s in range(count):
        whole = most(left[s]) // group * group
        for k in range(rises if s == 0 else 0, 0, -1):
            end = first - _up(rising >> ((step + 1) * k), group)
            whole = _add_part(stages, peer, left, s, whole - end, whole)
        for k in range(1, falls + 1 if s == count - 1 else 0):
            end = _up(last >> (step * k), group)
            whole = _add_part(stages, peer, left, s, whole - end, whole)
        _add_part(stages, peer, left, s, whole, whole)
    filled = 0
    for s in range(count):
        rest = most(left[s])
        while rest:
            fits = min(rest, group - filled % group)
            _add_part(stages, peer, left, s, fits, fits)
            rest -= fits
            filled += fits
    return tables(stages)


@part
def _up(size: int, group: int) -> int:
    """`size` rounded up to a multiple of `group`."""
    return (size + group - 1) // group * group
