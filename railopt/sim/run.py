"""simulate: turn what is given into a job, run it, and put the times back on the chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railopt.arrays import Array, Ints, total
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.sim.direct import job_of_traffic
from railopt.sim.from_plan import job_of_plan
from railopt.sim.job import Job, bounds_of
from railopt.sim.model import Fault, Model
from railopt.sim.timeline import Curve, Stuck, Timeline
from railopt.traffic import Traffic
from railopt.units import PS_PER_S

RESOLUTION = 4
"""Rates are recomputed when one in 2**4 of the active flows is done: see railopt.sim.kernels.
Against exact runs (40 random plans and direct runs of up to 12,000 flows) completions moved by up
to 2 parts in 10**4, the median flow by 1 %."""
ALWAYS_EXACT = 512
"""Jobs of so few flows are recomputed after every completion."""


def simulate(
    what: Plan | Traffic | Job,
    *,
    fabric: Fabric | None = None,
    balancer: str = "ecmp",
    model: Model | None = None,
    faults: Sequence[Fault] = (),
    stages: str = "barrier",
    seed: int = 0,
    until_ps: int | None = None,
    partial: bool = False,
) -> Timeline:
    """Run a plan (rail-confined, its stages in order), direct traffic on a fabric under a balancer,
    or any job.

    until_ps   stop there; what is not delivered by then has a time of -1
    partial    return the timeline of a run that can't finish; otherwise it is raised as `Stuck`
    """
    model = model or Model()
    order: Ints | None = None
    if isinstance(what, Plan):
        job, order = job_of_plan(what, model, faults, stages)
        fabric, chunks = what.fabric, what.chunks
        ranks = _rank_bytes(chunks.src_gpu, chunks.dst_gpu, chunks.size, chunks.nodes * chunks.gpus)
    elif isinstance(what, Traffic):
        if fabric is None:
            raise InputError(
                "direct traffic needs a fabric to run on: simulate(traffic, fabric=...)"
            )
        job = job_of_traffic(fabric, what, balancer, model, faults, seed)
        ranks = _rank_bytes(*what.flows(), len(what.bytes))
    elif faults:
        raise InputError("a job has its own changes of capacity: put them there, not in faults")
    else:
        job, ranks = what, None
    timeline = run_job(job, order, fabric, ranks, exact=model.exact, until_ps=until_ps)
    if until_ps is None and not partial and len(timeline.stuck):
        raise Stuck(timeline)
    return timeline


def run_job(
    job: Job,
    order: Ints | None = None,
    fabric: Fabric | None = None,
    ranks: tuple[Ints, Ints] | None = None,
    *,
    exact: bool = False,
    until_ps: int | None = None,
) -> Timeline:
    """Run a job to its end or to `until_ps`; `order` is the chunk of each mark."""
    from railopt.sim import fill, graph, kernels

    flows, ports = len(job), len(job.capacity)
    alive = job.capacity[job.capacity > 0]
    if flows and len(alive) and total(job.size) * PS_PER_S >= kernels.NEVER * int(alive.min()):
        raise InputError(
            f"{total(job.size)} bytes over ports of down to {alive.min()} B/s may take over 53 "
            f"days, more than the "
            "simulator's clock holds: scale sizes and rates"
        )
    net = fill.Net(
        job.first, job.path, job.cost, job.weight, job.capacity / PS_PER_S, job.fan_in, job.goodput
    )
    changes = sorted(job.changes, key=lambda change: change.at_ps)
    columns = (
        np.array([change.at_ps for change in changes], np.int64),
        np.array([change.port for change in changes], np.int32),
        np.array([change.capacity / PS_PER_S for change in changes], np.float64),
    )
    next_first, next_group = job.successors
    group_first = bounds_of(job.group, job.groups)
    work = kernels.Work(
        job.size.astype(np.float64),
        job.start_ps,
        job.latency_ps,
        job.track,
        job.mark_first,
        job.mark.astype(np.float64),
        job.group,
        group_first,
        np.argsort(job.group, kind="stable").astype(np.int32),
        next_first,
        next_group,
        *columns,
    )
    never = np.full(flows, -1, np.int64)
    state = kernels.State(
        work.size.copy(),
        np.zeros(flows),
        never,
        never.copy(),
        np.full(len(job.mark), -1, np.int64),
        job.mark_first[:-1].copy(),
        np.bincount(next_group, minlength=job.groups).astype(np.int64),
        np.diff(group_first),
        np.zeros(flows, np.int32),
        np.zeros(flows, np.int32),
        np.zeros(flows, np.bool_),
        np.zeros(flows),
        np.zeros(flows),
    )
    tracks = max(int(job.track.max(initial=0)) + 1, fabric.rails if fabric else 1)
    if len(next_group):
        counts = (flows, len(changes), ports)
        parts = [part for count in counts for part in (np.array([0, count]), np.arange(count))]
    else:
        label = graph.components(ports, job.first, job.path)
        parts = _parts(label[job.path[job.first[:-1]]], label[columns[1]], label)
    shift = 62 if exact or flows <= ALWAYS_EXACT else RESOLUTION
    curve = kernels.run(
        *parts,
        net,
        work,
        state,
        fill.ports_of(ports, flows, job.path),
        shift,
        kernels.NEVER if until_ps is None else until_ps,
        tracks,
    )
    chunk_ps = state.mark_time
    if order is not None:
        chunk_ps = np.empty_like(state.mark_time)
        chunk_ps[order] = state.mark_time
    left = np.ceil(state.left).astype(np.int64)
    steps = Curve(*(column[: curve.used[0]] for column in curve[:4]))
    return Timeline(job, state.begun, state.finish, chunk_ps, left, steps, fabric, ranks)


def _parts(of_flow: Array, of_change: Array, of_port: Array) -> list[Array]:
    """Flows, changes and ports sorted by component, each after where the components begin; idle
    ports left out.
    """
    labels = np.unique(of_flow)
    place = np.full(len(of_port), -1, np.int64)
    place[labels] = np.arange(len(labels))
    parts = []
    for label in (of_flow, of_change, of_port):
        component = place[label]
        kept = np.flatnonzero(component >= 0)
        parts += [
            bounds_of(component[kept], len(labels)),
            kept[np.argsort(component[kept], kind="stable")],
        ]
    return parts


def _rank_bytes(src: Array, dst: Array, size: Array, count: int) -> tuple[Ints, Ints]:
    sent, received = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(sent, src, size)
    np.add.at(received, dst, size)
    return sent, received
