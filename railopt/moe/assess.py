"""From a trace to a placement and what it changes: balance, bytes moved, the busiest link under
each rail policy, time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.arrays import whole_number
from railopt.bracket import Status
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.moe.iteration.timeline import Timeline, timeline
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import Placed, Problem, place
from railopt.moe.placement.prophet import measure
from railopt.moe.presets import Preset, preset
from railopt.moe.routing.dispatch import dispatch, split
from railopt.moe.routing.trace import MAX_EXPERTS, MAX_WIDTH, Trace
from railopt.plans import Plan
from railopt.policies import plan
from railopt.traffic import Traffic

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
    if not isinstance(shape, Mapping) or not trace.model_dim:
        raise InputError(
            "the trace does not say how large its model is: name one with --model, e.g. --model "
            "deepseek-v2-lite"
        )
    width, ffn, shared = trace.model_dim, shape.get("ffn"), shape.get("shared", 0)
    ffn = whole_number(ffn, "ffn of the trace's model", 1, MAX_WIDTH)
    shared = whole_number(shared, "shared of the trace's model", 0, MAX_EXPERTS)
    dense = 4 * width * width + 3 * width * ffn * shared
    return Preset(
        "the trace's own", len(trace.layers), trace.experts, trace.top_k, width, ffn, dense
    )


@dataclass(frozen=True)
class Links:
    """How a dispatch crosses the rails: tokens of `token_bytes`, in chunks of at most `chunk`, each
    on the rail that a policy says.
    """

    fabric: Fabric
    token_bytes: int
    chunk: str | int = "256KiB"
    policies: tuple[str, ...] = RAIL_POLICIES


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
    model: TimeModel,
    placement: Placement,
    links: Links,
    *,
    iteration: int = -1,
    rule: str = "home",
    style: str = "ours",
    previous: Placement | None = None,
) -> Side:
    """What a placement does to one iteration's routing; copies that `previous` has need no
    transfer.
    """
    row = trace.row(iteration)
    when = int(trace.iterations[row])
    balances, terms, internode = [], [], 0
    busy = dict.fromkeys(links.policies, (0, Fraction(0)))
    for column, layer in enumerate(trace.layers.tolist()):
        counts = trace.counts[row, column].astype(np.int64)
        holds, home = placement.holds[column], placement.home[column]
        shares = split(counts, holds, home, placement.gpus, rule)
        load = shares.sum(axis=(0, 1))
        there = None if previous is None else previous.holds[column]
        balances.append(load.max() / load.mean() if load.any() else 1.0)
        terms.append(measure(model, shares, holds, home=home, have=there))
        traffic = dispatch(trace, placement, when, layer, token_bytes=links.token_bytes, rule=rule)
        internode += int(traffic.node_matrix.sum())
        for name in links.policies:
            made = rail_plan(links.fabric, traffic, name, links.chunk)
            if made is not None:
                most, time = busy[name]
                busiest = int(max(made.send.max(), made.recv.max()))
                busy[name] = (most + busiest, time + made.makespan)
    mean, worst = float(np.mean(balances)), float(np.max(balances))
    return Side(mean, worst, internode, busy, timeline(model, terms, style))


def rail_plan(fabric: Fabric, traffic: Traffic, policy: str, chunk: str | int) -> Plan | None:
    """The plan of a policy for the traffic between nodes; None where there is none."""
    chunks = traffic.chunks(chunk)
    return plan(fabric, chunks, policy) if len(chunks) else None


@dataclass(frozen=True, eq=False)
class Question:
    """What `compare` is asked.

    planner       who places, a name of `PLANNERS`
    replicas      physical experts a layer, homes included; groups, previous, limit_s: see `Problem`
    memory        bytes a GPU has for one layer's experts
    planned_on    recorded iteration to plan on, and evaluated_on to evaluate on (None: the same);
                  -1 is the last
    model         a preset whose dimensions count, or None for the trace's own
    gpu_flops     FLOP/s that a GPU reaches
    tokens        tokens a rank, where the trace does not say
    rule          which replica a token goes to; None: "even" for `replicate`, else "home"
    chunk         largest chunk on the rails
    move_weight   what sending a copy weighs when planning
    """

    planner: str = "pro-prophet"
    replicas: int | None = None
    memory: int | None = None
    groups: int = 1
    previous: Placement | None = None
    limit_s: float = 30.0
    planned_on: int = -1
    evaluated_on: int | None = None
    model: str | None = None
    gpu_flops: float = 400e12
    tokens: int | None = None
    rule: str | None = None
    chunk: str | int = "256KiB"
    move_weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """A placement beside the one before (`previous`, else contiguous), on one iteration.

    moved  what the change sends between GPUs
    """

    planner: str
    model: str
    rule: str
    planned_on: int
    evaluated_on: int
    placed: Placed
    before: Side
    after: Side
    moved: Traffic

    @property
    def optimum(self) -> Status | None:
        """Of all layers together, where the planner says something of it."""
        found = {known.status for known in self.placed.optima}
        for status in (Status.OPEN, Status.CLAIMED, Status.PROVED):
            if status in found:
                return status
        return None

    def as_dict(self) -> dict[str, Any]:
        """JSON values; `optima` are picoseconds, one a layer."""
        placement, optima = self.placed.placement, self.placed.optima
        data = {
            "planner": self.planner,
            "layers": placement.layers,
            "experts": placement.experts,
            "copies": int(placement.copies.sum()),
            "experts_per_gpu": int(placement.holds.sum(axis=2).max()),
            "rule": self.rule,
            "model": self.model,
            "planned_on": self.planned_on,
            "evaluated_on": self.evaluated_on,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
            "moved_bytes": int(self.moved.bytes.sum()),
            "moved_internode_bytes": int(self.moved.node_matrix.sum()),
        }
        if optima:
            data["optimal"] = self.optimum is Status.PROVED
            data["optimum"] = str(self.optimum)
            data["optima"] = [known.as_dict() for known in optima]
        return data


def compare(trace: Trace, fabric: Fabric, question: Question) -> Comparison:
    """Place the experts of a trace on the GPUs of a fabric, one source rank a GPU, and assess the
    placement beside the one before.
    """
    trace.expect(ranks=fabric.nodes * fabric.gpus)
    sized = dimensions(trace, question.model)
    tokens = question.tokens or trace.tokens_per_rank
    if not tokens:
        rows = trace.counts.size // trace.experts
        tokens = int(trace.counts.sum(dtype=np.int64) / rows / trace.top_k)
    model = sized.model(fabric, tokens, gpu_flops=question.gpu_flops)
    expert, previous = sized.expert_bytes(), question.previous
    problem = Problem.of_trace(
        trace,
        model.weighing_moves(question.move_weight),
        question.planned_on,
        replicas=question.replicas,
        slots=None if question.memory is None else question.memory // expert,
        groups=question.groups,
        previous=previous,
        limit_s=question.limit_s,
    )
    placed = place(problem, question.planner)
    start = place(Problem.of_trace(trace, model), "contiguous").placement
    start = start if previous is None else previous
    when = question.planned_on if question.evaluated_on is None else question.evaluated_on
    rule = question.rule or ("even" if question.planner == "replicate" else "home")
    links = Links(fabric, sized.token_bytes(), question.chunk)
    common: dict[str, Any] = {"iteration": when, "previous": previous}
    first = "home" if previous is None else rule
    return Comparison(
        question.planner,
        sized.name,
        rule,
        int(trace.iterations[trace.row(question.planned_on)]),
        int(trace.iterations[trace.row(when)]),
        placed,
        assess(trace, model, start, links, **common, style="deepspeed", rule=first),
        assess(trace, model, placed.placement, links, **common, rule=rule),
        placed.placement.movement(start, expert),
    )
