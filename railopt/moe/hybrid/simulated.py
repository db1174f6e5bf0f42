"""One block in the simulator: the gathers beside the pre-expert compute, then the data there and
back, level by level; with gradients, their return beside the backward compute and the data again.

Ports are each member's outgoing and incoming link at a level; levels follow each other, the
outermost first.

All members of a level are alike (even gating, equal links), so a rotation of the members maps every
flow onto the flows of the same hop distance.  A flow merges the bytes of all workers below a
member, and all distances become `HOPS` of them.  Every link still carries exactly its bytes, and
every flow shares its links with flows of the same size only: max-min fairness gives each the rate
that it has in the full run.  Cost grows linearly with the members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX, PS_PER_S
from railopt.moe.hybrid.stream import Domain, Stream
from railopt.sim import Flows, simulate

HOPS = 4
MAX_SIMULATED = 1 << 16  # members of a level


def block_time(stream: Stream, domains: Sequence[Domain]) -> Fraction:
    """Simulated seconds of what `latency().total` says, which it is where the model's assumptions
    hold: the forward pass, and the backward pass too if the stream has gradients.
    """
    if not all(domain.equal for domain in domains):
        raise InputError(
            "unequal domains can't be simulated: their workers have no partners of the same "
            "offset; give equal sizes with --sizes, or leave out --simulate"
        )
    if max(level.count for level in stream.levels) > MAX_SIMULATED:
        raise InputError(
            f"a level of more than {MAX_SIMULATED} members takes too long to simulate: leave out "
            f"--simulate"
        )
    exchange = _levels(stream, domains, experts=False)
    gather = _levels(stream, domains, experts=True)
    held = prod(domain.largest for domain in domains)
    copies = stream.decode * (held - 1) + stream.encode * (held > 1)
    forward = max(stream.pre, gather) + copies + 2 * exchange
    if not stream.gradients:
        return forward
    plain = replace(stream, compression=Fraction(1))  # gradients return uncompressed
    returned = _levels(plain, domains, experts=True)
    return forward + max(stream.post, returned) + 2 * exchange


def _levels(stream: Stream, domains: Sequence[Domain], *, experts: bool) -> Fraction:
    """Seconds of the messages of one kind, one way: levels one after the other."""
    took = Fraction(0)
    for level in range(len(stream.levels)):
        flows = _ring(stream, domains, level, experts=experts)
        if flows is not None:
            took += Fraction(simulate(flows).completion_ps, PS_PER_S)
    return took


def _ring(stream: Stream, domains: Sequence[Domain], level: int, *, experts: bool) -> Flows | None:
    """The messages of one kind at one level between its members, or None where there are none."""
    here, domain = stream.levels[level], domains[level]
    below = prod(inner.count for inner in stream.levels[level + 1 :])
    if experts:
        held = prod(outer.largest for outer in domains[:level])
        size = Fraction(stream.expert * held) / stream.compression * below
        hops = np.arange(1, domain.largest)
    else:
        size = Fraction(stream.data * domain.largest * below, here.count)
        hops = np.arange(1, domain.count) * domain.largest
    if not len(hops):
        return None
    kept = hops[:HOPS]
    each = -(-size * len(hops) // len(kept))
    latency_ps = int(here.latency * len(hops) * PS_PER_S)
    if each > INT64_MAX or latency_ps > INT64_MAX:
        raise InputError(
            f"a message of {int(each)} bytes at level {here.name}: too large to be simulated"
        )
    members = np.arange(here.count)
    if experts:  # hops stay inside the domain
        base = members // domain.largest * domain.largest
        target = base[:, None] + (members[:, None] - base[:, None] + kept) % domain.largest
    else:
        target = (members[:, None] + kept) % here.count
    source = np.broadcast_to(members[:, None], target.shape)
    path = np.stack([source.ravel(), here.count + target.ravel()], axis=1)
    flows = len(path)
    return Flows(
        capacity=np.full(2 * here.count, here.bandwidth, np.int64),
        first=2 * np.arange(flows + 1),
        path=path.ravel(),
        size=np.full(flows, int(each), np.int64),
        latency_ps=np.full(flows, latency_ps, np.int64),
    )
