"""Bytes at addresses: copy, fill with a pattern, verify, checksum.  One row per chunk.

The pattern depends on the position.  Word w of the chunk with key k is mix(seed, k, w), so a byte
that landed in the wrong place, in the wrong chunk or in the wrong round is a wrong byte.

Patterns of small chunks of one size are handled together, of long ones block by block.  numpy and
memmove release Python's lock, so rails that copy in threads do so at the same time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

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
    for block in _blocks(size):
        held, places = block.windows(address)
        held[places] = block.pattern(seed, key)


def wrong_chunks(address: Ints, size: Ints, key: Words, seed: np.uint64, wrong: Bools) -> int:
    """Set `wrong[i]` (bool [C]) where chunk i does not hold the pattern; how many."""
    wrong[:] = False
    for block in _blocks(size):
        held, places = block.windows(address)
        wrong[block.rows] |= (held[places] != block.pattern(seed, key)).any(axis=1)
    return int(wrong.sum())


def checksum_chunks(address: Ints, size: Ints, key: Words, out: Words) -> None:
    """Write each chunk's checksum to `out` (uint64 [C]); it depends on the chunk's key and on the
    place of every byte.
    """
    out[:] = size.astype(np.uint64)
    for block in _blocks(size):
        held, places = block.windows(address)
        words = np.zeros((len(block.rows), block.words), np.uint64)
        words.view(np.uint8)[:, : block.width] = held[places]
        out[block.rows] += _mix(words, key[block.rows], block.first).sum(axis=1, dtype=np.uint64)


class _Block(NamedTuple):
    """`width` bytes of each of the chunks `rows`, all of one size, from word `first` on."""

    rows: Ints
    first: int
    width: int

    @property
    def words(self) -> int:
        return -(-self.width // 8)

    def windows(self, address: Ints) -> tuple[Array, Any]:
        """uint8 [places, width], every place from the lowest of these chunks on, and which are
        theirs: only those are touched.
        """
        at = address[self.rows] + 8 * self.first
        lowest = int(at.min())
        span = ctypes.c_uint8 * (int(at.max()) - lowest + self.width)
        held = np.ctypeslib.as_array(span.from_address(lowest))
        windows = np.lib.stride_tricks.sliding_window_view(held, self.width, writeable=True)
        return windows, at - lowest if len(at) > 1 else slice(1)

    def pattern(self, seed: np.uint64, key: Words) -> Array:
        """uint8 [chunks, width]"""
        seeds = np.full((len(self.rows), self.words), seed)
        words = _mix(seeds, key[self.rows], self.first)
        return words.astype("<u8", copy=False).view(np.uint8)[:, : self.width]


def _blocks(size: Ints) -> Iterator[_Block]:
    """The bytes of all chunks, at most `_BLOCK` words at a time."""
    if len(size) == 0:
        return
    order = np.argsort(size, kind="stable")
    lengths, begins = np.unique(size[order], return_index=True)
    for length, rows in zip(lengths.tolist(), np.split(order, begins[1:]), strict=True):
        words = -(-length // 8)
        many = max(1, _BLOCK // max(1, words))
        for begin in range(0, len(rows), many):
            for first in range(0, words, _BLOCK):
                yield _Block(rows[begin : begin + many], first, min(8 * _BLOCK, length - 8 * first))


def _mix(seed: Words, key: Words, first: int) -> Words:
    """Words [C, W] of the pattern, from word `first` on: the finaliser of splitmix64 over a
    counter, modulo 2^64.
    """
    word = np.arange(first, first + seed.shape[1], dtype=np.uint64)
    x = seed + key[:, None] * _KEY + word * _WORD
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
