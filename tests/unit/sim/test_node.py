"""Runs with the inside of nodes: by hand, and against what no run can be faster than."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, Tokens, simulate
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S
from railopt.model.inside import Inside
from railopt.sim import Assumptions, Fault

LINK, SLOW = 10**9, 5 * 10**8  # bytes per second
MS = 10**9  # picoseconds in which a NIC sends 1 MB
MB = 10**6
BEFORE, IGNORED = Assumptions(scale_up="before"), Assumptions(scale_up="ignored")


def unit(
    fabric: Fabric, src_gpu: int, dst: int, targets: list[int], size: int = MB
) -> dict[str, Any]:
    needed = [gpu in targets for gpu in range(fabric.gpus)]
    return {"src_gpu": src_gpu, "dst": dst, "size": size, "targets": needed}


def planned(fabric: Fabric, rail: list[int], *units: dict[str, Any]) -> Plan:
    columns = {name: np.array([one[name] for one in units]) for name in units[0]}
    chunks = Chunks.from_units(fabric, **columns)
    return Plan(fabric, chunks, np.array(rail, np.int16))


def fabric_of(scaleup: int = SLOW, nodes: int = 3, gpus: int = 4, **rest: Any) -> Fabric:
    return Fabric.uniform(nodes, 4, f"{LINK}B/s", gpus=gpus, scaleup=f"{scaleup}B/s", **rest)


def test_a_unit_that_stays_on_its_gpus_takes_the_rails_time() -> None:
    fabric = fabric_of()
    made = planned(fabric, [1], unit(fabric, 1, 1, [1]))
    for assumed in (Assumptions(), BEFORE, IGNORED):
        assert simulate(made, assumptions=assumed).completion_ps == MS


def test_staged_rail_passed_on_after_each_other_or_at_once() -> None:
    """Staged 1 MB at half the link's rate: 2 ms; rail 1 ms; passed on to one GPU: 2 ms."""
    fabric = fabric_of()
    made = planned(fabric, [2], unit(fabric, 0, 1, [3]))
    assert simulate(made, assumptions=BEFORE).completion_ps == 5 * MS
    assert simulate(made).completion_ps == 2 * MS
    assert simulate(made, assumptions=IGNORED).completion_ps == MS


def test_the_gateway_sends_a_copy_to_each() -> None:
    """GPU 0 of node 1 has it first and gives it to three others: 3 MB out at 0.5 GB/s."""
    fabric = fabric_of()
    made = planned(fabric, [0], unit(fabric, 0, 1, [0, 1, 2, 3]))
    run = simulate(made)
    assert run.completion_ps == 6 * MS
    assert run.ranks is not None
    assert run.ranks[1].tolist() == [0] * 4 + [MB] * 4 + [0] * 4
    assert run.bound == made.scaleup_time == Fraction(6, 1000)
    assert simulate(made, assumptions=BEFORE).completion_ps == 7 * MS


