"""What a plan sees of a trace: whole weights, and a decay where it pays."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.routing.window import DECAYS, FINE, PAYS, TRIALS, Window, best_decay, seen

RNG = np.random.default_rng(0)
STEADY = RNG.multinomial(4000, np.arange(8, 0, -1) / 36, (12, 2, 3))


def test_the_sum_of_a_window_is_exact() -> None:
    shown = seen(STEADY, Window(5, 1.0))
    np.testing.assert_array_equal(shown.counts, STEADY[-5:].sum(axis=0))
    assert shown.weight == 5
    whole = seen(STEADY, Window())
    np.testing.assert_array_equal(whole.counts, STEADY.sum(axis=0))
    assert (whole.weight, whole.decay) == (12, 1)


def test_weights_of_decayed_steps_are_whole_and_add_up() -> None:
    ones = np.ones((6, 1, 1, 1), np.int64)
    assert seen(ones, Window(decay=0.5)).counts.item() == FINE
    newest = np.arange(6).reshape(6, 1, 1, 1) == 5
    half = seen(newest.astype(np.int64), Window(decay=0.5)).counts.item()
    assert half == round(FINE * 32 / 63)


def test_the_decay_is_the_one_that_predicts_best() -> None:
    drifting = np.stack([np.roll(np.arange(1, 33) ** 2, step)[None, None] for step in range(12)])
    assert best_decay(drifting.sum(axis=2)) == min(DECAYS)
    assert best_decay(STEADY.sum(axis=2)) == 1
    assert best_decay(STEADY[:1].sum(axis=2)) == 1
    assert best_decay(np.zeros((4, 1, 3), np.int64)) == 1
    alike = np.random.default_rng(0).integers(1, 1000, (1, 1, 64)).repeat(12, axis=0)
    assert best_decay(alike) == 1  # shares that differ by rounding alone
    shown = seen(drifting, Window())
    assert shown.decay == min(DECAYS)
    assert shown.counts.sum() == shown.weight * drifting[0].sum()


@pytest.mark.parametrize("steps", [2, 5, 9])
def test_the_error_of_each_decay_is_that_of_a_plain_loop(steps: int) -> None:
    load = np.random.default_rng(steps).integers(0, 50, (steps, 2, 6))
    share = load / load.sum(axis=2, keepdims=True)
    errors = []
    for decay in DECAYS:
        error = 0.0
        for at in range(max(1, steps - TRIALS), steps):
            weight = [decay ** (at - 1 - k) for k in range(at)]
            guess = sum(w * share[k] for k, w in enumerate(weight)) / sum(weight)
            error += float(np.abs(guess - share[at]).sum())
        errors.append(error)
    best = int(np.argmin(errors))
    expected = DECAYS[best] if errors[best] < PAYS * errors[0] else 1.0
    assert best_decay(load) == expected


@pytest.mark.parametrize(("steps", "decay"), [(0, None), (None, 0.0), (None, float("nan"))])
def test_windows_that_are_none_are_refused(steps: int | None, decay: float | None) -> None:
    with pytest.raises(InputError, match="expected"):
        Window(steps, decay)
