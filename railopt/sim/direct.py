"""Direct traffic: every flow leaves through its source GPU's own NIC and arrives at its target's,
whatever the rail.

A flow that changes rail goes up one of its leaf's links to a spine and down to the other leaf; who
chooses the link is the balancer.  Spine u has one link to every leaf (full bisection where there
are as many as nodes: the default).

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
              cost capacity: Assumptions.spray of it is usable
    reps      packets over recycled paths that did not see congestion (REPS): as spray with
              Assumptions.reps

The shares come from packet-level runs (UEC htsim, 8 x 8 NICs at 400 Gb/s) of one cross-rail
one-to-one stage of 8 MiB flows: 222 us sprayed and 192 us with REPS, where the same stage takes 174
us inside the rails.

A balancer is one entry of BALANCERS: a function that chooses a spine for each flow, or the share of
the uplinks' capacity that spreading packets over all spines can use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.dice import Dice
from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import quoted
from railopt.model.fabric import Fabric, Spine
from railopt.model.traffic import Traffic
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.flows import Flows
from railopt.sim.from_plan import changes_of, fan_in_of, nic_capacity, port_name

PLB_ROUNDS = 8
PLB_CROWDED = 1.25  # a link is crowded above this multiple of its leaf's mean


class Crossing(NamedTuple):
    """The flows that change rail, and the spines they may take.

    size      int64 [flows], bytes
    leaf      int64 [flows], the rail that a flow leaves on
    target    int64 [flows], the rail that it arrives on
    rails     how many leaves there are
    uplinks   spines, each with one link to every leaf
    seed      of random choices
    """

    size: Ints
    leaf: Ints
    target: Ints
    rails: int
    uplinks: int
    seed: int


def hashed(flows: Crossing) -> Ints:
    """One uniformly random uplink a flow."""
    return Dice(flows.seed, "hash").below(flows.uplinks, len(flows.size))


def plb(flows: Crossing) -> Ints:
    """Hash; then, a few rounds, half of the flows on a link with over 1.25 times the mean bytes
    draw again.
    """
    size, leaf, target, rails, uplinks, seed = flows
    dice = Dice(seed, "plb")
    chosen = dice.below(uplinks, len(size))
    mean_up = np.bincount(leaf, size, rails)[leaf] / uplinks
    mean_down = np.bincount(target, size, rails)[target] / uplinks
    for _ in range(PLB_ROUNDS):
        going, coming = leaf * uplinks + chosen, target * uplinks + chosen
        up = np.bincount(going, size, rails * uplinks)[going]
        down = np.bincount(coming, size, rails * uplinks)[coming]
        crowded = (up > PLB_CROWDED * mean_up) | (down > PLB_CROWDED * mean_down)
        again = crowded & (dice.below(2, len(size)) == 0)
        chosen = np.where(again, dice.below(uplinks, len(size)), chosen)
    return chosen


def minrtt(flows: Crossing) -> Ints:
    """In random order, each flow to the path with the fewest flows."""
    order = Dice(flows.seed, "minrtt").permutation(len(flows.size))
    return _least_loaded(order, np.ones(len(flows.size), np.int64), flows)


def adaptive(flows: Crossing) -> Ints:
    """Largest first, each flow to the path with the fewest bytes."""
    return _least_loaded(np.argsort(-flows.size, kind="stable"), flows.size, flows)


def _least_loaded(order: Ints, load: Ints, flows: Crossing) -> Ints:
    from railopt.sim import graph

    chosen = np.empty(len(order), np.int64)
    graph.least_loaded(order, load, flows.leaf, flows.target, flows.rails, flows.uplinks, chosen)
    return chosen


class Balancer(NamedTuple):
    """Who chooses the links of flows that change rail: one of the two.

    choose    the spine of each flow, int64 [flows] from 0 to uplinks - 1
    usable    packets over all spines: the share of the uplinks' capacity that this can use
    seeded    whether the seed changes anything
    """

    choose: Callable[[Crossing], Ints] | None = None
    usable: Callable[[Assumptions], Fraction] | None = None
    seeded: bool = False


BALANCERS: dict[str, Balancer] = {
    "ecmp": Balancer(hashed, seeded=True),
    "plb": Balancer(plb, seeded=True),
    "minrtt": Balancer(minrtt, seeded=True),
    "adaptive": Balancer(adaptive),
    "spray": Balancer(usable=lambda assumed: assumed.spray),
    "reps": Balancer(usable=lambda assumed: assumed.reps),
}


def balancer_named(name: str) -> Balancer:
    """An entry of BALANCERS."""
    if name not in BALANCERS:
        raise InputError(
            f"unknown balancer {quoted(name)}; known balancers: {', '.join(BALANCERS)}"
            f"{did_you_mean(name, BALANCERS)}"
        )
    return BALANCERS[name]


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
    leaf, target = nic[src_gpu % fabric.gpus], nic[dst_gpu % fabric.gpus]
    sending = src_gpu // fabric.gpus * fabric.rails + leaf
    receiving = dst_gpu // fabric.gpus * fabric.rails + target
    ends = Ends(sending, receiving, leaf, target, fabric.rails, size)
    return flows_between(fabric, ends, balancer, assumed, faults, seed)


class Ends(NamedTuple):
    """Where flows leave and arrive.

    sending, receiving   int64 [flows]: NICs, as node * rails + rail
    leaf, target         int64 [flows]: the switch that each of them hangs on
    leaves               how many switches there are
    size                 int64 [flows], bytes
    """

    sending: Ints
    receiving: Ints
    leaf: Ints
    target: Ints
    leaves: int
    size: Ints


def flows_between(
    fabric: Fabric,
    ends: Ends,
    balancer: str,
    assumed: Assumptions,
    faults: Sequence[Fault] = (),
    seed: int = 0,
) -> Flows:
    """Flows from NIC to NIC, over the spine where their switches differ."""
    chosen = balancer_named(balancer)
    if seed < 0:
        raise InputError(f"a seed of {seed}: expected 0 or more")
    size, leaf, target, nics = ends.size, ends.leaf, ends.target, fabric.nodes * fabric.rails
    path = np.full((len(size), 4), -1, np.int64)
    path[:, 0], path[:, 1] = ends.sending, nics + ends.receiving
    away = np.flatnonzero(leaf != target)
    spine = fabric.spine or Spine(fabric.nodes, int(max(fabric.tx.max(), fabric.rx.max())))
    crossing = Crossing(size[away], leaf[away], target[away], ends.leaves, spine.uplinks, seed)
    up, down, links = _spine_links(chosen, crossing, spine, assumed)
    path[away, 2], path[away, 3] = 2 * nics + up, 2 * nics + down
    capacity = np.concatenate([nic_capacity(fabric, assumed), assumed.on_wire(links)])
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
        latency_ps=np.where(leaf != target, 2 * hop, hop),
        changes=changes_of(fabric, assumed, faults),
        track=(ends.sending % fabric.rails).astype(np.int32),
        **fan_in_of(assumed, nics, len(capacity), path[:, 1]),
        describe=lambda port: (
            port_name(fabric, port) if port < 2 * nics else f"spine link {port - 2 * nics}"
        ),
    )


def _spine_links(
    balancer: Balancer, crossing: Crossing, spine: Spine, assumed: Assumptions
) -> tuple[Ints, Ints, Ints]:
    """(the uplink of each flow, its downlink, both counted from the first spine link; the rate of
    each link, int64): a link a leaf and spine each way, or all uplinks of a leaf as one.
    """
    rails, uplinks = crossing.rails, spine.uplinks
    if balancer.choose is not None:
        chosen = balancer.choose(crossing)
        up, down = crossing.leaf * uplinks + chosen, (rails + crossing.target) * uplinks + chosen
        return up, down, np.full(2 * rails * uplinks, spine.rate)
    assert balancer.usable is not None
    rate = int(spine.rate * uplinks * balancer.usable(assumed))
    return crossing.leaf, rails + crossing.target, np.full(2 * rails, rate)
