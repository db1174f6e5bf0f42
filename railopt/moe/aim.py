"""What replicas are placed for, beyond even GPUs: the busiest link under a rail policy, or time.

The packing decides which experts are together, and the GPUs' loads with it; which GPU gets which
bundle is free.  An aim looks at several such names and keeps, layer by layer, the one that serves
it best on the mean step that the plan sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from railopt.base.arrays import Bools, Int32s, Ints
from railopt.base.errors import InputError
from railopt.base.units import parse_bytes
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.moe.placement.naming import fabric_costs
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import Placed, PlacementProblem, cheapest, layer_terms, place
from railopt.moe.routing.dispatch import flows
from railopt.policies import plan

AIMS = ("gpu", "link", "time")


@dataclass(frozen=True)
class RailLinks:
    """How a dispatch crosses the rails: tokens of `token_bytes`, in chunks of at most `chunk`, each
    on the rail that a policy says.
    """

    fabric: Fabric
    token_bytes: int
    chunk: str | int


def rail_plan(fabric: Fabric, traffic: Traffic, policy: str, chunk: str | int) -> Plan | None:
    """The plan of a policy for the traffic between nodes; None where there is none."""
    chunks = traffic.chunks(chunk)
    return plan(fabric, chunks, policy) if len(chunks) else None


def aimed(problem: PlacementProblem, aim: str, links: RailLinks, policy: str, steps: int) -> Placed:
    """Replicas by load, named for an aim; `steps` iterations are in the problem's counts.

    gpu   as `replicate` names them
    link  least bytes on the busiest NIC under `policy`; after a placement before, and as many as
          the fastest NIC sends while what moves is sent
    time  least time of the layer's iteration by the time model, moves included
    """
    if aim not in AIMS:
        raise InputError(f"unknown aim {aim!r}: expected one of {', '.join(AIMS)}")
    first = place(problem, "replicate")
    if aim == "gpu":
        return first
    costs = fabric_costs(links.fabric)
    near = [replace(problem, previous=None, costs=costs)]
    if problem.previous is not None:
        near.append(replace(problem, costs=costs))
    choices = [first.placement, *(place(one, "replicate").placement for one in near)]
    if aim == "time":
        return replace(first, placement=cheapest(problem, problem.previous, choices))
    holds, home = choices[0].holds.copy(), choices[0].home.copy()
    # all steps at once, in chunks as many times larger: a mean step would round small counts away
    summed = links
    if links.chunk != "flow":
        summed = replace(links, chunk=parse_bytes(links.chunk) * steps)
    rate = int(links.fabric.tx.max())
    for layer, tokens in enumerate(problem.counts):
        loads = [
            busiest(tokens, (one.holds[layer], one.home[layer]), one.gpus, summed, policy)
            for one in choices
        ]
        if problem.previous is not None:
            sent = [layer_terms(problem, layer, one, problem.previous).trans for one in choices]
            loads = [load + int(ps) * rate // 10**12 for load, ps in zip(loads, sent, strict=True)]
        best = choices[int(np.argmin(loads))]
        holds[layer], home[layer] = best.holds[layer], best.home[layer]
    return replace(
        first, placement=Placement(first.placement.nodes, first.placement.gpus, holds, home)
    )


def busiest(
    tokens: Ints, placed: tuple[Bools, Int32s], gpus: int, links: RailLinks, policy: str
) -> int:
    """Bytes of the busiest NIC, sent or received, when tokens int [source GPU, expert] go evenly to
    the holders of one layer's (holds, home).
    """
    flow = flows(tokens, *placed, gpus, "even") * links.token_bytes
    np.fill_diagonal(flow, 0)
    made = rail_plan(links.fabric, Traffic(flow, links.fabric.nodes), policy, links.chunk)
    return 0 if made is None else int(max(made.send.max(), made.recv.max()))
