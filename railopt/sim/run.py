"""simulate: turn what is given into flows, run them, and put the times back on the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from railopt.base.arrays import Array, Int32s, Ints, require_type, total
from railopt.base.errors import InputError
from railopt.base.kernels import added_up
from railopt.base.units import PS_PER_S
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.balancers import balancer_named
from railopt.sim.direct import flows_of_traffic
from railopt.sim.flows import Flows, bounds_of
from railopt.sim.from_plan import flows_of_plan
from railopt.sim.timeline import Curve, Stuck, Timeline

if TYPE_CHECKING:
    from railopt.sim.events import Components, SimState, Steps, Work

RESOLUTION = 4
"""Rates are recomputed when one in 2**4 of the flows that move is done: see railopt.sim.events.
Against exact runs (292 of 513 to 2,644 flows: every balancer and plans, half of them with faults)
completions moved by up to 2 parts in 1,000, the median flow by up to 1.1 %, a single flow by up to
6 % of the run; in 467 runs that looked for the worst, most with faults under way, completions moved
by up to 1.1 %.  Samples, not bounds."""
ALWAYS_EXACT = 512
"""So few flows are recomputed after every completion."""


def simulate(
    what: Plan | Traffic | Flows,
    *,
    fabric: Fabric | None = None,
    balancer: str | None = None,
    assumptions: Assumptions | None = None,
    faults: Sequence[Fault] = (),
    seed: int | None = None,
    until_ps: int | None = None,
    partial: bool = False,
) -> Timeline:
    """Run a plan (rail-confined, its stages in order), direct traffic on a fabric under a balancer,
    or any flows.

    fabric, balancer   of direct traffic alone; by default the way of its leaves, or "ecmp"
    seed       of direct traffic, and of plans on leaves whose way is "ecmp" (0)
    until_ps   stop there; what is not sent by then has a time of -1
    partial    return the timeline of a run that can't finish; otherwise it is raised as `Stuck`

        >>> from railopt import Fabric, plan, simulate, units, workloads
        >>> fabric = Fabric.uniform(nodes=4, rails=2)
        >>> traffic = workloads.moe(fabric, skew=0.8, seed=1)
        >>> runs = simulate(traffic, fabric=fabric), simulate(plan(fabric, traffic.chunks("1MiB")))
        >>> [units.format_time(run.completion) for run in runs]
        ['2.431ms', '2.056ms']
    """
    require_type(what, Plan | Traffic | Flows, "what", "a Plan, Traffic or Flows")
    require_type(fabric, Fabric | None, "fabric", "a Fabric")
    assumed = assumptions or Assumptions()
    order: Ints | None = None
    hashed = isinstance(what, Plan) and hashes(what.fabric)
    idle = (fabric, balancer, None if hashed else seed)
    if not isinstance(what, Traffic) and idle != (None, None, None):
        raise InputError(
            "a fabric, a balancer or a seed beside a plan or flows, which have their own rails: "
            "plan for that fabric, or simulate traffic"
        )
    if isinstance(what, Plan):
        flows, order = flows_of_plan(what, assumed, faults, seed or 0)
        fabric, ranks = what.fabric, ranks_of_plan(what)
    elif isinstance(what, Traffic):
        if fabric is None:
            raise InputError(
                "direct traffic needs a fabric to run on: simulate(traffic, fabric=...)"
            )
        way = balancer or fabric.tier.way
        flows = flows_of_traffic(fabric, what, way, assumed, faults, seed or 0)
        ranks = _rank_bytes(*what.flows(), len(what.bytes))
    elif faults:
        raise InputError("flows have their own changes of capacity: put them there, not in faults")
    else:
        flows, ranks = what, None
    run = run_by_nic if faults else run_flows
    timeline = run(flows, order, fabric, ranks, exact=assumed.exact, until_ps=until_ps)
    if until_ps is None and not partial and len(timeline.stuck):
        raise Stuck(timeline)
    return timeline


def hashes(fabric: Fabric) -> bool:
    """Whether plans take hashed links above the fabric's leaves, so that a seed matters."""
    return fabric.leaves is not None and balancer_named(fabric.leaves.way).seeded


