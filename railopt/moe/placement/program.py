"""The placement of one layer as an integer program, in plain arrays, and the process that has HiGHS
solve it.

    x[e, d]        1: GPU d holds expert e; homes are fixed to 1
    first[e, d]    1: d is the first holder of e in its node, which serves the node; none in the
                   home's node
    passed[e, d, f]   share of d's tokens for e that go to f, its node's first holder: at least
                      first[e, f] - x[e, d]
    sent[e]        1: e leaves its home's node
    A2A, FEC, Trans, and what shows of Trans and Agg, microseconds

Where tokens go and what copies cost is what `railopt.moe.placement.layer_times` says; the optimum
of one is that of the other. `python -m railopt.moe.placement.program PROGRAM ANSWERS UNTIL` is the
child (see `railopt.base.processes`): it answers with its best placement and bound.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.processes import answers
from railopt.moe.iteration.timemodel import TimeModel
from railopt.solver.program.mip import MixedProgram, minimise

SCALE = 1e6  # picoseconds in a unit of the program: numbers that a solver's tolerances suit
TIMES = 5  # the last columns: A2A, FEC, Trans, shown Trans, shown Agg


Sum = list[tuple[int, float]]  # coefficients by column; CONSTANT stands for 1
CONSTANT = -1


class _Columns(NamedTuple):
    """Where each variable is: x, first int64 [E, D], passed [E, D, GPUs per node], sent [E]."""

    x: Ints
    first: Ints
    passed: Ints
    sent: Ints
    a2a: int
    fec: int
    trans: int
    shown: int
    returned: int


class _Rows:
    """Rows `sum <= 0`, one by one, and what adds up to times: tokens and copies by GPU, tokens by
    node.
    """

    def __init__(self, devices: int, nodes: int) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.upper: list[float] = []
        self.load: list[Sum] = [[] for _ in range(devices)]
        self.up: list[Sum] = [[] for _ in range(devices)]
        self.copied: list[Sum] = [[] for _ in range(devices)]
        self.into: list[Sum] = [[] for _ in range(nodes)]
        self.out: list[Sum] = [[] for _ in range(nodes)]

    def add(self, *sums: Sum, times: float = 1.0, minus: int | None = None) -> None:
        """times * sum - column `minus` <= 0."""
        terms = [(column, value * times) for part in sums for column, value in part]
        self.upper.append(-sum(value for column, value in terms if column == CONSTANT))
        row = len(self.upper) - 1
        self.entries += [
            (row, int(column), value) for column, value in terms if column != CONSTANT and value
        ]
        self.entries += [] if minus is None else [(row, int(minus), -1.0)]


def build(
    model: TimeModel, tokens: Ints, owner: Ints, cap: Ints, most: int, hint: Bools
) -> MixedProgram:
    """The program of a layer: tokens int64 [GPU, expert], owner [expert], cap [GPU], `most` copies
    beyond the homes.

    hint bool [GPU, expert]: a placement to start from.  The first experts * GPUs columns are x, by
    expert.
    """
    devices, gpus, experts = model.devices, model.gpus, len(owner)
    ends = np.cumsum([experts * devices, experts * devices, experts * devices * gpus, experts])
    x, first, passed, sent = (part for part in np.split(np.arange(ends[-1]), ends[:-1]))
    shape = (experts, devices)
    at = _Columns(
        x.reshape(shape),
        first.reshape(shape),
        passed.reshape(*shape, gpus),
        sent,
        *range(ends[-1], ends[-1] + TIMES),
    )
    width = int(ends[-1]) + TIMES
    low, high = np.zeros(width), np.r_[np.ones(width - TIMES), np.full(TIMES, np.inf)]
    low[at.x[np.arange(experts), owner]] = 1
    rows = _Rows(devices, model.nodes)
    for e in range(experts):
        for node in range(model.nodes):
            mine = range(node * gpus, (node + 1) * gpus)
            count = [float(tokens[d, e]) for d in mine]
            for d, own in zip(mine, count, strict=True):
                rows.load[d].append((at.x[e, d], own))
            if owner[e] in mine:
                high[at.first[e, list(mine)]] = 0
                _home_node(e, int(owner[e]), mine, count, at, rows)
            else:
                _other_node(e, int(owner[e]), node, mine, count, at, rows)
    _time_rows(model, owner, at, rows)
    for d in range(devices):
        rows.add([(column, 1.0) for column in at.x[:, d]], [(CONSTANT, -float(cap[d]))])
    rows.add([(column, 1.0) for column in x], [(CONSTANT, -float(most + experts))])
    cost = np.zeros(width)
    cost[[at.a2a, at.fec, at.shown, at.returned]] = 4, 3, 1, 1
    row, column, value = (np.array(part) for part in zip(*rows.entries, strict=True))
    upper = np.array(rows.upper)
    return MixedProgram(
        cost,
        low,
        high,
        np.arange(width) < ends[1],
        row,
        column,
        value,
        np.full(len(upper), -np.inf),
        upper,
        hint.T.ravel().astype(np.float64),
    )


def _home_node(
    e: int, home: int, mine: range, count: list[float], at: _Columns, rows: _Rows
) -> None:
    """Tokens of the home's node-mates go to the home unless they have a copy, which comes over
    scale-up.
    """
    for d, own in zip(mine, count, strict=True):
        if d != home:
            for tokens in (rows.load[home], rows.up[home]):
                tokens += [(CONSTANT, own), (at.x[e, d], -own)]
            rows.copied[d].append((at.x[e, d], 1.0))


def _other_node(
    e: int, home: int, node: int, mine: range, count: list[float], at: _Columns, rows: _Rows
) -> None:
    """Tokens go to the node's first holder, or home without one; the first holder's copy crosses,
    the others come from it.
    """
    served: Sum = [(at.first[e, f], 1.0) for f in mine]
    total = sum(count)
    for tokens in (rows.load[home], rows.into[home // len(mine)], rows.out[node]):
        tokens += [(CONSTANT, total), *((column, -total) for column, _ in served)]
    rows.add(served, [(CONSTANT, -1.0)])
    rows.add(served, minus=int(at.sent[e]))
    for i, f in enumerate(mine):
        rows.copied[f] += [(at.x[e, f], 1.0), (at.first[e, f], -1.0)]
        rows.add([(at.first[e, f], 1.0)], minus=int(at.x[e, f]))
        rows.add([(at.x[e, f], 1.0)], [(column, -1.0) for column, _ in served])
        for d, own in zip(mine, count, strict=True):
            if d == f:
                continue
            if d < f:
                rows.add([(at.first[e, f], 1.0), (at.x[e, d], 1.0), (CONSTANT, -1.0)])
            rows.add([(at.first[e, f], 1.0), (at.x[e, d], -1.0)], minus=int(at.passed[e, d, i]))
            for tokens in (rows.load[f], rows.up[f]):
                tokens.append((at.passed[e, d, i], own))


def _time_rows(model: TimeModel, owner: Ints, at: _Columns, rows: _Rows) -> None:
    """A2A, FEC and Trans are at least what each GPU and link takes; what shows of Trans and Agg,
    eq. 6 or 8.
    """
    place = np.arange(model.devices) // model.gpus
    per = model.copy_mean_ps / SCALE  # the homes are no copies
    mean: Sum = [
        *((column, per) for column in at.x.ravel().tolist()),
        (CONSTANT, -len(owner) * per),
    ]
    for d in range(model.devices):
        rows.add(rows.load[d], times=model.token_ps / SCALE, minus=at.fec)
        rows.add(rows.up[d], times=model.up_ps / SCALE, minus=at.a2a)
        rows.add(
            [(c, v * model.copy_up_ps / SCALE) for c, v in rows.copied[d]], mean, minus=at.trans
        )
    for node in range(model.nodes):
        for tokens in (rows.into[node], rows.out[node]):
            rows.add(tokens, times=float(model.node_ps[node]) / SCALE, minus=at.a2a)
        for crossing in (at.first[:, place == node].ravel(), at.sent[place[owner] == node]):
            rows.add(
                [(c, float(model.copy_ps[node]) / SCALE) for c in crossing.tolist()],
                mean,
                minus=at.trans,
            )
    hidden, windows = (
        ((1.0, 2.0), (model.fnec_ps, model.bnec_ps)) if model.overlap else ((0.0, 0.0), (0, 0))
    )
    ratio = model.grad_ratio[0] / model.grad_ratio[1]
    for part, column, compute, window in (
        (1.0, at.shown, hidden[0], windows[0]),
        (ratio, at.returned, hidden[1], windows[1]),
    ):
        rows.add([(at.trans, part), (at.fec, -compute), (CONSTANT, -window / SCALE)], minus=column)


def main(program: str, answered: str, until: str) -> None:
    """The child: HiGHS, its best placement and its bound."""
    given = MixedProgram.read(program)
    found = minimise(given, max(0.1, float(until) - time.time()))
    chosen = None
    if found.values is not None:
        chosen = np.flatnonzero(found.values[: len(given.hint)] > 0.5).tolist()
    with answers(answered) as say:
        say({"chosen": chosen, "bound": found.bound if np.isfinite(found.bound) else None})


if __name__ == "__main__":
    main(*sys.argv[1:])
