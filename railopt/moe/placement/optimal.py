"""The best placement of one layer under the time model, for small layers, and the best split of
tokens over given replicas.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.arrays import Ints
from railopt.errors import BackendError, InputError
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.layer_times import Bools, exhaust, least_total
from railopt.moe.placement.program import SCALE, Program, build
from railopt.moe.placement.prophet import evaluate, homes, layer_of, pro_prophet, room
from railopt.processes import GRACE_S, SPARE_S, contain

EXHAUSTIVE = 20  # (GPU, expert) pairs up to which every placement is tried
LARGEST = 10_000  # pairs up to which an integer program is built


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best placement found, its time, and how far down the optimum can lie (picoseconds).

    proved  in integers: every placement was tried, or the bound is that of the mean load; otherwise
            it is the word of the solver named in `by`
    """

    holds: Bools = field(repr=False)
    value: int
    bound: int
    proved: bool
    by: str

    @property
    def status(self) -> str:
        """ "proved"; "claimed", if the solver's bound is the value; "open", if the time was up
        before that.
        """
        return "proved" if self.proved else "claimed" if self.value == self.bound else "open"

    def gap(self, value: int) -> float:
        """(value - bound) / bound of another placement's time."""
        return (value - self.bound) / self.bound if self.bound else 0.0


def optimal(
    model: TimeModel,
    counts: npt.ArrayLike,
    *,
    home: npt.ArrayLike | None = None,
    slots: int | None = None,
    limit: int | None = None,
    limit_s: float = 30.0,
) -> Optimum:
    """The least total of `model` over every set of copies: all of them tried out, or an integer
    program where they are too many.

    The program runs for at most `limit_s` seconds in a process of its own; what it has found by
    then counts, and the placement is never worse than `pro_prophet`'s.
    """
    if not limit_s > 0:
        raise InputError(f"a limit of {limit_s} s: expected more than 0")
    tokens = model.counts(counts)
    owner = homes(model, tokens, home)
    cap, most = room(tokens, owner, model.devices, slots, limit)
    pairs = tokens.size - len(owner)
    if pairs <= EXHAUSTIVE:
        value, holds = exhaust(layer_of(model, tokens, owner), cap, most)
        return Optimum(
            np.ascontiguousarray(holds.T), int(value), int(value), True, "every placement tried"
        )
    if pairs > LARGEST:
        raise InputError(
            f"{pairs} possible copies: an integer program takes at most {LARGEST}; use a smaller "
            f"layer"
        )
    start = pro_prophet(model, tokens, home=owner, slots=slots, limit=limit)
    if (value := evaluate(model, tokens, start, home=owner).total) == _least(model, tokens):
        return Optimum(start, value, value, True, "no GPU computes more than the mean")
    return _best(
        model, tokens, owner, start, _solve(build(model, tokens, owner, cap, most, start), limit_s)
    )


def _least(model: TimeModel, tokens: Ints) -> int:
    return int(least_total(int(tokens.sum()), model.devices, model.token_ps))


