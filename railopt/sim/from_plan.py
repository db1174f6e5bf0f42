"""A plan as a job: every connection (sender, receiver, rail) is one flow, its chunks go one after
the other.

That is what a sender with one queue pair a peer and rail does, and why 1M chunks are no more flows
than their
connections.  A chunk from GPU g to GPU h on rail n crosses

    out of g, into the GPU at NIC n (scale-up)   unless g sits at NIC n itself
    transmit NIC n of the sender, receive NIC n of the receiver
    out of the GPU at NIC n, into h (scale-up)   unless h sits at NIC n itself

Scale-up links that can't fill up even with all NICs of their node at full rate are left out: the
rails are then
independent.  Where they can fill up, a connection is one flow a pair of GPUs, weighted by its
              bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from railopt.arrays import Array, Ints
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.sim.job import Change, Job
from railopt.sim.model import Fault, Model

STAGES = ("barrier", "node")


def job_of_plan(
    plan: Plan, model: Model, faults: Sequence[Fault] = (), stages: str = "barrier"
) -> tuple[Job, Ints]:
    """The job, and the chunk of each of its marks: int64 [C].

    stages   "barrier": a stage starts when all of the stage before is delivered; "node": a chunk
             from k to f starts when what k sends and what f receives in their stages before is
             delivered
    """
    from railopt.sim import graph

    if stages not in STAGES:
        raise InputError(f"stages = {stages!r}: expected one of {', '.join(STAGES)}")
    fabric, chunks = plan.fabric, plan.chunks
    scaleup = chunks.gpus == fabric.gpus > 1 and scaleup_can_fill(fabric)
    stage, ranks = (
        (np.zeros(len(chunks), np.int64), 1) if plan.stage is None else _ranks(plan.stage)
    )
    key = (
        (stage * fabric.rails + plan.rail) * fabric.nodes + chunks.src
    ) * fabric.nodes + chunks.dst
    span = ranks * fabric.rails * fabric.nodes * fabric.nodes
    if scaleup:
        key = (
            key * fabric.gpus + chunks.src_gpu % fabric.gpus
        ) * fabric.gpus + chunks.dst_gpu % fabric.gpus
        span *= fabric.gpus * fabric.gpus
    order, mark_first = graph.rows_by_key(key, span)
    head = order[mark_first[:-1]]  # one chunk of each flow
    sent = np.concatenate([[0], np.cumsum(chunks.size[order])])
    mark = sent[1:] - np.repeat(sent[mark_first[:-1]], np.diff(mark_first))
    size = np.diff(sent[mark_first])
    src, dst, rail = (
        column[head].astype(np.int64) for column in (chunks.src, chunks.dst, plan.rail)
    )
    path = _paths(fabric, src, dst, rail, chunks.src_gpu[head], chunks.dst_gpu[head], scaleup)
    capacity = nic_capacity(fabric, model)
    if scaleup:
        capacity = np.concatenate(
            [capacity, np.full(2 * fabric.nodes * fabric.gpus, fabric.scaleup)]
        )
    present = path >= 0
    first = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    cost = np.ones(path.shape)
    cost[:, 0] += model.alpha_ps * np.diff(mark_first) / size * (capacity[path[:, 0]] / 1e12)
    group, needs = _groups(
        "barrier" if plan.stage is None else stages, stage[head], src, dst, fabric.nodes
    )
    nics = fabric.nodes * fabric.rails
    job = Job(
        capacity,
        first,
        path[present].astype(np.int32),
        size,
        cost[present],
        _weights(key[head] // fabric.gpus**2, size) if scaleup else np.ones(len(size)),
        latency_ps=np.full(len(size), fabric.latency_ps if model.latency else 0),
        group=group,
        needs=needs,
        changes=changes_of(fabric, model, faults),
        mark_first=mark_first,
        mark=mark,
        track=rail.astype(np.int32),
        **fan_in_of(model, nics, len(capacity), path[:, 1]),
        describe=lambda port: port_name(fabric, port),
    )
    return job, order


def nic_capacity(fabric: Fabric, model: Model) -> Ints:
    """int64 [2 * nodes * rails]: payload rates of the transmit NICs (node * rails + rail), then of
    the receive NICs.
    """
    return np.concatenate([model.on_wire(fabric.tx).ravel(), model.on_wire(fabric.rx).ravel()])


def changes_of(fabric: Fabric, model: Model, faults: Sequence[Fault]) -> list[Change]:
    """Both ports of each NIC that a fault hits."""
    changes = []
    for fault in faults:
        fault.check(fabric)
        nic = fault.node * fabric.rails + fault.rail
        for port, rates in ((nic, fabric.tx), (fabric.nodes * fabric.rails + nic, fabric.rx)):
            slowed = int(rates[fault.node, fault.rail] * fault.fraction)
            changes.append(Change(fault.at_ps, port, int(model.on_wire(np.array([slowed]))[0])))
    return changes


def fan_in_of(model: Model, nics: int, ports: int, receive: Array) -> dict[str, Array]:
    """The job's `fan_in` and `goodput`: receive NICs, where the model has an incast penalty."""
    if not model.incast:
        return {}
    fan_in = np.zeros(ports, np.bool_)
    fan_in[nics : 2 * nics] = True
    return {"fan_in": fan_in, "goodput": model.goodput(int(np.bincount(receive).max(initial=0)))}


def port_name(fabric: Fabric, port: int) -> str:
    """What a port of a plan's job is, in words."""
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
    fabric: Fabric, src: Ints, dst: Ints, rail: Ints, src_gpu: Array, dst_gpu: Array, scaleup: bool
) -> Ints:
    """int64 [flows, 2 or 6]: the ports of each flow, transmit and receive NIC first; -1 where there
    is none.
    """
    nics = fabric.nodes * fabric.rails
    columns = [src * fabric.rails + rail, nics + dst * fabric.rails + rail]
    if scaleup:
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


def _weights(connection: Ints, size: Ints) -> npt.NDArray[np.float64]:
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
