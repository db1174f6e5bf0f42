"""Direct traffic: every flow leaves through its source GPU's own NIC and arrives at its target's,
whatever the rail.

A flow that changes rail goes up one of its leaf's links to a spine and down to the other leaf; who
chooses the link is
the balancer.  Spine u has one link to every leaf (full bisection where there are as many as nodes:
               the default).

    ecmp      one hashed path a flow, for good: per-flow ECMP
    plb       hashed, and hashed again while its path is crowded, a few rounds: PLB (Qureshi et al.,
              SIGCOMM 2022), which draws a new path for a flow that sees marks; blind draws, so
              crowding falls but stays
    minrtt    each flow in turn to the path with the fewest flows on its busiest link: a sender that
              probes delays and takes the quickest path; sees how many there are, not how long they
              will be
    adaptive  each flow in turn, largest first, to the path with the fewest bytes on its busiest
              link: the limit of any per-flow choice that knows the loads
    spray     every packet its own random path: the uplinks of a leaf as one port.  Random queues
              cost capacity: Model.spray of it is usable
    reps      packets over recycled paths that did not see congestion (REPS): as spray with
              Model.reps

The shares come from packet-level runs (UEC htsim, 8 x 8 NICs at 400 Gb/s) of one cross-rail
one-to-one stage of 8 MiB flows: 222 us sprayed and 192 us with REPS, where the same stage takes 174
us inside the rails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from railopt.arrays import Ints
from railopt.errors import InputError
from railopt.fabric import Fabric, Spine
from railopt.sim.from_plan import changes_of, fan_in_of, nic_capacity, port_name
from railopt.sim.job import Job
from railopt.sim.model import Fault, Model
from railopt.traffic import Traffic

PLB_ROUNDS = 8
PLB_CROWDED = 1.25  # a link is crowded above this multiple of its leaf's mean


def hashed(size: Ints, leaf: Ints, target: Ints, rails: int, uplinks: int, seed: int) -> Ints:
    """One uniformly random uplink a flow."""
    return np.random.default_rng([seed, 0]).integers(0, uplinks, len(size))


def plb(size: Ints, leaf: Ints, target: Ints, rails: int, uplinks: int, seed: int) -> Ints:
    """Hash; then, a few rounds, half of the flows on a link with over 1.25 times the mean bytes
    draw again.
    """
    rng = np.random.default_rng([seed, 1])
    chosen = rng.integers(0, uplinks, len(size))
    mean_up = np.bincount(leaf, size, rails)[leaf] / uplinks
    mean_down = np.bincount(target, size, rails)[target] / uplinks
    for _ in range(PLB_ROUNDS):
        up = np.bincount(leaf * uplinks + chosen, size, rails * uplinks)[leaf * uplinks + chosen]
        down = np.bincount(target * uplinks + chosen, size, rails * uplinks)[
            target * uplinks + chosen
        ]
        crowded = (up > PLB_CROWDED * mean_up) | (down > PLB_CROWDED * mean_down)
        again = crowded & (rng.random(len(size)) < 0.5)
        chosen = np.where(again, rng.integers(0, uplinks, len(size)), chosen)
    return chosen


def minrtt(size: Ints, leaf: Ints, target: Ints, rails: int, uplinks: int, seed: int) -> Ints:
    """In random order, each flow to the path with the fewest flows."""
    order = np.random.default_rng([seed, 2]).permutation(len(size))
    return _least_loaded(order, np.ones(len(size), np.int64), leaf, target, rails, uplinks)


def adaptive(size: Ints, leaf: Ints, target: Ints, rails: int, uplinks: int, seed: int) -> Ints:
    """Largest first, each flow to the path with the fewest bytes."""
    return _least_loaded(np.argsort(-size, kind="stable"), size, leaf, target, rails, uplinks)


def _least_loaded(
    order: Ints, load: Ints, leaf: Ints, target: Ints, rails: int, uplinks: int
) -> Ints:
    from railopt.sim import graph

    chosen = np.empty(len(order), np.int64)
    graph.least_loaded(order, load, leaf, target, rails, uplinks, chosen)
    return chosen


PATHS: dict[str, Callable[..., Ints]] = {
    "ecmp": hashed,
    "plb": plb,
    "minrtt": minrtt,
    "adaptive": adaptive,
}
SPRAYS = ("spray", "reps")
BALANCERS = (*PATHS, *SPRAYS)


def nic_of_gpu(fabric: Fabric) -> Ints:
    """int64 [gpus]: the rail of each local GPU's own NIC."""
    return np.arange(fabric.gpus) * fabric.rails // fabric.gpus


def job_of_traffic(
    fabric: Fabric,
    traffic: Traffic,
    balancer: str,
    model: Model,
    faults: Sequence[Fault] = (),
    seed: int = 0,
) -> Job:
    """Direct traffic as a job, one flow a pair of GPUs."""
    if balancer not in BALANCERS:
        raise InputError(f"unknown balancer {balancer!r}; known balancers: {', '.join(BALANCERS)}")
    spine = fabric.spine or Spine(fabric.nodes, int(max(fabric.tx.max(), fabric.rx.max())))
    src_gpu, dst_gpu, size = traffic.flows()
    nic = nic_of_gpu(fabric)
    src, dst = src_gpu // fabric.gpus, dst_gpu // fabric.gpus
    leaf, target = nic[src_gpu % fabric.gpus], nic[dst_gpu % fabric.gpus]
    nics = fabric.nodes * fabric.rails
    path = np.full((len(size), 4), -1, np.int64)
    path[:, 0], path[:, 1] = src * fabric.rails + leaf, nics + dst * fabric.rails + target
    away = np.flatnonzero(leaf != target)
    if balancer in PATHS:
        chosen = PATHS[balancer](
            size[away], leaf[away], target[away], fabric.rails, spine.uplinks, seed
        )
        path[away, 2] = 2 * nics + leaf[away] * spine.uplinks + chosen
        path[away, 3] = 2 * nics + (fabric.rails + target[away]) * spine.uplinks + chosen
        links = np.full(2 * fabric.rails * spine.uplinks, model.on_wire(np.array([spine.rate]))[0])
    else:
        path[away, 2], path[away, 3] = 2 * nics + leaf[away], 2 * nics + fabric.rails + target[away]
        usable: Fraction = getattr(model, balancer)
        links = np.full(
            2 * fabric.rails, model.on_wire(np.array([int(spine.rate * spine.uplinks * usable)]))[0]
        )
    capacity = np.concatenate([nic_capacity(fabric, model), links])
    present = path >= 0
    cost = np.ones(path.shape)
    cost[:, 0] += model.alpha_ps / size * (capacity[path[:, 0]] / 1e12)
    hop = fabric.latency_ps if model.latency else 0
    return Job(
        capacity,
        np.concatenate([[0], np.cumsum(present.sum(axis=1))]),
        path[present].astype(np.int32),
        size,
        cost[present],
        latency_ps=np.where(leaf != target, 2 * hop, hop),
        changes=changes_of(fabric, model, faults),
        track=leaf.astype(np.int32),
        **fan_in_of(model, nics, len(capacity), path[:, 1]),
        describe=lambda port: (
            port_name(fabric, port) if port < 2 * nics else f"spine link {port - 2 * nics}"
        ),
    )
