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

`colour` gives every edge one of N colours so that no two edges at a vertex share one, for any
bipartite multigraph whose degrees are at most N (Koenig).  An even N is halved by an Euler split,
in linear time; an odd N colours edge by edge along alternating paths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, ranks
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.common import Columns, check_alive, rail_turns
from railopt.policies.longest_first import lpt_global
from railopt.policies.rounds import (
    Unfinished,
    by_pairs,
    left_over,
    sparse,
    whole_rounds,
)

__all__ = ["colour", "equitable", "split_counts"]

HALVINGS = 63  # of an int64, at most
_HALF = np.uint64(2**32 - 1)
_SEQUENCE = np.uint64(0x077CB531)  # any five of its bits in a row stand in it once
_NUMBERS = np.argsort((int(_SEQUENCE) << np.arange(32)) % 2**32 >> 27, kind="stable")


class _Trails(NamedTuple):
    """A bipartite graph in which every vertex has an even number of edges.

    head, tail    int32 [edges], the left and the right vertex of each edge
    incident      int32 [2 edges], the edges of vertex v in incident[first[v]:first[v + 1]]
    first         int64 [vertices + 1]
    """

    head: Array
    tail: Array
    incident: Array
    first: Array


@part
def _made_even(
    edges: Array, left: Array, right: Array, lefts: int, rights: int
) -> tuple[Array, Array, Array]:
    """(head, tail, degree): the graph of `edges` and, for each vertex of odd degree, one more edge
    to a dummy vertex of the other side; degree[v + 1] is that of vertex v.

    Right vertices follow the left ones; the left dummy and the right dummy are the last two.
    """
    count = edges.size
    degree = np.zeros(lefts + rights + 3, np.int64)
    for i in range(count):
        degree[left[edges[i]] + 1] += 1
        degree[lefts + right[edges[i]] + 1] += 1
    odd = 0
    for v in range(lefts + rights):
        odd += degree[v + 1] & 1
    head, tail = np.empty(count + odd + 1, np.int32), np.empty(count + odd + 1, np.int32)
    for i in range(count):
        head[i], tail[i] = left[edges[i]], lefts + right[edges[i]]
    used = count
    dummy_left, dummy_right = lefts + rights, lefts + rights + 1
    for v in range(lefts + rights):
        if degree[v + 1] & 1:
            head[used], tail[used] = (v, dummy_right) if v < lefts else (dummy_left, v)
            used += 1
            degree[v + 1] += 1
            degree[(dummy_right if v < lefts else dummy_left) + 1] += 1
    if degree[dummy_left + 1] & 1:  # then the other dummy is odd too
        head[used], tail[used] = dummy_left, dummy_right
        used += 1
        degree[dummy_left + 1] += 1
        degree[dummy_right + 1] += 1
    return head[:used], tail[:used], degree


@part
def _even_graph(edges: Array, left: Array, right: Array, lefts: int, rights: int) -> _Trails:
    """The graph of `edges` made even, with the edges of each vertex."""
    head, tail, first = _made_even(edges, left, right, lefts, rights)
    vertices = first.size - 1
    for v in range(vertices):
        first[v + 1] += first[v]
    incident, place = np.empty(2 * head.size, np.int32), first[:vertices].copy()
    for e in range(head.size):
        incident[place[head[e]]] = e
        place[head[e]] += 1
        incident[place[tail[e]]] = e
        place[tail[e]] += 1
    return _Trails(head, tail, incident, first)


@part
def _directed(graph: _Trails) -> Array:
    """bool [edges]: whether closed trails through all edges walk an edge from left to right."""
    head, tail, incident, first = graph  # lists, where Python calls
    place = first[:-1].copy()
    seen, forward = np.zeros(len(head), np.bool_), np.zeros(len(head), np.bool_)
    for start in range(len(first) - 1):
        v = start
        while True:
            while place[v] < first[v + 1] and seen[incident[place[v]]]:
                place[v] += 1
            if place[v] == first[v + 1]:
                break  # a trail ends only where it began
            e = incident[place[v]]
            seen[e] = True
            forward[e] = v == head[e]
            v = tail[e] if forward[e] else head[e]
    return forward


