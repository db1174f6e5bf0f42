"""Runs at the edges: nothing to send, nothing that arrives, other NICs than usual, Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.schedule import synthesise
from railopt.sim import Assumptions, Fault, simulate, simulate_replanned
from railopt.sim.perfetto import trace_events

TWO = Fabric.uniform(2, 1)
DIES = [Fault(10**9, 1, 0, Fraction(0))]


def one_way(size: int, back: int = 0) -> railopt.Plan:
    traffic = Traffic(np.array([[0, size], [back, 0]]), 2)
    return railopt.plan(TWO, traffic.chunks("1MiB"), "lpt")


def test_planning_again_with_nothing_to_send() -> None:
    ran = simulate_replanned(one_way(0), DIES)
    assert ran.timeline.completion_ps == 0
    assert len(ran.timeline.stuck) == 0


def test_what_arrived_before_a_nic_died_counts() -> None:
    """100 MB at 50 GB/s take 2 ms; the NIC dies after 1 ms."""
    ran = simulate(one_way(100_000_000, 1000), faults=DIES, partial=True)
    assert 40 < len(ran.stuck) < 60
    assert 0.9e9 < ran.completion_ps <= 1e9
    assert (ran.utilisation() <= 1).all()
    sent = [event for event in trace_events(ran)["traceEvents"] if event.get("cat") == "stuck"]
    assert [event["dur"] for event in sent] == [pytest.approx(1000, rel=0.01)]
    assert "their path is dead or they wait" in ran.stuck_text()


def test_a_new_plan_delivers_nothing_by_being_made() -> None:
    ran = simulate_replanned(one_way(100_000_000), DIES, after_ps=2 * 10**9)
    assert ran.timeline.completion_ps <= 10**9
    assert [(again.chunks, again.again) for again in ran.replans] == [(0, 0)]


def test_a_policy_that_draws_plans_again_with_its_seed() -> None:
    fabric = Fabric.uniform(4, 4)
    chunks = railopt.workloads.moe(fabric, tokens=256, skew=0.8, seed=1).chunks("1MiB")
    nothing = [Fault(0, 0, 0, Fraction(1))]
    for seed in (5, 6):
        made = railopt.plan(fabric, chunks, "random", seed=seed)
        ran = simulate_replanned(made, nothing, seed=seed)
        assert ran.timeline.completion_ps == pytest.approx(simulate(made).completion_ps, rel=1e-6)


@pytest.mark.parametrize(
    ("faults", "alpha_ps"), [([Fault(10**7, 1, 0, Fraction(1, 10**9))], 0), ([], 6 * 10**18)]
)
def test_what_the_clock_does_not_hold_is_not_dead(faults: list[Fault], alpha_ps: int) -> None:
    with pytest.raises(InputError, match="more than the simulator's clock holds"):
        simulate(one_way(10**10), faults=faults, assumptions=Assumptions(alpha_ps=alpha_ps))


@pytest.mark.parametrize("scaleup", ["399GB/s", "400GB/s"])
def test_incast_counts_senders_whatever_their_gpus(scaleup: str) -> None:
    """Two nodes: every NIC receives from one other, and nothing is lost."""
    fabric = Fabric.uniform(2, 8, scaleup=scaleup)
    made = railopt.plan(fabric, railopt.workloads.uniform(fabric).chunks("1MiB"), "lpt")
    plain, lossy = (
        simulate(made, assumptions=Assumptions(incast=incast)).completion_ps
        for incast in (Fraction(0), Fraction(67, 10_000))
    )
    assert lossy == plain


def crossed(fabric: Fabric) -> Fabric:
    return replace(fabric, inside=replace(fabric.node, near=fabric.node.near[::-1]))


def test_direct_traffic_takes_the_nic_that_is_near() -> None:
    fabric = crossed(Fabric.uniform(2, 2))
    slow = fabric.degraded({(0, 0): "1/4", (1, 0): "1/4"})
    matrix = np.zeros((4, 4), np.int64)
    matrix[0, 2] = 1 << 20
    ran = [simulate(Traffic(matrix, 2), fabric=one, balancer="adaptive") for one in (fabric, slow)]
    assert ran[0].completion_ps == ran[1].completion_ps
    assert ran[0].track_bytes.tolist() == [0, 1 << 20]


def test_a_two_level_schedule_needs_gpus_at_their_own_nics() -> None:
    fabric = crossed(Fabric.uniform(2, 2))
    with pytest.raises(InputError, match="near the NICs of their own number"):
        synthesise(fabric, railopt.workloads.uniform(fabric))


def test_traces_show_rails_and_only_them() -> None:
    fabric = Fabric.uniform(2, 2)
    chunks = railopt.workloads.moe(fabric, tokens=64, skew=0.8, seed=1).chunks("1MiB")
    ran = simulate(railopt.plan(fabric, chunks, "lpt"), assumptions=Assumptions(scale_up="before"))
    events = trace_events(ran)["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"rail 0, GB/s", "rail 1, GB/s"}


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".npy", ".npz", ""])
def test_traffic_is_written_by_suffix(
    suffix: str, tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    target = tmp_path / f"out{suffix}"
    assert railopt_cli("convert", "uniform", str(target)).code == 0
    assert Traffic.read(target, Fabric.uniform()) == railopt.workloads.uniform(Fabric.uniform())


@pytest.mark.parametrize("suffix", [".et", ".xml", ".JSON"])
def test_traffic_is_not_written_as_something_else(
    suffix: str, tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    target = tmp_path / f"out{suffix}"
    ran = railopt_cli("convert", "uniform", str(target))
    assert (ran.code, target.exists()) == (1, False)
    assert "traffic is written as text, .csv, .npy, .npz or .cm" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replan"], "without --fault"),
        (["--replan", "--balancer", "ecmp", "--fault", "1ms:0:0=0"], "with --balancer"),
    ],
)
def test_replan_says_what_is_missing(
    words: list[str], said: str, railopt_cli: Callable[..., Any]
) -> None:
    ran = railopt_cli("simulate", "uniform", "--nodes", "2", "--rails", "2", *words)
    assert ran.code == 1
    assert said in ran.err


@pytest.mark.parametrize("words", [["--order", "ascending"], ["--stages-certificate", "x.json"]])
def test_a_kind_without_stages_has_none_to_order(
    words: list[str], railopt_cli: Callable[..., Any]
) -> None:
    command = ["schedule", "uniform", "--nodes", "2", "--kind", "pipelined", *words]
    ran = railopt_cli(*command)
    assert ran.code == 1
    assert "which has no stages" in ran.err
