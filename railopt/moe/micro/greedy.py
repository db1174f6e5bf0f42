"""Copies and split in microseconds: full GPUs give, the emptiest take.

A *part* is the tokens of one expert on one GPU.  A trial has a goal, the load that no GPU shall
pass.  While a GPU is over it, the largest part of such a GPU gives tokens to the emptiest GPU that
may take them: one that holds the expert already, else one with a spare slot.  That GPU is then full
or the part is gone, so a trial ends after at most parts + GPUs steps.

A *careful* trial takes from a GPU only what it has over the goal.  A *bold* one lets the whole part
go, and the giver, now below the goal, takes from others into its own slots.  With as many slots per
GPU as it has experts this reaches any goal that is no less than the mean (theorem T15c).

Goals: what no plan can beat, plus the slack that is allowed; if both trials miss it, halfway
between it and the best load so far, and so on.  Whole numbers, ties to the lowest place: a kernel
for GPUs gives the same plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel, part

NO, MAY, HAS = 0, 1, 2  # whether a GPU holds an expert: it can't, it may take a copy, it does
HALVINGS = 8  # goals that are tried after the first


class SlotTables(NamedTuple):
    """One layer's placement, the same for every micro-batch.

    expert, rank   int32 [parts]: the experts that GPUs hold, GPU by GPU
    first          int32 [GPUs + 1]: where each GPU's parts begin
    holders        int32 [experts]: GPUs that hold each
    place          uint8 [experts, GPUs]: NO, MAY or HAS
    spare          int32 [GPUs]: free slots
    node           int32 [experts]: the node that an expert can't leave, -1 where it can
    gpus           GPUs per node
    """

    expert: Array
    rank: Array
    first: Array
    holders: Array
    place: Array
    spare: Array
    node: Array
    gpus: int


class TokenParts(NamedTuple):
    """A plan, or a trial that becomes one: the layer's parts, then those in spare slots.

    expert, rank, tokens   int32, int32, int64 [parts + slots]
    load                   int64 [GPUs], tokens
    spare                  int32 [GPUs]: slots that are free
    place                  uint8 [experts, GPUs]
    stuck                  bool [parts]: no GPU can take from it
    used                   int64 [1]: parts that there are
    """

    expert: Array
    rank: Array
    tokens: Array
    load: Array
    spare: Array
    place: Array
    stuck: Array
    used: Array


def parts_of(layer: SlotTables) -> TokenParts:
    """Room for a plan of this layer."""
    count, ranks = len(layer.expert), len(layer.spare)
    room = np.zeros(int(layer.spare.sum()), np.int32)
    return TokenParts(
        np.concatenate([layer.expert, room]),
        np.concatenate([layer.rank, room]),
        np.zeros(count + len(room), np.int64),
        np.zeros(ranks, np.int64),
        layer.spare.copy(),
        layer.place.copy(),
        np.zeros(count, np.bool_),
        np.array([count], np.int64),
    )


# compiles for 5 s, with the parts it calls: 256 experts on 64 GPUs take 0.08 ms, 11 interpreted
@kernel
def balance(
    layer: SlotTables, counts: Array, slack: int, work: tuple[TokenParts, TokenParts, TokenParts]
) -> int:
    """Plan one micro-batch: `counts` int64 [experts] are its tokens, `slack` what the goal lies
    above the least that can be, in 1/1024 of it.

    work   the plan without copies, a trial, and the best plan, which is the result
    Returns the largest load of the best plan.
    """
    start, trial, best = work
    high = _start(layer, counts, start)
    _copy(start, best)
    if trial.tokens.size == layer.expert.size == counts.size:
        return int(high)  # nowhere to go
    low = least(layer, counts)
    goal = low + low * slack // 1024
    for _ in range(1 + HALVINGS):
        if high <= goal:
            break
        for bold in (slack == 0, slack != 0):  # careful ones make fewer copies where there is slack
            reached = _try(goal, bold, layer, start, trial)
            if reached < high:
                high = reached
                _copy(trial, best)
            if reached <= goal:
                break
        low = goal
        goal = (low + high) // 2
        if goal == low:
            break
    return int(high)


@kernel
def least(layer: SlotTables, counts: Array) -> int:
    """A load that the fullest GPU has whatever the copies: the mean, of all GPUs and of each node
    over the experts that can't leave it, rounded up.
    """
    ranks, total = layer.spare.size, 0
    inside = np.zeros(ranks // layer.gpus, np.int64)
    for e in range(counts.size):
        total += counts[e]
        if layer.node[e] >= 0:
            inside[layer.node[e]] += counts[e]
    return int(max(-(-total // ranks), -(-_largest(inside) // layer.gpus)))


@part
def _start(layer: SlotTables, counts: Array, start: TokenParts) -> int:
    """No copies: experts held once first, then the others, each filling up its emptiest holders;
    the largest load.
    """
    for r in range(start.load.size):
        start.load[r] = 0
    for p in range(layer.expert.size):
        e = layer.expert[p]
        if layer.holders[e] == 1:
            start.tokens[p] = counts[e]
            start.load[layer.rank[p]] += counts[e]
    for e in range(counts.size):
        if layer.holders[e] > 1:
            _fill(e, counts[e], layer, start)
    return int(_largest(start.load))


@part
def _fill(e: int, count: int, layer: SlotTables, start: TokenParts) -> None:
    """Pour tokens on the holders of expert e, the emptiest first, up to one level."""
    low, high = 0, _largest(start.load) + count
    while low < high:  # the least level that takes them all
        level, room = (low + high) // 2, 0
        for r in range(start.load.size):
            if layer.place[e, r] == HAS:
                room += max(0, level - start.load[r])
        if room >= count:
            high = level
        else:
            low = level + 1
    for p in range(layer.expert.size):
        if layer.expert[p] == e:
            r = layer.rank[p]
            start.tokens[p] = min(count, max(0, low - start.load[r]))
            start.load[r] += start.tokens[p]
            count -= start.tokens[p]


@part
def _largest(load: Array) -> int:
    most = load[0]
    for r in range(1, load.size):
        most = max(most, load[r])
    return int(most)


@part
def _copy(source: TokenParts, target: TokenParts) -> None:
    """Make `target` the same plan."""
    target.used[0] = source.used[0]
    for p in range(source.used[0]):
        target.expert[p], target.rank[p] = source.expert[p], source.rank[p]
        target.tokens[p] = source.tokens[p]
    for r in range(source.load.size):
        target.load[r] = source.load[r]


@part
def _begin(layer: SlotTables, start: TokenParts, trial: TokenParts) -> None:
    """A trial begins without copies, every slot free."""
    _copy(start, trial)
    for r in range(trial.load.size):
        trial.spare[r] = layer.spare[r]
    for e in range(layer.place.shape[0]):
        for r in range(layer.place.shape[1]):
            trial.place[e, r] = layer.place[e, r]
    _unstick(trial)


@part
def _unstick(trial: TokenParts) -> None:
    for p in range(trial.stuck.size):
        trial.stuck[p] = False


@part
def _try(goal: int, bold: bool, layer: SlotTables, start: TokenParts, trial: TokenParts) -> int:
    """A trial for this goal; the largest load that it ends with."""
    _begin(layer, start, trial)
    while True:
        p = _giver(goal, bold, layer, trial)
        if p < 0:
            return int(_largest(trial.load))
        source, target = trial.rank[p], _taker(goal, trial.expert[p], trial)
        if target < 0:
            trial.stuck[p] = True
            continue
        spared = trial.tokens[p] if bold else min(trial.tokens[p], trial.load[source] - goal)
        amount = min(spared, goal - trial.load[target])
        _hand_over(p, target, amount, trial)
        if trial.load[source] < goal:
            _unstick(trial)  # there is room again


@part
def _giver(goal: int, bold: bool, layer: SlotTables, trial: TokenParts) -> int:
    """The part that can give most, -1 if none can."""
    best, most = -1, 0
    for r in range(trial.load.size):
        over = trial.load[r] - goal
        if over <= 0 or (over <= most and not bold):
            continue
        for p in range(layer.first[r], layer.first[r + 1]):
            spared = trial.tokens[p] if bold else min(trial.tokens[p], over)
            if spared > most and not trial.stuck[p]:
                best, most = p, spared
    return best


@part
def _taker(goal: int, e: int, trial: TokenParts) -> int:
    """The emptiest GPU below the goal that holds expert e, else that may take a copy; -1 if there
    is none.
    """
    best, kind, room = -1, MAY, 0
    for r in range(trial.load.size):
        free = goal - trial.load[r]
        if free <= 0:
            continue
        place = trial.place[e, r]
        if place == kind and free <= room:
            continue
        if place > kind or (place == kind and (place == HAS or trial.spare[r] > 0)):
            best, kind, room = r, place, free
    return best


@part
def _hand_over(p: int, target: int, amount: int, trial: TokenParts) -> None:
    """Move tokens of part p to a GPU: into its part of that expert, which is made if need be."""
    e = trial.expert[p]
    if trial.place[e, target] == HAS:
        q = 0
        while trial.expert[q] != e or trial.rank[q] != target:
            q += 1
    else:
        q = trial.used[0]
        trial.used[0] += 1
        trial.expert[q], trial.rank[q], trial.tokens[q] = e, target, 0
        trial.place[e, target] = HAS
        trial.spare[target] -= 1
    trial.tokens[p] -= amount
    trial.tokens[q] += amount
    trial.load[trial.rank[p]] -= amount
    trial.load[target] += amount
