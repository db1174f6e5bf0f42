"""What the experiment on planning ahead counts: errors of predictions, and how plans age."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.pro_prophet_common import consecutive
from experiments.pro_prophet_prediction.forecast import (
    Age,
    average,
    distance,
    forecasts,
    replan_interval,
    staleness,
)
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.routing.trace import Trace


def draw(seed: int) -> np.ndarray:
    """Tokens [4 ranks, 8 experts]."""
    rng = np.random.default_rng(seed)
    popular = rng.permutation(np.arange(1, 9) ** -1.0)
    return np.stack(
        [rng.multinomial(1000, rng.dirichlet(20 * popular / popular.sum())) for _ in range(4)]
    )


@pytest.mark.slow
def test_prediction_and_staleness_on_a_known_trace() -> None:
    steady = np.stack([draw(1)] * 3 + [draw(2)])[:, None]
    trace = Trace(steady, 1, iterations=np.array([0, 1, 2, 6]))
    model = TimeModel.rails(
        Fabric.uniform(2, 2, "100Gb/s", scaleup="50GB/s"),
        token_bytes=2000,
        expert_bytes=10**6,
        tokens_per_s=5e6,
        overlap=False,
    )
    assert consecutive(trace) == [1, 2]
    assert consecutive(trace, 2) == [2]
    for forecast in forecasts(trace, model):
        assert forecast.error == 0
        assert forecast.predicted == forecast.actual <= forecast.none
    np.testing.assert_array_equal(average(3)(steady[:3, 0]), steady[0, 0])
    assert distance(np.array([1, 0]), np.array([0, 1])) == 1.0
    ages = staleness(trace, model)
    assert [(a.age, a.pairs) for a in ages] == [(1, 2), (2, 1), (4, 3)]
    assert ages[0].kept == 1.0
    assert ages[-1].kept < 1.0


def test_replanning_pays_when_it_is_cheap() -> None:
    ages = [Age(1, 1, 100.0, 60.0, 50.0, 0.8), Age(2, 1, 100.0, 80.0, 50.0, 0.4)]
    assert replan_interval(ages, 0.0) == 1
    assert replan_interval(ages, 15.0) == 2
    assert replan_interval(ages, 120.0) == 4
    assert replan_interval(ages, 1000.0) is None
    assert replan_interval([], 0.0) is None


def test_ages_that_were_not_recorded_are_served_too() -> None:
    """Ages 1 to 7 as 8, 32 as 64."""
    ages = [Age(8, 1, 100, 50, 10, 0.5), Age(16, 1, 100, 60, 10, 0.4), Age(64, 1, 100, 70, 10, 0.3)]
    assert replan_interval(ages, 200.0) == 16