def run_flows(
    flows: Flows,
    order: Ints | None = None,
    fabric: Fabric | None = None,
    ranks: tuple[Ints, Ints] | None = None,
    *,
    exact: bool = False,
    until_ps: int | None = None,
) -> Timeline:
    """Run flows to their end or to `until_ps`; `order` is the chunk of each mark, a chunk has
    arrived with its last one.
    """
    from railopt.sim import events, fill

    _require_clock(flows, events.NEVER)
    net = fill.Net(
        flows.first,
        flows.path,
        flows.cost,
        flows.weight,
        flows.capacity / PS_PER_S,
        flows.fan_in,
        flows.goodput,
    )
    work = _work(flows)
    tracks = max(int(flows.track.max(initial=0)) + 1, fabric.rails if fabric else 1)
    state = _state(flows, work, tracks)
    shift = 62 if exact or len(flows) <= ALWAYS_EXACT else RESOLUTION
    limits = events.Limits(shift, events.NEVER if until_ps is None else until_ps)
    ports = fill.ports_of(len(flows.capacity), len(flows), flows.path)
    parts = _parts(flows, work.change_port)
    while ended := events.run(parts, net, work, state, ports, limits):
        if ended == events.FULL:
            state = state._replace(curve=_with_more_room(state.curve))
    curve = Curve(*(column[: state.curve.used[0]] for column in state.curve[:4]))
    chunk_ps = state.mark_time
    if order is not None:
        chunk_ps = _last_marks(order, state.mark_time, events.NEVER)
    left = np.ceil(state.left).astype(np.int64)
    return Timeline(flows, state.begun, state.finish, chunk_ps, left, curve, fabric, ranks)


def run_by_nic(
    flows: Flows,
    order: Ints | None,
    fabric: Fabric | None,
    ranks: tuple[Ints, Ints] | None,
    *,
    exact: bool = False,
    until_ps: int | None = None,
) -> Timeline:
    """As `run_flows`, of flows that begin at a transmit NIC of the fabric, with the curve of each
    NIC beside those of the rails.
    """
    assert fabric is not None
    rails, nics = fabric.rails, fabric.nodes * fabric.rails
    nic = flows.path[flows.first[:-1]]
    apart = replace(flows, track=np.where(nic < nics, nic, flows.track - rails + nics))
    ran = run_flows(apart, order, fabric, ranks, exact=exact, until_ps=until_ps)
    fine = ran.curve
    rail = np.where(fine.track < nics, fine.track % rails, fine.track - nics + rails)
    curve = fine._replace(track=rail.astype(np.int32))
    sent = fine.track < nics
    nic_curve = Curve(fine.track[sent], fine.since[sent], fine.till[sent], fine.bytes[sent])
    return replace(ran, flows=flows, curve=curve, nic_curve=nic_curve)


def _last_marks(order: Ints, times: Ints, never: int) -> Ints:
    """int64 [chunks]: the latest of each chunk's marks; -1 where one was never reached."""
    count = int(order.max(initial=-1)) + 1
    if count == len(order):
        result = np.empty_like(times)
        result[order] = times
        return result
    latest = np.zeros(count, np.int64)
    np.maximum.at(latest, order, np.where(times < 0, never, times))
    return np.where(latest == never, -1, latest)


def _require_clock(flows: Flows, never: int) -> None:
    """Refuse what may take longer than the clock of 2**62 picoseconds."""
    rates = [*flows.capacity.tolist(), *(change.capacity for change in flows.changes)]
    slowest = min((rate for rate in rates if rate > 0), default=0)
    if not len(flows) or not slowest:
        return
    dearest = np.maximum.reduceat(flows.cost, flows.first[:-1]) * flows.size
    longest = float(dearest.sum()) / (float(flows.goodput.min(initial=1)) * slowest)
    if longest * PS_PER_S >= never:
        raise InputError(
            f"{total(flows.size)} bytes over ports of down to {slowest} B/s may take over 53 "
            "days, more than the simulator's clock holds: scale sizes and rates"
        )


