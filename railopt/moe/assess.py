"""From a trace to a placement and what it changes: balance, bytes moved, the busiest link under
each rail policy, time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.arrays import Ints
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.moe.iteration.timeline import Timeline, timeline
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.optimal import Optimum, optimal
from railopt.moe.placement.placement import Bools, Int32s, Placement, contiguous_home
from railopt.moe.placement.prophet import measure, pro_prophet, shadow
from railopt.moe.placement.repair import repaired
from railopt.moe.placement.replicate import replicate
from railopt.moe.presets import Preset, preset
from railopt.moe.routing.dispatch import dispatch, split
from railopt.moe.routing.trace import Trace
from railopt.plans import Plan
from railopt.policies import plan
from railopt.traffic import Traffic

PLANNERS = ("contiguous", "replicate", "shadow", "pro-prophet", "optimal")
RAIL_POLICIES = ("own-nic", "pxn", "lpt", "equitable")


def dimensions(trace: Trace, name: str | None) -> Preset:
    """The model behind a trace: a preset by name with the trace's experts and top-k, or what the
    trace itself says.
    """
    if name is not None:
        return replace(
            preset(name), layers=len(trace.layers), experts=trace.experts, top_k=trace.top_k
        )
    shape = trace.meta.get("model")
    if not isinstance(shape, dict) or not trace.model_dim:
        raise InputError(
            "the trace does not say how large its model is: name one with --model, e.g. --model "
            "deepseek-v2-lite"
        )
    width, ffn = trace.model_dim, int(shape["ffn"])
    dense = 4 * width * width + 3 * width * ffn * int(shape.get("shared", 0))
    return Preset(
        "the trace's own", len(trace.layers), trace.experts, trace.top_k, width, ffn, dense
    )


def place(
    trace: Trace,
    fabric: Fabric,
    model: TimeModel,
    planner: str,
    *,
    iteration: int = -1,
    replicas: int | None = None,
    slots: int | None = None,
    groups: int = 1,
    previous: Placement | None = None,
    limit_s: float = 30.0,
    report: Callable[[Optimum], None] | None = None,
) -> Placement:
    """A placement for every layer of the trace, planned on one iteration's counts.

    replicas  physical experts a layer, homes included (at most, for the planners that copy only
              what pays)
    slots     experts a GPU may hold: its memory
    groups    expert groups that `replicate` keeps on one node
    previous  the placement before, up to date on its GPUs (serving): homes stay, and `pro-prophet`
              pays for new copies only; `replicate` takes, layer by layer, what is cheapest with its
              moves: no change, a repair, or a new placement whose GPUs are named so that least
              moves
    limit_s   seconds a layer that `optimal` may take
    report    called with what `optimal` knows of each layer: whether its placement is the optimum,
              and on whose word
    """
    if planner not in PLANNERS:
        raise InputError(f"unknown planner {planner!r}; known planners: {', '.join(PLANNERS)}")
    trace.expect(ranks=fabric.nodes * fabric.gpus)
    counts = trace.counts[trace.row(iteration)].astype(np.int64)
    devices, experts = fabric.nodes * fabric.gpus, trace.experts
    slots = _slots(experts, devices, replicas, slots)
    if planner == "replicate":
        wanted = replicas or (
            experts + devices if slots is None else min(slots * devices, experts * devices)
        )
        load = trace.load[trace.row(iteration)]
        made = replicate(load, wanted, fabric.nodes, fabric.gpus, groups, previous)
        if previous is None or np.any(previous.holds.sum(axis=(1, 2)) != wanted):
            return made
        fixed = repaired(load, previous, groups)
        return _cheapest(
            model, counts, previous, [previous, *([] if fixed is None else [fixed]), made]
        )
    home = (
        np.broadcast_to(contiguous_home(experts, devices), (len(counts), experts))
        if previous is None
        else previous.home
    )
    if previous is not None and previous.holds.shape != (len(counts), devices, experts):
        raise InputError(
            f"the previous placement has shape {previous.holds.shape}, expected "
            f"{(len(counts), devices, experts)}"
        )
    if planner == "contiguous":
        return Placement.from_home(home, fabric.nodes, fabric.gpus)
    limit = None if replicas is None else replicas - experts
    have = [None] * len(counts) if previous is None else list(previous.holds)
    layers = zip(counts, home, have, strict=True)
    holds = np.stack(
        [
            _copies(planner, model, layer, owner, there, slots, limit, limit_s, report)
            for layer, owner, there in layers
        ]
    )
    return Placement.from_home(home, fabric.nodes, fabric.gpus, holds)


def _cheapest(
    model: TimeModel, counts: Ints, previous: Placement, made: list[Placement]
) -> Placement:
    """Layer by layer the placement of least time, moves from `previous` included; the first of
    those that are equal.
    """
    holds, home = made[0].holds.copy(), made[0].home.copy()
    for layer, tokens in enumerate(counts):
        times = [
            measure(
                model,
                split(tokens, p.holds[layer], p.home[layer], p.gpus, "even"),
                p.holds[layer],
                home=p.home[layer],
                have=there,
            )
            for p, there in ((p, previous.holds[layer]) for p in made)
        ]
        best = made[int(np.argmin([t.total for t in times]))]
        holds[layer], home[layer] = best.holds[layer], best.home[layer]
    return Placement(previous.nodes, previous.gpus, holds, home)


def _slots(experts: int, devices: int, replicas: int | None, slots: int | None) -> int | None:
    """Experts a GPU may hold; an error where the experts do not fit."""
    least = -(-experts // devices)
    if replicas is not None and not experts <= replicas <= experts * devices:
        raise InputError(
            f"{replicas} replicas of {experts} experts on {devices} GPUs: the smallest feasible "
            f"number is {experts}, the "
            f"largest {experts * devices}"
        )
    if slots is not None and slots < least:
        raise InputError(
            f"{slots} experts a GPU: {experts} experts on {devices} GPUs need at least {least}"
        )
    if replicas is None:
        return slots
    wanted = -(-replicas // devices)
    if slots is not None and slots < wanted:
        raise InputError(
            f"{replicas} replicas on {devices} GPUs of {slots} slots: at most {slots * devices} "
            f"fit; the smallest feasible "
            f"number of slots is {wanted}"
        )
    return wanted if slots is None else slots


def _copies(
    planner: str,
    model: TimeModel,
    counts: Ints,
    home: Int32s,
    have: Bools | None,
    slots: int | None,
    limit: int | None,
    limit_s: float,
    report: Callable[[Optimum], None] | None,
) -> Bools:
    if planner == "pro-prophet":
        return pro_prophet(model, counts, home=home, have=have, slots=slots, limit=limit)
    if planner == "shadow":
        return shadow(model, counts, home=home, slots=slots)
    best = optimal(model, counts, home=home, slots=slots, limit=limit, limit_s=limit_s)
    if report is not None:
        report(best)
    return best.holds


@dataclass(frozen=True)
class Side:
    """One placement on one iteration: balance, links and time.

    balance   max/mean of the tokens that GPUs compute, averaged over layers;  worst  the worst
              layer's
    links     by rail policy: (busiest NIC's bytes summed over layers, dispatch time summed over
              layers)
    internode bytes between nodes in one dispatch, all layers
    """

    balance: float
    worst: float
    internode: int
    links: dict[str, tuple[int, Fraction]]
    timeline: Timeline = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "balance": self.balance,
            "worst_layer_balance": self.worst,
            "internode_bytes": self.internode,
            "iteration_s": self.timeline.total_ps / 1e12,
            "links": {
                name: {"busiest_nic_bytes": load, "dispatch_s": float(time)}
                for name, (load, time) in self.links.items()
            },
        }


def assess(
    trace: Trace,
    fabric: Fabric,
    model: TimeModel,
    placement: Placement,
    *,
    iteration: int = -1,
    token_bytes: int,
    rule: str = "home",
    style: str = "ours",
    policies: Sequence[str] = RAIL_POLICIES,
    chunk: str | int = "256KiB",
    previous: Placement | None = None,
) -> Side:
    """What a placement does to one iteration's routing; copies that `previous` has need no
    transfer.
    """
    row = trace.row(iteration)
    when = int(trace.iterations[row])
    balances, terms, internode = [], [], 0
    links = dict.fromkeys(policies, (0, Fraction(0)))
    for column, layer in enumerate(trace.layers.tolist()):
        counts = trace.counts[row, column].astype(np.int64)
        shares = split(
            counts, placement.holds[column], placement.home[column], placement.gpus, rule
        )
        load = shares.sum(axis=(0, 1))
        there = None if previous is None else previous.holds[column]
        balances.append(load.max() / load.mean() if load.any() else 1.0)
        terms.append(
            measure(model, shares, placement.holds[column], home=placement.home[column], have=there)
        )
        traffic = dispatch(trace, placement, when, layer, token_bytes=token_bytes, rule=rule)
        internode += int(traffic.node_matrix.sum())
        for name in policies:
            made = rail_plan(fabric, traffic, name, chunk)
            busiest = 0 if made is None else int(max(made.send.max(), made.recv.max()))
            links[name] = (
                links[name][0] + busiest,
                links[name][1] + (Fraction(0) if made is None else made.makespan),
            )
    return Side(
        float(np.mean(balances)),
        float(np.max(balances)),
        internode,
        links,
        timeline(model, terms, style),
    )


def rail_plan(fabric: Fabric, traffic: Traffic, policy: str, chunk: str | int) -> Plan | None:
    """The plan of a policy for the traffic between nodes; None where there is none."""
    chunks = traffic.chunks(chunk)
    return plan(fabric, chunks, policy) if len(chunks) else None
