"""Who chooses the links above the leaf switches, and what flows then cross.

A flow between two leaves goes up a link of one to a switch of the tier above, and from that down to
the other: link u of every leaf leads to switch u.

    ecmp      one hashed path per flow, for good: per-flow ECMP
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
one-to-one stage of 8 MiB flows.  It takes 222 us sprayed and 192 us with REPS, where the same stage
takes 174 us inside the rails.

A balancer is one entry of BALANCERS: a function that chooses a switch above for each flow, or the
share of the uplinks' capacity that spreading packets over all of them can use.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.dice import Dice, mixed
from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import quoted
from railopt.model.fabric import Fabric
from railopt.sim.assumptions import Assumptions

PLB_ROUNDS = 8  # a model, not tuned: times that a flow may see marks, and draw anew, in a stage
PLB_CROWDED = 1.25  # a link is crowded above this multiple of its leaf's mean


class Crossing(NamedTuple):
    """The flows between leaves, and the switches above that they may take.

    size      int64 [flows], bytes
    leaf      int64 [flows], where a flow goes up
    target    int64 [flows], where it comes down
    rails     how many leaves there are
    uplinks   switches above, each with one link to every leaf
    seed      of random choices
    number    int64 [flows]: of the connections of a plan, which keep their hashed path whatever
              else is sent; None: draws in the order of the flows
    """

    size: Ints
    leaf: Ints
    target: Ints
    rails: int
    uplinks: int
    seed: int
    number: Ints | None = None


def hashed(flows: Crossing) -> Ints:
    """One uniformly random uplink a flow."""
    dice = Dice(flows.seed, "hash")
    if flows.number is None:
        return dice.below(flows.uplinks, len(flows.size))
    words = mixed(flows.number.astype(np.uint64) + dice.words(1))
    return (words % np.uint64(flows.uplinks)).astype(np.int64)


def plb(flows: Crossing) -> Ints:
    """Hash; then, a few rounds, half of the flows on a link with over 1.25 times the mean bytes
    draw again.
    """
    size, leaf, target, rails, uplinks, seed, _ = flows
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
    """Who chooses the links of flows between leaves: one of the two.

    choose    the switch above of each flow, int64 [flows] from 0 to uplinks - 1
    usable    packets over all of them: the share of the uplinks' capacity that this can use
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


class Ends(NamedTuple):
    """Where flows leave and arrive.

    sending, receiving   int64 [flows]: NICs, as node * rails + rail
    size                 int64 [flows], bytes
    number               int64 [flows]: as in `Crossing`
    stage                int64 [flows]: flows of different stages don't meet; None: all do
    """

    sending: Ints
    receiving: Ints
    size: Ints
    number: Ints | None = None
    stage: Ints | None = None


class Above(NamedTuple):
    """What flows cross above the leaves.

    flow       int64 [crossing]: the flows that leave their leaf
    up, down   int64 [crossing]: the ports of each, counted from the first
    rates      int64 [ports]: a port per leaf and link, up and then down; or per leaf, where packets
               are spread over all links
    """

    flow: Ints
    up: Ints
    down: Ints
    rates: Ints


def above(fabric: Fabric, ends: Ends, balancer: Balancer, assumed: Assumptions, seed: int) -> Above:
    """The links that a balancer chooses for flows."""
    tier, leaves = fabric.tier, fabric.tier.count(fabric.nodes, fabric.rails)
    leaf, target = (
        tier.of(*np.divmod(nic, fabric.rails), fabric.nodes)
        for nic in (ends.sending, ends.receiving)
    )
    flow = np.flatnonzero(leaf != target)
    leaf, target = leaf[flow], target[flow]
    if balancer.choose is None:
        assert balancer.usable is not None
        rate = int(tier.capacity * balancer.usable(assumed))
        return Above(flow, leaf, leaves + target, assumed.on_wire(np.full(2 * leaves, rate)))
    number = None if ends.number is None else ends.number[flow]
    turn = np.zeros_like(flow) if ends.stage is None else leaves * ends.stage[flow]
    turns = leaves * (1 + int(turn.max(initial=0)) // leaves)
    chosen = balancer.choose(
        Crossing(ends.size[flow], turn + leaf, turn + target, turns, tier.uplinks, seed, number)
    )
    up, down = leaf * tier.uplinks + chosen, (leaves + target) * tier.uplinks + chosen
    return Above(flow, up, down, assumed.on_wire(np.full(2 * leaves * tier.uplinks, tier.rate)))


def above_name(fabric: Fabric, port: int, pooled: bool) -> str:
    """What a port of `Above` is, in words."""
    tier, leaves = fabric.tier, fabric.tier.count(fabric.nodes, fabric.rails)
    place, link = (port, None) if pooled else divmod(port, tier.uplinks)
    way = "up from" if place < leaves else "down to"
    which = "the links" if link is None else f"link {link}"
    return f"{which} {way} the leaf of {tier.name(place % leaves, fabric.nodes)}"
