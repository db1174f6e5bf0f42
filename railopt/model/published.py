"""Traffic as papers publish it, each with its formula and its source, so that others can cite it.

    fast-zipf       FAST's skewed workload: every pair's size drawn from Zipf(s) (its released code)
    fast-random     FAST's random workload: every pair's size drawn evenly (its released code)
    prophet         one dispatch of Pro-Prophet's training runs (its launch script); how uneven the
                    experts are is ours

`rails-sparse`, RailS's sparse traffic, is beside `sparse` in `railopt.model.workloads`: its formula
is ours.
FAST: arXiv 2505.09764, MangoBoost/FAST 0712d29, amd/test_alltoall.cpp.  Pro-Prophet: arXiv
2411.10003, king0722/Pro-Prophet.  The draws are railopt's own
(`railopt.base.dice`), so a seed always gives the same bytes, and not the bytes of the authors'
generators.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import MAX_TOTAL, Floats, Ints
from railopt.base.dice import Dice, exp, falling, ln
from railopt.base.errors import InputError
from railopt.base.units import parse_bytes
from railopt.model.fabric import Fabric
from railopt.model.routed import count_gpus, row_blocks, seen_weights, typed, within
from railopt.model.traffic import Traffic

ZIPF_VALUES = 1024
"""FAST draws pair sizes from so many values, before all are scaled."""
_NEAREST_TO_ONE = 1e-6
_TOLERANCE = 0.01
_MOST_STEPS = 1000

PROPHET_SEQUENCE = 256
GATES = {"naive": 1.4, "balanced": 1.3}
"""Experts' popularity falls as rank to minus this: the mean of the exponents with which the busiest
expert of railopt's own gpt16 and gpt32 traces has its share, without and with a balance loss."""


@typed
def fast_zipf(
    fabric: Fabric, *, s: float = 0.8, mean: str | int = "16MiB", seed: int = 0
) -> Traffic:
    """Every ordered pair of different GPUs draws its size independently: u uniform in [0, 1), x
    from 1 to 1024 with F(x) = u F(1024), rounded down,

        F(x) = 12 (x^(1-s) - 1)/(1-s) + 6 (1 - x^-s) + s (1 - x^(-1-s)),

    the continuous approximation of Zipf(s) that FAST's code inverts by Newton's method from 512 to
    a tolerance of 0.01.  All sizes are then scaled by one factor to `mean` bytes per pair; 16MiB
    are the 520 MB per GPU of FAST's figures on 32 GPUs.
    """
    within("s", s, 0, 3)
    if abs(s - 1) < _NEAREST_TO_ONE:
        raise InputError(f"s = {s}: FAST's formula divides by 1 - s; take 0.999 or 1.001")
    count = count_gpus(fabric)
    dice, drawn = Dice(seed, "fast-zipf"), np.empty((count, count), np.int64)
    for rows in row_blocks(count, count):
        shares = dice.unit(drawn[rows].size)
        drawn[rows] = zipf_sizes(s, shares).reshape(-1, count)
    return _scaled(fabric, drawn, mean)


@typed
def fast_random(fabric: Fabric, *, mean: str | int = "16MiB", seed: int = 0) -> Traffic:
    """Every ordered pair of different GPUs draws its size evenly from 0 to 1023; scaled as
    `fast_zipf`.
    """
    count = count_gpus(fabric)
    dice, drawn = Dice(seed, "fast-random"), np.empty((count, count), np.int64)
    for rows in row_blocks(count, count):  # as one draw: no word is unfair to a power of two
        drawn[rows] = dice.below(ZIPF_VALUES, drawn[rows].shape)
    return _scaled(fabric, drawn, mean)


