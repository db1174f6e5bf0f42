"""The domain-based partition: coordinates, and who exchanges what with whom.

Worker m has coordinates x_l = (m div prod of the deeper counts) mod count_l.  Two workers meet at
level l if their coordinates agree at every other level.  They exchange experts (AG) if they are of
one domain there, data (A2A) if they are of different domains and have the same offset in them, else
nothing (HybridEP, section on domain-based partition).  Domains need equal sizes here: offsets must
match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, in_stages
from railopt.model.traffic import Traffic
from railopt.moe.hybrid.stream import Domain, Stream
from railopt.policies import plan

MOST_LISTED = 1 << 13  # workers


class Messages(NamedTuple):
    """Messages of one kind at one level: int64 [n] workers, and bytes of each message."""

    src: Ints
    dst: Ints
    size: int


def coordinates(counts: Sequence[int]) -> Ints:
    """int64 [workers, levels]: the coordinates of every worker."""
    return np.stack(np.unravel_index(np.arange(prod(counts)), tuple(counts)), axis=1).astype(
        np.int64
    )


def _expect_equal(domain: Domain) -> None:
    if not domain.equal:
        raise InputError(
            f"{domain.count} domains of {domain.members} members are not equal: workers have no "
            f"partners of the same offset"
        )


def messages(stream: Stream, domains: Sequence[Domain], level: int) -> tuple[Messages, Messages]:
    """(expert messages, data messages) at one level: every ordered pair that meets there, with its
    bytes, rounded up.
    """
    domain, counts = domains[level], [one.count for one in stream.levels]
    _expect_equal(domain)
    mine = coordinates(counts)[:, level]
    step = prod(counts[level + 1 :])
    workers = np.arange(prod(counts))
    hops = np.arange(1, counts[level])
    other = (mine[:, None] + hops) % counts[level]
    peer = workers[:, None] + (other - mine[:, None]) * step
    same_domain = mine[:, None] // domain.largest == other // domain.largest
    same_offset = mine[:, None] % domain.largest == other % domain.largest
    source = np.broadcast_to(workers[:, None], peer.shape)
    held = prod(outer.largest for outer in domains[:level])
    expert = -(-stream.expert * held // stream.compression)
    tokens = -(-stream.data * domain.largest // domain.members)
    experts, data = same_domain, ~same_domain & same_offset
    return (
        Messages(source[experts], peer[experts], int(expert)),
        Messages(source[data], peer[data], int(tokens)),
    )


def message_counts(stream: Stream, domains: Sequence[Domain]) -> tuple[int, int]:
    """(data messages, expert messages) over all levels; one level: G (G/S - 1) and G (S - 1)."""
    for domain in domains:
        _expect_equal(domain)
    workers = stream.workers
    return (
        workers * sum(domain.count - 1 for domain in domains),
        workers * sum(domain.largest - 1 for domain in domains),
    )


class BlockTraffic(NamedTuple):
    """What the GPUs of a fabric send in one block, forward: copies of experts, tokens, and tokens
    back.
    """

    experts: Traffic
    dispatch: Traffic

    def plan(self, fabric: Fabric, policy: str, chunk: str | int) -> Plan:
        """What crosses NICs: experts, dispatch and combine as stages 0, 1 and 2."""
        back = replace(self.dispatch, bytes=self.dispatch.bytes.T.copy())
        every = [each.chunks(chunk) for each in (self.experts, self.dispatch, back)]
        return in_stages(
            fabric,
            {stage: plan(fabric, each, policy) for stage, each in enumerate(every) if len(each)},
        )


def fabric_of(stream: Stream) -> Fabric:
    """One NIC per member of the outer level, and the inner level as scale-up."""
    if len(stream.levels) > 2:
        raise InputError(
            f"{len(stream.levels)} levels: a plan is for one or two; describe the inner ones by "
            f"--fabric"
        )
    outer, inner = stream.levels[0], (*stream.levels, None)[1]
    made = Fabric.uniform(outer.count, 1, outer.bandwidth, gpus=inner.count if inner else 1)
    made = replace(made, latency_ps=int(outer.latency * PS_PER_S))
    return replace(made, scaleup=inner.bandwidth) if inner else made


def traffic(stream: Stream, domains: Sequence[Domain], fabric: Fabric) -> BlockTraffic:
    """All messages between the fabric's GPUs, for the plan tools.  The fabric's GPUs are the first
    workers, in order: all of them, or one member of the levels outside of its nodes.
    """
    gpus = fabric.nodes * fabric.gpus
    counts = [level.count for level in stream.levels]
    inside = next((n for n in range(len(counts)) if prod(counts[n:]) == gpus), None)
    if inside is None:
        raise InputError(
            f"{stream.workers} workers, the fabric has {fabric.nodes} x {fabric.gpus} GPUs"
        )
    sent: Ints = np.zeros((2, gpus, gpus), np.int64)
    for level in range(inside, len(counts)):
        for matrix, each in zip(sent, messages(stream, domains, level), strict=True):
            here = each.src < gpus  # levels inside join GPUs of one member
            np.add.at(matrix, (each.src[here], each.dst[here]), each.size)
    return BlockTraffic(*(Traffic.from_matrix(matrix, fabric) for matrix in sent))


def held(stream: Stream, domains: Sequence[Domain]) -> list[list[int]]:
    """Whose experts each worker has after the gathers, its own among them."""
    if stream.workers > MOST_LISTED:
        raise InputError(f"{stream.workers} workers: at most {MOST_LISTED} are listed one by one")
    for domain in domains:
        _expect_equal(domain)
    own = coordinates([level.count for level in stream.levels])
    domain_of = own // [domain.largest for domain in domains]
    return [np.flatnonzero((domain_of == mine).all(axis=1)).tolist() for mine in domain_of]
