"""A plan under faults, planned again after each of them: what an all-to-all takes to its end.

At a fault, or some time after it, what has not arrived is planned for the fabric as it is then,
with the plan's policy, and goes on.  What had arrived of a chunk has arrived, unless a NIC of its
rail is dead: a queue pair that dies tells nothing of its last message, so the chunk is sent again
from its first byte.  A chunk without a living rail waits for the next fault, which may heal one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Ints
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import plan as make_plan
from railopt.policies import policy_of
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.flows import Flows
from railopt.sim.from_plan import changes_of, flows_of_plan
from railopt.sim.run import ranks_of_plan, run_by_nic
from railopt.sim.timeline import Curve, Timeline


class Replan(NamedTuple):
    """A plan that took over.

    at_ps    when
    chunks   that it puts on rails
    again    of them, those sent again from their first byte
    waiting  chunks that have no living rail now
    policy   that made it: the plan's own, or LPT where that is none of railopt's
    """

    at_ps: int
    chunks: int
    again: int
    waiting: int
    policy: str


class Replanned(NamedTuple):
    """The whole run, in which flows that were cut short by a new plan end there; and the plans that
    took over.
    """

    timeline: Timeline
    replans: tuple[Replan, ...]


class _Course(NamedTuple):
    """What a run is about: the plan as it was, and what befalls it."""

    plan: Plan
    faults: Sequence[Fault]
    assumed: Assumptions
    seed: int = 0

    @property
    def latency_ps(self) -> int:
        return self.plan.fabric.latency_ps if self.assumed.latency else 0


class _Part(NamedTuple):
    """A run of some chunks between two plans.

    plan      of what was left of them
    rows      int64 [C]: the chunks, as the whole run counts them
    begun_ps  when, in the time of the whole run
    till_ps   when the next plan took over; None: never
    ran       what came of it, times from 0
    left      int64 [C]: bytes of each chunk that were not sent
    """

    plan: Plan
    rows: Ints
    begun_ps: int
    till_ps: int | None
    ran: Timeline
    left: Ints


def simulate_replanned(
    plan: Plan,
    faults: Sequence[Fault],
    *,
    assumptions: Assumptions | None = None,
    after_ps: int = 0,
    seed: int | None = None,
) -> Replanned:
    """Run a plan under faults; `after_ps` after each (any change of a rate), what is left is
    planned again, with this `seed` where the policy draws.  A plan's stages end with its first
    fault.
    """
    course = _Course(plan, faults, assumptions or Assumptions(), seed or 0)
    _require_cuttable(course.assumed, after_ps)
    arrived = np.full(len(plan.chunks), -1, np.int64)
    size = plan.chunks.size.copy()
    parts: list[_Part] = []
    replans: list[Replan] = []
    made, rows, begun = plan, np.arange(len(size)), 0
    again = np.zeros(len(size), np.bool_)  # to be sent from their first byte, once planned
    for till in [*sorted({fault.at_ps + after_ps for fault in faults}), None]:
        if len(rows) or not parts:
            part = _run(course, made, rows, begun, till)
            parts.append(part)
            again |= _record_arrivals(course, part, arrived, size)
        rest = np.flatnonzero(arrived < 0)
        if till is None or not len(rest):
            break
        fabric = fabric_at(plan.fabric, faults, till)
        living = _has_rail(fabric, plan, rest)
        rows, begun = rest[living], till
        if len(rows):
            made = _planned(fabric, plan, rows, size[rows], seed)
        sent_again = int(again[rows].sum())
        again[rows] = False
        replans.append(Replan(till, len(rows), sent_again, len(rest) - len(rows), made.policy))
    return Replanned(_joined(course, parts, arrived), tuple(replans))


def _require_cuttable(assumed: Assumptions, after_ps: int) -> None:
    if assumed.scale_up == "before":
        raise InputError(
            "scale_up 'before' with planning again: its phases can't be cut; expected 'pipelined' "
            "or 'ignored'"
        )
    if after_ps < 0:
        raise InputError(f"planning again {after_ps} ps after a fault: a time can't be negative")


def fabric_at(fabric: Fabric, faults: Sequence[Fault], at_ps: int) -> Fabric:
    """The fabric as the faults up to then have left it."""
    nics: dict[tuple[int, int], Fraction] = {}
    for fault in sorted(faults, key=lambda fault: fault.at_ps):
        if fault.at_ps <= at_ps:
            nics[fault.node, fault.rail] = fault.fraction
    return fabric.degraded(nics)


def _has_rail(fabric: Fabric, plan: Plan, rows: Ints) -> Bools:
    """bool [rows]: whether a rail lives at both ends of each chunk."""
    sends, receives = fabric.tx > 0, fabric.rx > 0
    chunks = plan.chunks
    living: Bools = np.any(sends[chunks.src[rows]] & receives[chunks.dst[rows]], axis=1)
    return living


def _planned(fabric: Fabric, plan: Plan, rows: Ints, size: Ints, seed: int | None) -> Plan:
    """What is left of these chunks, `size` bytes at their ends, by the plan's policy."""
    rest = plan.chunks.take(rows)
    rest = replace(rest, offset=rest.offset + rest.size - size, size=size)
    # a name in a file never imports code: only railopt's own policies plan again by name
    return make_plan(fabric, rest, policy_of(plan), seed=seed)


