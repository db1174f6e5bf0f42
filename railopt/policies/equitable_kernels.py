"""The hot loops of `equitable`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from railopt.policies.colouring import colour, split_counts
from railopt.policies.kernels import rounds, unfinished

Array = npt.NDArray[Any]


@njit(cache=True)
def _blocks(node: Array, rows: Array, nodes: int, width: int) -> tuple[Array, int]:
    """Vertex of each row: the rows of a node, in the given order, in blocks of `width`; and how
    many blocks there are.
    """
    degree = np.zeros(nodes + 1, np.int64)
    for i in range(rows.size):
        degree[node[rows[i]] + 1] += 1
    for k in range(nodes):
        degree[k + 1] = degree[k] + (degree[k + 1] + width - 1) // width
    seen = np.zeros(nodes, np.int64)
    vertex = np.empty(rows.size, np.int64)
    for i in range(rows.size):
        k = node[rows[i]]
        vertex[i] = degree[k] + seen[k] // width
        seen[k] += 1
    return vertex, degree[nodes]


@njit(cache=True)
def _colour_rows(
    rows: Array, src: Array, dst: Array, nodes: int, colours: Array, rail: Array
) -> None:
    left, lefts = _blocks(src, rows, nodes, colours.size)
    right, rights = _blocks(dst, rows, nodes, colours.size)
    chosen = colour(left, right, lefts, rights, colours.size)
    for i in range(rows.size):
        rail[rows[i]] = colours[chosen[i]]


@njit(cache=True)
def _expand(turn: Array, started: Array, parts: Array, colours: Array, rail: Array) -> None:
    """Give the chunks of each pair's unfinished round the colours that `parts` counts for it."""
    order = np.empty(2 * colours.size, np.int16)
    for k in range(turn.shape[0]):
        for f in range(turn.shape[1]):
            t = np.uint64(0)
            for colour_ in range(colours.size):
                order[t] = colours[
                    colour_
                ]  # stays if the pair has this colour, else the next one takes its place
                count = parts[colour_, k, f]
                t += np.uint64(count > 0)
                for _ in range(count - 1):
                    order[t] = colours[colour_]
                    t += np.uint64(1)
            for i in range(turn[k, f]):
                rail[started[k, f, i]] = order[i]


def assign(
    src: Array, dst: Array, size: Array, largest: int, nodes: int, colours: Array, rail: Array
) -> None:
    """Fill `rail` with the equitable assignment; `colours` int64, the rail of each colour."""
    turn, started, others = rounds(src, dst, size, largest, nodes, nodes, colours, rail)
    if len(others) == 0:
        _expand(turn, started, split_counts(turn, colours.size), colours, rail)
        return
    rows = unfinished(turn, started, others)
    _colour_rows(rows[np.argsort(-size[rows], kind="stable")], src, dst, nodes, colours, rail)