@typed
def prophet(
    fabric: Fabric,
    *,
    batch: int = 64,
    gate: str = "naive",
    width: int = 512,
    top_k: int = 1,
    seed: int = 0,
) -> Traffic:
    """One dispatch of Pro-Prophet's training: `batch` sequences of 256 tokens over all GPUs (1,024
    tokens per GPU on 16, 512 on 32), one expert per GPU.  A token of `width` fp32 values goes to
    each of its `top_k` different experts.

    Popularity of the experts falls as rank ** -1.4 (gate "naive") or rank ** -1.3 ("balanced", a
    balance loss), in random order, and each GPU sees it through gamma noise of shape 4: these are
    ours.
    """
    count = count_gpus(fabric)
    if gate not in GATES:
        raise InputError(f"gate = {gate!r}: expected one of {', '.join(GATES)}")
    tokens, rest = divmod(batch * PROPHET_SEQUENCE, count)
    if tokens < 1 or rest:
        raise InputError(
            f"batch = {batch}: expected at least 1 sequence of {PROPHET_SEQUENCE} tokens, and so "
            f"many that the tokens spread evenly over {count} GPUs"
        )
    if not 1 <= top_k <= count or width < 1:
        raise InputError(
            f"top_k = {top_k}, width = {width}: expected 1 to {count} experts and at least 1 value"
        )
    if tokens * count * top_k * width * 4 >= MAX_TOTAL:
        raise InputError(f"batch = {batch}, width = {width}: 2**62 bytes or more")
    dice = Dice(seed, "prophet", gate)
    popularity = falling(count, GATES[gate])[dice.permutation(count)]
    seen = seen_weights(dice, popularity, count, 4.0)
    if top_k == 1:
        counts = dice.counts(seen, tokens)
    else:
        chosen = (dice.distinct(row, tokens, top_k).ravel() for row in seen)
        counts = np.stack([np.bincount(experts, minlength=count) for experts in chosen])
    return Traffic.from_matrix(counts * (4 * width), fabric)


def zipf_sizes(s: float, shares: Floats) -> Ints:
    """int64 as `shares` (each in [0, 1]): the sizes from 1 to 1024 that FAST's sampler gives them.

    F is concave, so Newton's method from the left of the root rises to it; a step that falls below
    1 goes on from 1.
    """
    goal = shares * float(_cumulated(s, np.array([float(ZIPF_VALUES)]))[0])
    found, moving = np.full(len(shares), ZIPF_VALUES / 2), np.ones(len(shares), np.bool_)
    for _ in range(_MOST_STEPS):
        x = found[moving]
        step = (_cumulated(s, x) - goal[moving]) / _density(s, x)
        found[moving] = np.maximum(x - step, 1.0)
        moving[moving] = np.abs(found[moving] - x) > _TOLERANCE
        if not moving.any():
            return np.minimum(np.floor(found), ZIPF_VALUES).astype(np.int64)
    raise InputError(f"s = {s}: FAST's sampler does not converge; take a smaller s")


def _cumulated(s: float, x: Floats) -> Floats:
    """F of `fast_zipf`."""
    log = ln(x)
    power = (exp((1 - s) * log) - 1) / (1 - s)
    return 12 * power + 6 * (1 - exp(-s * log)) + s * (1 - exp((-1 - s) * log))


def _density(s: float, x: Floats) -> Floats:
    """The derivative of F."""
    log = ln(x)
    return 12 * exp(-s * log) + 6 * s * exp((-1 - s) * log) + s * (s + 1) * exp((-2 - s) * log)


def _scaled(fabric: Fabric, drawn: Ints, mean: str | int) -> Traffic:
    """Sizes int64 [GPU, GPU], which are overwritten, times one factor, such that pairs of different
    GPUs have `mean` bytes on average, rounded down; in whole numbers.
    """
    np.fill_diagonal(drawn, 0)
    count, parts = len(drawn), max(int(drawn.sum()), 1)
    total = parse_bytes(mean) * count * (count - 1)
    if total >= MAX_TOTAL:
        raise InputError(f"mean = {mean} for {count} GPUs: 2**62 bytes or more")
    whole, rest = divmod(total, parts)
    for rows in row_blocks(count, count):
        drawn[rows] = drawn[rows] * whole + drawn[rows] * rest // parts
    drawn.flags.writeable = False  # so that it is not copied
    return Traffic.from_matrix(drawn, fabric)
