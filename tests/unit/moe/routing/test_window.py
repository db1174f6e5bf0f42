"""What a plan sees of a trace: whole weights, and forecasts where they pay."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.routing.predict import decays
from railopt.moe.routing.window import FINE, Window, seen

RNG = np.random.default_rng(0)
STEADY = RNG.multinomial(4000, np.arange(8, 0, -1) / 36, (12, 2, 3))


def test_the_sum_of_a_window_is_exact() -> None:
    shown = seen(STEADY, Window(5, 1.0))
    np.testing.assert_array_equal(shown.counts, STEADY[-5:].sum(axis=0))
    assert shown.weight == 5
    whole = seen(STEADY, Window())
    np.testing.assert_array_equal(whole.counts, STEADY.sum(axis=0))
    assert (whole.weight, whole.decay.tolist()) == (12, [1.0, 1.0])


def test_weights_of_decayed_steps_are_whole_and_add_up() -> None:
    ones = np.ones((6, 1, 1, 1), np.int64)
    assert seen(ones, Window(decay=0.5)).counts.item() == FINE
    newest = np.arange(6).reshape(6, 1, 1, 1) == 5
    half = seen(newest.astype(np.int64), Window(decay=0.5)).counts.item()
    assert half == round(FINE * 32 / 63)


def test_a_forecast_is_used_where_it_pays() -> None:
    drifting = np.stack([np.roll(np.arange(1, 33) ** 2, step)[None, None] for step in range(12)])
    assert decays(drifting.sum(axis=2)).max() < 1
    assert decays(STEADY.sum(axis=2)).tolist() == [1.0, 1.0]
    assert decays(STEADY[:1].sum(axis=2)).tolist() == [1.0, 1.0]
    assert decays(np.zeros((4, 1, 3), np.int64)).tolist() == [1.0]
    alike = np.random.default_rng(0).integers(1, 1000, (1, 1, 64)).repeat(12, axis=0)
    assert decays(alike).tolist() == [1.0]  # shares that differ by rounding alone
    both = seen(np.concatenate([drifting] * 2, axis=1), Window())
    assert both.counts.sum(axis=(1, 2)).tolist() == [both.weight * drifting[0].sum()] * 2


@pytest.mark.parametrize("window", [Window(0), Window(decay=0.0), Window(decay=float("nan"))])
def test_windows_that_are_none_are_refused(window: Window) -> None:
    with pytest.raises(InputError, match="expected"):
        seen(STEADY, window)
