"""Bytes at addresses: copy, fill with a pattern, verify, checksum. Compiled, without the GIL, one
row a chunk.

The pattern depends on the position: word w of the chunk with key k is mix(seed, k, w), so a byte
that landed in the wrong place, in the wrong chunk or in the wrong round is a wrong byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from railopt.base.kernels import njit

_U64 = ir.IntType(64)


def _access(type_: Any, ir_type: Any) -> tuple[Any, Any]:
    """(load, store) of one integer type at any address, aligned or not."""

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir_type.as_pointer()), align=1)

        return type_(types.int64), codegen

    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], ir_type.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.none(types.int64, type_), codegen

    return load, store


load_i64, store_i64 = _access(types.int64, _U64)
load_i32, store_i32 = _access(types.int32, ir.IntType(32))
load_u64, store_u64 = _access(types.uint64, _U64)
load_u8, store_u8 = _access(types.uint8, ir.IntType(8))


@intrinsic
def copy_bytes(typing: Any, target: Any, source: Any, length: Any) -> Any:
    """memmove(target, source, length)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(a, cgutils.voidptr_t) for a in args[:2])
        cgutils.raw_memmove(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@njit(inline="always")
def _mix(seed, key, word):  # type: ignore[no-untyped-def]
    """A word of the pattern: the finaliser of splitmix64 over a counter."""
    x = seed + key * np.uint64(0x9E3779B97F4A7C15) + word * np.uint64(0xD1B54A32D192ED03)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def copy_chunks(source, target, size):  # type: ignore[no-untyped-def]
    """Copy every chunk: addresses and bytes, int64 [C]."""
    for i in range(len(size)):
        copy_bytes(target[i], source[i], size[i])


@njit(cache=True, nogil=True)
def fill_pattern(address, size, key, seed):  # type: ignore[no-untyped-def]
    """Write the pattern into every chunk: addresses and bytes int64 [C], keys uint64 [C]."""
    for i in range(len(size)):
        at, words = address[i], size[i] // 8
        for w in range(words):
            store_u64(at + 8 * w, _mix(seed, key[i], np.uint64(w)))
        rest = _mix(seed, key[i], np.uint64(words))
        for b in range(8 * words, size[i]):
            store_u8(at + b, np.uint8(rest & np.uint64(255)))
            rest >>= np.uint64(8)


@njit(cache=True, nogil=True)
def wrong_chunks(address, size, key, seed, wrong):  # type: ignore[no-untyped-def]
    """Set `wrong[i]` (bool [C]) where chunk i does not hold the pattern; how many."""
    count = 0
    for i in range(len(size)):
        at, words = address[i], size[i] // 8
        difference = np.uint64(0)
        for w in range(words):
            difference |= load_u64(at + 8 * w) ^ _mix(seed, key[i], np.uint64(w))
        rest = _mix(seed, key[i], np.uint64(words))
        for b in range(8 * words, size[i]):
            difference |= np.uint64(load_u8(at + b)) ^ (rest & np.uint64(255))
            rest >>= np.uint64(8)
        wrong[i] = difference != 0
        count += wrong[i]
    return count


@njit(cache=True, nogil=True)
def checksum_chunks(address, size, key, out):  # type: ignore[no-untyped-def]
    """Write each chunk's checksum to `out` (uint64 [C]); it depends on the chunk's key and on the
    place of every byte.
    """
    for i in range(len(size)):
        at, words = address[i], size[i] // 8
        chunk = np.uint64(0)
        for w in range(words):
            chunk = (chunk ^ load_u64(at + 8 * w)) * np.uint64(0x100000001B3) + np.uint64(w)
        for b in range(8 * words, size[i]):
            chunk = (chunk ^ np.uint64(load_u8(at + b))) * np.uint64(0x100000001B3)
        out[i] = _mix(chunk, key[i], np.uint64(size[i]))
