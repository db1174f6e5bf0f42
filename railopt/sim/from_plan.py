"""A plan as flows: every connection (sender, receiver, rail) is one, its chunks go one after the
other.

That is what a sender with one queue pair a peer and rail does, and why 1M chunks are no more flows
than their connections.  A chunk from GPU g to GPU h on rail n crosses

    out of g, into the GPU at NIC n (scale-up)   unless g sits at NIC n itself
    transmit NIC n of the sender, receive NIC n of the receiver
    out of the GPU at NIC n, into h (scale-up)   unless h sits at NIC n itself

Scale-up links that can't fill up even with all NICs of their node at full rate are left out: the
rails are then independent.  Where they can fill up, a connection is one flow a pair of GPUs,
weighted by its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from railopt.arrays import Array, Floats, Ints
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.flows import Change, Flows


class Connections(NamedTuple):
    """Chunks by connection.

    order        int64 [C]: chunks, those of a connection together, in the plan's order
    mark_first   int64 [F + 1]: where each connection begins in `order`
    mark         int64 [C]: cumulated bytes of its connection at the end of each chunk of `order`
    size         int64 [F], bytes
    head         int64 [F], one chunk of each
    pair         int64 [F]: (stage, rail, sender, receiver) as a number, whichever the GPUs
    """

    order: Ints
    mark_first: Ints
    mark: Ints
    size: Ints
    head: Ints
    pair: Ints


def _connections(plan: Plan, stage: Ints, ranks: int, by_gpu: bool) -> Connections:
    """One a (stage, sender, receiver, rail), and a pair of GPUs where `by_gpu`."""
    from railopt.sim import graph

    fabric, chunks = plan.fabric, plan.chunks
    pair = (
        (stage * fabric.rails + plan.rail) * fabric.nodes + chunks.src
    ) * fabric.nodes + chunks.dst
    key, span = pair, ranks * fabric.rails * fabric.nodes * fabric.nodes
    if by_gpu:
        key = (
            pair * fabric.gpus + chunks.src_gpu % fabric.gpus
        ) * fabric.gpus + chunks.dst_gpu % fabric.gpus
        span *= fabric.gpus * fabric.gpus
    order, first = graph.rows_by_key(key, span)
    sent = np.concatenate([[0], np.cumsum(chunks.size[order])])
    mark = sent[1:] - np.repeat(sent[first[:-1]], np.diff(first))
    mark.flags.writeable = False  # so that nobody copies it
    head = order[first[:-1]]
    return Connections(order, first, mark, np.diff(sent[first]), head, pair[head])


def flows_of_plan(
    plan: Plan, assumed: Assumptions, faults: Sequence[Fault] = ()
) -> tuple[Flows, Ints]:
    """The flows, and the chunk of each of their marks: int64 [C]."""
    fabric, chunks = plan.fabric, plan.chunks
    scaleup = chunks.gpus == fabric.gpus > 1 and scaleup_can_fill(fabric)
    stage, ranks = (
        (np.zeros(len(chunks), np.int64), 1) if plan.stage is None else _ranks(plan.stage)
    )
    found = _connections(plan, stage, ranks, scaleup)
    src, dst, rail = (
        column[found.head].astype(np.int64) for column in (chunks.src, chunks.dst, plan.rail)
    )
    gpus = (chunks.src_gpu[found.head], chunks.dst_gpu[found.head])
    path = _paths(fabric, src, dst, rail, gpus if scaleup else None)
    capacity = nic_capacity(fabric, assumed)
    if scaleup:
        links = np.full(2 * fabric.nodes * fabric.gpus, fabric.scaleup)
        capacity = np.concatenate([capacity, links])
    present = path >= 0
    cost = np.ones(path.shape)
    messages = np.diff(found.mark_first)
    cost[:, 0] += assumed.alpha_ps * messages / found.size * (capacity[path[:, 0]] / 1e12)
    waits = "barrier" if plan.stage is None else assumed.stages
    group, needs = _groups(waits, stage[found.head], src, dst, fabric.nodes)
    flows = Flows(
        capacity,
        np.concatenate([[0], np.cumsum(present.sum(axis=1))]),
        path[present].astype(np.int32),
        found.size,
        cost[present],
        _weights(found.pair, found.size) if scaleup else np.ones(len(found.size)),
        latency_ps=np.full(len(found.size), fabric.latency_ps if assumed.latency else 0),
        group=group,
        needs=needs,
        changes=changes_of(fabric, assumed, faults),
        mark_first=found.mark_first,
        mark=found.mark,
        track=rail.astype(np.int32),
        **fan_in_of(assumed, fabric.nodes * fabric.rails, len(capacity), path[:, 1]),
        describe=lambda port: port_name(fabric, port),
    )
    return flows, found.order


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
        return f"the {'transmit' if port < nics else 'receive'} NIC of node {node} on rail {rail}"
    way, gpu = divmod(port - 2 * nics, fabric.nodes * fabric.gpus)
    return f"the scale-up link {'into' if way else 'out of'} GPU {gpu}"


def scaleup_can_fill(fabric: Fabric) -> bool:
    """Whether some GPU's scale-up link is narrower than all that its node's NICs could send through
    it at once.
    """
    out, into = _crossing(fabric, fabric.tx, fabric.rx), _crossing(fabric, fabric.rx, fabric.tx)
    return max(int(out.max()), int(into.max())) > fabric.scaleup


def _crossing(fabric: Fabric, foreign: Ints, own: Ints) -> Ints:
    """int64 [nodes, gpus]: a GPU's own chunks over its node's other NICs, and others' chunks over
    its own.
    """
    at = gpu_of_nic(fabric)[None, :] == np.arange(fabric.gpus)[:, None]
    crossing: Ints = foreign @ (~at).T.astype(np.int64) + own @ at.T.astype(np.int64)
    return crossing


def gpu_of_nic(fabric: Fabric) -> Ints:
    """int64 [rails]: the local index of the GPU that sits at each NIC."""
    return np.arange(fabric.rails) * fabric.gpus // fabric.rails


def _paths(
    fabric: Fabric, src: Ints, dst: Ints, rail: Ints, gpus: tuple[Array, Array] | None
) -> Ints:
    """int64 [flows, 2 or 6]: the ports of each flow, transmit and receive NIC first; -1 where there
    is none.  `gpus`: source and target of each flow where scale-up links count.
    """
    nics = fabric.nodes * fabric.rails
    columns = [src * fabric.rails + rail, nics + dst * fabric.rails + rail]
    if gpus is not None:
        src_gpu, dst_gpu = gpus
        out, into = 2 * nics, 2 * nics + fabric.nodes * fabric.gpus
        sender, receiver = (
            src * fabric.gpus + gpu_of_nic(fabric)[rail],
            dst * fabric.gpus + gpu_of_nic(fabric)[rail],
        )
        away, apart = src_gpu != sender, dst_gpu != receiver
        columns += [
            np.where(away, out + src_gpu, -1),
            np.where(away, into + sender, -1),
            np.where(apart, out + receiver, -1),
            np.where(apart, into + dst_gpu, -1),
        ]
    return np.stack(columns, axis=1)


def _weights(connection: Ints, size: Ints) -> Floats:
    """Each flow's share of the bytes of its connection."""
    inverse = np.unique(connection, return_inverse=True)[1]
    return size / np.bincount(inverse, weights=size.astype(np.float64))[inverse]


def _ranks(stage: Array) -> tuple[Ints, int]:
    values, ranks = np.unique(stage, return_inverse=True)
    return ranks.astype(np.int64), len(values)


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
