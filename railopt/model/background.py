"""Two collectives at once: what another one leaves of each NIC, and a plan of both.

Another collective takes a rate of every NIC, `[node, rail]` in bytes per second.  What it leaves is
a fabric like any other, so plans, bounds, certificates and simulations know nothing of it.

Where the other collective is a plan, it counts as taking its bytes over T of each NIC, T being a
time before which no plan and it are both done (`both_bound`).  A plan that is done within T on what
is left, S <= (tx - b/T) T, ends with the other one within T, S + b <= tx T; nothing beats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints, kind_of
from railopt.base.errors import InputError, about, printable
from railopt.base.kernels import added_up
from railopt.base.units import (
    PS_PER_S,
    format_rate,
    parse_bytes,
    parse_integer,
    parse_options,
    parse_time,
    quoted,
)
from railopt.model.chunks import COLUMNS, Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, needed_by, node_bound

REDUCE = "allreduce:"
SHARE = 1024


class Background(NamedTuple):
    """Bytes per second that each NIC sends and receives for others, int64 [nodes, rails]."""

    tx: Ints
    rx: Ints


def background_from(text: str, fabric: Fabric) -> Background | Plan:
    """Another collective: the rails of a saved plan, on this fabric; a ring all-reduce between the
    nodes, on all rails or on those that are named (`allreduce:size=1GiB,time=20ms,rails=0+1`), as
    the rate that it takes; or rates of NICs as a fabric's description (.toml) has them.

        >>> from railopt import Fabric
        >>> from railopt.model.background import background_from, left_by
        >>> fabric = Fabric.uniform(4, 2)
        >>> load = background_from("allreduce:size=1GiB,time=100ms,rails=0", fabric)
        >>> left_by(fabric, load).tx[0].tolist()
        [33893872640, 50000000000]
    """
    if text.startswith(REDUCE):
        return _reduce(text, fabric)
    kind = kind_of(text) if os.path.isfile(text) else None
    if kind not in (None, "plan"):
        raise InputError(f"{printable(text)}: a {kind}, expected a plan, an all-reduce or rates")
    plan = Plan.read(text) if kind else None
    of = plan.fabric if plan else Fabric.read(text)
    if (of.nodes, of.rails) != (fabric.nodes, fabric.rails):
        raise InputError(
            f"{printable(text)}: {of.nodes} nodes x {of.rails} rails, the fabric has "
            f"{fabric.nodes} x {fabric.rails}"
        )
    if plan is None:
        return Background(of.tx, of.rx)
    with about(f"{printable(text)}: "):
        return replace(plan, fabric=fabric)


def _reduce(text: str, fabric: Fabric) -> Background:
    """Every NIC sends and receives 2 (M - 1)/M of its share of the bytes; rounded up."""
    said = parse_options(text.removeprefix(REDUCE), ("size", "time", "rails"), quoted(text))
    if not {"size", "time"} <= set(said):
        raise InputError(
            f"{quoted(text)}: expected a size and a time, allreduce:size=1GiB,time=20ms"
        )
    every = [str(rail) for rail in range(fabric.rails)]
    rails = {
        parse_integer(rail, "rail", low=0, high=fabric.rails - 1)
        for rail in said.get("rails", "+".join(every)).split("+")
    }
    time_ps = parse_time(said["time"])
    if time_ps <= 0:
        raise InputError(f"{quoted(text)}: expected a time above 0")
    share = Fraction(2 * (fabric.nodes - 1) * parse_bytes(said["size"]), fabric.nodes * len(rails))
    rate = -(-share * PS_PER_S // time_ps)
    load = np.zeros((fabric.nodes, fabric.rails), np.int64)
    load[:, sorted(rails)] = min(rate, np.iinfo(np.int64).max)
    return Background(load, load)


def beside(
    fabric: Fabric, other: Plan, chunks: Chunks, policy: Callable[[Fabric, Chunks], Plan]
) -> Plan:
    """A plan of these chunks on the fabric, made for what another plan leaves of it.  A NIC that is
    busy all the time keeps one part in SHARE of its rate: chunks without another rail wait for it.
    """
    load = rates_of(fabric, other, chunks)
    tx, rx = (
        np.maximum(rates - taken, np.minimum(rates, rates // SHARE + 1))
        for rates, taken in ((fabric.tx, load.tx), (fabric.rx, load.rx))
    )
    return replace(policy(replace(fabric, tx=tx, rx=rx), chunks), fabric=fabric)


def left_by(fabric: Fabric, load: Background) -> Fabric:
    """The fabric with what is left of each NIC; a NIC that is busy all the time is dead."""
    for name, rates, taken in (("tx", fabric.tx, load.tx), ("rx", fabric.rx, load.rx)):
        for node, rail in np.argwhere(taken > rates)[:1].tolist():
            raise InputError(
                f"{fabric.nic_name(node, rail)} {name}: a background of "
                f"{format_rate(int(taken[node, rail]))}, more than its "
                f"{format_rate(int(rates[node, rail]))}"
            )
    return replace(fabric, tx=fabric.tx - load.tx, rx=fabric.rx - load.rx)


def both_bound(fabric: Fabric, other: Plan, chunks: Chunks) -> Fraction:
    """Seconds before which no plan of these chunks and the other plan, of this fabric, are both
    done.
    """
    sent = other.send.sum(axis=1) + added_up(chunks.src, chunks.size, fabric.nodes)
    received = other.recv.sum(axis=1) + added_up(chunks.dst, chunks.size, fabric.nodes)
    return max(other.makespan, node_bound(fabric, sent, received))


def rates_of(fabric: Fabric, other: Plan, chunks: Chunks) -> Background:
    """What another plan takes of each NIC if it is spread over `both_bound`; rounded up."""
    time = both_bound(fabric, other, chunks)
    if not time:
        return Background(other.send, other.recv)

    def rates(loads: Ints) -> Ints:
        found = np.zeros_like(loads)
        for place in zip(*np.nonzero(loads), strict=True):
            found[place] = -(-int(loads[place]) * time.denominator // time.numerator)
        return found

    return Background(rates(other.send), rates(other.recv))


def both_plans(plan: Plan, other: Plan, fabric: Fabric) -> Plan:
    """Both plans at once on a fabric, this one's chunks first; neither may have stages."""
    if plan.stage is not None or other.stage is not None:
        raise InputError("two plans at once: one of them has stages, which would wait for both")
    if plan.chunks.gpus != other.chunks.gpus:
        raise InputError(
            f"two plans at once: one knows {plan.chunks.gpus} GPUs per node, the other "
            f"{other.chunks.gpus}"
        )
    columns = {
        name: np.concatenate([getattr(of.chunks, name) for of in (plan, other)]) for name in COLUMNS
    }
    ours = len(plan.chunks)
    columns["flow"][ours:] += int(plan.chunks.flow.max(initial=-1)) + 1
    targets = None
    if any(of.chunks.targets is not None for of in (plan, other)):
        targets = np.concatenate([needed_by(fabric, of.chunks) for of in (plan, other)])
    chunks = Chunks(fabric.nodes, plan.chunks.gpus, **columns, targets=targets)
    return Plan(fabric, chunks, np.concatenate([plan.rail, other.rail]), plan.policy)
