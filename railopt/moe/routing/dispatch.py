"""Trace + placement -> Traffic: who sends how many bytes to whom in the all-to-alls of an MoE
layer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Int32s, Ints
from railopt.base.errors import InputError
from railopt.model.traffic import Traffic
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import Trace

RULES = ("home", "near", "even")
MAX_SHARES = 1 << 27  # [source GPU, expert, destination GPU], 8 bytes each


def split(
    counts: npt.ArrayLike, holds: Bools, home: npt.ArrayLike, gpus: int, rule: str = "home"
) -> Ints:
    """Tokens of each source by expert -> int64 [source GPU, expert, destination GPU].

    counts  int [source GPU, expert]; holds bool [GPU, expert]; home int [expert]; gpus per node
    rule    "home": own GPU, else the first GPU of the node that holds the expert, else the home
            (what the planners assume) "near": own GPU, else the holders in the node evenly, else
            all holders evenly "even": all holders evenly (what EPLB assumes)

    Even shares are whole tokens; what is left over goes to holders that differ from source to
    source.
    """
    _check_rule(holds, rule)
    tokens = np.asarray(counts, np.int64)
    result = np.zeros((*tokens.shape, len(tokens)), np.int64)
    for expert, eligible in enumerate(eligible_gpus(holds, home, gpus, rule)):
        result[:, expert] = _even(tokens[:, expert], eligible, expert)
    return result


def flows(
    counts: npt.ArrayLike, holds: Bools, home: npt.ArrayLike, gpus: int, rule: str = "home"
) -> Ints:
    """int64 [source GPU, destination GPU]: `split`, summed over experts as they come."""
    _check_rule(holds, rule)
    tokens = np.asarray(counts, np.int64)
    result: Ints = np.zeros((len(tokens), len(tokens)), np.int64)
    if np.count_nonzero(holds) == holds.shape[1]:  # one copy of each: every rule sends to it
        np.add.at(result.T, np.asarray(home, np.int64), tokens.T)
        return result
    for expert, eligible in enumerate(eligible_gpus(holds, home, gpus, rule)):
        result += _even(tokens[:, expert], eligible, expert)
    return result


def gpu_loads(
    counts: Ints | Int32s, holds: Bools, home: npt.ArrayLike, gpus: int, rule: str
) -> Floats:
    """float64 [step, GPU]: tokens that each GPU computes, of counts int [step, source GPU, expert];
    as `split`, but shares are exact instead of whole tokens.
    """
    _check_rule(holds, rule)
    load = np.zeros((len(counts), len(holds)))
    for expert, eligible in enumerate(eligible_gpus(holds, home, gpus, rule)):
        if rule == "even":  # the same for every source
            load += np.outer(counts[:, :, expert].sum(axis=1), eligible[0] / eligible[0].sum())
        else:
            load += counts[:, :, expert] @ (eligible / eligible.sum(axis=1, keepdims=True))
    return load


def require_rule(rule: str) -> None:
    """Refuse a rule that is none of RULES."""
    if rule not in RULES:
        raise InputError(f"unknown rule {rule!r}; known rules: {', '.join(RULES)}")


def _check_rule(holds: Bools, rule: str) -> None:
    devices, experts = holds.shape
    require_rule(rule)
    if devices * devices * experts > MAX_SHARES:
        raise InputError(
            f"{experts} experts on {devices} GPUs: {devices} x {experts} x {devices} shares of "
            f"tokens, at most {MAX_SHARES} are counted"
        )


def eligible_gpus(holds: Bools, home: npt.ArrayLike, gpus: int, rule: str) -> Iterator[Bools]:
    """The GPUs that each source's tokens may go to, bool [source GPU, destination GPU], expert by
    expert.
    """
    owner = np.asarray(home, np.int64)
    devices, experts = holds.shape
    node = np.arange(devices) // gpus
    same = node[:, None] == node[None, :]
    for expert in range(experts):
        held = holds[:, expert]
        eligible = np.broadcast_to(held, (devices, devices)).copy()
        if rule != "even":
            nearby = same & held
            eligible = np.where(nearby.any(axis=1)[:, None], nearby, eligible)
            if rule == "home":
                eligible = _first_or_home(nearby, owner[expert], same)
            own = np.flatnonzero(held)
            eligible[own] = False
            eligible[own, own] = True
        yield eligible


def _first_or_home(nearby: Bools, owner: int, same: Bools) -> Bools:
    first = nearby & (np.cumsum(nearby, axis=1) == 1)
    away = ~nearby.any(axis=1) | same[:, owner]
    first[away] = False
    first[away, owner] = True
    return first


def _even(tokens: Ints, eligible: Bools, turn: int) -> Ints:
    """Whole shares of tokens [source] over the eligible destinations of each source."""
    number = eligible.sum(axis=1)
    if np.any((number == 0) & (tokens > 0)):
        raise InputError(f"expert {turn}: no GPU holds it")
    share, rest = np.divmod(tokens, np.maximum(number, 1))
    position = np.cumsum(eligible, axis=1) - 1
    shift = (position + np.arange(len(tokens))[:, None] + turn) % np.maximum(number, 1)[:, None]
    whole: Ints = np.where(eligible, share[:, None] + (shift < rest[:, None]), 0)
    return whole


def dispatch(
    trace: Trace,
    placement: Placement,
    iteration: int,
    layer: int,
    *,
    token_bytes: int,
    rule: str = "home",
) -> Traffic:
    """The bytes of the dispatch all-to-all of one layer; the combine is its transpose (`combine`).

    A token is sent once for each of its experts (`tokens_of_choices` sends it once to a node).

    iteration  a recorded training iteration (-1: the last); layer  a layer of the trace
    """
    trace.expect(ranks=placement.devices, experts=placement.experts)
    if len(trace.layers) != placement.layers:
        raise InputError(
            f"a placement of {placement.layers} layers for a trace of {len(trace.layers)}"
        )
    column = trace.column(layer)
    counts = trace.counts[trace.row(iteration), column]
    return Traffic(sent(counts, placement, column, rule) * token_bytes, placement.nodes)


def sent(counts: Ints | Int32s, placement: Placement, column: int, rule: str) -> Ints:
    """int64 [GPU, GPU]: tokens that leave their GPU, of counts int [source GPU, expert] in one of
    the placement's layers.
    """
    flow = flows(counts, placement.holds[column], placement.home[column], placement.gpus, rule)
    np.fill_diagonal(flow, 0)
    return flow


def combine(traffic: Traffic) -> Traffic:
    """The way back: every byte of the dispatch returns to its sender."""
    return Traffic(np.ascontiguousarray(traffic.bytes.T), traffic.nodes)


def target_gpus(
    rank: Ints,
    chosen: npt.NDArray[np.int16],
    holds: Bools,
    home: Ints | npt.NDArray[np.int32],
    gpus: int,
    rule: str,
) -> Ints:
    """int64 as `chosen` [tokens, top_k]: the destination GPU of each token's experts; `rank`
    [tokens] are their sources.
    """
    devices, experts = holds.shape
    if np.count_nonzero(holds) == experts:  # one copy of each: every rule sends to it
        return home.astype(np.int64)[chosen]
    key = (rank[:, None] * experts + chosen).reshape(-1)
    counts = np.bincount(key, minlength=devices * experts).reshape(devices, experts)
    shares = split(counts, holds, home, gpus, rule)
    order = np.argsort(key, kind="stable")
    target = np.empty(len(key), np.int64)
    target[order] = np.repeat(np.tile(np.arange(devices), devices * experts), shares.reshape(-1))
    return target.reshape(chosen.shape)
