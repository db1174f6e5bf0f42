"""Small graph kernels: sorting rows by a key, circles of dependencies, components of ports."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel


@kernel
def _counting_sort(key: Array, count: int) -> tuple[Array, Array]:
    begin = np.zeros(count + 1, np.int64)
    for i in range(key.size):
        begin[key[i] + 1] += 1
    for k in range(count):
        begin[k + 1] += begin[k]
    place, order = begin[:count].copy(), np.empty(key.size, np.int64)
    for i in range(key.size):
        order[place[key[i]]] = i
        place[key[i]] += 1
    return order, begin


def rows_by_key(key: Array, count: int) -> tuple[Array, Array]:
    """(order int64 [rows], first int64 [groups + 1]): rows sorted by key, stable, and where each
    present key begins.
    """
    if count <= 4 * key.size + 2**20:
        order, begin = _counting_sort(key, count)
        return order, np.concatenate([begin[:-1][np.diff(begin) > 0], begin[-1:]])
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    return order, np.concatenate([[0], edges, [key.size]]) if key.size else np.zeros(1, np.int64)


@kernel
def first_in_circle(groups: int, next_first: Array, next_group: Array) -> int:
    """The smallest group that is in a circle of waiting groups, or behind one; -1 where there is
    none (Kahn).
    """
    waits = np.zeros(groups, np.int64)
    for i in range(next_group.size):
        waits[next_group[i]] += 1
    ready, count = np.empty(groups, np.int64), 0
    for g in range(groups):
        if waits[g] == 0:
            ready[count] = g
            count += 1
    done = 0
    while done < count:
        g = ready[done]
        done += 1
        for i in range(next_first[g], next_first[g + 1]):
            h = next_group[i]
            waits[h] -= 1
            if waits[h] == 0:
                ready[count] = h
                count += 1
    for g in range(groups):
        if waits[g] > 0:
            return g
    return -1


@kernel
def first_repeat(first: Array, path: Array, ports: int) -> int:
    """The first flow that crosses a port twice; -1 where there is none."""
    seen = np.full(ports, -1, np.int64)
    for f in range(first.size - 1):
        for e in range(first[f], first[f + 1]):
            if seen[path[e]] == f:
                return f
            seen[path[e]] = f
    return -1


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
