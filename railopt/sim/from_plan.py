"""A plan as flows: every connection (sender, receiver, rail) is one, its chunks go one after the
other.

That is what a sender with one queue pair per peer and rail does, and why 1M chunks are no more
flows than their connections.  A chunk crosses the transmit NIC of its sender and the receive NIC of
its receiver, and where their leaves differ the links above (`railopt.sim.balancers`).  The fabric's
`way` chooses those, the same for all flows of a connection and, hashed, in all stages. What of it
is moved between GPUs (`railopt.model.plan`) crosses scale-up ports, at the same time or before and
after (`railopt.sim.node`).

Scale-up ports that can't fill up even with all NICs of their node at full rate are left out: the
rails are then independent.  Where they can fill up, a connection is one flow a source GPU and set
of GPUs that need its bytes, weighted by its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Floats, Ints
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, target_sets
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.balancers import Above, Ends, above, above_name, balancer_named
from railopt.sim.flows import Change, Flows, joined
from railopt.sim.node import (
    Crossed,
    crossed_inside,
    inside_name,
    paths_of,
    port_rates,
    scaleup_can_fill,
    with_phases,
)


class Connections(NamedTuple):
    """Chunks by connection.

    rows         int64 [C]: chunks, those of a connection together, in the plan's order
    mark_first   int64 [F + 1]: where each connection begins in `rows`
    mark         int64 [C]: cumulated bytes of its connection at the end of each chunk of `rows`
    size         int64 [F], bytes
    head         int64 [F], one chunk of each
    pair         int64 [F]: (stage, rail, sender, receiver) as a number, whichever the GPUs
    """

    rows: Ints
    mark_first: Ints
    mark: Ints
    size: Ints
    head: Ints
    pair: Ints


def _connections(plan: Plan, stage: Ints, by_gpu: bool) -> Connections:
    """One a (stage, sender, receiver, rail), and where `by_gpu` a source GPU and set of targets."""
    fabric, chunks = plan.fabric, plan.chunks
    pair = (
        (stage * fabric.rails + plan.rail) * fabric.nodes + chunks.src
    ) * fabric.nodes + chunks.dst
    key = pair
    if by_gpu:
        target, targets = target_sets(chunks)
        key = (pair * fabric.gpus + chunks.src_gpu % fabric.gpus) * targets + target
    rows, first, mark, size = joined(key, chunks.size)
    head = rows[first[:-1]]
    return Connections(rows, first, mark, size, head, pair[head])


def _above(plan: Plan, found: Connections, sending: Ints, assumed: Assumptions, seed: int) -> Above:
    """What flows cross above the leaves, from their sending NICs; those of one connection take the
    same links.
    """
    fabric = plan.fabric
    if fabric.leaves is None:
        none = np.zeros(0, np.int64)
        return Above(none, none, none, none)
    span = fabric.rails * fabric.nodes**2
    pairs, head, pair = np.unique(found.pair, return_index=True, return_inverse=True)
    size = np.zeros(len(pairs), np.int64)
    np.add.at(size, pair, found.size)
    receiving = pairs % fabric.nodes * fabric.rails + pairs // fabric.nodes**2 % fabric.rails
    ends = Ends(sending[head], receiving, size, pairs % span, pairs // span)
    links = above(fabric, ends, balancer_named(fabric.leaves.way), assumed, seed)
    place = np.full(len(pairs), -1)
    place[links.flow] = np.arange(len(links.flow))
    flow = np.flatnonzero(place[pair] >= 0)
    chosen = place[pair[flow]]
    return Above(flow, links.up[chosen], links.down[chosen], links.rates)


def flows_of_plan(
    plan: Plan, assumed: Assumptions, faults: Sequence[Fault] = (), seed: int = 0
) -> tuple[Flows, Ints]:
    """The flows, and the chunk of each of their marks: int64 [marks]; `seed` is that of hashed
    paths above leaves.
    """
    fabric, chunks = plan.fabric, plan.chunks
    scaleup = (
        assumed.scale_up == "pipelined"
        and chunks.gpus == fabric.gpus > 1
        and scaleup_can_fill(fabric, chunks)
    )
    stage = np.zeros(len(chunks), np.int64)
    if plan.stage is not None:
        stage = np.unique(plan.stage, return_inverse=True)[1]
    found = _connections(plan, stage, scaleup)
    src, dst, rail = (
        column[found.head].astype(np.int64) for column in (chunks.src, chunks.dst, plan.rail)
    )
    nics, capacity = fabric.nodes * fabric.rails, nic_capacity(fabric, assumed)
    sending = src * fabric.rails + rail
    messages = np.diff(found.mark_first).astype(np.float64)
    alpha = assumed.alpha_ps * messages / found.size * (capacity[sending] / 1e12)
    every = np.arange(len(rail))
    crossed = [
        Crossed(every, sending, 1 + alpha),
        Crossed(every, nics + dst * fabric.rails + rail, np.ones(len(rail))),
    ]
    links = _above(plan, found, sending, assumed, seed)
    crossed += [
        Crossed(links.flow, 2 * nics + port, np.ones(len(port))) for port in (links.up, links.down)
    ]
    hops = 1 + np.bincount(links.flow, minlength=len(rail))
    capacity = np.concatenate([capacity, links.rates])
    if scaleup:
        crossed += crossed_inside(fabric, chunks.take(found.head), rail, len(capacity))
        capacity = np.concatenate([capacity, port_rates(fabric)])
    waits = "barrier" if plan.stage is None else assumed.stages
    group, needs = _groups(waits, stage[found.head], src, dst, fabric.nodes)
    first, path, cost = paths_of(crossed, len(rail))
    flows = Flows(
        capacity,
        first,
        path,
        found.size,
        cost,
        _weights(found.pair, found.size) if scaleup else np.ones(len(found.size)),
        latency_ps=hops * (fabric.latency_ps if assumed.latency else 0),
        group=group,
        needs=needs,
        changes=changes_of(fabric, assumed, faults),
        mark_first=found.mark_first,
        mark=found.mark,
        track=rail.astype(np.int32),
        **fan_in_of(assumed, nics, len(capacity), crossed[1].port),
        describe=lambda port: port_name(fabric, port),
    )
    if assumed.scale_up == "before":
        return with_phases(flows, found.rows, plan)
    return flows, found.rows


def nic_capacity(fabric: Fabric, assumed: Assumptions) -> Ints:
    """int64 [2 * nodes * rails]: payload rates of the transmit NICs (node * rails + rail), then of
    the receive NICs.
    """
    return np.concatenate([assumed.on_wire(fabric.tx).ravel(), assumed.on_wire(fabric.rx).ravel()])


def changes_of(fabric: Fabric, assumed: Assumptions, faults: Sequence[Fault]) -> list[Change]:
    """Both ports of each NIC that a fault hits."""
    changes = []
    for fault in faults:
        fault.check(fabric)
        nic = fault.node * fabric.rails + fault.rail
        for port, rates in ((nic, fabric.tx), (fabric.nodes * fabric.rails + nic, fabric.rx)):
            slowed = int(rates[fault.node, fault.rail] * fault.fraction)
            changes.append(Change(fault.at_ps, port, int(assumed.on_wire(np.array([slowed]))[0])))
    return changes


def fan_in_of(assumed: Assumptions, nics: int, ports: int, receive: Array) -> dict[str, Array]:
    """`fan_in` and `goodput` of `Flows`: receive NICs, where there is an incast penalty."""
    if not assumed.incast:
        return {}
    fan_in = np.zeros(ports, np.bool_)
    fan_in[nics : 2 * nics] = True
    return {"fan_in": fan_in, "goodput": assumed.goodput(int(np.bincount(receive).max(initial=0)))}


def port_name(fabric: Fabric, port: int) -> str:
    """What a port of a plan's flows is, in words."""
    nics = fabric.nodes * fabric.rails
    if port < 2 * nics:
        node, rail = divmod(port % nics, fabric.rails)
        side = "transmit" if port < nics else "receive"
        if fabric.hosts or fabric.devices:
            return f"the {side} side of {fabric.nic_name(node, rail)}"
        return f"the {side} NIC of node {node} on rail {rail}"
    port -= 2 * nics
    if fabric.leaves is not None:
        pooled = balancer_named(fabric.leaves.way).choose is None
        links = 2 * fabric.leaves.count(fabric.nodes, fabric.rails)
        links *= 1 if pooled else fabric.leaves.uplinks
        if port < links:
            return above_name(fabric, port, pooled)
        port -= links
    return inside_name(fabric, port)


def _weights(connection: Ints, size: Ints) -> Floats:
    """Each flow's share of the bytes of its connection."""
    inverse = np.unique(connection, return_inverse=True)[1]
    return size / np.bincount(inverse, weights=size.astype(np.float64))[inverse]


def _groups(stages: str, stage: Ints, src: Ints, dst: Ints, nodes: int) -> tuple[Array, Array]:
    """The groups of flows and what each needs."""
    last = int(stage.max(initial=0))
    if stages == "barrier":
        after = np.arange(1, last + 1)
        return stage, np.stack([after, after - 1], axis=1)
    cells, group = np.unique((stage * nodes + src) * nodes + dst, return_inverse=True)
    needs, used = [], len(cells)
    for node in (cells // nodes % nodes, cells % nodes):
        # an empty group a (node, stage): all that this node has sent (received) up to then
        turns, turn = np.unique(node * (last + 1) + cells // nodes**2, return_inverse=True)
        needs.append(np.stack([used + turn, np.arange(len(cells))], axis=1))
        earlier = np.flatnonzero((turn > 0) & (turns[turn - 1] // (last + 1) == node))
        needs.append(np.stack([earlier, used + turn[earlier] - 1], axis=1))
        used += len(turns)
    return group, np.concatenate(needs)
