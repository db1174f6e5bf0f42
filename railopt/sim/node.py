"""The inside of nodes in a run: scale-up ports, what crosses them, and when.

A GPU has a port out and a port into it, at the fabric's scale-up rate; where pairs of GPUs have a
rate of their own (`Inside.pair`), every pair is a port too.  Staged bytes cross the ports from
their source to the NIC's owner.  Passed-on bytes cross those from the GPU that has them first to
each GPU that needs them, so that the port out of it carries them as often.

    pipelined   a flow crosses these ports together with its NICs: no byte waits for another
    before      three phases: a node sends when all that it stages is moved, and passes on when all
                that it receives has arrived.  That is what three collectives after each other do;
                store and forward of single chunks lies between the two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Floats, Int32s, Ints
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Hops, Plan, needed_by, passing_on, staging
from railopt.sim.flows import Flows, joined


class Crossed(NamedTuple):
    """Ports that flows cross: columns of equal length; `cost` as in `Flows`."""

    flow: Ints
    port: Ints
    cost: Floats


def paths_of(crossed: list[Crossed], count: int) -> tuple[Ints, Int32s, Floats]:
    """The paths of so many flows, the ports of each in the order given: `first`, `path` and `cost`
    of `Flows`.
    """
    flow, port, cost = (np.concatenate(columns) for columns in zip(*crossed, strict=True))
    order = np.argsort(flow, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(flow, minlength=count))])
    return first, port[order].astype(np.int32), cost[order]


def port_rates(fabric: Fabric) -> Ints:
    """int64: bytes per second of the ports inside nodes: out of each GPU, into each, and from each
    GPU to each of its node where pairs have a rate.
    """
    ports = 2 * fabric.nodes * fabric.gpus
    rates = np.full(ports, fabric.scaleup)
    if fabric.node.pair is None:
        return rates
    return np.concatenate([rates, np.full(ports // 2 * fabric.gpus, fabric.node.pair)])


def inside_name(fabric: Fabric, port: int) -> str:
    """What a port inside a node is, in words; counted as in `port_rates`."""
    gpus = fabric.nodes * fabric.gpus
    if port < 2 * gpus:
        return f"the scale-up link {'out of' if port < gpus else 'into'} GPU {port % gpus}"
    source, target = divmod(port - 2 * gpus, fabric.gpus)
    target += source // fabric.gpus * fabric.gpus
    return f"the scale-up link from GPU {source} to GPU {target}"


def crossed_inside(fabric: Fabric, flows: Chunks, rail: Array, base: int) -> list[Crossed]:
    """The scale-up ports of flows, each given by one of its chunks and its rail; ports are counted
    from `base`.
    """
    found = []
    for hops in (staging(fabric, flows, rail), passing_on(fabric, flows, rail)):
        one, times = np.unique(hops.chunk, return_counts=True)  # all hops of a flow leave one GPU
        source = hops.source[np.searchsorted(hops.chunk, one)]
        found.append(Crossed(one, base + source, times.astype(np.float64)))
        found += _arriving(fabric, hops, base)
    return found


def _arriving(fabric: Fabric, hops: Hops, base: int) -> list[Crossed]:
    """The ports that each hop has for itself: into its target, and its pair's."""
    gpus, once = fabric.nodes * fabric.gpus, np.ones(len(hops.chunk))
    found = [Crossed(hops.chunk, base + gpus + hops.target, once)]
    if fabric.node.pair is not None:
        pair = hops.source * fabric.gpus + hops.target % fabric.gpus
        found.append(Crossed(hops.chunk, base + 2 * gpus + pair, once))
    return found


def scaleup_can_fill(fabric: Fabric, chunks: Chunks) -> bool:
    """Whether some scale-up port is narrower than all that its node's NICs could send through it at
    once.  These are a GPU's own chunks over NICs that are not near, and others' over NICs of which
    it has the bytes first, each as often as a chunk is passed on at most.
    """
    near = fabric.node.near
    owns = np.arange(fabric.gpus)[:, None] == fabric.node.owner
    alone = near & (near.sum(axis=0) == 1)
    copies = max(1, int(needed_by(fabric, chunks).sum(axis=1).max(initial=1)))
    out = fabric.tx @ _as_int64(~near) + copies * (fabric.rx @ _as_int64(near | owns))
    into = fabric.tx @ _as_int64(owns) + fabric.rx @ _as_int64(~alone)
    narrowest = min(fabric.scaleup, fabric.node.pair or fabric.scaleup)
    return max(int(out.max()), int(into.max())) > narrowest


