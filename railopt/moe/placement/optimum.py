"""The best placement of one layer under the time model, for layers that are not large, and what is
known of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Ints
from railopt.base.errors import BackendError, InputError
from railopt.base.extras import need
from railopt.base.processes import ChildOutput, ask
from railopt.evidence.bracket import Bracket, Status
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.layer_times import exhaust
from railopt.moe.placement.program import SCALE, build
from railopt.moe.placement.prophet import evaluate, homes, layer_of, pro_prophet, room

EXHAUSTIVE = 20  # (GPU, expert) pairs up to which every placement is tried
MAX_LIMIT_S = 30 * 86400.0
LARGEST = 10_000  # pairs up to which an integer program is built


class LayerOptimum(NamedTuple):
    """The best placement of one layer that was found, and what is known of the optimum.

    holds        bool [GPU, expert], homes included
    bracket      picoseconds.  Known, in integers, where every placement was tried or no GPU
                 computes more than the mean; what a solver says is claimed
    interrupted  whether the user stopped the solver
    """

    holds: Bools
    bracket: Bracket
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class _BoundedLayer:
    """tokens int64 [GPU, expert], owner int64 [expert], cap int64 [GPU] experts it may hold, most
    copies beyond the homes in all.
    """

    model: TimeModel
    tokens: Ints
    owner: Ints
    cap: Ints
    most: int

    def total(self, holds: Bools) -> int:
        return evaluate(self.model, self.tokens, holds, home=self.owner).total

    def fits(self, holds: Bools) -> bool:
        """Whether every expert is at home, no GPU holds too many and copies are not too many."""
        return bool(
            holds[self.owner, np.arange(len(self.owner))].all()
            and (holds.sum(axis=1) <= self.cap).all()
            and holds.sum() - len(self.owner) <= self.most
        )

    @property
    def least(self) -> int:
        """No placement's total is below this: 3 FEC at the mean load."""
        mean = -(-int(self.tokens.sum()) // self.model.devices)
        return 3 * mean * self.model.token_ps


def optimal(
    model: TimeModel,
    counts: npt.ArrayLike,
    *,
    home: npt.ArrayLike | None = None,
    slots: int | None = None,
    limit: int | None = None,
    limit_s: float | None = 30.0,
) -> LayerOptimum:
    """The least total of `model` over every set of copies: all of them tried out, or an integer
    program where they are too many.

    The program runs for at most `limit_s` seconds in a process of its own; what it has found by
    then counts, and the placement is never worse than `pro_prophet`'s.  None: no program runs.
    """
    if limit_s is not None and not 0 < limit_s < MAX_LIMIT_S:
        raise InputError(f"a limit of {limit_s} s: expected more than 0, and less than a month")
    tokens = model.counts(counts)
    owner = homes(model, tokens, home)
    layer = _BoundedLayer(model, tokens, owner, *room(tokens, owner, model.devices, slots, limit))
    pairs = tokens.size - len(owner)
    if pairs <= EXHAUSTIVE:
        total, holds = exhaust(layer_of(model, tokens, owner), layer.cap, layer.most)
        value = Fraction(int(total))
        known = Bracket(value, value, Status.KNOWN, by="every placement tried")
        return LayerOptimum(np.ascontiguousarray(holds.T), known)
    if limit_s is not None and pairs > LARGEST:
        raise InputError(
            f"{pairs} possible copies: an integer program takes at most {LARGEST}; use a smaller "
            f"layer"
        )
    start = pro_prophet(model, tokens, home=owner, slots=slots, limit=limit)
    if limit_s is None or layer.total(start) == layer.least:
        return _from_path(layer, start)
    need("ortools", "the optimum of a layer this large")
    program = build(model, tokens, owner, layer.cap, layer.most, start)
    return _best(layer, start, ask("railopt.moe.placement.program", program.save, limit_s))


def _from_path(layer: _BoundedLayer, holds: Bools) -> LayerOptimum:
    """A placement against the bound of the mean load alone."""
    value, bound = layer.total(holds), layer.least
    status = Status.KNOWN if value == bound else Status.OPEN
    by = "no GPU computes more than the mean" if status is Status.KNOWN else "the mean load"
    return LayerOptimum(holds, Bracket(Fraction(value), Fraction(bound), status, by=by))


def _best(layer: _BoundedLayer, start: Bools, output: ChildOutput) -> LayerOptimum:
    """The best of `start` and the placements that the solver named, each checked and evaluated
    here, and the highest bound that it claimed.
    """
    if output.failure and not output.ended.timed_out and not output.lines:
        raise BackendError(f"HiGHS {output.failure}")
    chosen, value, bound = start, layer.total(start), layer.least
    for answer in map(json.loads, output.lines):
        if answer["bound"] is not None:
            bound = max(bound, int(np.floor(answer["bound"] * SCALE)))
        if answer["chosen"] is None:
            continue
        flat = np.zeros(layer.tokens.size, np.bool_)
        flat[answer["chosen"]] = True
        holds = np.ascontiguousarray(flat.reshape(layer.tokens.shape[::-1]).T)
        if layer.fits(holds) and (total := layer.total(holds)) < value:
            chosen, value = holds, total
    status = Status.CLAIMED if value <= bound else Status.OPEN
    by = f"HiGHS of OR-Tools {version('ortools')}"
    known = Bracket(Fraction(value), Fraction(min(value, bound)), status, by=by)
    return LayerOptimum(chosen, known, output.ended.interrupted)
