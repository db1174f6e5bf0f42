"""The Pro-Prophet planner and its relatives: lightweight placement of one layer's experts under the
time model.

`pro_prophet` here is the paper's greedy idea (arXiv 2411.10003, algorithm 1) with three changes.
How many devices get a copy is chosen for each expert, the model knows nodes and rails, and copies
of the greedy path that do not pay are removed.  `shadow` is FasterMoE's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Ints
from railopt.base.errors import InputError
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.placement.layer_times import LayerTables, combine, start, terms
from railopt.moe.placement.placement import contiguous_home
from railopt.moe.placement.prophet_greedy import plan_layer


def homes(model: TimeModel, counts: Ints, home: npt.ArrayLike | None) -> Ints:
    """The home GPU of each expert, int64 [experts]; contiguous where none are given."""
    if home is None:
        return _contiguous(counts.shape[1], model.devices).copy()
    owner = np.ascontiguousarray(home, np.int64)
    if owner.shape != (counts.shape[1],) or owner.min() < 0 or owner.max() >= model.devices:
        raise InputError(
            f"homes of shape {owner.shape}: expected {counts.shape[1]} GPUs from 0 to "
            f"{model.devices - 1}"
        )
    return owner


@lru_cache(64)
def _contiguous(experts: int, devices: int) -> Ints:
    """`contiguous_home`, made once: a planner asks for it in every layer and iteration."""
    return contiguous_home(experts, devices).astype(np.int64)


@lru_cache(64)
def _places(nodes: int, gpus: int) -> Ints:
    """The node of each GPU, made once."""
    return np.repeat(np.arange(nodes), gpus)


def layer_of(
    model: TimeModel, tokens: Ints, owner: Ints, have: npt.ArrayLike | None = None
) -> LayerTables:
    """What the kernels read; tokens int64 and have bool [GPU, expert].  Tokens are copied: kernels
    would be compiled once more for a read-only view.
    """
    there = np.zeros(tokens.shape[::-1], np.bool_) if have is None else by_expert(have)
    place = _places(model.nodes, model.gpus)
    return LayerTables(*model.vectors, np.array(tokens.T, order="C"), owner, place, there)


def by_expert(table: npt.ArrayLike) -> Bools:
    """A table [GPU, expert] as the kernels read it, bool [expert, GPU]."""
    return np.array(np.asarray(table, np.bool_).T, order="C")


def evaluate(
    model: TimeModel,
    counts: npt.ArrayLike,
    holds: npt.ArrayLike | None = None,
    *,
    home: npt.ArrayLike | None = None,
    have: npt.ArrayLike | None = None,
) -> Terms:
    """The layer's time under a placement: counts [GPU, expert], holds bool [GPU, expert], have =
    copies already there.
    """
    tokens = model.counts(counts)
    layer = layer_of(model, tokens, homes(model, tokens, home), have)
    _, times = start(layer, by_expert(np.zeros_like(tokens) if holds is None else holds))
    return Terms(*(int(t) for t in terms(model.devices, times, layer.scalars)))


def measure(
    model: TimeModel,
    flow: Ints,
    counts: npt.ArrayLike,
    holds: Bools,
    *,
    home: npt.ArrayLike | None = None,
    have: npt.ArrayLike | None = None,
) -> Terms:
    """The layer's time when tokens are split over replicas as given: flow int64 [source,
    destination] of counts [source, expert].

    Agrees with `evaluate` for flows of the rule "home" (railopt.moe.routing.dispatch.flows).
    """
    place = np.arange(model.devices) // model.gpus
    mates = (place[:, None] == place[None, :]) & ~np.eye(model.devices, dtype=np.bool_)
    across = flow * (place[:, None] != place[None, :])
    nodes = across.reshape(model.nodes, model.gpus, model.nodes, model.gpus).sum(axis=(1, 3))
    a2a = max(
        int((nodes.sum(axis=0) * model.node_ps).max()),
        int((nodes.sum(axis=1) * model.node_ps).max()),
        int((flow * mates).sum(axis=0).max()) * model.up_ps,
    )
    fec = int(flow.sum(axis=0).max()) * model.token_ps
    moved = evaluate(model, counts, holds, home=home, have=have)
    total = combine(a2a, fec, moved.trans, moved.agg, model.vectors[1])
    return Terms(a2a, fec, moved.trans, moved.agg, int(total), moved.copies)


def room(
    counts: Ints, owner: Ints, devices: int, slots: int | None, limit: int | None
) -> tuple[Ints, int]:
    """(experts a GPU may hold [D], copies beyond the homes in all); an error where the homes alone
    do not fit.
    """
    experts = counts.shape[1]
    if slots is not None:
        held = np.bincount(owner, minlength=devices)
        if held.max() > slots:
            raise InputError(
                f"{slots} experts per GPU: GPU {int(held.argmax())} is the home of {held.max()}; "
                f"the smallest feasible number is {held.max()}"
            )
    cap = np.full(devices, experts if slots is None else slots, np.int64)
    return cap, devices * experts if limit is None else limit


def pro_prophet(
    model: TimeModel,
    counts: npt.ArrayLike,
    *,
    home: npt.ArrayLike | None = None,
    have: npt.ArrayLike | None = None,
    slots: int | None = None,
    limit: int | None = None,
    active: Bools | None = None,
) -> Bools:
    """Copies for one layer: bool [GPU, expert], homes included.

    counts  int [source GPU, expert], tokens (expected in the next iteration)
    have    copies that are already up to date and need no transfer (bool [GPU, expert]); none in
            training
    slots   experts a GPU may hold; limit  copies beyond the homes in all
    active  GPUs that may get copies (bool [GPU]; None: all); homes are active
    """
    tokens = model.counts(counts)
    owner = homes(model, tokens, home)
    cap, most = room(tokens, owner, model.devices, slots, limit)
    if active is not None:
        cap = np.where(active, cap, 0)
    # the kernel wants an ascending home, as contiguous ones are
    order = slice(None) if home is None else np.argsort(owner, kind="stable")
    there = None if have is None else np.asarray(have, np.bool_)[:, order]
    layer = layer_of(model, tokens[:, order], owner[order], there)
    holds = np.empty(tokens.shape, np.bool_)
    holds[:, order] = plan_layer(layer, cap, most).T
    return holds


def shadow(
    model: TimeModel,
    counts: npt.ArrayLike,
    *,
    home: npt.ArrayLike | None = None,
    slots: int | None = None,
    limit: int | None = None,
) -> Bools:
    """FasterMoE: the heaviest experts to all devices, one after the other, while the model says
    that it helps; slots and limit as in `pro_prophet`.
    """
    tokens = model.counts(counts)
    owner = homes(model, tokens, home)
    cap, most = room(tokens, owner, model.devices, slots, limit)
    held = np.bincount(owner, minlength=model.devices)
    holds = np.arange(model.devices)[:, None] == owner[None, :]
    best = evaluate(model, tokens, holds, home=owner).total
    for expert in np.argsort(-tokens.sum(axis=0), kind="stable"):
        more = held + ~holds[:, expert]
        if np.any(more > cap) or more.sum() - len(owner) > most:
            break
        tried = holds.copy()
        tried[:, expert] = True
        total = evaluate(model, tokens, tried, home=owner).total
        if total >= best:
            break
        holds, held, best = tried, more, total
    return holds
