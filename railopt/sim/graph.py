"""Small graph kernels: components of ports, choices of links."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel


@kernel
def components(ports: int, first: Array, path: Array) -> Array:
    """int64 [ports]: the smallest port that flows join to this one, directly or through others."""
    root = np.arange(ports)
    for f in range(first.size - 1):
        a = np.int64(path[first[f]])
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        for e in range(first[f] + 1, first[f + 1]):
            b = np.int64(path[e])
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            if a < b:
                root[b] = a
            elif b < a:
                root[a] = b
                a = b
    for p in range(ports):
        root[p] = root[root[p]]
    return root


@kernel
def least_loaded(
    order: Array, load: Array, leaf: Array, target: Array, rails: int, uplinks: int, chosen: Array
) -> None:
    """Each flow in turn to the spine where the fuller of its two links carries least; ties to the
    first.
    """
    up, down = np.zeros((rails, uplinks), np.int64), np.zeros((rails, uplinks), np.int64)
    for i in range(order.size):
        f = order[i]
        best = 0
        for u in range(1, uplinks):
            if max(up[leaf[f], u], down[target[f], u]) < max(
                up[leaf[f], best], down[target[f], best]
            ):
                best = u
        chosen[f] = best
        up[leaf[f], best] += load[f]
        down[target[f], best] += load[f]
