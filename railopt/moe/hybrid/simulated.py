"""One block in the simulator: the gathers beside the pre-expert compute, then the data there and
back, level by level.

Ports are each member's outgoing and incoming link at a level; levels follow each other, the
outermost first.

All members of a level are alike (even gating, equal links), so a rotation of the members maps every
flow onto the flows
of the same hop distance.  The job merges the bytes of all workers below a member, and of all
                           distances into `HOPS` of
them: every link still carries exactly its bytes, and every flow shares its links with flows of the
same size only, so
max-min fairness gives each the rate that it has in the full job.  Cost grows linearly with the
members.  `merge=False` keeps every distance apart; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from railopt.moe.hybrid.stream import Domain, Stream
from railopt.sim import Job, simulate
from railopt.units import PS_PER_S

HOPS = 4


def block_time(stream: Stream, domains: Sequence[Domain], *, merge: bool = True) -> Fraction:
    """Simulated seconds of one forward block: the model's `latency().total` where its assumptions
    hold.
    """
    gather, exchange = [], []
    for level in range(len(stream.levels)):
        gather.append(_ring(stream, domains, level, experts=True, merge=merge))
        exchange.append(_ring(stream, domains, level, experts=False, merge=merge))
    pre = max(stream.pre, _run([job for job in gather if job is not None]))
    data = [job for job in exchange if job is not None]
    held = prod(domain.largest for domain in domains)
    return (
        pre
        + stream.decode * (held - 1)
        + stream.encode * (held > 1)
        + _run(data)
        + _run(data[::-1])
    )


def _run(jobs: Sequence[Job]) -> Fraction:
    """Levels one after the other: the sum of what each takes."""
    return sum((Fraction(simulate(job).completion_ps, PS_PER_S) for job in jobs), Fraction(0))


def _ring(
    stream: Stream, domains: Sequence[Domain], level: int, *, experts: bool, merge: bool
) -> Job | None:
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
    kept = hops[:HOPS] if merge else hops
    each = -(-size * len(hops) // len(kept))
    members = np.arange(here.count)
    if experts:  # hops stay inside the domain
        base = members // domain.largest * domain.largest
        target = base[:, None] + (members[:, None] - base[:, None] + kept) % domain.largest
    else:
        target = (members[:, None] + kept) % here.count
    source = np.broadcast_to(members[:, None], target.shape)
    path = np.stack([source.ravel(), here.count + target.ravel()], axis=1)
    latency = here.latency * len(hops)
    flows = len(path)
    return Job(
        capacity=np.full(2 * here.count, here.bandwidth, np.int64),
        first=2 * np.arange(flows + 1),
        path=path.ravel(),
        size=np.full(flows, int(each), np.int64),
        latency_ps=np.full(flows, int(latency * PS_PER_S), np.int64),
    )
