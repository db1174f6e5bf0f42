"""The placement of one layer as an integer program, in plain arrays, and the process that has HiGHS solve it.

    x[e, d]        1: GPU d holds expert e; homes are fixed to 1
    first[e, d]    1: d is the first holder of e in its node, which serves the node; none in the home's node
    passed[e, d, f]   share of d's tokens for e that go to f, its node's first holder: at least first[e, f] - x[e, d]
    sent[e]        1: e leaves its home's node
    A2A, FEC, Trans, and what shows of Trans and Agg, microseconds

Where tokens go and what copies cost is what `railopt.moe.kernels` says; the optimum of one is that of the other.
`python -m railopt.moe.program PROGRAM ANSWERS UNTIL` is the child: it appends a JSON line for every better placement and every
better bound, so that they outlive it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.arrays import Ints
from railopt.moe.timemodel import TimeModel
from railopt.solver.process import MEMORY

Floats = npt.NDArray[np.float64]
SCALE = 1e6  # picoseconds in a unit of the program: numbers that a solver's tolerances suit
TIMES = 5  # the last columns: A2A, FEC, Trans, shown Trans, shown Agg


class Program(NamedTuple):
    """min cost . v where A v <= upper, low <= v <= high, the first `binary` columns whole.

    rows, columns int64 [entries], values float64 [entries]: A by entry, in order of its rows
    The first experts * GPUs columns are x, by expert; `hint` are values for them.
    """

    cost: Floats
    low: Floats
    high: Floats
    binary: int
    rows: Ints
    columns: Ints
    values: Floats
    upper: Floats
    hint: Floats

    def save(self, path: str | os.PathLike[str]) -> None:
        """As a plain `.npz`, for the process that solves it."""
        np.savez(path, allow_pickle=False, **{name: np.asarray(value) for name, value in self._asdict().items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        with np.load(path, allow_pickle=False) as data:
            values: dict[str, Any] = dict(data)
        return cls(**{**values, "binary": int(values["binary"])})


class _Rows:
    """Rows sum(coefficient * column) <= right, one by one; a column may come up several times in one."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.upper: list[float] = []

    def add(self, terms: list[tuple[int, float]], right: float = 0.0) -> None:
        self.entries += [(len(self.upper), column, value) for column, value in terms if value]
        self.upper.append(right)


