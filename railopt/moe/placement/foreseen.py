"""Plans for the steps that follow, where EPLB's plan on the same steps should be no better.

A layer gets one of two plans:

    ours    replicas by the forecast, hedged (`replicate`, `hedge`)
    EPLB's  for the plain sum, mended: no expert twice on a GPU

EPLB's has EPLB's loads to the token on every step, but for what was mended.  So it is taken unless
the steps seen speak for ours:

    where a layer stands still  plans on every other step are scored on the steps between: ours has
                                to be lower by `SURE` standard errors
    where it drifts             for one step ahead the forecast has been tried already (`decays`);
                                for several, plans on the first steps are scored on as many after
                                them, and the mean gain of all such layers has to reach the standard
                                deviation of one, so that few lose
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s, Ints
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.placement import slot_gpus
from railopt.moe.placement.replicate import balance, hierarchical, rebalance
from railopt.moe.routing.window import WHOLE, Seen, seen

TRIES = 64  # shaken packings of a layer that stands still
SURE = 4.0  # standard errors by which ours must be lower where a layer stands still
TRIALS = 8  # plans on first steps, the newest ones
FEWEST = 4  # steps that the first of these plans sees
AGED = 0.9  # of the step after it, what one weighs in a mend where a layer drifts
CAUTION = 2.0  # standard errors of a mend's loss that count as loss


class Sizes(NamedTuple):
    """Of EPLB's problem; `gpus` counts all GPUs."""

    replicas: int
    groups: int
    nodes: int
    gpus: int


class Foreseen(NamedTuple):
    """phy2log  int32 [layers, replicas], slots in GPU order
    ours     bool [layer]: whether the plan is ours; else EPLB's, mended
    """

    phy2log: Int32s
    ours: Bools


def foreseen(shown: Seen, sizes: Sizes) -> Foreseen:
    """A plan for the steps after those `shown`.

    Ours alone where the GPUs do not divide the replicas (EPLB has no plan then), where one step is
    all there is, and where the plan is for the steps shown themselves.
    """
    made, drifts = _ours(shown, sizes), shown.decay < 1
    if shown.ahead == 0 or len(shown.steps) < 2 or sizes.replicas % sizes.gpus:
        return Foreseen(made, np.ones(len(made), np.bool_))
    ours = np.full(len(made), _forecast_pays(shown, drifts, sizes))
    ours[~drifts] = _evener(shown.steps[:, ~drifts], sizes)
    theirs = np.flatnonzero(~ours)
    if len(theirs):
        plain = eplb(shown.steps[:, theirs].sum(axis=0), *sizes)
        for row, layer in zip(plain, theirs.tolist(), strict=True):
            aged = AGED if drifts[layer] else 1.0
            made[layer] = mended(row, shown.steps[:, layer], aged, sizes)
    return Foreseen(made, ours)


def _ours(shown: Seen, sizes: Sizes) -> Int32s:
    return rebalance(shown.counts.sum(axis=1), *sizes, shown.recent, TRIES)[0]


def _peaks(steps: Ints, plan: Int32s, gpus: int) -> Floats:
    """max/mean GPU load, float64 [step, layer], of steps [step, layer, expert]."""
    return np.stack([balance(step, plan, gpus) for step in steps])


def _evener(steps: Ints, sizes: Sizes) -> Bools:
    """bool [layer]: whether our plan for the sum of every other step is surely lower, on the steps
    between, than EPLB's.
    """
    lower = np.empty(steps.shape[:2])
    if not lower.size:
        return np.empty(0, np.bool_)
    for first in (0, 1):
        total, other = steps[first::2].sum(axis=0), steps[1 - first :: 2]
        ours, theirs = rebalance(total, *sizes, tries=TRIES)[0], eplb(total, *sizes)
        both = (_peaks(other, plan, sizes.gpus) for plan in (theirs, ours))
        lower[1 - first :: 2] = np.subtract(*both)
    error = lower.std(axis=0, ddof=1) / len(lower) ** 0.5
    return lower.mean(axis=0) >= SURE * error