def _as_int64(places: Array) -> Ints:
    """int64 [rails, gpus] from truth values [gpus, rails]."""
    return np.ascontiguousarray(places.T).astype(np.int64)


class Phase(NamedTuple):
    """What is staged, or passed on, as flows: one per pair of GPUs.

    hops              source and target of each flow
    size              int64 [F], bytes
    mark_first, mark  as in `Flows`
    rows              int64 [marks], the chunk of each mark
    """

    hops: Hops
    size: Ints
    mark_first: Ints
    mark: Ints
    rows: Ints


def _phase(fabric: Fabric, chunks: Chunks, hops: Hops, number: int) -> Phase:
    """The hops of chunks as flows, numbered from `number`."""
    pair = hops.source * fabric.gpus + hops.target % fabric.gpus
    order, first, mark, size = joined(pair, chunks.size[hops.chunk])
    head = order[first[:-1]]
    flows = Hops(number + np.arange(len(size)), hops.source[head], hops.target[head])
    return Phase(flows, size, first, mark, hops.chunk[order])


def with_phases(flows: Flows, rows: Ints, plan: Plan) -> tuple[Flows, Ints]:
    """The rails' flows with staging before them and passing on after them, and the chunk of each
    mark; `rows` are those of the rails' marks.  A chunk has arrived with its last mark.
    """
    if plan.stage is not None:
        raise InputError(
            "a plan in stages can't move all that it stages before them: leave scale-up before out"
        )
    fabric, chunks, base = plan.fabric, plan.chunks, len(flows.capacity)
    staged = _phase(fabric, chunks, staging(fabric, chunks, plan.rail), len(flows))
    number = len(flows) + len(staged.size)
    passed = _phase(fabric, chunks, passing_on(fabric, chunks, plan.rail), number)
    rails = np.repeat(np.arange(len(flows)), np.diff(flows.first))
    crossed = [Crossed(rails, flows.path.astype(np.int64), flows.cost)]
    for hops in (staged.hops, passed.hops):
        crossed.append(Crossed(hops.chunk, base + hops.source, np.ones(len(hops.chunk))))
        crossed += _arriving(fabric, hops, base)
    more = len(staged.size) + len(passed.size)
    head = rows[flows.mark_first[:-1]]
    group, needs = _phase_groups(fabric, chunks.src[head], chunks.dst[head], staged, passed)
    capacity = np.concatenate([flows.capacity, port_rates(fabric)])
    none_arrived = np.full(len(staged.size), len(flows.mark))
    first, path, cost = paths_of(crossed, len(flows) + more)
    joint = replace(
        flows,
        capacity=capacity,
        first=first,
        path=path,
        cost=cost,
        size=np.concatenate([flows.size, staged.size, passed.size]),
        weight=np.concatenate([flows.weight, np.ones(more)]),
        start_ps=np.concatenate([flows.start_ps, np.zeros(more, np.int64)]),
        latency_ps=np.concatenate([flows.latency_ps, np.zeros(more, np.int64)]),
        group=group,
        needs=needs,
        mark_first=np.concatenate(
            [flows.mark_first, none_arrived, len(flows.mark) + passed.mark_first[1:]]
        ),
        mark=np.concatenate([flows.mark, passed.mark]),
        track=np.concatenate(
            [
                flows.track,
                np.full(len(staged.size), fabric.rails, np.int32),
                np.full(len(passed.size), fabric.rails + 1, np.int32),
            ]
        ),
        fan_in=np.concatenate([flows.fan_in, np.zeros(len(capacity) - base, np.bool_)]),
    )
    return joint, np.concatenate([rows, passed.rows])


def _phase_groups(
    fabric: Fabric, src: Array, dst: Array, staged: Phase, passed: Phase
) -> tuple[Array, Array]:
    """Groups and needs: staging of a node, the rails of a pair of nodes (int32 [F]: `src`, `dst`),
    passing on of a node.
    """
    nodes = fabric.nodes
    before = staged.hops.source // fabric.gpus
    rails = nodes + src.astype(np.int64) * nodes + dst
    after = nodes + nodes**2 + passed.hops.source // fabric.gpus
    pairs = np.unique(rails)
    k, f = np.divmod(pairs - nodes, nodes)
    waits, ends = np.isin(k, before), np.isin(nodes + nodes**2 + f, after)
    needs = np.concatenate(
        [
            np.stack([pairs[waits], k[waits]], axis=1),
            np.stack([nodes + nodes**2 + f[ends], pairs[ends]], axis=1),
        ]
    )
    names, group = np.unique(np.concatenate([rails, before, after]), return_inverse=True)
    return group, np.searchsorted(names, needs)
