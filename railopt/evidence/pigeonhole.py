"""The pigeonhole bound's hot loop; a file of its own, since importing it loads numba."""

from __future__ import annotations

from railopt.base.arrays import Ints
from railopt.base.kernels import kernel


@kernel
def best_pigeonhole(prefix: Ints, rails: int) -> tuple[int, int, int]:
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