def _forecast_pays(shown: Seen, drifts: Bools, sizes: Sizes) -> bool:
    """Whether plans on a forecast have served as many steps as this one is to, in the layers that
    drift; for one step, and with a decay that was asked for, they need not.
    """
    if shown.ahead == 1 or shown.window.decay is not None or not drifts.any():
        return True
    steps = shown.steps[:, drifts]
    ahead = max(1, min(shown.ahead, len(steps) // 3))
    gains = []
    for start in range(max(FEWEST, len(steps) - ahead - TRIALS + 1), len(steps) - ahead + 1):
        ours = _ours(seen(steps[:start, :, None], WHOLE, ahead), sizes)
        theirs = eplb(steps[:start].sum(axis=0), *sizes)
        later = steps[start : start + ahead]
        one, other = (_peaks(later, p, sizes.gpus).mean(axis=0) for p in (ours, theirs))
        gains.append(1 - one / other)
    return bool(gains) and bool(np.mean(gains) >= np.std(gains))


def mended(plan: Int32s, steps: Ints, aged: float, sizes: Sizes) -> Int32s:
    """One layer's plan int32 [replicas] without two replicas of an expert on a GPU: one by one each
    twin is exchanged for another GPU's replica, or made a copy of another expert, whichever raises
    the largest load of steps [step, expert] least.

    A mend's loss is the mean rise over steps, a step weighing `aged` of the one after it, and
    `CAUTION` standard errors of it.  With groups, experts stay on their node.
    """
    replicas, groups, nodes, gpus = sizes
    parts = nodes if hierarchical(steps.shape[1], replicas, groups, nodes, gpus) else 1
    weight = aged ** np.arange(len(steps) - 1, -1, -1, dtype=np.float64)
    made = []
    for mine in plan.reshape(parts, -1):
        experts, slots = np.unique(mine, return_inverse=True)
        load = steps[:, experts].astype(np.float64)
        some = load.any(axis=1)
        if not some.any():
            some, load = np.ones_like(some), np.ones_like(load)
        share = load[some] / load[some].sum(axis=1, keepdims=True)
        one = _without_twins(slots, share, weight[some] / weight[some].sum(), gpus // parts)
        made.append(experts[one])
    return np.concatenate(made).astype(np.int32)


class _Packed(NamedTuple):
    """slots  int64 [slot]: experts;  owner int64 [slot]: their GPUs
    held   int64 [expert, GPU]: replicas;  share float64 [step, expert];  load float64 [step, GPU]
    """

    slots: Ints
    owner: Ints
    held: Ints
    share: Floats
    load: Floats


def _packed(slots: Ints, share: Floats, gpus: int) -> _Packed:
    owner = slot_gpus(len(slots), gpus).astype(np.int64)
    held = np.zeros((share.shape[1], gpus), np.int64)
    np.add.at(held, (slots, owner), 1)
    return _Packed(slots, owner, held, share, share @ (held / held.sum(axis=1, keepdims=True)))


def _without_twins(slots: Ints, share: Floats, weight: Floats, gpus: int) -> Ints:
    """Every mend takes a twin away.  There always is one: a GPU with twins lacks an expert, since
    it has no more slots than there are experts.
    """
    now = _packed(slots, share, gpus)
    plain = now.load.max(axis=1)
    while True:
        twins = np.flatnonzero(now.held[now.slots, now.owner] > 1)
        if not len(twins):
            return now.slots
        least, best = np.inf, now.slots
        for slot in twins.tolist():
            for peaks, change in ((_exchanged(now, slot), True), (_given(now, slot), False)):
                losses = _loss(peaks - plain[:, None], weight)
                other = int(losses.argmin())
                if losses[other] < least:
                    least, best = float(losses[other]), now.slots.copy()
                    best[slot] = now.slots[other] if change else other
                    if change:
                        best[other] = now.slots[slot]
        now = _packed(best, share, gpus)


def _loss(rise: Floats, weight: Floats) -> Floats:
    """float64 [choice] of rises [step, choice], infinite where one cannot be chosen."""
    allowed = np.isfinite(rise[0])
    result = np.full(rise.shape[1], np.inf)
    mean = weight @ rise[:, allowed]
    spread = weight @ (rise[:, allowed] - mean) ** 2
    result[allowed] = mean + CAUTION * np.sqrt(spread * (weight**2).sum())
    return result


def _exchanged(now: _Packed, slot: int) -> Floats:
    """float64 [step, slot]: the largest load after an exchange with each slot."""
    slots, owner, held, share, load = now
    expert, gpu = slots[slot], owner[slot]
    each = share / held.sum(axis=1)
    shift = each[:, [expert]] - each[:, slots]
    rest = load.copy()
    rest[:, gpu] = 0
    first = rest.argmax(axis=1)
    most = rest.max(axis=1)
    rest[np.arange(len(rest)), first] = 0
    beside = np.where(owner == first[:, None], rest.max(axis=1)[:, None], most[:, None])
    peaks = np.maximum(beside, np.maximum(load[:, [gpu]] - shift, load[:, owner] + shift))
    peaks[:, (owner == gpu) | (held[expert, owner] > 0) | (held[slots, gpu] > 0)] = np.inf
    return peaks


def _given(now: _Packed, slot: int) -> Floats:
    """float64 [step, expert]: the largest load when the slot is given to each expert."""
    slots, owner, held, share, load = now
    expert, gpu = slots[slot], owner[slot]
    copies = held.sum(axis=1)
    here = np.arange(held.shape[1]) == gpu
    fewer = (held[expert] - here) / (copies[expert] - 1) - held[expert] / copies[expert]
    more = (held + here) / (copies + 1)[:, None] - held / copies[:, None]
    without = load + share[:, [expert]] * fewer
    peaks = (without[:, None, :] + share[:, :, None] * more).max(axis=2)
    peaks[:, held[:, gpu] > 0] = np.inf
    return peaks
