"""The domain-based partition: coordinates, and who exchanges what with whom.

Worker m has coordinates x_l = (m div prod of the deeper counts) mod count_l.  Two workers meet at
level l if their coordinates agree at every other level; they exchange experts (AG) if they are of
one domain there, data (A2A) if they are of different domains and have the same offset in them;
otherwise nothing (HybridEP, section on domain-based partition). Domains need equal sizes here:
offsets must match.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.hybrid.stream import Domain, Stream


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


def meetings(
    counts: Sequence[int], domains: Sequence[Domain], level: int
) -> tuple[Messages, Messages]:
    """(expert messages, data messages) at one level, without sizes: every ordered pair that meets
    there.
    """
    domain = domains[level]
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
    experts, data = same_domain, ~same_domain & same_offset
    return Messages(source[experts], peer[experts], 0), Messages(source[data], peer[data], 0)


def _expect_equal(domain: Domain) -> None:
    if not domain.equal:
        raise InputError(
            f"{domain.count} domains of {domain.members} members are not equal: workers have no "
            f"partners of the same offset"
        )


def messages(stream: Stream, domains: Sequence[Domain], level: int) -> tuple[Messages, Messages]:
    """(expert messages, data messages) of one level with their sizes, rounded up to whole bytes."""
    counts = [one.count for one in stream.levels]
    experts, data = meetings(counts, domains, level)
    held = prod(domain.largest for domain in domains[:level])
    expert = -(-stream.expert * held // stream.compression)
    tokens = -(-stream.data * domains[level].largest // counts[level])
    return experts._replace(size=int(expert)), data._replace(size=int(tokens))


def message_counts(stream: Stream, domains: Sequence[Domain]) -> tuple[int, int]:
    """(data messages, expert messages) over all levels; one level: G (G/S - 1) and G (S - 1)."""
    for domain in domains:
        _expect_equal(domain)
    workers = stream.workers
    return (
        workers * sum(domain.count - 1 for domain in domains),
        workers * sum(domain.largest - 1 for domain in domains),
    )


def traffic(
    stream: Stream, domains: Sequence[Domain], fabric: Fabric, kind: str = "data"
) -> Traffic:
    """All messages of one kind ("data" or "experts") as traffic between the fabric's GPUs, for the
    plan tools.

    Workers are GPUs in order, so the fabric must have as many; the nodes are those of the fabric.
    """
    workers = stream.workers
    if fabric.nodes * fabric.gpus != workers:
        raise InputError(f"{workers} workers, the fabric has {fabric.nodes} x {fabric.gpus} GPUs")
    matrix: Ints = np.zeros((workers, workers), np.int64)
    for level in range(len(stream.levels)):
        experts, data = messages(stream, domains, level)
        chosen = data if kind == "data" else experts
        np.add.at(matrix, (chosen.src, chosen.dst), chosen.size)
    return Traffic.from_matrix(matrix, fabric)