def _work(flows: Flows) -> Work:
    """What the flows are to do, as the event loop takes it."""
    from railopt.sim import events

    changes = sorted(flows.changes, key=lambda change: change.at_ps)
    next_first, next_group = flows.successors
    return events.Work(
        flows.size.astype(np.float64),
        flows.start_ps,
        flows.latency_ps,
        flows.track,
        flows.mark_first,
        flows.mark.astype(np.float64),
        flows.group,
        bounds_of(flows.group, flows.groups),
        np.argsort(flows.group, kind="stable").astype(np.int32),
        next_first,
        next_group,
        np.array([change.at_ps for change in changes], np.int64),
        np.array([change.port for change in changes], np.int32),
        np.array([change.capacity / PS_PER_S for change in changes], np.float64),
    )


def _state(flows: Flows, work: Work, tracks: int) -> SimState:
    """Nothing sent yet."""
    from railopt.sim import events

    count, room = len(flows), 4 * tracks + 1024
    never = np.full(count, -1, np.int64)
    return events.SimState(
        work.size.copy(),
        np.zeros(count),
        never,
        never.copy(),
        np.full(len(flows.mark), -1, np.int64),
        flows.mark_first[:-1].copy(),
        np.bincount(work.next_group, minlength=flows.groups).astype(np.int64),
        np.diff(work.group_first),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.zeros(count, np.bool_),
        np.zeros(count),
        events.Steps(
            np.zeros(room, np.int32),
            np.zeros(room, np.int64),
            np.zeros(room, np.int64),
            np.zeros(room),
            np.zeros(1, np.int64),
            np.zeros(tracks),
        ),
        events.EventQueue(never.copy(), never.copy(), np.zeros(1, np.int64)),
        np.zeros(len(events.PLACES), np.int64),
    )


def _with_more_room(curve: Steps) -> Steps:
    """The curve with twice the room."""
    names = ("track", "since", "till", "bytes")
    columns = {name: getattr(curve, name) for name in names}
    more = {name: np.append(found, np.zeros_like(found)) for name, found in columns.items()}
    return curve._replace(**more)


def _parts(flows: Flows, change_port: Int32s) -> Components:
    """Flows, changes and ports by component, idle ports left out; all in one where groups wait for
    each other.
    """
    from railopt.sim import events, graph

    ports = len(flows.capacity)
    if len(flows.needs):
        counts = (len(flows), len(change_port), ports)
        parts = [part for count in counts for part in (np.array([0, count]), np.arange(count))]
        return events.Components(*parts)
    of_port = graph.components(ports, flows.first, flows.path)
    of_flow = of_port[flows.path[flows.first[:-1]]]
    labels = np.unique(of_flow)
    place = np.full(ports, -1, np.int64)
    place[labels] = np.arange(len(labels))
    parts = []
    for label in (of_flow, of_port[change_port], of_port):
        component = place[label]
        kept = np.flatnonzero(component >= 0)
        parts += [
            bounds_of(component[kept], len(labels)),
            kept[np.argsort(component[kept], kind="stable")],
        ]
    return events.Components(*parts)


def ranks_of_plan(plan: Plan) -> tuple[Ints, Ints]:
    """(bytes that each GPU sends, bytes that it receives), of a plan's chunks."""
    chunks = plan.chunks
    sent, received = _rank_bytes(
        chunks.src_gpu, chunks.dst_gpu, chunks.size, chunks.nodes * chunks.gpus
    )
    return sent, received if chunks.targets is None else _needed_bytes(chunks)


def _needed_bytes(chunks: Chunks) -> Ints:
    """int64 [GPUs]: bytes of the units that each needs."""
    assert chunks.targets is not None
    unit, gpu = np.nonzero(chunks.targets)
    needed = np.zeros(chunks.nodes * chunks.gpus, np.int64)
    np.add.at(needed, chunks.dst[unit] * chunks.gpus + gpu, chunks.size[unit])
    return needed


def _rank_bytes(src: Array, dst: Array, size: Array, count: int) -> tuple[Ints, Ints]:
    return added_up(src, size, count), added_up(dst, size, count)
