"""Trace events: every flow is there with its times, lanes never overlap, counters add up."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import railopt
from railopt import Fabric
from railopt.base.errors import InputError
from railopt.sim import Fault, Flows, simulate
from railopt.sim.perfetto import trace_events

Cli = Callable[..., object]
FABRIC = Fabric.uniform(4, 2, gpus=4)


@pytest.fixture(params=["plan", "direct", "stuck"])
def timeline(request: pytest.FixtureRequest) -> railopt.sim.Timeline:
    traffic = railopt.workloads.zipf(FABRIC, seed=1)
    if request.param == "direct":
        return simulate(traffic, fabric=FABRIC, balancer="ecmp")
    made = railopt.plan(FABRIC, traffic)
    dead = [Fault.parse("10us:1:0=0")] if request.param == "stuck" else []
    return simulate(made, faults=dead, partial=True)


def test_every_flow_on_a_lane_of_its_own(timeline: railopt.sim.Timeline) -> None:
    events = trace_events(timeline)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == (timeline.begun_ps >= 0).sum()
    lanes = defaultdict(list)
    for event in slices:
        flow = event["args"]["flow"]
        assert event["ts"] == timeline.begun_ps[flow] / 1e6
        assert event["args"]["bytes"] == timeline.flows.size[flow]
        if event["args"]["delivered"]:
            ends = event["ts"] + event["dur"]
            assert ends == pytest.approx(timeline.finish_ps[flow] / 1e6)
        else:
            assert event["cat"] == "stuck"
        assert event["pid"] == timeline.flows.path[timeline.flows.first[flow]] // FABRIC.rails
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert begin >= end - 1e-6
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert named == set(lanes)
    assert json.loads(json.dumps(events)) == events


def test_counters_add_up_to_the_bytes() -> None:
    run = simulate(railopt.plan(FABRIC, railopt.workloads.zipf(FABRIC, seed=1)))
    events = trace_events(run)["traceEvents"]
    for rail in range(FABRIC.rails):
        points = [
            (event["ts"], event["args"]["sent"])
            for event in events
            if event["ph"] == "C" and event["name"].startswith(f"rail {rail},")
        ]
        pairs = itertools.pairwise(points)
        moved = sum((later - time) * 1e-6 * rate * 1e9 for (time, rate), (later, _) in pairs)
        assert moved == pytest.approx(run.track_bytes[rail], rel=1e-3)


def test_flows_without_a_fabric_are_refused() -> None:
    flows = Flows(capacity=[10], first=[0, 1], path=[0], size=[100])
    with pytest.raises(InputError, match="only plans and direct traffic"):
        trace_events(simulate(flows))


@pytest.mark.parametrize("name", ["run.json", "run.JSON"])
def test_the_command_writes_it(railopt_cli: Cli, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    words = ("simulate", "uniform:size=1KiB", "--nodes", "2", "--rails", "2", "--timeline", out)
    assert railopt_cli(*words).code == 0
    assert json.loads(out.read_text())["traceEvents"]
    assert "exists" in railopt_cli(*words).err


def test_nodes_and_rails_have_their_names() -> None:
    names = {"hosts": ("gpu01", "gpu02", "gpu03", "gpu04"), "devices": ("mlx5_0", "mlx5_1")}
    named = replace(FABRIC, **names)
    made = railopt.plan(named, railopt.workloads.zipf(FABRIC, seed=1))
    events = trace_events(simulate(made))["traceEvents"]
    said = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {*names["hosts"], "rail 0 mlx5_0", "rail 1 mlx5_1"} <= said
    assert all(event["name"].startswith("to gpu0") for event in events if event["ph"] == "X")
