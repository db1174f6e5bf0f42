"""Random numbers for kernels: the same in Python and compiled, unlike `np.random` there.

draws = seeded(7)                    the generator's state, int64 [1]
below(draws, 6)                      0 to 5
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part

__all__ = ["below", "seeded", "shuffle"]

_BITS = 0xFFFFFFFF  # of the state, so that no product here passes 63 bits


@kernel
def seeded(seed: int) -> Array:
    """The state of a generator, int64 [1]; nearby seeds give unrelated states."""
    x = (seed & _BITS) ^ 0x2545F491
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & _BITS
    draws = np.empty(1, np.int64)
    draws[0] = max(x, 1)
    return draws


@part
def below(draws: Array, end: int) -> int:
    """A number from 0 to `end` - 1, `end` at most 2**31 (Marsaglia's xorshift of 32 bits)."""
    x = draws[0]
    x ^= (x << 13) & _BITS
    x ^= x >> 17
    x ^= (x << 5) & _BITS
    draws[0] = x
    return (x * end) >> 32


@part
def shuffle(draws: Array, items: Array, length: int) -> None:
    """Permute items[:length] in place."""
    for i in range(length - 1, 0, -1):
        j = below(draws, i + 1)
        items[i], items[j] = items[j], items[i]