def build(model: TimeModel, tokens: Ints, owner: Ints, cap: Ints, most: int, hint: npt.NDArray[np.bool_]) -> Program:
    """The program of a layer: tokens int64 [GPU, expert], owner [expert], cap [GPU], `most` copies beyond the homes.

    hint bool [GPU, expert]: a placement to start from.
    """
    devices, gpus, experts = model.devices, model.gpus, len(owner)
    x = np.arange(experts * devices).reshape(experts, devices)
    first = x + x.size
    passed = 2 * x.size + np.arange(x.size * gpus).reshape(experts, devices, gpus)
    sent = passed.size + 2 * x.size + np.arange(experts)
    width = 2 * x.size + passed.size + experts + TIMES
    a2a, fec, trans, shown, returned = range(width - TIMES, width)
    place = np.arange(devices) // gpus
    low, high = np.zeros(width), np.r_[np.ones(width - TIMES), np.full(TIMES, np.inf)]
    low[x[np.arange(experts), owner]] = 1
    rows = _Rows()
    load: list[list[tuple[int, float]]] = [[] for _ in range(devices)]  # tokens, by GPU
    up: list[list[tuple[int, float]]] = [[] for _ in range(devices)]
    into: list[list[tuple[int, float]]] = [[] for _ in range(model.nodes)]
    out: list[list[tuple[int, float]]] = [[] for _ in range(model.nodes)]
    fixed = {"load": np.zeros(devices), "up": np.zeros(devices), "into": np.zeros(model.nodes), "out": np.zeros(model.nodes)}
    copied: list[list[tuple[int, float]]] = [[] for _ in range(devices)]
    for e in range(experts):
        home = int(owner[e])
        for node in range(model.nodes):
            mine = range(node * gpus, (node + 1) * gpus)
            count = {d: float(tokens[d, e]) for d in mine}
            for d in mine:
                load[d].append((x[e, d], count[d]))
            if node == place[home]:
                high[first[e, list(mine)]] = 0
                for d in set(mine) - {home}:  # without a copy its tokens go to the home
                    fixed["load"][home] += count[d]
                    fixed["up"][home] += count[d]
                    load[home].append((x[e, d], -count[d]))
                    up[home].append((x[e, d], -count[d]))
                    copied[d].append((x[e, d], 1.0))
                continue
            served = [(int(first[e, f]), 1.0) for f in mine]
            total = sum(count.values())
            for side, at, fixed_side in ((into, int(place[home]), "into"), (out, node, "out")):
                fixed[fixed_side][at] += total
                side[at] += [(column, -total) for column, _ in served]
            fixed["load"][home] += total
            load[home] += [(column, -total) for column, _ in served]
            rows.add(served, 1.0)
            rows.add([*served, (int(sent[e]), -1.0)])
            for f in mine:
                rows.add([(first[e, f], 1.0), (x[e, f], -1.0)])
                rows.add([(x[e, f], 1.0), *((column, -1.0) for column, _ in served)])
                copied[f] += [(x[e, f], 1.0), (first[e, f], -1.0)]  # the first one crosses, the others come from it
                for d in set(mine) - {f}:
                    if d < f:
                        rows.add([(first[e, f], 1.0), (x[e, d], 1.0)], 1.0)
                    share = int(passed[e, d, f - mine.start])
                    rows.add([(first[e, f], 1.0), (x[e, d], -1.0), (share, -1.0)])
                    load[f].append((share, count[d]))
                    up[f].append((share, count[d]))
    everything = [(int(column), 1.0) for column in x.ravel()]
    mean = [(column, model.copy_mean_ps / SCALE) for column, _ in everything]
    mean_fixed = experts * model.copy_mean_ps / SCALE  # the homes are no copies

    def time(terms: list[tuple[int, float]], ps: float, column: int, constant: float = 0.0) -> None:
        rows.add([*((c, v * ps / SCALE) for c, v in terms), (column, -1.0)], -constant * ps / SCALE)

    for d in range(devices):
        time(load[d], model.token_ps, fec, fixed["load"][d])
        time(up[d], model.up_ps, a2a, fixed["up"][d])
        rows.add([*((c, v * model.copy_up_ps / SCALE) for c, v in copied[d]), *mean, (trans, -1.0)], mean_fixed)
        rows.add([(int(column), 1.0) for column in x[:, d]], float(cap[d]))
    for node in range(model.nodes):
        ps, copy = float(model.node_ps[node]), float(model.copy_ps[node]) / SCALE
        time(into[node], ps, a2a, fixed["into"][node])
        time(out[node], ps, a2a, fixed["out"][node])
        arriving = [(int(c), copy) for c in first[:, place == node].ravel()]
        leaving = [(int(sent[e]), copy) for e in np.flatnonzero(place[owner] == node)]
        rows.add([*arriving, *mean, (trans, -1.0)], mean_fixed)
        rows.add([*leaving, *mean, (trans, -1.0)], mean_fixed)
    rows.add(everything, float(most + experts))
    ratio = model.grad_ratio[0] / model.grad_ratio[1]
    hidden, windows = ((1.0, 2.0), (model.fnec_ps, model.bnec_ps)) if model.overlap else ((0.0, 0.0), (0, 0))
    rows.add([(trans, 1.0), (fec, -hidden[0]), (shown, -1.0)], windows[0] / SCALE)
    rows.add([(trans, ratio), (fec, -hidden[1]), (returned, -1.0)], windows[1] / SCALE)
    cost = np.zeros(width)
    cost[[a2a, fec, shown, returned]] = 4, 3, 1, 1
    row, column, value = (np.array(part) for part in zip(*rows.entries, strict=True))
    binary = 2 * x.size
    return Program(cost, low, high, binary, row, column, value, np.array(rows.upper), hint.T.ravel().astype(np.float64))


def main(program: str, answers: str, until: str) -> None:
    """The child: HiGHS, each better placement and bound on a line of its own."""
    import highspy

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    given = Program.load(program)
    width, height = len(given.cost), len(given.upper)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = width, height
    lp.col_cost_, lp.col_lower_, lp.row_upper_ = given.cost, given.low, given.upper
    lp.col_upper_ = np.where(np.isinf(given.high), highspy.kHighsInf, given.high)
    lp.row_lower_ = np.full(height, -highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(given.rows, np.arange(height + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = given.columns.astype(np.int32), given.values
    lp.integrality_ = [highspy.HighsVarType.kInteger] * given.binary + [highspy.HighsVarType.kContinuous] * (width - given.binary)
    solver = highspy.Highs()
    left = max(0.1, float(until) - time.time())
    for option, value in (("output_flag", False), ("time_limit", left), ("threads", 1), ("mip_rel_gap", 0.0)):
        solver.setOptionValue(option, value)
    solver.passModel(lp)
    solver.setSolution(len(given.hint), np.arange(len(given.hint), dtype=np.int32), given.hint)
    with open(answers, "a", encoding="utf-8") as file:

        def say(values: Any, bound: float) -> None:
            chosen = None if values is None else np.flatnonzero(np.asarray(values)[: len(given.hint)] > 0.5).tolist()
            file.write(json.dumps({"chosen": chosen, "bound": bound if np.isfinite(bound) else None}) + "\n")
            file.flush()

        solver.cbMipImprovingSolution.subscribe(lambda e: say(e.data_out.mip_solution, e.data_out.mip_dual_bound))
        solver.cbMipLogging.subscribe(lambda e: say(None, e.data_out.mip_dual_bound))
        solver.run()
        info = solver.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        say(solver.getSolution().col_value if found else None, info.mip_dual_bound)


if __name__ == "__main__":
    main(*sys.argv[1:])
