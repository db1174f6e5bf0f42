"""The best placement of one layer under the time model, for small layers, and the best split of tokens over given replicas."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from railopt.arrays import Ints
from railopt.errors import BackendError, InputError
from railopt.moe.kernels import Bools, exhaust, free_pairs
from railopt.moe.prophet import evaluate, homes, layer_of, room
from railopt.moe.timemodel import TimeModel

EXHAUSTIVE = 20  # (GPU, expert) pairs up to which every placement is tried


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best placement found, its time, and how far down the optimum can lie (picoseconds).

    proved  every placement was tried, in integers; otherwise the bound is the word of the solver named in `by`
    """

    holds: Bools = field(repr=False)
    value: int
    bound: int
    proved: bool
    by: str

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
    """The least total of `model` over every set of copies: all of them tried out, or an integer program where they are too many.

    The integer program covers models without node-mates (one GPU a node), such as `TimeModel.flat`.
    """
    tokens = model.counts(counts)
    owner = homes(model, tokens, home)
    cap, most = room(tokens, owner, model.devices, slots, limit)
    device, expert = free_pairs(model.devices, owner)
    if len(device) <= EXHAUSTIVE:
        value, holds = exhaust(layer_of(model, tokens, owner), device, expert, cap, most)
        return Optimum(np.ascontiguousarray(holds.T), int(value), int(value), True, "every placement tried")
    if model.gpus > 1:
        raise InputError(
            f"{len(device)} possible copies on nodes of {model.gpus} GPUs: at most {EXHAUSTIVE} can be tried out; use a "
            "smaller layer, or a model with one GPU a node"
        )
    return _integer_program(model, tokens, owner, cap, most, device, expert, limit_s)


def _integer_program(
    model: TimeModel, tokens: Ints, owner: Ints, cap: Ints, most: int, device: Ints, expert: Ints, limit_s: float
) -> Optimum:
    """Binary x[copy], continuous sent[expert] and times; HiGHS by way of scipy, its placement re-evaluated here."""
    import scipy
    from scipy.optimize import Bounds, LinearConstraint, milp

    pairs, devices = len(device), model.devices
    sent, width = pairs, pairs + tokens.shape[1] + 5  # sent[e]: expert e leaves its home
    a2a, fec, trans, shown, returned = range(width - 5, width)
    moved = tokens[device, expert].astype(float)
    rows: list[npt.NDArray[np.float64]] = []
    upper: list[float] = []

    def at_most(terms: dict[int, float], right: float, copies: npt.NDArray[np.float64] | None = None) -> None:
        row = np.zeros(width)
        if copies is not None:
            row[:pairs] = copies
        for column, value in terms.items():
            row[column] += value
        rows.append(row)
        upper.append(right)

    for d in range(devices):
        homed, own = owner[expert] == d, device == d
        ps = float(model.node_ps[d])
        arriving = float(tokens[:, owner == d].sum() - tokens[d, owner == d].sum())
        leaving = float(tokens[d, owner != d].sum())
        at_most({a2a: -1}, -arriving * ps, -moved * homed * ps)
        at_most({a2a: -1}, -leaving * ps, -moved * own * ps)
        at_most(
            {fec: -1},
            -float(tokens[:, owner == d].sum()) * model.token_ps,
            moved * (own * 1.0 - homed) * model.token_ps,
        )
        at_most({trans: -1}, 0, own * float(model.copy_ps[d]) + model.copy_mean_ps)
        leaves = {sent + int(e): float(model.copy_ps[d]) for e in np.flatnonzero(owner == d)}
        at_most({trans: -1, **leaves}, 0, np.full(pairs, float(model.copy_mean_ps)))
        at_most({}, float(cap[d] - np.count_nonzero(owner == d)), own * 1.0)
    at_most({}, float(most), np.ones(pairs))
    for pair in range(pairs):
        at_most({pair: 1, sent + int(expert[pair]): -1}, 0)
    ratio = model.grad_ratio[0] / model.grad_ratio[1]
    hidden = (1.0, 2.0) if model.overlap else (0.0, 0.0)
    windows = (model.fnec_ps, model.bnec_ps) if model.overlap else (0, 0)
    at_most({shown: -1, trans: 1, fec: -hidden[0]}, windows[0])
    at_most({returned: -1, trans: ratio, fec: -hidden[1]}, windows[1])
    cost = np.zeros(width)
    cost[a2a], cost[fec], cost[shown], cost[returned] = 4, 3, 1, 1
    scale = 1e6  # picoseconds to microseconds: numbers that the solver's tolerances suit
    matrix = np.array(rows)
    matrix[:, : width - 5] /= scale
    upper_scaled = np.array(upper) / scale
    for i, row in enumerate(rows):  # rows that count copies carry no time
        if not row[width - 5 :].any():
            matrix[i] *= scale
            upper_scaled[i] *= scale
    integrality = np.r_[np.ones(pairs), np.zeros(width - pairs)]
    result = milp(
        cost,
        constraints=LinearConstraint(matrix, -np.inf, upper_scaled),
        integrality=integrality,
        bounds=Bounds(0, np.r_[np.ones(width - 5), np.full(5, np.inf)]),
        options={"time_limit": limit_s, "mip_rel_gap": 0},
    )
    if result.x is None:
        raise BackendError(f"HiGHS found no placement in {limit_s} s: {result.message}; give it more time")
    holds = np.arange(devices)[:, None] == owner[None, :]
    chosen = result.x[:pairs] > 0.5
    holds[device[chosen], expert[chosen]] = True
    value = evaluate(model, tokens, holds, home=owner).total
    bound = min(value, int(np.floor(float(result.mip_dual_bound) * scale)))
    return Optimum(holds, value, bound, False, f"claimed by HiGHS (scipy {scipy.__version__})")


def split_tokens(model: TimeModel, counts: npt.ArrayLike, holds: Bools) -> Ints:
    """The split of a batch's tokens over given replicas that makes 4 A2A + 3 FEC least: int64 [source, expert, destination].

    A linear program with one variable for each source, expert and holder; its shares are rounded to whole tokens, a source's
    largest remainders first, so the result lies within a token a share of the optimum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    tokens = model.counts(counts)
    placed = np.asarray(holds, np.bool_)
    orphans = np.flatnonzero(~placed.any(axis=0) & (tokens.sum(axis=0) > 0))
    if placed.shape != tokens.shape or len(orphans):
        raise InputError(
            f"holds of shape {placed.shape}, experts without a GPU: {orphans.tolist()}; every expert needs one"
        )
    source, expert, target = np.nonzero((tokens > 0)[:, :, None] & placed.T[None, :, :])
    count, devices, nodes = len(source), model.devices, model.nodes
    place = np.arange(devices) // model.gpus
    apart, mates = place[source] != place[target], (place[source] == place[target]) & (source != target)
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
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(height, count + 2)
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