def _run(course: _Course, made: Plan, rows: Ints, begun: int, till: int | None) -> _Part:
    """One part; the faults before it are in the plan's fabric, those to come are changes."""
    assumed, whole = course.assumed, course.plan
    coming = [
        replace(fault, at_ps=fault.at_ps - begun)
        for fault in course.faults
        if fault.at_ps > begun or made is whole
    ]
    flows, order = flows_of_plan(made, assumed, seed=course.seed)
    flows = replace(flows, changes=changes_of(whole.fabric, assumed, coming))
    until = None if till is None else till - begun
    ran = run_by_nic(flows, order, made.fabric, None, exact=assumed.exact, until_ps=until)
    return _Part(made, rows, begun, till, ran, _left(flows, order, ran.left, len(rows)))


def _left(flows: Flows, order: Ints, unsent: Ints, count: int) -> Ints:
    """int64 [chunks]: bytes that were not sent, of flows whose chunks go one after the other."""
    per_flow = np.diff(flows.mark_first)
    before = np.concatenate([[0], flows.mark[:-1]])
    before[flows.mark_first[:-1][per_flow > 0]] = 0
    sent = np.repeat(flows.size - unsent, per_flow)
    left = np.zeros(count, np.int64)
    np.add.at(left, order, np.clip(flows.mark - sent, 0, flows.mark - before))
    return left


def _record_arrivals(course: _Course, part: _Part, arrived: Ints, size: Ints) -> Bools:
    """Write down when chunks arrived, and the bytes that are still to be sent; bool [chunks]: those
    to be sent again from the first of them, because a NIC died under them.
    """
    again = np.zeros(len(size), np.bool_)
    chunk_ps, rows = part.ran.chunk_ps, part.rows
    done = chunk_ps >= 0
    arrived[rows[done]] = part.begun_ps + chunk_ps[done]
    if part.till_ps is None:
        return again
    fabric, chunks = fabric_at(course.plan.fabric, course.faults, part.till_ps), part.plan.chunks
    rail = part.plan.rail
    alive = (fabric.tx[chunks.src, rail] > 0) & (fabric.rx[chunks.dst, rail] > 0)
    under_way = ~done & alive & (part.left == 0)
    arrived[rows[under_way]] = part.till_ps + course.latency_ps
    size[rows] = np.where(alive & (part.left > 0), part.left, size[rows])
    again[rows] = ~done & ~alive & (part.left < chunks.size)
    return again


def _joined(course: _Course, parts: Sequence[_Part], arrived: Ints) -> Timeline:
    """The parts as one run; a flow that a plan cut short has the bytes that it sent."""
    flows, begun, finish, left = [], [], [], []
    for part in parts:
        ran, cut = part.ran, part.till_ps is not None
        sent = ran.flows.size - (ran.left if cut else 0)
        kept = np.flatnonzero(sent > 0)
        flows.append((ran.flows, kept, sent))
        begun.append(_later(ran.begun_ps[kept], part.begun_ps))
        ends = _later(ran.finish_ps[kept], part.begun_ps)
        if part.till_ps is not None:
            ends[ends < 0] = part.till_ps + course.latency_ps
        finish.append(ends)
        left.append(np.zeros(len(kept), np.int64) if cut else ran.left[kept])
    whole = course.plan
    return Timeline(
        _joined_flows(course, flows, np.concatenate(begun)),
        np.concatenate(begun),
        np.concatenate(finish),
        arrived,
        np.concatenate(left),
        _joined_curve([(part.ran.curve, part.begun_ps) for part in parts]),
        whole.fabric,
        ranks_of_plan(whole),
        _joined_curve([(part.ran.nic_curve, part.begun_ps) for part in parts]),
    )


def _later(times: Ints, by_ps: int) -> Ints:
    return np.where(times < 0, -1, times + by_ps)


def _joined_curve(curves: Sequence[tuple[Curve | None, int]]) -> Curve:
    shifted = [
        curve._replace(since=curve.since + by_ps, till=curve.till + by_ps)
        for curve, by_ps in curves
        if curve is not None
    ]
    return Curve(*map(np.concatenate, zip(*shifted, strict=True)))


def _joined_flows(course: _Course, parts: Sequence[tuple[Flows, Ints, Ints]], begun: Ints) -> Flows:
    """Of each part the flows `kept`, with the bytes that they sent; all ports as in the part that
    has most of them.
    """
    columns: dict[str, list[Array]] = {name: [] for name in ("path", "cost", "weight", "track")}
    lengths, sizes, latencies = [], [], []
    for flows, kept, sent in parts:
        per_flow = np.diff(flows.first)
        on_path = np.isin(np.repeat(np.arange(len(flows)), per_flow), kept)
        for name, which in (
            ("path", on_path),
            ("cost", on_path),
            ("weight", kept),
            ("track", kept),
        ):
            columns[name].append(getattr(flows, name)[which])
        lengths.append(per_flow[kept])
        sizes.append(sent[kept])
        latencies.append(flows.latency_ps[kept])
    largest = max((flows for flows, _, _ in parts), key=lambda flows: len(flows.capacity))
    whole = course.plan.fabric
    capacity = largest.capacity.copy()
    capacity[: 2 * whole.nodes * whole.rails] = parts[0][0].capacity[
        : 2 * whole.nodes * whole.rails
    ]
    return Flows(
        capacity,
        np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        size=np.concatenate(sizes),
        start_ps=np.maximum(begun, 0),
        latency_ps=np.concatenate(latencies),
        changes=changes_of(whole, course.assumed, course.faults),
        describe=largest.describe,
        **{name: np.concatenate(column) for name, column in columns.items()},
    )
