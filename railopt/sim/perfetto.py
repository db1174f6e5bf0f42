"""A timeline as trace events (Chrome's JSON), which Perfetto and chrome://tracing show.

One process per node, one thread per transmit NIC; flows that share a NIC at the same time lie on
lanes of their own.  A process of its own has one counter per rail: GB/s over equal slices of the
run.  What moves inside nodes, before or after a rail, is not shown.  Times are microseconds, as the
format wants them.
"""

from __future__ import annotations

import heapq
import json
import os
from typing import Any

import numpy as np

from railopt.base.arrays import Ints, write_atomic
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_US
from railopt.model.fabric import Fabric
from railopt.sim.timeline import Timeline

SLICES = 200


def trace_events(timeline: Timeline) -> dict[str, Any]:
    """The JSON object; a flow that was never delivered ends with the run and says so."""
    fabric, flows = timeline.fabric, timeline.flows
    if fabric is None:
        raise InputError("only plans and direct traffic have nodes and rails to show")
    end = max(timeline.end_ps, int(timeline.begun_ps.max(initial=0)))
    nics = fabric.nodes * fabric.rails
    nic = flows.path[flows.first[:-1]].astype(np.int64)
    shown = np.flatnonzero((timeline.begun_ps >= 0) & (nic < nics))
    into = flows.path[np.minimum(flows.first[:-1] + 1, len(flows.path) - 1)].astype(np.int64) - nics
    finish = np.where(timeline.finish_ps < 0, end, timeline.finish_ps)
    lane = np.zeros(len(nic), np.int64)
    lane[shown] = _lanes(nic[shown], timeline.begun_ps[shown], finish[shown])
    lanes = int(lane.max(initial=0)) + 1
    events: list[dict[str, Any]] = []
    for flow in shown.tolist():
        node, rail = divmod(int(nic[flow]), fabric.rails)
        to, on = divmod(int(into[flow]), fabric.rails)
        stuck = bool(timeline.finish_ps[flow] < 0)
        begun = int(timeline.begun_ps[flow])
        events.append(
            {
                "ph": "X",
                "name": f"to {fabric.node_name(to)}" + (f" rail {on}" if on != rail else ""),
                "cat": "stuck" if stuck else "flow",
                "pid": node,
                "tid": rail * lanes + int(lane[flow]),
                "ts": begun / PS_PER_US,
                "dur": (int(finish[flow]) - begun) / PS_PER_US,
                "args": {"flow": flow, "bytes": int(flows.size[flow]), "delivered": not stuck},
            }
        )
    names = {(event["pid"], event["tid"]) for event in events}
    return {
        "displayTimeUnit": "ns",
        "traceEvents": [
            *_names(names, fabric, lanes),
            *_faults(timeline, lanes),
            *events,
            *_counters(timeline, end),
        ],
    }


def _lanes(nic: Ints, begun: Ints, finish: Ints) -> Ints:
    """int64 [flows]: the lowest lane of its NIC that is free when a flow begins."""
    lane = np.zeros(len(nic), np.int64)
    busy: dict[int, list[tuple[int, int]]] = {}
    free: dict[int, list[int]] = {}
    for flow in np.lexsort((finish, begun)).tolist():
        where = int(nic[flow])
        running, idle = busy.setdefault(where, []), free.setdefault(where, [])
        while running and running[0][0] <= begun[flow]:
            heapq.heappush(idle, heapq.heappop(running)[1])
        lane[flow] = heapq.heappop(idle) if idle else len(running)
        heapq.heappush(running, (int(finish[flow]), int(lane[flow])))
    return lane


def _names(threads: set[tuple[int, int]], fabric: Fabric, lanes: int) -> list[dict[str, Any]]:
    nodes = fabric.nodes
    named = [("process_name", node, 0, fabric.node_name(node)) for node in range(nodes)]
    named.append(("process_name", nodes, 0, "rails"))
    for node, thread in sorted(threads):
        rail, lane = divmod(thread, lanes)
        more = f" {fabric.devices[rail]}" if fabric.devices else ""
        more += f" ({lane + 1})" if lane else ""
        named.append(("thread_name", node, thread, f"rail {rail}{more}"))
    return [
        {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
        for what, pid, tid, name in named
    ]


def _faults(timeline: Timeline, lanes: int) -> list[dict[str, Any]]:
    """An instant event at each change of a NIC's rate."""
    return [
        {
            "ph": "i",
            "s": "p",
            "name": f"rail {change.rail} {change.words}",
            "cat": "fault",
            "pid": change.node,
            "tid": change.rail * lanes,
            "ts": change.at_ps / PS_PER_US,
        }
        for change in timeline.nic_changes
    ]


def _counters(timeline: Timeline, end: int) -> list[dict[str, Any]]:
    assert timeline.fabric is not None
    until = int(timeline.curve.till.max(initial=0))
    rates = timeline.throughput(SLICES)[: timeline.fabric.rails] / 1e9
    return [
        {
            "ph": "C",
            "name": f"rail {rail}, GB/s",
            "pid": timeline.fabric.nodes,
            "ts": time / PS_PER_US,
            "args": {"sent": round(rate, 6)},
        }
        for rail, row in enumerate(rates.tolist())
        for time, rate in [
            *((until * i / SLICES, rate) for i, rate in enumerate(row)),
            (end, 0.0),
        ]
    ]


def save_trace(timeline: Timeline, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write `trace_events` as a `.json` file."""
    text = json.dumps(trace_events(timeline), separators=(",", ":"))
    write_atomic(path, text + "\n", force=force)
