"""Runs whose answer can be written down."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, Traffic
from railopt.base.errors import InputError
from railopt.sim import BALANCERS, Assumptions, Change, Flows, simulate
from railopt.sim.assumptions import PAYLOAD

MIB = 2**20
LINE = 50 * 10**9  # bytes per second at 400 Gb/s
FULL = MIB * 20  # picoseconds for 1 MiB at line rate


def job(paths: list[list[int]], sizes: list[int], capacity: list[int], **rest: object) -> Flows:
    first = np.concatenate([[0], np.cumsum([len(path) for path in paths])])
    return Flows(
        np.array(capacity),
        first,
        np.array([port for path in paths for port in path], np.int32),
        np.array(sizes),
        **rest,
    )  # type: ignore[arg-type]


def planned(
    fabric: Fabric,
    src: list[int],
    dst: list[int],
    rail: list[int],
    size: int | list[int] = MIB,
    **rest: object,
) -> Plan:
    sizes = [size] * len(src) if isinstance(size, int) else size
    return Plan(
        fabric,
        Chunks.from_arrays(src=src, dst=dst, size=sizes, nodes=fabric.nodes),
        np.array(rail),
        **rest,
    )  # type: ignore[arg-type]


@pytest.fixture
def fabric() -> Fabric:
    return Fabric.uniform(8, 4)


def test_one_flow_takes_its_bytes_over_the_rate(fabric: Fabric) -> None:
    assert simulate(planned(fabric, [0], [1], [2])).completion_ps == FULL


def test_equal_flows_share_the_sender_and_end_together(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [0] * 5, [1, 2, 3, 4, 5], [0] * 5))
    assert timeline.finish_ps.tolist() == [5 * FULL] * 5


def test_incast_is_the_receivers_load(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [1, 2, 3, 4, 5, 6, 7], [0] * 7, [3] * 7))
    assert timeline.finish_ps.tolist() == [7 * FULL] * 7


def test_a_permutation_runs_at_line_rate(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, list(range(8)), [(k + 3) % 8 for k in range(8)], [1] * 8))
    assert set(timeline.finish_ps.tolist()) == {FULL}


def test_two_bottlenecks_in_series() -> None:
    """A 10 B/s, B 4 B/s: flow 0 over A and B gets 2, flow 1 over B gets 2, flow 2 over A gets the
    other 8.
    """
    timeline = simulate(job([[0, 1], [1], [0]], [20, 20, 80], [10, 4]))
    assert timeline.finish_ps.tolist() == [10 * 10**12] * 3


def test_what_one_leaves_the_others_take() -> None:
    """6 B/s: 10 and 40 bytes share 3 + 3 until 10/3 s; then 30 bytes at 6 B/s."""
    timeline = simulate(job([[0], [0]], [10, 40], [6]))
    assert timeline.finish_ps.tolist() == [
        -(-10 * 10**12 // 3),
        pytest.approx((Fraction(10, 3) + 5) * 10**12, abs=2),
    ]


def test_a_flow_that_arrives_late() -> None:
    """10 B/s: 100 bytes alone for 4 s, then shared until 60 bytes are left to 0 after 12 s more."""
    timeline = simulate(job([[0], [0]], [100, 60], [10], start_ps=np.array([0, 4 * 10**12])))
    assert timeline.finish_ps.tolist() == [16 * 10**12, 16 * 10**12]
    assert timeline.begun_ps.tolist() == [0, 4 * 10**12]


def test_weights_share_in_proportion() -> None:
    timeline = simulate(job([[0], [0]], [30, 10], [4], weight=np.array([3.0, 1.0])))
    assert timeline.finish_ps.tolist() == [10 * 10**12] * 2


def test_cost_counts_on_its_port_only() -> None:
    timeline = simulate(job([[0, 1]], [100], [20, 10], cost=np.array([4.0, 1.0])))
    assert timeline.completion_ps == 20 * 10**12


def test_chunks_of_a_connection_arrive_one_after_the_other(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [0, 0, 0], [1, 1, 1], [0, 0, 0], [MIB, 2 * MIB, MIB]))
    assert len(timeline.flows) == 1
    assert timeline.chunk_ps.tolist() == [FULL, 3 * FULL, 4 * FULL]


def test_a_capacity_that_changes_and_comes_back() -> None:
    """10 B/s for 2 s, 0 for 3 s, 5 from then on: 20 + 0 + 80 bytes."""
    seconds = 10**12
    timeline = simulate(
        job([[0]], [100], [10], changes=[Change(2 * seconds, 0, 0), Change(5 * seconds, 0, 5)])
    )
    assert timeline.completion_ps == 21 * seconds


def test_a_barrier_and_a_chain_of_nodes(fabric: Fabric) -> None:
    """Stage 0: 0->1 long, 2->3 short; stage 1: 0->3 and 2->1.  A barrier waits for the long one,
    nodes only for their own.
    """
    plan = planned(
        fabric,
        [0, 2, 4, 0, 2],
        [1, 3, 5, 3, 1],
        [0] * 5,
        [4 * MIB, MIB, MIB, MIB, MIB],
        stage=np.array([0, 0, 0, 1, 1]),
    )
    barrier = simulate(plan)
    assert barrier.chunk_ps.tolist() == [4 * FULL, FULL, FULL, 5 * FULL, 5 * FULL]
    plan = planned(
        fabric,
        [0, 2, 4, 4, 2],
        [1, 3, 5, 3, 5],
        [0] * 5,
        [4 * MIB, MIB, 2 * MIB, MIB, MIB],
        stage=np.array([0, 0, 0, 1, 1]),
    )
    nodes = simulate(plan, assumptions=Assumptions(stages="node"))
    assert nodes.chunk_ps.tolist() == [4 * FULL, FULL, 2 * FULL, 3 * FULL, 3 * FULL]


def test_stages_of_a_node_wait_over_stages_in_which_it_is_idle(fabric: Fabric) -> None:
    plan = planned(
        fabric, [0, 2, 0], [1, 3, 5], [0] * 3, [2 * MIB, MIB, MIB], stage=np.array([0, 1, 2])
    )
    assert simulate(plan, assumptions=Assumptions(stages="node")).chunk_ps.tolist() == [
        2 * FULL,
        FULL,
        3 * FULL,
    ]


def test_groups_without_flows_pass_on() -> None:
    """Group 0 -> empty group 1 -> group 2."""
    timeline = simulate(
        job([[0], [0]], [10, 10], [10], group=np.array([0, 2]), needs=np.array([[1, 0], [2, 1]]))
    )
    assert timeline.finish_ps.tolist() == [10**12, 2 * 10**12]


def test_alpha_holds_the_transmit_nic_for_every_message(fabric: Fabric) -> None:
    plan = planned(fabric, [0] * 6, [1, 1, 1, 2, 2, 3], [0] * 6)
    timeline = simulate(plan, assumptions=Assumptions(alpha_ps=1_000_000))
    assert timeline.completion_ps == pytest.approx(6 * FULL + 6_000_000, abs=10)


def test_headers_and_latency(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [0], [1], [0]), assumptions=Assumptions.packets())
    assert timeline.completion_ps == pytest.approx(FULL / PAYLOAD + fabric.latency_ps, abs=2)


def test_payload_rates_of_any_links() -> None:
    for rate in (0, 1, 2074, LINE, 10**16, 2**62):
        on_wire = Assumptions(headers=True).on_wire(np.array([rate]))
        assert on_wire.tolist() == [int(rate * PAYLOAD)]


def test_incast_penalty_is_the_stated_curve(fabric: Fabric) -> None:
    plan = planned(fabric, [1, 2, 3, 4], [0] * 4, [0] * 4)
    assert simulate(
        plan, assumptions=Assumptions(incast=Fraction(1, 10))
    ).completion_ps == pytest.approx(4 * FULL * 1.3, rel=1e-9)
    one = planned(fabric, [1], [0], [0])
    assert simulate(one, assumptions=Assumptions(incast=Fraction(1, 10))).completion_ps == FULL


@pytest.mark.parametrize("policy", ["equitable", "round-robin", "pxn", "own-nic"])
def test_plans_of_equal_load_finish_at_the_bound(policy: str) -> None:
    fabric = Fabric.uniform(6, 4)
    plan = railopt.plan(fabric, railopt.workloads.uniform(fabric).chunks("256KiB"), policy)
    timeline = simulate(plan)
    assert Fraction(timeline.completion_ps, 10**12) == plan.makespan == timeline.bound
    assert timeline.utilisation() == pytest.approx(np.ones(4))


def test_a_narrow_scaleup_link_is_the_bottleneck() -> None:
    """All of GPU 0's bytes leave over four NICs of 50 GB/s, three of them through its 75 GB/s
    scale-up link.
    """
    fabric = Fabric.uniform(2, 4, scaleup="75GB/s")
    matrix = np.zeros((8, 8), np.int64)
    matrix[0, 4:] = 16 * MIB
    plan = railopt.plan(fabric, Traffic(matrix, 2).chunks("1MiB"), "round-robin")
    assert simulate(plan).completion_ps == pytest.approx(48 * MIB / 75e9 * 1e12, rel=1e-9)


def test_a_scaleup_link_that_does_not_fill_changes_nothing() -> None:
    """Just narrow enough to be simulated, wide enough for this traffic: connections split by GPU
    end as before.
    """
    wide = Fabric.uniform(4, 4)
    traffic = railopt.workloads.zipf(wide, seed=2)
    times = []
    for scaleup in ("450GB/s", "199GB/s"):
        fabric = Fabric.uniform(4, 4, scaleup=scaleup)
        timeline = simulate(railopt.plan(fabric, traffic.chunks("64KiB"), "lpt"))
        times.append((len(timeline.flows), timeline.completion_ps))
    assert times[0][0] < times[1][0]
    assert times[0][1] == pytest.approx(times[1][1], abs=10)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_direct_traffic_inside_a_rail_never_meets_the_spine(balancer: str) -> None:
    fabric = Fabric.uniform(4, 4)
    matrix = np.zeros((16, 16), np.int64)
    matrix[np.arange(16), (np.arange(16) + 4) % 16] = MIB
    assert simulate(Traffic(matrix, 4), fabric=fabric, balancer=balancer).completion_ps == FULL


def test_hash_collisions_cost_what_they_must() -> None:
    """One-to-one across rails: n flows on one uplink take n times as long, and no flow is faster
    than alone.
    """
    fabric = Fabric.uniform(8, 8)
    matrix = np.zeros((64, 64), np.int64)
    nodes, gpus = np.divmod(np.arange(64), 8)
    matrix[np.arange(64), (nodes + 1) % 8 * 8 + (gpus + 1) % 8] = MIB
    traffic = Traffic(matrix, 8)
    for seed in range(5):
        timeline = simulate(traffic, fabric=fabric, balancer="ecmp", seed=seed)
        worst = np.bincount(timeline.flows.path[timeline.flows.path >= 128]).max()
        assert timeline.completion_ps == worst * FULL
    assert simulate(traffic, fabric=fabric, balancer="adaptive").completion_ps == FULL
    sprayed = simulate(
        traffic, fabric=fabric, balancer="spray", assumptions=Assumptions(spray=Fraction(1, 2))
    )
    assert sprayed.completion_ps == 2 * FULL


def test_seeds_decide_hashes_and_nothing_else() -> None:
    fabric = Fabric.uniform(4, 4)
    traffic = railopt.workloads.zipf(fabric, skew=0.0)
    runs = [
        simulate(traffic, fabric=fabric, balancer="ecmp", seed=seed).finish_ps for seed in (0, 0, 1)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_nccl_definitions(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [0, 0, 3], [1, 2, 1], [0, 1, 2]))
    assert timeline.bytes_per_rank == 2 * MIB
    assert timeline.algbw == pytest.approx(2 * MIB / (FULL / 1e12) / 1e9)
    assert timeline.busbw == pytest.approx(timeline.algbw * 7 / 8)


def test_percentiles_and_curve(fabric: Fabric) -> None:
    timeline = simulate(
        planned(fabric, [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3], [MIB, 2 * MIB, 3 * MIB, 4 * MIB])
    )
    ends = {"p50": 2 * FULL, "p90": 4 * FULL, "p99": 4 * FULL, "p100": 4 * FULL}
    assert timeline.percentiles() == ends
    assert timeline.throughput(4) == pytest.approx(
        LINE * np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    )


def test_no_chunks_take_no_time(fabric: Fabric) -> None:
    timeline = simulate(planned(fabric, [], [], []))
    assert (timeline.completion_ps, timeline.algbw, timeline.bound) == (0, 0.0, 0)


def test_direct_traffic_needs_a_fabric_and_a_known_balancer(fabric: Fabric) -> None:
    traffic = railopt.workloads.uniform(fabric)
    with pytest.raises(InputError, match="needs a fabric"):
        simulate(traffic)
    with pytest.raises(InputError, match="unknown balancer 'magic'; known balancers: ecmp"):
        simulate(traffic, fabric=fabric, balancer="magic")


def test_flows_that_stand_still_do_not_blur_the_others() -> None:
    """630 of 640 flows lose a port for good; the ten others share theirs to the last byte."""
    first = np.concatenate([[0], np.cumsum([2] * 630 + [1] * 10)])
    path = np.array([0, 1] * 630 + [1] * 10, np.int32)
    flows = Flows(
        np.array([10**10, 10**10]),
        first,
        path,
        np.arange(1, 641) * 1000,
        changes=[Change(10**5, 0, 0)],
    )
    exact = simulate(flows, partial=True, assumptions=Assumptions(exact=True))
    timeline = simulate(flows, partial=True)
    assert len(timeline.stuck) == 630
    assert timeline.completion_ps == exact.completion_ps
