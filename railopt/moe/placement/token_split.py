"""The best split of a batch's tokens over given replicas, by a linear program.

Variables are the share of each source's tokens for an expert that goes to one of its holders, then
A2A and FEC; the objective is 4 A2A + 3 FEC.  A2A is at least what each node takes in and out and
what each GPU takes from its node-mates, FEC what each GPU computes (`railopt.moe.iteration`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Ints
from railopt.base.errors import BackendError, InputError
from railopt.moe.iteration.timemodel import TimeModel

PS_PER_UNIT = 1e6  # the program counts microseconds: numbers that a solver's tolerances suit


class Shares(NamedTuple):
    """The variables: int64 [n] each; `group` numbers the (source, expert) pairs."""

    source: Ints
    expert: Ints
    target: Ints
    group: Ints
    tokens: Ints


class _Load(NamedTuple):
    """Rows `sum of values - column <= 0`: one of `size` for each GPU or node `row`."""

    row: Ints
    share: Ints
    value: Floats
    size: int
    column: int


def split_tokens(model: TimeModel, counts: npt.ArrayLike, holds: Bools) -> Ints:
    """The split of a batch's tokens over given replicas that makes 4 A2A + 3 FEC least: int64
    [source, expert, destination].

    counts int [source, expert], holds bool [GPU, expert].  The program's shares are rounded to
    whole tokens, a source's largest remainders first, so the result lies within a token a share of
    the optimum.
    """
    tokens = model.counts(counts)
    placed = np.asarray(holds, np.bool_)
    if placed.shape != tokens.shape:
        raise InputError(f"holds of shape {placed.shape}, counts of {tokens.shape}: expected alike")
    orphans = np.flatnonzero(~placed.any(axis=0) & (tokens.sum(axis=0) > 0))
    if len(orphans):
        raise InputError(
            f"experts without a GPU: {orphans.tolist()[:8]} ({len(orphans)} in all); every expert "
            f"with tokens needs one"
        )
    source, expert, target = np.nonzero((tokens > 0)[:, :, None] & placed.T[None, :, :])
    _, group = np.unique(source * tokens.shape[1] + expert, return_inverse=True)
    shares = Shares(source, expert, target, group, tokens[source, expert])
    result = np.zeros((model.devices, tokens.shape[1], model.devices), np.int64)
    result[source, expert, target] = _whole(shares, _solved(model, shares))
    return result


def _loads(model: TimeModel, shares: Shares) -> list[_Load]:
    """What each GPU computes (FEC), and what each node and GPU transfers (A2A)."""
    count, devices = len(shares.source), model.devices
    place = np.arange(devices) // model.gpus
    here, there = place[shares.source], place[shares.target]
    apart, mates = here != there, (here == there) & (shares.source != shares.target)
    weight, column = shares.tokens.astype(np.float64) / PS_PER_UNIT, np.arange(count)
    a2a, fec = count, count + 1
    loads = [_Load(shares.target, column, weight * model.token_ps, devices, fec)]
    for end in (here, there):
        ps = (weight * model.node_ps[end])[apart]
        loads.append(_Load(end[apart], column[apart], ps, model.nodes, a2a))
    up = (weight * model.up_ps)[mates]
    return [*loads, _Load(shares.target[mates], column[mates], up, devices, a2a)]


def _solved(model: TimeModel, shares: Shares) -> Floats:
    """Each share as a part of its group, float64 [n]."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    count = len(shares.source)
    rows, columns, values, height = [], [], [], 0
    for load in _loads(model, shares):
        rows += [load.row + height, np.arange(load.size) + height]
        columns += [load.share, np.full(load.size, load.column)]
        values += [load.value, np.full(load.size, -1.0)]
        height += load.size
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    groups = int(shares.group.max(initial=-1)) + 1
    whole = (np.ones(count), (shares.group, np.arange(count)))
    result: Any = linprog(
        np.r_[np.zeros(count), 4.0, 3.0],
        A_ub=coo_matrix(entries, shape=(height, count + 2)),
        b_ub=np.zeros(height),
        A_eq=coo_matrix(whole, shape=(groups, count + 2)),
        b_eq=np.ones(groups),
        method="highs",
    )
    if result.x is None:
        raise BackendError(f"HiGHS did not split the tokens: {result.message}")
    parts: Floats = result.x[:count]
    return parts


def _whole(shares: Shares, parts: Floats) -> Ints:
    """Whole tokens of each share: rounded down, what is left to a group's largest remainders."""
    exact = parts * shares.tokens
    floor = np.floor(exact + 1e-9)
    missing = np.rint(np.bincount(shares.group, weights=exact - floor)).astype(np.int64)
    order = np.lexsort((-(exact - floor), shares.group))
    rank = np.empty(len(exact), np.int64)
    sorted_groups = shares.group[order]
    rank[order] = np.arange(len(exact)) - np.searchsorted(sorted_groups, sorted_groups)
    return (floor + (rank < missing[shares.group])).astype(np.int64)
