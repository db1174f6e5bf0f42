"""What a plan sees of a trace: which steps, and how much each of them counts.

A step of age a (0 is the newest) counts decay^a.  Where the decay is left open it is chosen layer
by layer: the one that would have predicted the last steps best from those before them, if it is at
least 5 % better than the plain sum (`railopt.moe.routing.predict.decays`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Floats, Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.routing.predict import decays

FINE = 1 << 12  # what the weights of decayed steps add up to
RECENT = 6  # steps that show how far off a forecast may be


class Window(NamedTuple):
    """The last `steps` steps (None: all), each weighing `decay` times its successor (1: the plain
    sum; None: chosen layer by layer).
    """

    steps: int | None = None
    decay: float | None = None

    def checked(self) -> Window:
        """This window, if there is such a one."""
        if self.steps is not None and self.steps < 1:
            raise InputError(f"a window of {self.steps} steps: expected at least 1, or all")
        if self.decay is not None and not 0 < self.decay <= 1:
            raise InputError(f"a decay of {self.decay}: expected more than 0 and at most 1")
        return self


WHOLE = Window()


class Seen(NamedTuple):
    """Tokens of several steps as those of `weight` equal ones.

    counts  int64 [layer, source rank, expert], summed by whole weights that add up to `weight`
    weight  iterations that the counts stand for
    decay   float64 [layer]: 1 is the plain sum
    recent  int64 [step, layer, expert]: the newest steps' loads where popularity drifts; zeros in
            layers whose decay is 1, since there a single step is noise and no news
    steps   int64 [step, layer, expert]: all steps' loads
    window  what was asked for
    ahead   steps that the plan is to serve; 0: those that it sees
    """

    counts: Ints
    weight: int
    decay: Floats
    recent: Ints
    steps: Ints
    window: Window
    ahead: int


def seen(counts: Ints | Int32s, window: Window, ahead: int = 1) -> Seen:
    """What a window shows of counts int [step, layer, source rank, expert] to a plan that serves
    the `ahead` steps after them, or these steps themselves (0).
    """
    steps, decay = window.checked()
    shown = counts if steps is None else counts[-steps:]
    load = shown.sum(axis=2, dtype=np.int64)
    chosen = decays(load, ahead) if decay is None else np.full(load.shape[1], float(decay))
    rest = (chosen, load[-RECENT:] * (chosen < 1)[:, None], load, window, ahead)
    if np.all(chosen == 1):
        return Seen(shown.sum(axis=0, dtype=np.int64), len(shown), *rest)
    total = max(FINE, 8 * len(shown))
    summed = [
        np.tensordot(_whole(len(shown), d, total), shown[:, layer].astype(np.int64), 1)
        for layer, d in enumerate(chosen.tolist())
    ]
    return Seen(np.stack(summed), total, *rest)


def _whole(steps: int, decay: float, total: int) -> Ints:
    """int64 [steps], oldest first: whole weights near decay^age that add up to `total`, what
    rounding leaves over to the largest remainders.
    """
    shares = decay ** np.arange(steps - 1, -1, -1, dtype=np.float64)
    exact = shares / shares.sum() * total
    weights = np.floor(exact).astype(np.int64)
    order = np.argsort(weights - exact, kind="stable")
    weights[order[: total - int(weights.sum())]] += 1
    return weights
