"""What a plan sees of a trace: which steps, and how much each of them counts.

A step of age a (0 is the newest) counts decay^a.  Where the decay is left open it is the one of
`DECAYS` that would have predicted the last steps best from those before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Floats, Int32s, Ints
from railopt.base.errors import InputError

FINE = 1 << 12  # what the whole weights of decayed steps add up to
DECAYS = (1.0, 0.9, 0.65, 0.3)
TRIALS = 8  # of the last steps, each predicted from those before it
PAYS = 0.99  # of the plain sum's error: what a decay must reach to be used
ROUNDING = 1e-9  # error of steps that are all alike


@dataclass(frozen=True)
class Window:
    """The last `steps` steps (None: all), each weighing `decay` times its successor (1: the plain
    sum; None: chosen by `best_decay`).
    """

    steps: int | None = None
    decay: float | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise InputError(f"a window of {self.steps} steps: expected at least 1, or all")
        if self.decay is not None and not 0 < self.decay <= 1:
            raise InputError(f"a decay of {self.decay}: expected more than 0 and at most 1")


WHOLE = Window()


def held_out(steps: int, asked: int | None, least: int = 0) -> int:
    """How many of the last steps no plan sees: a quarter of them where nobody asked."""
    held = min(max(1, steps // 4), steps - 1) if asked is None else asked
    if not least <= held < steps:
        raise InputError(
            f"{held} of {steps} recorded steps held out: expected {least} to {steps - 1}, since a "
            f"plan needs one to see"
        )
    return held


class SeenSteps(NamedTuple):
    """Tokens of several steps as those of `weight` equal ones.

    counts  int64 [layer, source rank, expert], summed by whole weights that add up to `weight`
    weight  iterations that the counts stand for
    decay   what a step weighs of the one after it: 1 is the plain sum
    """

    counts: Ints
    weight: int
    decay: float


def seen(counts: Ints | Int32s, window: Window) -> SeenSteps:
    """What a window shows of counts int [step, layer, source rank, expert] to a plan that serves
    the steps after them.
    """
    decay = window.decay
    shown = counts if window.steps is None else counts[-window.steps :]
    if decay is None:
        decay = best_decay(shown.sum(axis=2, dtype=np.int64))
    if decay == 1:
        return SeenSteps(shown.sum(axis=0, dtype=np.int64), len(shown), decay)
    total = max(FINE, 8 * len(shown))
    weights = _whole_weights(len(shown), decay, total)
    return SeenSteps(np.tensordot(weights, shown.astype(np.int64), 1), total, decay)


def best_decay(load: Ints) -> float:
    """The decay of `DECAYS` by which loads [step, layer, expert] predict the step that follows them
    best; 1 where none is better than the plain sum by 1 %.

    Tried on the last steps recorded: the distance of predicted shares from those that came, summed
    over layers.
    """
    share = load / np.maximum(load.sum(axis=2, keepdims=True), 1)
    error = np.zeros(len(DECAYS))
    for start in range(max(1, len(load) - TRIALS), len(load)):
        for row, decay in enumerate(DECAYS):
            weight = _weights(start, decay)
            guess = np.tensordot(weight / weight.sum(), share[:start], 1)
            error[row] += np.abs(guess - share[start]).sum()
    best = int(error.argmin())
    return DECAYS[best] if error[best] < PAYS * error[0] - ROUNDING else 1.0


def _weights(steps: int, decay: float) -> Floats:
    """float64 [steps], oldest first: decay^age."""
    weights: Floats = decay ** np.arange(steps - 1, -1, -1, dtype=np.float64)
    return weights


def _whole_weights(steps: int, decay: float, total: int) -> Ints:
    """int64 [steps]: whole weights near `_weights` that add up to `total`, what rounding leaves
    over to the largest remainders.
    """
    shares = _weights(steps, decay)
    exact = shares / shares.sum() * total
    weights = np.floor(exact).astype(np.int64)
    order = np.argsort(weights - exact, kind="stable")
    weights[order[: total - int(weights.sum())]] += 1
    return weights
