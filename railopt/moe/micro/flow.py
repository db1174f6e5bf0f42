"""The best split of tokens over given copies: whole tokens, exact.

The goal starts at a load that no split beats.  A GPU over the goal passes tokens on along a
shortest chain of GPUs, each of which has tokens of an expert that the next one holds too, to a GPU
below the goal.  If there is no chain, the GPUs that were reached hold every copy of the experts
whose tokens they have: their mean load, rounded up, is the next goal, and no split beats it either.
So the last goal is the optimum.
"""

from __future__ import annotations

import math
import time

import numpy as np

from railopt.base.arrays import Bools, Ints


def evened(tokens: Ints, has: Bools, deadline: float = math.inf) -> tuple[Ints, Bools]:
    """A split whose largest load is least, int64 [GPU, expert], and the experts, bool [experts],
    whose tokens over the GPUs that have one of them allow no less.  After the `deadline` of
    time.monotonic it is an evener split than was given, at best.

    tokens   int64 [GPU, expert]: any split
    has      bool [GPU, expert]: who may compute what
    """
    tokens = tokens.copy()
    load = tokens.sum(axis=1)
    goal = -(-int(load.sum()) // len(load))
    tight: Bools = np.ones(has.shape[1], np.bool_)
    while load[full := int(load.argmax())] > goal and time.monotonic() < deadline:
        before = _reached(full, load < goal, tokens, has)
        ends = np.flatnonzero((load < goal) & (before >= 0))
        if len(ends):
            _pass_on(int(ends[0]), int(load[full] - goal), goal, before, (tokens, has, load))
        else:
            inside = before >= 0
            goal = -(-int(load[inside].sum()) // int(inside.sum()))
            tight = np.any(tokens[inside] > 0, axis=0)
    return tokens, tight


def _reached(start: int, ends: Bools, tokens: Ints, has: Bools) -> Ints:
    """int64 [GPU]: from which GPU each is reached, -1 if it is not, the start from itself; breadth
    first, until one of `ends` is.
    """
    before = np.full(len(has), -1, np.int64)
    before[start] = start
    layer, seen = np.array([start]), np.zeros(has.shape[1], np.bool_)
    while len(layer) and not np.any(ends & (before >= 0)):
        given = tokens[layer] > 0
        fresh = given.any(axis=0) & ~seen  # who has one of the others is reached already
        seen |= fresh
        linked = given[:, fresh].astype(np.float32) @ has[:, fresh].T.astype(np.float32) > 0
        onward = linked & (before < 0)
        found = np.flatnonzero(onward.any(axis=0))
        before[found] = layer[onward[:, found].argmax(axis=0)]
        layer = found
    return before


def _pass_on(end: int, over: int, goal: int, before: Ints, state: tuple[Ints, Bools, Ints]) -> None:
    """Move tokens along the chain that ends here, as many as the GPU at its start has over the
    goal, this one has room for, and every link can carry.
    """
    tokens, has, load = state
    links = []
    amount, target = min(over, goal - int(load[end])), end
    while (source := int(before[target])) != target:
        able = np.where(has[target], tokens[source], 0)
        expert = int(able.argmax())
        links.append((source, target, expert))
        amount, target = min(amount, int(able[expert])), source
    for giver, taker, expert in links:
        tokens[giver, expert] -= amount
        tokens[taker, expert] += amount
    load[target] -= amount
    load[end] += amount