def _solve(program: Program, limit_s: float) -> list[dict[str, Any]]:
    """What the solver said within the limit, line by line."""
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="railopt-") as folder:
        files = [Path(folder, name) for name in ("program.npz", "answers.jsonl", "log.txt")]
        program.save(files[0])
        files[1].touch()
        command = [
            sys.executable,
            "-m",
            "railopt.moe.placement.program",
            *map(str, files[:2]),
            repr(time.time() + limit_s - SPARE_S),
        ]
        code, timed_out, interrupted = contain(command, files[2], deadline + GRACE_S)
        lines = files[1].read_text(encoding="utf-8").splitlines(keepends=True)
        said = files[2].read_text(errors="replace").strip().splitlines()
    if interrupted:
        raise KeyboardInterrupt
    if code and not timed_out and not lines:
        raise BackendError(
            f"HiGHS crashed (exit code {code}): {said[-1][:300] if said else 'it said nothing'}"
        )
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _best(
    model: TimeModel, tokens: Ints, owner: Ints, start: Bools, answers: list[dict[str, Any]]
) -> Optimum:
    """The best of `start` and the answers' placements, each evaluated here, and the highest bound
    claimed.
    """
    chosen, value = start, evaluate(model, tokens, start, home=owner).total
    bound = _least(model, tokens)
    for answer in answers:
        if answer["bound"] is not None:
            bound = max(bound, int(np.floor(answer["bound"] * SCALE)))
        if answer["chosen"] is None:
            continue
        flat = np.zeros(tokens.size, np.bool_)
        flat[answer["chosen"]] = True
        holds = np.ascontiguousarray(flat.reshape(tokens.shape[::-1]).T)
        total = evaluate(model, tokens, holds, home=owner).total
        if total < value:
            chosen, value = holds, total
    by = (
        f"claimed by HiGHS {version('highspy')}"
        if value <= bound
        else f"open, its bound claimed by HiGHS {version('highspy')}"
    )
    return Optimum(chosen, value, min(value, bound), False, by)


def split_tokens(model: TimeModel, counts: npt.ArrayLike, holds: Bools) -> Ints:
    """The split of a batch's tokens over given replicas that makes 4 A2A + 3 FEC least: int64
    [source, expert, destination].

    A linear program with one variable for each source, expert and holder; its shares are rounded to
    whole tokens, a source's largest remainders first, so the result lies within a token a share of
    the optimum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    tokens = model.counts(counts)
    placed = np.asarray(holds, np.bool_)
    orphans = np.flatnonzero(~placed.any(axis=0) & (tokens.sum(axis=0) > 0))
    if placed.shape != tokens.shape or len(orphans):
        raise InputError(
            f"holds of shape {placed.shape}, experts without a GPU: {orphans.tolist()}; every "
            f"expert needs one"
        )
    source, expert, target = np.nonzero((tokens > 0)[:, :, None] & placed.T[None, :, :])
    count, devices, nodes = len(source), model.devices, model.nodes
    place = np.arange(devices) // model.gpus
    apart, mates = (
        place[source] != place[target],
        (place[source] == place[target]) & (source != target),
    )
    weight = tokens[source, expert].astype(float) / 1e6  # shares of a source's tokens; microseconds
    column = np.arange(count)
    blocks = [(target, column, weight * model.token_ps, devices, 1)]
    blocks += [
        (place[end][apart], column[apart], (weight * model.node_ps[place[end]])[apart], nodes, 0)
        for end in (source, target)
    ]
    blocks += [(target[mates], column[mates], (weight * model.up_ps)[mates], devices, 0)]
    rows, columns, values, height = [], [], [], 0
    for row, col, value, size, bound in blocks:
        rows += [row + height, np.arange(size) + height]
        columns += [col, np.full(size, count + bound)]
        values += [value, np.full(size, -1.0)]
        height += size
    limits = coo_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(height, count + 2),
    )
    pairs, group = np.unique(source * tokens.shape[1] + expert, return_inverse=True)
    whole = coo_matrix((np.ones(count), (group, column)), shape=(len(pairs), count + 2))
    result = linprog(
        np.r_[np.zeros(count), 4.0, 3.0],
        A_ub=limits,
        b_ub=np.zeros(height),
        A_eq=whole,
        b_eq=np.ones(len(pairs)),
        method="highs",
    )
    if result.x is None:
        raise BackendError(f"HiGHS did not split the tokens: {result.message}")
    exact = result.x[:count] * tokens[source, expert]
    floor = np.floor(exact + 1e-9)
    missing = np.rint(np.bincount(group, weights=exact - floor)).astype(np.int64)
    order = np.lexsort((-(exact - floor), group))
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count) - np.searchsorted(group[order], group[order])
    shares = np.zeros((devices, tokens.shape[1], devices), np.int64)
    shares[source, expert, target] = floor + (rank < missing[group])
    return shares
