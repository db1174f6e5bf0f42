"""Direct traffic: every flow leaves through its source GPU's own NIC and arrives at its target's,
whatever the rail.

A flow that changes leaf crosses the tier above: of a fabric with leaves, between any two of them;
else between rails, each of which is a leaf, under the spine (full bisection where none is given).
Who chooses the links is the balancer (`railopt.sim.balancers`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.balancers import Ends, above, above_name, balancer_named
from railopt.sim.flows import Flows
from railopt.sim.from_plan import changes_of, fan_in_of, nic_capacity, port_name


def nic_of_gpu(fabric: Fabric) -> Ints:
    """int64 [gpus]: the rail of each local GPU's own NIC, the first that it is near."""
    return np.argmax(fabric.node.near, axis=1)


def flows_of_traffic(
    fabric: Fabric,
    traffic: Traffic,
    balancer: str,
    assumed: Assumptions,
    faults: Sequence[Fault] = (),
    seed: int = 0,
) -> Flows:
    """Direct traffic, one flow a pair of GPUs."""
    src_gpu, dst_gpu, size = traffic.flows()
    nic = nic_of_gpu(fabric)
    sending, receiving = (
        gpu // fabric.gpus * fabric.rails + nic[gpu % fabric.gpus] for gpu in (src_gpu, dst_gpu)
    )
    ends = Ends(sending, receiving, size)
    return flows_between(fabric, ends, balancer, assumed, faults, seed)


def flows_between(
    fabric: Fabric,
    ends: Ends,
    balancer: str,
    assumed: Assumptions,
    faults: Sequence[Fault] = (),
    seed: int = 0,
) -> Flows:
    """Flows from NIC to NIC, over the tier above where their leaves differ."""
    chosen = balancer_named(balancer)
    if seed < 0:
        raise InputError(f"a seed of {seed}: expected 0 or more")
    size, nics = ends.size, fabric.nodes * fabric.rails
    path = np.full((len(size), 4), -1, np.int64)
    path[:, 0], path[:, 1] = ends.sending, nics + ends.receiving
    links = above(fabric, ends, chosen, assumed, seed)
    path[links.flow, 2], path[links.flow, 3] = 2 * nics + links.up, 2 * nics + links.down
    capacity = np.concatenate([nic_capacity(fabric, assumed), links.rates])
    present = path >= 0
    cost = np.ones(path.shape)
    cost[:, 0] += assumed.alpha_ps / size * (capacity[path[:, 0]] / 1e12)
    hop = fabric.latency_ps if assumed.latency else 0
    return Flows(
        capacity,
        np.concatenate([[0], np.cumsum(present.sum(axis=1))]),
        path[present].astype(np.int32),
        size,
        cost[present],
        latency_ps=np.where(path[:, 2] >= 0, 2 * hop, hop),
        changes=changes_of(fabric, assumed, faults),
        track=(ends.sending % fabric.rails).astype(np.int32),
        **fan_in_of(assumed, nics, len(capacity), path[:, 1]),
        describe=lambda port: (
            port_name(fabric, port)
            if port < 2 * nics
            else above_name(fabric, port - 2 * nics, chosen.choose is None)
        ),
    )