def test_a_pair_can_be_slower_than_a_port() -> None:
    usual = Inside.usual(4, 4)
    fabric = fabric_of(10 * LINK, inside=Inside(usual.near, SLOW // 2))
    made = planned(fabric, [0], unit(fabric, 0, 1, [0, 3]))
    assert simulate(made).completion_ps == 4 * MS
    assert simulate(made, assumptions=BEFORE).completion_ps == 5 * MS
    assert "from GPU 4 to GPU 7" in simulate(made).flows.describe(2 * 12 + 2 * 12 + 4 * 4 + 3)


def test_a_node_waits_for_all_that_it_stages_and_receives() -> None:
    """Node 0 stages one of its two units, 2 ms, and sends neither before; node 2 sends at once.
    Node 1 passes on one of the three that it receives when the last has come.
    """
    fabric = fabric_of()
    made = planned(
        fabric,
        [1, 3, 2],
        unit(fabric, 0, 1, [1]),  # staged to GPU 1
        unit(fabric, 3, 1, [3]),  # GPU 3's own NIC
        unit(fabric, 8 + 2, 1, [0]),  # from node 2, passed on from GPU 2 to GPU 0
    )
    run = simulate(made, assumptions=BEFORE)
    assert run.bytes_per_rank == MB
    assert run.chunk_ps.tolist() == [3 * MS, 3 * MS, 5 * MS]
    assert run.completion_ps == 5 * MS
    assert run.track_bytes.tolist() == [0, MB, MB, MB, MB, MB]
    assert simulate(made).completion_ps == 2 * MS


def test_latency_comes_once() -> None:
    fabric = replace(fabric_of(), latency_ps=7)
    made = planned(fabric, [2], unit(fabric, 0, 1, [3]))
    assumed = Assumptions(scale_up="before", latency=True)
    assert simulate(made, assumptions=assumed).completion_ps == 5 * MS + 7


def test_a_near_nic_needs_no_staging() -> None:
    """Four GPUs on two NICs: GPUs 0 and 1 are both near NIC 0."""
    fabric = Fabric.uniform(2, 2, f"{LINK}B/s", gpus=4, scaleup=f"{SLOW}B/s")
    made = planned(fabric, [0], unit(fabric, 1, 1, [1]))
    assert made.moved == 0
    assert simulate(made).completion_ps == MS
    both = planned(fabric, [0], unit(fabric, 1, 1, [0, 1]))
    assert simulate(both).completion_ps == 2 * MS


def test_single_targets_run_as_chunks_do() -> None:
    fabric = Fabric.uniform(4, 4, scaleup="60GB/s")
    traffic = railopt.workloads.moe(fabric, tokens=256, seed=2)
    src_gpu, dst_gpu, size = traffic.flows()
    chunks = Chunks.from_units(
        fabric,
        src_gpu=src_gpu,
        dst=dst_gpu // 4,
        size=size,
        targets=np.arange(4) == (dst_gpu % 4)[:, None],
    )
    for policy in ("own-nic", "pxn", "lpt"):
        plain = railopt.plan(fabric, traffic.chunks("flow"), policy)
        units = Plan(fabric, chunks, plain.rail)
        for assumed in (Assumptions(), BEFORE):
            one, other = (simulate(made, assumptions=assumed) for made in (plain, units))
            np.testing.assert_array_equal(one.chunk_ps, other.chunk_ps)


def random_plan(seed: int) -> Plan:
    rng = np.random.default_rng(seed)
    gpus, rails = [(4, 4), (4, 2), (2, 4), (5, 3), (70, 2)][seed % 5]
    near = Inside.usual(gpus, rails).near
    pair = None if seed % 2 else int(rng.integers(LINK // 10, LINK))
    fabric = Fabric.uniform(
        4, rails, LINK, gpus=gpus, scaleup=int(rng.integers(LINK // 5, 3 * LINK)),
        inside=Inside(near, pair),
    )  # fmt: skip
    count = 60
    src_gpu = rng.integers(0, 4 * gpus, count)
    chunks = Chunks.from_units(
        fabric,
        src_gpu=src_gpu,
        dst=(src_gpu // gpus + rng.integers(1, 4, count)) % 4,
        size=rng.integers(1, MB, count),
        targets=rng.random((count, gpus)) < 2 / gpus,
    )
    return Plan(fabric, chunks, rng.integers(0, rails, count).astype(np.int16))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_run_is_faster_than_the_nics_and_the_ports(seed: int) -> None:
    made = random_plan(seed)
    least = max(made.makespan, made.scaleup_time)
    at_once = simulate(made)
    assert at_once.bound == least
    after = simulate(made, assumptions=BEFORE)
    assert after.bound == least
    for run in (at_once, after):
        assert run.completion >= least - Fraction(1, PS_PER_S)
        assert len(run.stuck) == 0
    assert after.completion_ps >= at_once.completion_ps
    assert after.track_bytes[-2:] == pytest.approx([made.staged, made.passed_on])


def test_what_a_dead_nic_keeps_is_never_passed_on() -> None:
    fabric = fabric_of()
    made = planned(fabric, [0, 1], unit(fabric, 0, 1, [3]), unit(fabric, 1, 2, [0]))
    run = simulate(made, assumptions=BEFORE, faults=[Fault(MS // 2, 0, 0)], partial=True)
    assert run.stuck.tolist() == [0]
    assert run.chunk_ps.tolist() == [-1, 3 * MS]


def test_routed_tokens_run() -> None:
    fabric = Fabric.uniform(4, 4)
    tokens = railopt.demand_from("routing:experts=32,tokens=64,ragged=0.5,seed=1", fabric)
    assert isinstance(tokens, Tokens)
    made = railopt.plan(fabric, tokens.chunks("flow"), "own-nic")
    times = [
        simulate(made, assumptions=assumed).completion_ps
        for assumed in (IGNORED, Assumptions(), BEFORE)
    ]
    assert sorted(times) == times
    assert times[0] == pytest.approx(float(made.makespan) * PS_PER_S, rel=1e-3)


def test_refused() -> None:
    fabric = fabric_of()
    made = planned(fabric, [0], unit(fabric, 0, 1, [1]))
    staged = replace(made, stage=np.zeros(1, np.int32))
    with pytest.raises(InputError, match="a plan in stages"):
        simulate(staged, assumptions=BEFORE)
    with pytest.raises(InputError, match="scale_up = 'after'"):
        Assumptions(scale_up="after")
    synthetic = Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=3)
    with pytest.raises(InputError, match="needs chunks that name theirs"):
        simulate(Plan(fabric, synthetic, np.zeros(1, np.int16)), assumptions=BEFORE)