def _even_by_numpy(edges: Array, left: Array, right: Array, lefts: int, rights: int) -> _Trails:
    """`_even_graph` for Python."""
    head, tail, dummy = left[edges], lefts + right[edges], lefts + rights
    degree = np.bincount(head, minlength=dummy) + np.bincount(tail, minlength=dummy)
    odd = np.flatnonzero(degree & 1)
    head = np.concatenate([head, np.where(odd < lefts, odd, dummy)])
    tail = np.concatenate([tail, np.where(odd < lefts, dummy + 1, odd)])
    if np.count_nonzero(odd >= lefts) % 2:
        head, tail = np.append(head, dummy), np.append(tail, dummy + 1)
    ends = np.stack([head, tail], axis=1).ravel()
    first = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=dummy + 2))])
    return _Trails(head, tail, np.argsort(ends, kind="stable") // 2, first)


def _split_by_numpy(edges: Array, left: Array, right: Array, lefts: int, rights: int) -> int:
    """`euler_split` for Python."""
    graph = _even_by_numpy(edges, left, right, lefts, rights)
    forward = _directed(_Trails(*(column.tolist() for column in graph)))[: len(edges)]
    edges[:] = np.concatenate([edges[forward], edges[~forward]])
    return int(np.count_nonzero(forward))


@part(numpy=_split_by_numpy)
def euler_split(edges: Array, left: Array, right: Array, lefts: int, rights: int) -> int:
    """Reorder `edges` so that its first part and its rest each hold half of every vertex's edges,
    rounded either way: those that closed trails walk from left to right, and the others.

    Returns the length of the first part.
    """
    forward = _directed(_even_graph(edges, left, right, lefts, rights))
    parted = np.empty(edges.size, edges.dtype)
    first = 0
    for i in range(edges.size):
        if forward[i]:
            parted[first] = edges[i]
            first += 1
    rest = first
    for i in range(edges.size):
        if not forward[i]:
            parted[rest] = edges[i]
            rest += 1
    for i in range(edges.size):  # a slice's assignment is no faster and compiles 3 s longer
        edges[i] = parted[i]
    return first


@part
def alternate(
    edges: Array,
    left: Array,
    right: Array,
    lefts: int,
    rights: int,
    base: int,
    colours: int,
    colour: Array,
) -> None:
    """Colour `edges` with `colours` colours from `base` on, one by one; a conflict is resolved
    along an alternating path.
    """
    at = np.full((lefts + rights, colours), -1, np.int64)
    for i in range(edges.size):
        e = edges[i]
        u, v = left[e], lefts + right[e]
        a = b = 0
        while at[u, a] >= 0:
            a += 1
        while at[v, b] >= 0:
            b += 1
        if a != b and at[v, a] >= 0:
            # a is free at u, b at v: swap a and b along the path that leaves v by a, which can't
            # reach u
            x, now, other = v, a, b
            f = at[x, now]
            at[x, now] = -1
            while f >= 0:
                y = lefts + right[f] if x == left[f] else left[f]
                following = at[y, other]
                at[x, other] = f
                at[y, other] = f
                if at[y, now] == f:
                    at[y, now] = -1
                colour[f] = base + other
                x, f = y, following
                now, other = other, now
        at[u, a] = e
        at[v, a] = e
        colour[e] = base + a


@part
def colour(left: Array, right: Array, lefts: int, rights: int, colours: int) -> Array:
    """A proper edge colouring, int64 [edges], with `colours` colours; no vertex may have more edges
    than that.
    """
    result, edges = np.zeros(left.size, np.int64), np.arange(left.size)
    stack = np.zeros((4, HALVINGS + 1), np.int64)  # parts of `edges`, and their colours
    begin, end, number, base = stack[0], stack[1], stack[2], stack[3]
    end[0], number[0] = left.size, colours
    parts = 1
    while parts:
        parts -= 1
        b, e, n, c = begin[parts], end[parts], number[parts], base[parts]
        if e == b:
            continue
        if n == 1:
            for i in range(b, e):
                result[edges[i]] = c
        elif n % 2:
            alternate(edges[b:e], left, right, lefts, rights, c, n, result)
        else:
            middle = b + euler_split(edges[b:e], left, right, lefts, rights)
            for part_begin, part_end, part_base in ((b, middle, c), (middle, e, c + n // 2)):
                begin[parts], end[parts] = part_begin, part_end
                number[parts], base[parts] = n // 2, part_base
                parts += 1
    return result


@part
def _lowest_bit(word: Any) -> Any:
    """The number of the lowest bit set in a uint64: of a half, by the place in de Bruijn's sequence
    to which that bit, alone, shifts it (Leiserson, Prokop and Randall, 1998).
    """
    at, half = 0, word & _HALF
    if half == np.uint64(0):
        at, half = 32, word >> np.uint64(32)
    alone = half & ~(half - np.uint64(1))
    return at + _NUMBERS[((alone * _SEQUENCE) & _HALF) >> np.uint64(27)]


class _Unused(NamedTuple):
    """The edges of a bipartite graph that no trail has used yet, as bits of words; side 0 is the
    left, 1 the right.

    words   uint64 [2, vertices, words]: neighbours of each vertex
    at      int64 [2, vertices]: words before these are empty
    """

    words: Array
    at: Array


@part
def _trail(v: int, side: int, unused: _Unused, counts: Array, other: Array) -> tuple[int, int]:
    """Walk unused edges from `v` until there is no way on: those walked left to right count in
    `counts`, the others in `other`.  Returns where it ends, and on which side.

    One loop: a call for every step would count references, which takes longer than the step.
    """
    words, at = unused
    while True:
        word = at[side, v]
        while words[side, v, word] == 0:
            if word + 1 == words.shape[2]:
                return v, side
            word += 1
            at[side, v] = word
        found = words[side, v, word]
        words[side, v, word] = found & (found - np.uint64(1))
        there = 64 * word + _lowest_bit(found)
        words[1 - side, there, v >> 6] ^= np.uint64(1) << np.uint64(v & 63)
        if side == 0:
            counts[v, there] += 1
        else:
            other[there, v] += 1
        v, side = there, 1 - side


@part
def _halve(counts: Array, other: Array) -> None:
    """Share `counts` [lefts, rights] out between itself and `other`: each row's and column's sum
    halved, rounded either way.

    Half of every count each; the odd ones along trails, first from odd vertices to odd vertices,
    then closed ones. Neighbours are bits of words, so that an edge costs a few steps.
    """
    lefts, rights = counts.shape
    most = max(lefts, rights)
    words, at = np.zeros((2, most, most // 64 + 1), np.uint64), np.zeros((2, most), np.int64)
    unused, odd_vertex = _Unused(words, at), np.zeros((2, most), np.int32)
    for k in range(lefts):
        for f in range(rights):
            odd = counts[k, f] & 1
            words[0, k, f >> 6] |= np.uint64(odd) << np.uint64(f & 63)
            words[1, f, k >> 6] |= np.uint64(odd) << np.uint64(k & 63)
            odd_vertex[0, k] ^= odd
            odd_vertex[1, f] ^= odd
            other[k, f] = counts[k, f] = counts[k, f] >> 1
    for side in range(2):
        for start in range(most):
            if odd_vertex[side, start]:
                end, there = _trail(start, side, unused, counts, other)
                odd_vertex[side, start] ^= 1
                odd_vertex[there, end] ^= 1
    for start in range(lefts):  # each ends where it began, with no edge left there
        _trail(start, 0, unused, counts, other)


@kernel
def split_counts(counts: Array, colours: int) -> Array:
    """How many of the `counts[k, f]` equal edges get each colour: int32 [colours, lefts, rights],
    and at every vertex each colour comes floor or ceil of degree / colours times.

    An even number of colours is halved, so that the cost is O(lefts x rights x colours) whatever
    the counts.  An odd number of colours puts whole rounds aside and colours the remainders in
    blocks.
    """
    lefts, rights = counts.shape
    parts = np.zeros((colours, lefts, rights), np.int32)
    for k in range(lefts):  # a loop: whole rows are no faster and compile 4 s longer
        for f in range(rights):
            parts[0, k, f] = counts[k, f]
    width, many = colours, 1  # parts 0, width, ... are to be split among `width` colours each
    while width % 2 == 0:
        for p in range(many):
            _halve(parts[p * width], parts[p * width + width // 2])
        width, many = width // 2, 2 * many
    if width > 1:
        for p in range(many):
            _split_odd(parts[p * width : (p + 1) * width])
    return parts


@part
def _split_odd(parts: Array) -> None:
    """Split `parts[0]` among all of `parts`, an odd number of colours."""
    colours, lefts, rights = parts.shape
    rest = np.empty((lefts, rights), np.int64)
    row, column, total = np.zeros(lefts, np.int64), np.zeros(rights, np.int64), 0
    for k in range(lefts):
        for f in range(rights):
            rest[k, f] = parts[0, k, f] % colours
            row[k] += rest[k, f]
            column[f] += rest[k, f]
            total += rest[k, f]
    row_base, column_base = _blocks_before(row, colours), _blocks_before(column, colours)
    left, right = np.empty(total, np.int64), np.empty(total, np.int64)
    row, column = np.zeros(lefts, np.int64), np.zeros(rights, np.int64)
    base = 0
    for k in range(lefts):
        for f in range(rights):
            for _ in range(rest[k, f]):
                left[base], right[base] = (
                    row_base[k] + row[k] // colours,
                    column_base[f] + column[f] // colours,
                )
                row[k] += 1
                column[f] += 1
                base += 1
    chosen = colour(left, right, row_base[lefts], column_base[rights], colours)
    base = 0
    for k in range(lefts):
        for f in range(rights):
            each = parts[0, k, f] // colours
            for c in range(colours):
                parts[c, k, f] = each
            for _ in range(rest[k, f]):
                parts[chosen[base], k, f] += 1
                base += 1


@part
def _blocks_before(degree: Array, width: int) -> Array:
    """int64 [vertices + 1]: how many blocks of `width` edges the vertices before each one have."""
    before = np.zeros(degree.size + 1, np.int64)
    for v in range(degree.size):
        before[v + 1] = before[v] + (degree[v] + width - 1) // width
    return before


def equitable(fabric: Fabric, chunks: Chunks) -> Plan:
    """Colour chunks with rails.  Needs each rail to have one rate at all nodes, in small whole
    proportions (a rail of double rate is two colours); on any other fabric it is `lpt-global`,
    which knows every NIC's rate.
    """
    check_alive(fabric, chunks)
    colours = rail_turns(fabric)
    if colours is None:
        return Plan.of(fabric, chunks, lpt_global(fabric, chunks).rail.copy(), "equitable")
    columns = Columns.of(chunks)
    rail = np.empty(len(columns.size), np.int16)
    if len(rail):
        _assign(columns, fabric.nodes, colours, rail)
    return Plan.of(fabric, chunks, rail, "equitable")


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
    degree, seen = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for i in range(rows.size):
        degree[node[rows[i]]] += 1
    before = _blocks_before(degree, width)
    vertex = np.empty(rows.size, np.int64)
    for i in range(rows.size):
        k = node[rows[i]]
        vertex[i] = before[k] + seen[k] // width
        seen[k] += 1
    return vertex, before[nodes]


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
