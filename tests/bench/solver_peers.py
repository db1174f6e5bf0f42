"""Peers of the local solver on equal rails, one thread each: `PEERS[name](sizes, rails, limit_s)`
is (proved, value), on the peer's own word, within `limit_s` seconds of wall-clock time.

cpsat, highs, ...                 the plain program x[job, rail] in a back-end of `railopt solve`
arcflow-highs, arcflow-cpsat      the arc-flow model (Valério de Carvalho 1999; for P||Cmax Mrad,
                                  Souayah 2018), one capacity after the other
prtpy                             its complete greedy search; an extra of its own (`.[bench]`): left
                                  out, with a word, where it is not installed
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from railopt import Chunks, Fabric
from railopt.evidence.bounds import pigeonhole
from railopt.solver.local.values import loads_of, lpt
from railopt.solver.program.backends import BACKENDS, Answer
from railopt.solver.program.program import build
from tests.bench.solver_instances import Ints

Peer = Callable[[Ints, int, float], tuple[bool, int]]
ARCS = 200_000  # of a graph that is solved; a larger one is given up


def plain(backend: str, sizes: Ints, rails: int, limit_s: float) -> tuple[bool, int]:
    """The plain program in this process.

    One sender's chunks to one receiver are the local problem; the receiver's rows say what the
    sender's do.
    """
    chunks = Chunks.from_arrays(src=[0] * len(sizes), dst=[1] * len(sizes), size=sizes, nodes=2)
    answers: list[Answer] = []
    made = build(Fabric.uniform(2, rails), chunks)
    importlib.import_module(BACKENDS[backend].module).solve(made.program, limit_s, answers.append)
    plans = (made.rails(answer.values) for answer in answers)
    values = [int(loads_of(sizes, rail, rails).max()) for rail in plans if rail is not None]
    proved = any(answer.status == "optimal" for answer in answers)
    return proved, min(values, default=int(sizes.sum()))


class Graph(NamedTuple):
    """The sums that loads can reach, types by falling size, and an arc for a job added to one.

    tails, heads  int64 [arcs], places in `sums`;  types int64 [arcs];  counts int64 [types]
    sums          how many there are; the first is 0
    """

    tails: Ints
    heads: Ints
    types: Ints
    counts: Ints
    sums: int


def graph_of(sizes: Ints, capacity: int) -> Graph | None:
    """The reduced graph of a capacity: loads list their jobs by falling size, so only the sums of
    larger jobs begin an arc; None beyond `ARCS`.
    """
    rising, repeated = np.unique(sizes, return_counts=True)
    reached, arcs = {0}, set[tuple[int, int, int]]()
    for kind, (size, count) in enumerate(zip(rising[::-1], repeated[::-1], strict=True)):
        ends = reached
        for _ in range(count):
            begins = [at for at in ends if at + size <= capacity]
            arcs.update((at, at + int(size), kind) for at in begins)
            ends = {at + int(size) for at in begins}
            reached = reached | ends
            if len(arcs) > ARCS:
                return None
    sums = np.array(sorted(reached))
    listed = np.array(sorted(arcs), np.int64).reshape(-1, 3)
    tails, heads = (np.searchsorted(sums, listed[:, end]) for end in (0, 1))
    return Graph(tails, heads, listed[:, 2], repeated[::-1], len(sums))


def fits_by_highs(graph: Graph, rails: int, limit_s: float) -> bool | None:
    """Whether `rails` paths carry all jobs; None where the limit came first."""
    arcs, sums, types = np.arange(len(graph.tails)), graph.sums, len(graph.counts)
    ones = np.ones(len(arcs))
    values = np.concatenate((-ones, ones, ones))
    rows = np.concatenate((graph.tails, graph.heads, sums + graph.types))
    table = csr_array((values, (rows, np.tile(arcs, 3))), shape=(sums + types, len(arcs)))
    low = np.concatenate(([-rails], np.zeros(sums - 1), graph.counts))
    high = np.concatenate((np.full(sums, np.inf), graph.counts))
    result = milp(
        np.zeros(len(arcs)),
        integrality=ones,
        bounds=Bounds(0, graph.counts[graph.types]),
        constraints=LinearConstraint(table, low, high),
        options={"time_limit": limit_s},
    )
    return {0: True, 2: False}.get(result.status)


def fits_by_cpsat(graph: Graph, rails: int, limit_s: float) -> bool | None:
    """`fits_by_highs` by CP-SAT."""
    from ortools.sat.python import cp_model  # with pandas, half a second

    model = cp_model.CpModel()
    most = graph.counts[graph.types].tolist()
    flow = [model.new_int_var(0, count, "") for count in most]
    into: list[list[cp_model.LinearExprT]] = [[] for _ in range(graph.sums)]
    kinds: list[list[cp_model.LinearExprT]] = [[] for _ in graph.counts]
    for x, tail, head, kind in zip(flow, graph.tails, graph.heads, graph.types, strict=True):
        into[tail].append(-x)
        into[head].append(x)
        kinds[kind].append(x)
    for at, terms in enumerate(into):
        model.add(sum(terms) >= (0 if at else -rails))
    for terms, count in zip(kinds, graph.counts.tolist(), strict=True):
        model.add(sum(terms) == count)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    known = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}
    return known.get(solver.solve(model))


def arc_flow(
    fits: Callable[[Graph, int, float], bool | None], sizes: Ints, rails: int, limit_s: float
) -> tuple[bool, int]:
    """The least capacity between the pigeonhole bound and LPT: the bound first, where it mostly is,
    then by bisection.
    """
    began, unit = time.perf_counter(), int(np.gcd.reduce(sizes))
    units = sizes // unit
    low = pigeonhole(units, rails)[0]
    value = int(loads_of(units, lpt(units, np.ones(rails)), rails).max())
    probe = low
    while low < value:
        graph = graph_of(units, probe)
        left_s = limit_s - (time.perf_counter() - began)
        found = fits(graph, rails, left_s) if graph is not None and left_s > 0 else None
        if found is None:
            break
        low, value = (low, probe) if found else (probe + 1, value)
        probe = (low + value) // 2
    return low >= value, value * unit


def by_prtpy(sizes: Ints, rails: int, limit_s: float) -> tuple[bool, int]:
    """Its complete greedy search, exhausted within the limit."""
    prtpy = importlib.import_module("prtpy")
    began = time.perf_counter()
    value = prtpy.partition(
        algorithm=prtpy.partitioning.complete_greedy,
        numbins=rails,
        items=sizes.tolist(),
        outputtype=prtpy.outputtypes.LargestSum,
        objective=prtpy.objectives.MinimizeLargestSum,
        time_limit=limit_s,
    )
    return time.perf_counter() - began < limit_s, int(value)


PEERS: dict[str, Peer] = {
    **{name: partial(plain, name) for name in BACKENDS},
    "arcflow-highs": partial(arc_flow, fits_by_highs),
    "arcflow-cpsat": partial(arc_flow, fits_by_cpsat),
    "prtpy": by_prtpy,
}


def missing(peer: str) -> bool:
    """Whether a peer is not installed here."""
    return peer == "prtpy" and find_spec("prtpy") is None
