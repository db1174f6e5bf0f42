"""Planning ahead: how well recent routing predicts the next iteration, and what a plan made on a
prediction is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.pro_prophet_common import consecutive
from railopt.base.arrays import Floats, Ints
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.prophet import evaluate, pro_prophet
from railopt.moe.routing.trace import Trace


def last(history: Ints) -> Ints:
    """The last iteration: counts [iteration, rank, expert] -> [rank, expert]."""
    return history[-1]


def average(window: int) -> Callable[[Ints], Ints]:
    """The mean of the last `window` iterations, rounded to whole tokens."""

    def mean(history: Ints) -> Ints:
        return np.rint(history[-window:].mean(axis=0)).astype(np.int64)

    return mean


class Forecast(NamedTuple):
    """One layer, one step ahead.

    error    share of tokens that a prediction puts on the wrong (rank, expert): half the L1
             distance over the total
    expert   the same for the loads of the experts alone
    none, predicted, actual  the layer's time without copies, with a plan made on the prediction,
                             with a plan made on the truth
    """

    iteration: int
    layer: int
    error: float
    expert: float
    none: int
    predicted: int
    actual: int


def distance(a: Ints, b: Ints) -> float:
    """Half the L1 distance of two count arrays as a share of b's total; 0 is equal, 1 disjoint."""
    total = int(b.sum())
    return float(np.abs(a - b).sum() / (2 * total)) if total else 0.0


def forecasts(
    trace: Trace,
    model: TimeModel,
    predictor: Callable[[Ints], Ints] = last,
    *,
    need: int = 1,
    layers: list[int] | None = None,
) -> list[Forecast]:
    """Predict every recorded iteration that follows `need` consecutive ones, plan on the
    prediction, evaluate on the truth.
    """
    result = []
    for row in consecutive(trace, need):
        for layer in range(len(trace.layers)) if layers is None else layers:
            counts = trace.counts[:, layer].astype(np.int64)
            truth, guess = counts[row], predictor(counts[row - need : row])
            planned = evaluate(model, truth, pro_prophet(model, guess)).total
            ideal = evaluate(model, truth, pro_prophet(model, truth)).total
            result.append(
                Forecast(
                    int(trace.iterations[row]),
                    int(trace.layers[layer]),
                    distance(guess, truth),
                    distance(guess.sum(axis=0), truth.sum(axis=0)),
                    evaluate(model, truth).total,
                    planned,
                    ideal,
                )
            )
    return result


class Age(NamedTuple):
    """How a plan fares `age` iterations later: times averaged over layers and pairs of rows, and
    the share of gain kept.
    """

    age: int
    pairs: int
    none: float
    stale: float
    fresh: float
    kept: float


def staleness(
    trace: Trace,
    model: TimeModel,
    *,
    layers: list[int] | None = None,
    rows: list[int] | None = None,
) -> list[Age]:
    """Plans of each recorded iteration used at every later one, by age (geometric classes 1, 2-3,
    4-7, ...).
    """
    chosen = range(len(trace.iterations)) if rows is None else rows
    columns = range(len(trace.layers)) if layers is None else layers
    sums: dict[int, Floats] = {}
    for layer in columns:
        counts = trace.counts[:, layer].astype(np.int64)
        plans = {r: pro_prophet(model, counts[r]) for r in chosen}
        for later in chosen:
            none = evaluate(model, counts[later]).total
            fresh = evaluate(model, counts[later], plans[later]).total
            for earlier in chosen:
                age = int(trace.iterations[later] - trace.iterations[earlier])
                if age > 0:
                    stale = evaluate(model, counts[later], plans[earlier]).total
                    group = 1 << (age.bit_length() - 1)
                    sums[group] = sums.get(group, np.zeros(4)) + np.array([1, none, stale, fresh])
    ages = []
    for group in sorted(sums):
        number, none, stale, fresh = sums[group]
        ages.append(
            Age(
                group,
                int(number),
                none / number,
                stale / number,
                fresh / number,
                (none - stale) / (none - fresh) if none > fresh else 1.0,
            )
        )
    return ages


def replan_interval(ages: list[Age], move_ps: float) -> int | None:
    """How many iterations a plan should serve when one re-plan costs `move_ps`: the length with the
    least time an iteration.

    A plan serves one iteration fresh, then one of age 1, two of ages 2 and 3, and so on by the
    classes of `staleness`, one that was not recorded as the next older one; None where no copies at
    all are better than any of these lengths.
    """
    if not ages:
        return None
    best, chosen = float(np.mean([a.none for a in ages])), None
    time, length = ages[0].fresh, 1
    for group in [0, *(1 << i for i in range(ages[-1].age.bit_length()))]:
        if group:
            stale = next(age.stale for age in ages if age.age >= group)
            time, length = time + group * stale, length + group
        cost = (time + move_ps) / length
        if cost < best:
            best, chosen = cost, length
    return chosen
