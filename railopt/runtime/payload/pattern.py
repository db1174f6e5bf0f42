"""Bytes in memory: copy, fill with a pattern, verify.  One row per chunk.

The pattern depends on the position.  Word w of the chunk with key k is mix(seed, k, w), so a byte
that landed in the wrong place, in the wrong chunk or in the wrong round is a wrong byte.

Compiled code and numpy release Python's lock, so rails that copy in threads do so at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Ints, Words, groups
from railopt.base.kernels import kernel, part

_BLOCK = 1 << 18  # bytes that numpy looks at together
_BYTE_S = 4e-9  # CPU seconds that numpy takes per byte
_KEY, _WORD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)


class Payloads(NamedTuple):
    """Chunks in memory: uint8 arrays, and of each chunk which of them holds it, from where on, and
    its bytes, int64 [C].
    """

    memory: Sequence[Array]
    number: Ints
    offset: Ints
    size: Ints

    def fill(self, key: Words, seed: np.uint64) -> None:
        """Write the pattern into every chunk; keys uint64 [C]."""
        self._each_memory(_fill, key, seed)

    def wrong(self, key: Words, seed: np.uint64) -> Bools:
        """Which chunks do not hold the pattern, bool [C]."""
        found = np.zeros(len(key), np.bool_)
        self._each_memory(_find_wrong, key, seed, found)
        return found

    def _each_memory(self, work: Callable[..., None], *args: Any) -> None:
        order, bounds = groups(self.number)
        for begin, end in pairwise(bounds.tolist()):
            memory, rows = self.memory[self.number[order[begin]]], order[begin:end]
            work(memory, rows, self.offset, self.size, *args)


def _copy_by_numpy(source, at, target, to, size):  # type: ignore[no-untyped-def]
    for begin, end, length in zip(at.tolist(), to.tolist(), size.tolist(), strict=True):
        target[end : end + length] = source[begin : begin + length]


@kernel(numpy=_copy_by_numpy, element_s=_BYTE_S, nogil=True)
def copy_chunks(source, at, target, to, size):  # type: ignore[no-untyped-def]
    """Copy chunks from one memory to another, uint8: offsets in both and bytes, int64 [C]."""
    for i in range(len(size)):
        taken, put = source[at[i] : at[i] + size[i]], target[to[i] : to[i] + size[i]]
        for b in range(len(taken)):  # one call of memcpy
            put[b] = taken[b]


@part
def _mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64, modulo 2^64, of a word or an array of them."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@part
def _word(held, begin, count):  # type: ignore[no-untyped-def]
    """`count` bytes, up to 8, as a word whose lowest byte is the first; 8 are one load."""
    word = np.uint64(0)
    for b in range(count):
        word |= np.uint64(held[begin + b]) << np.uint64(8 * b)
    return word


def _blocks(
    memory: Array, rows: Ints, at: Ints, size: Ints, key: Words
) -> Iterator[tuple[int, Array, Words]]:
    """(chunk, bytes, words that go with its seed) of all chunks, at most `_BLOCK` at a time."""
    for i, begin, length in zip(rows.tolist(), at[rows].tolist(), size[rows].tolist(), strict=True):
        for first in range(0, length, _BLOCK):
            held = memory[begin + first : begin + min(length, first + _BLOCK)]
            word = np.arange(first // 8, first // 8 + -(-len(held) // 8), dtype=np.uint64)
            yield i, held, key[i : i + 1] * _KEY + word * _WORD


def _fill_by_numpy(memory, rows, at, size, key, seed):  # type: ignore[no-untyped-def]
    for _, held, words in _blocks(memory, rows, at, size, key):
        held[:] = _mix(seed + words).astype("<u8", copy=False).view(np.uint8)[: len(held)]


@kernel(numpy=_fill_by_numpy, element_s=_BYTE_S, nogil=True)
def _fill(memory, rows, at, size, key, seed):  # type: ignore[no-untyped-def]
    for i in rows:
        held, start = memory[at[i] : at[i] + size[i]], seed + key[i] * _KEY
        whole, rest = len(held) // 8, len(held) % 8
        for w in range(whole):
            x = _mix(start + np.uint64(w) * _WORD)
            for b in range(8):  # one store
                held[8 * w + b] = x >> np.uint64(8 * b)
        x = _mix(start + np.uint64(whole) * _WORD)
        for b in range(rest):
            held[8 * whole + b] = x >> np.uint64(8 * b)


def _find_wrong_by_numpy(memory, rows, at, size, key, seed, wrong):  # type: ignore[no-untyped-def]
    for i, held, words in _blocks(memory, rows, at, size, key):
        expected = _mix(seed + words).astype("<u8", copy=False).view(np.uint8)[: len(held)]
        wrong[i] |= not np.array_equal(held, expected)


@kernel(numpy=_find_wrong_by_numpy, element_s=_BYTE_S, nogil=True)
def _find_wrong(memory, rows, at, size, key, seed, wrong):  # type: ignore[no-untyped-def]
    for i in rows:
        held, start = memory[at[i] : at[i] + size[i]], seed + key[i] * _KEY
        whole, rest, different = len(held) // 8, len(held) % 8, np.uint64(0)
        for w in range(whole):
            different |= _word(held, 8 * w, 8) ^ _mix(start + np.uint64(w) * _WORD)
        x = _mix(start + np.uint64(whole) * _WORD) & ((_ONE << np.uint64(8 * rest)) - _ONE)
        wrong[i] = (different | (_word(held, 8 * whole, rest) ^ x)) != 0
