"""Bytes at addresses: copy, fill with a pattern, verify, checksum.  One row per chunk.

The pattern depends on the position.  Word w of the chunk with key k is mix(seed, k, w), so a byte
that landed in the wrong place, in the wrong chunk or in the wrong round is a wrong byte.

numpy and memmove release Python's lock, so rails that copy in threads do so at the same time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from railopt.base.arrays import Array, Bools, Ints, Words

_BLOCK = 1 << 16  # words that are looked at together
_KEY, _WORD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


def copy_chunks(source: Ints, target: Ints, size: Ints) -> None:
    """Copy every chunk: addresses and bytes, int64 [C]."""
    for to, at, length in zip(target.tolist(), source.tolist(), size.tolist(), strict=True):
        ctypes.memmove(to, at, length)


def fill_pattern(address: Ints, size: Ints, key: Words, seed: np.uint64) -> None:
    """Write the pattern into every chunk: addresses and bytes int64 [C], keys uint64 [C]."""
    for at, length, own in zip(address.tolist(), size.tolist(), key, strict=True):
        for held, first in _blocks(at, length):
            held[:] = _pattern(seed, own, first, held.size)


def wrong_chunks(address: Ints, size: Ints, key: Words, seed: np.uint64, wrong: Bools) -> int:
    """Set `wrong[i]` (bool [C]) where chunk i does not hold the pattern; how many."""
    rows = zip(address.tolist(), size.tolist(), key, strict=True)
    for i, (at, length, own) in enumerate(rows):
        wrong[i] = any(
            not np.array_equal(held, _pattern(seed, own, first, held.size))
            for held, first in _blocks(at, length)
        )
    return int(wrong.sum())


def checksum_chunks(address: Ints, size: Ints, key: Words, out: Words) -> None:
    """Write each chunk's checksum to `out` (uint64 [C]); it depends on the chunk's key and on the
    place of every byte.
    """
    out[:] = size.astype(np.uint64)
    rows = zip(address.tolist(), size.tolist(), key, strict=True)
    for i, (at, length, own) in enumerate(rows):
        for held, first in _blocks(at, length):
            words = np.zeros(-(-held.size // 8), np.uint64)
            words.view(np.uint8)[: held.size] = held
            out[i : i + 1] += _mix(words, own, _numbers(first, words.size)).sum(dtype=np.uint64)


def _blocks(address: int, size: int) -> Iterator[tuple[Array, int]]:
    """The bytes of a chunk, uint8, a block at a time, each with the number of its first word."""
    held = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    for first in range(0, -(-size // 8), _BLOCK):
        yield held[8 * first : 8 * (first + _BLOCK)], first


def _numbers(first: int, count: int) -> Words:
    return np.arange(first, first + count, dtype=np.uint64)


def _pattern(seed: np.uint64, key: np.uint64, first: int, size: int) -> Array:
    """`size` bytes of a chunk's pattern from word `first` on, uint8."""
    words = _mix(np.full(-(-size // 8), seed), key, _numbers(first, -(-size // 8)))
    return words.astype("<u8", copy=False).view(np.uint8)[:size]


def _mix(seed: Words, key: np.uint64, word: Words) -> Words:
    """Words of the pattern: the finaliser of splitmix64 over a counter, modulo 2^64."""
    x = seed + np.full(1, key) * _KEY + word * _WORD
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
