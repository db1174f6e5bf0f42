"""The equitable plan: both sides balanced at once, by colouring the chunks' bipartite graph with
the rails.

Nodes as senders on the left, as receivers on the right, one edge per chunk.  Each node's chunks,
largest first, are cut into blocks of N; a proper N-colouring of the graph whose vertices are the
blocks puts one chunk of every block on each rail.  Hence (theorem T8 and its corollary for
any sizes):

    equal chunks   every NIC carries floor or ceil of its node's chunks / N: the ceiling bound, the
                   exact optimum
    any sizes      max - min over the rails of any node, either side, is at most the largest chunk,
                   whatever M

N chunks of the largest size of each (sender, receiver) at a time go one to each rail without
colouring, so that the cost for equal chunks is O(M^2 N) after one pass over them.  Where M^2 N is
far above the number of chunks, what is left of them is coloured one by one.  de Werra, "Equitable
colorations of graphs" (1971); the blocks of sorted chunks carry it to unequal sizes.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.colouring import colour, split_counts
from railopt.policies.common import Columns, check_alive, make_plan, rail_turns
from railopt.policies.longest_first import lpt_global
from railopt.policies.rounds import (
    Unfinished,
    by_pairs,
    left_over,
    ranks,
    sparse,
    whole_rounds,
)

__all__ = ["equitable"]


def equitable(fabric: Fabric, chunks: Chunks) -> Plan:
    """Colour chunks with rails.  Needs each rail to have one rate at all nodes, in small whole
    proportions (a rail of double rate is two colours); on any other fabric it is `lpt-global`,
    which knows every NIC's rate.
    """
    check_alive(fabric, chunks)
    colours = rail_turns(fabric)
    if colours is None:
        return make_plan(fabric, chunks, lpt_global(fabric, chunks).rail.copy(), "equitable")
    columns = Columns.of(chunks)
    rail = np.empty(len(columns.size), np.int16)
    if len(rail):
        _assign(columns, fabric.nodes, colours, rail)
    return make_plan(fabric, chunks, rail, "equitable")


def _blocks_by_numpy(node: Array, rows: Array, nodes: int, width: int) -> tuple[Array, int]:
    """`vertex_blocks` for Python."""
    rank, count = ranks(node[rows], nodes)
    blocks = -(-count // width)
    return (np.cumsum(blocks) - blocks)[node[rows]] + rank // width, int(blocks.sum())


@part(numpy=_blocks_by_numpy)
def vertex_blocks(node: Array, rows: Array, nodes: int, width: int) -> tuple[Array, int]:
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


@kernel(element_s=PASSES_S)
def _colour_rows(rows: Array, chunks: Columns, nodes: int, colours: Array, rail: Array) -> None:
    """Give each of `rows`, in the given order, the rail of its colour."""
    left, lefts = vertex_blocks(chunks.src, rows, nodes, colours.size)
    right, rights = vertex_blocks(chunks.dst, rows, nodes, colours.size)
    chosen = colour(left, right, lefts, rights, colours.size)
    for i in range(rows.size):
        rail[rows[i]] = colours[chosen[i]]


@kernel
def _expand(unfinished: Unfinished, parts: Array, colours: Array, rail: Array) -> None:
    """Give the chunks of each pair's unfinished round the colours that `parts` [colours, senders,
    receivers] counts for it.
    """
    turn, started = unfinished.turn, unfinished.started
    order = np.empty(2 * colours.size, np.int16)
    for k in range(turn.shape[0]):
        for f in range(turn.shape[1]):
            t = np.uint64(0)
            for colour_ in range(colours.size):
                # stays if the pair has this colour, else the next one takes its place
                order[t] = colours[colour_]
                count = parts[colour_, k, f]
                t += np.uint64(count > 0)
                for _ in range(count - 1):
                    order[t] = colours[colour_]
                    t += np.uint64(1)
            for i in range(turn[k, f]):
                rail[started[k, f, i]] = order[i]


def _assign(chunks: Columns, nodes: int, colours: Array, rail: Array) -> None:
    """Fill `rail` with the equitable assignment; `colours` int64, the rail of each colour."""
    if sparse(len(chunks.size), nodes * nodes * len(colours)):
        paired, sender = by_pairs(chunks, nodes)
        largest = np.full(len(sender), chunks.largest)
        unfinished = Unfinished(*whole_rounds(paired, largest, 1, colours, rail))
    else:
        largest = np.full(nodes, chunks.largest)
        unfinished = Unfinished(*whole_rounds(chunks, largest, nodes, colours, rail))
        if len(unfinished.others) == 0:
            _expand(unfinished, split_counts(unfinished.turn, colours.size), colours, rail)
            return
    rows = left_over(unfinished)
    order = np.argsort(-chunks.size[rows], kind="stable")
    _colour_rows(rows[order], chunks, nodes, colours, rail)
