"""Plans under faults, planned again: nothing is lost, and the time is what the rates leave."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, workloads
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S
from railopt.report.timeline_figure import timeline_figure
from railopt.sim import Assumptions, Fault, simulate, simulate_replanned
from railopt.sim.perfetto import trace_events
from railopt.sim.replan import fabric_at

FABRIC = Fabric.uniform(3, 4, "8Gb/s")
CHUNKS = workloads.moe(FABRIC, tokens=256, skew=0.5, seed=3).chunks("64KiB")
PLAN = railopt.plan(FABRIC, CHUNKS, "lpt-global")
HALF = simulate(PLAN).completion_ps // 2
HEALED = Fraction(1)


def test_without_a_fault_it_is_the_same_run() -> None:
    ran = simulate_replanned(PLAN, [])
    plain = simulate(PLAN)
    assert ran.replans == ()
    assert ran.timeline.completion_ps == plain.completion_ps
    assert ran.timeline.chunk_ps.tolist() == plain.chunk_ps.tolist()


def test_one_rail_of_two_dies() -> None:
    """1,000 chunks of 1 kB over two rails of 1 MB/s: after 0.2 s 400 have arrived, the others take
    0.6 s on the rail that is left, one of them for a second time.  A plan that comes 0.5 s late
    finds that rail idle since 0.5 s, and 300 chunks to send.
    """
    fabric = Fabric.uniform(2, 2, 10**6)
    chunks = Chunks.from_arrays(src=[0] * 1000, dst=[1] * 1000, size=[1000] * 1000, nodes=2)
    plan = railopt.plan(fabric, chunks, "lpt")
    death = Fault(PS_PER_S // 5 + 10**8, 0, 0)  # in the middle of a chunk
    ran = simulate_replanned(plan, [death])
    assert (ran.replans[0].chunks, ran.replans[0].again) == (600, 1)
    seconds = ran.timeline.completion_ps / PS_PER_S
    assert seconds == pytest.approx(0.2001 + 0.5999, abs=2e-5)
    later = simulate_replanned(plan, [death], after_ps=PS_PER_S // 2)
    assert later.timeline.completion_ps / PS_PER_S == pytest.approx(0.7001 + 0.3)


def test_a_nic_that_heals_is_used_again() -> None:
    death, life = Fault(HALF // 2, 1, 2), Fault(HALF, 1, 2, HEALED)
    dead = simulate_replanned(PLAN, [death]).timeline
    healed = simulate_replanned(PLAN, [life, death]).timeline
    assert healed.completion_ps <= dead.completion_ps
    nic = 1 * FABRIC.rails + 2
    for run, again in ((dead, False), (healed, True)):
        assert run.nic_curve is not None
        used = run.nic_curve.till[run.nic_curve.track == nic]
        assert (used.max() > HALF) == again


def test_chunks_without_a_rail_wait_for_one() -> None:
    deaths = [Fault(HALF, 1, rail) for rail in range(4)]
    cut = simulate_replanned(PLAN, deaths)
    assert cut.replans[0].waiting == len(cut.timeline.stuck) > 0
    everything = [Fault(HALF, node, rail) for node in range(3) for rail in range(4)]
    lives = [Fault(2 * HALF, fault.node, fault.rail, HEALED) for fault in everything]
    ran = simulate_replanned(PLAN, [*everything, *lives])
    assert ran.replans[0].chunks == 0
    assert not len(ran.timeline.stuck)
    assert ran.timeline.completion_ps > 2 * HALF


def test_what_is_sent_again_after_waiting_is_counted_once_it_is_planned() -> None:
    """Four chunks of 1 kB over one rail of 1 MB/s, which dies in the second of them."""
    fabric = Fabric.uniform(2, 1, 10**6)
    chunks = Chunks.from_arrays(src=[0] * 4, dst=[1] * 4, size=[1000] * 4, nodes=2)
    ms = PS_PER_S // 1000
    faults = [Fault(3 * ms // 2, 0, 0), Fault(3 * ms, 0, 0, HEALED), Fault(4 * ms, 1, 0, HEALED)]
    ran = simulate_replanned(railopt.plan(fabric, chunks, "lpt"), faults)
    seen = [(replan.chunks, replan.again, replan.waiting) for replan in ran.replans]
    assert seen == [(0, 0, 3), (3, 1, 0), (2, 0, 0)]
    assert ran.timeline.completion_ps == 6 * ms


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_chunk_arrives_and_no_nic_carries_more_than_it_can(seed: int) -> None:
    dice = random.Random(seed)
    faults = [
        Fault(
            dice.randint(0, 2 * HALF),
            dice.randint(0, 2),
            dice.randint(0, 2),  # the last rail lives
            Fraction(dice.randint(0, 4), 4),
        )
        for _ in range(dice.randint(1, 4))
    ]
    assumed = Assumptions.packets() if seed % 2 else Assumptions()
    run, replans = simulate_replanned(PLAN, faults, assumptions=assumed, after_ps=seed % 3 * 10**6)
    assert not len(run.stuck)
    assert run.chunk_ps.max() <= run.completion_ps
    lost = sum(replan.again for replan in replans) * CHUNKS.largest
    sent = int(run.flows.size.sum())
    assert CHUNKS.total - len(CHUNKS) <= sent <= CHUNKS.total + lost
    assert run.curve.bytes.sum() == pytest.approx(sent, rel=1e-3)
    assert run.nic_curve is not None
    for rail in range(4):
        of_rail = run.nic_curve.track % 4 == rail
        assert run.nic_curve.bytes[of_rail].sum() == pytest.approx(run.track_bytes[rail])
    for entry in zip(*run.nic_curve, strict=True):
        track, since, till, moved = (value.item() for value in entry)
        rate = fabric_at(FABRIC, faults, since).tx[divmod(track, 4)]
        assert moved <= rate * (till - since + 1) / PS_PER_S * (1 + 1e-9) + 1


def test_a_policy_from_outside_plans_again_by_lpt() -> None:
    odd = Plan(FABRIC, CHUNKS, PLAN.rail, "mine:spread")
    assert simulate_replanned(odd, [Fault(HALF, 1, 2)]).replans[0].policy == "lpt"
    assert simulate_replanned(PLAN, [Fault(HALF, 1, 2)]).replans[0].policy == "lpt-global"


def test_what_can_not_be_is_refused() -> None:
    with pytest.raises(InputError, match="phases can't be cut"):
        simulate_replanned(PLAN, [], assumptions=Assumptions(scale_up="before"))
    with pytest.raises(InputError, match="can't be negative"):
        simulate_replanned(PLAN, [], after_ps=-1)
    with pytest.raises(InputError, match="expected a node below 3"):
        simulate_replanned(PLAN, [Fault(1, 7, 0)])


def test_pictures_show_the_nic_and_its_fault() -> None:
    faults = [Fault(HALF, 1, 2), Fault(HALF // 2, 0, 3, Fraction(1, 2))]
    run = simulate_replanned(PLAN, faults).timeline
    axis = timeline_figure(run).axes[0]
    assert {text.get_text() for text in axis.texts} == {
        "node 1 rail 2 dead",
        "node 0 rail 3 at 50%",
    }
    shares = axis.images[0].get_array()
    assert shares.shape[0] == 12
    late = shares.shape[1] * HALF // run.completion_ps + 2
    assert np.all(shares[6, late:] == 0)
    marks = [event for event in trace_events(run)["traceEvents"] if event["ph"] == "i"]
    assert [(mark["pid"], mark["name"]) for mark in marks] == [
        (0, "rail 3 at 50%"),
        (1, "rail 2 dead"),
    ]
    assert len(timeline_figure(simulate(PLAN)).axes) == 4, "rails, where nothing failed"


@pytest.mark.slow
def test_the_command(tmp_path: Path, railopt_cli: Callable[..., Any]) -> None:
    PLAN.save(tmp_path / "plan.npz")
    line = ["simulate", tmp_path / "plan.npz", "--fault", f"{HALF}ps:1:2=0"]
    assert railopt_cli(*line).code == 2, "chunks are stuck"
    found = json.loads(railopt_cli(*line, "--replan", "--json").out)
    assert found["completion_ps"] > 2 * HALF
    assert found["replans"][0]["at_ps"] == HALF
    ran = railopt_cli(*line, "--replan", "--replan-after", "1ms", "--timeline", tmp_path / "f.svg")
    assert ran.code == 0
    assert "planned again" in ran.out
    assert "node 1 rail 2 dead" in (tmp_path / "f.svg").read_text()
    for wrong in (
        ["simulate", tmp_path / "plan.npz", "--replan"],
        [*line, "--replan-after", "1ms"],
        [*line, "--replan", "--export", tmp_path / "htsim"],
        [*line, "--replan", "--scale-up", "before"],
        ["simulate", "zipf:seed=1", "--balancer", "ecmp", "--fault", "1us:0:0=0", "--replan"],
    ):
        ran = railopt_cli(*wrong)
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1
