"""What the simulator refuses, and runs that can't finish."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, Traffic
from railopt.errors import InputError
from railopt.sim import Change, Fault, Job, Model, Stuck, simulate

MIB = 2**20


def flow(size: int = 10, capacity: int = 10, **rest: object) -> Job:
    return Job(
        np.array([capacity]), np.array([0, 1]), np.array([0], np.int32), np.array([size]), **rest
    )  # type: ignore[arg-type]


def two_nodes(count: int = 4) -> Plan:
    fabric = Fabric.uniform(3, 2)
    chunks = Chunks.from_arrays(src=[0] * count, dst=[1] * count, size=[MIB] * count, nodes=3)
    return Plan(fabric, chunks, np.arange(count) % 2)


def test_zero_size_flows_and_rates_of_zero() -> None:
    with pytest.raises(InputError, match="flow 0 has 0 bytes: a flow has at least 1"):
        flow(size=0)
    with pytest.raises(
        InputError, match="flow 0 crosses port 0, which has a rate of zero for the whole run"
    ):
        flow(capacity=0)


def test_runs_longer_than_the_clock() -> None:
    with pytest.raises(InputError, match="may take over 53 days"):
        simulate(flow(size=10**8, capacity=1))


def test_a_dead_port_that_comes_back_is_a_wait() -> None:
    assert simulate(flow(capacity=0, changes=[Change(10**12, 0, 10)])).completion_ps == 2 * 10**12


@pytest.mark.parametrize("needs", [[[0, 0]], [[0, 1], [1, 0]], [[1, 0], [2, 1], [1, 2]]])
def test_a_stage_that_depends_on_itself(needs: list[list[int]]) -> None:
    with pytest.raises(InputError, match=r"group \(stage\) [01] waits for itself"):
        flow(needs=np.array(needs))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("weight", np.array([0.0]), "weight must be finite and above zero"),
        ("start_ps", np.array([-1]), "start_ps holds -1"),
        ("changes", [Change(0, 7, 1)], "a port below 1"),
        ("needs", np.array([1, 2, 3]), r"expected \[E, 2\]"),
        ("cost", np.ones(3), "cost must have one entry a path entry"),
        ("track", np.zeros(2, np.int32), "track has 2 entries for 1 flows"),
    ],
)
def test_malformed_jobs(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        flow(**{field: value})


def test_a_path_over_a_dead_nic() -> None:
    fabric = Fabric.uniform(2, 2).degraded({(0, 1): "0"})
    traffic = Traffic(np.array([[0, 0, 5, 5]] * 2 + [[5, 5, 0, 0]] * 2), 2)
    with pytest.raises(
        InputError, match="the transmit NIC of node 0 on rail 1, which has a rate of zero"
    ):
        simulate(traffic, fabric=fabric, balancer="ecmp")


def test_faults_that_name_no_nic() -> None:
    with pytest.raises(InputError, match="expected a node below 3 and a rail below 2"):
        simulate(two_nodes(), faults=[Fault(0, 9, 0)])
    with pytest.raises(InputError, match="expected TIME:NODE:RAIL=FRACTION"):
        Fault.parse("3:5=0.5")
    assert Fault.parse("50us:3:5=0.5") == Fault(50_000_000, 3, 5, Fraction(1, 2))
    with pytest.raises(InputError, match="not in faults"):
        simulate(flow(), faults=[Fault(0, 0, 0)])


def test_models_out_of_range() -> None:
    for bad in ({"alpha_ps": -1}, {"incast": Fraction(-1)}, {"spray": Fraction(0)}):
        with pytest.raises(InputError):
            Model(**bad)  # type: ignore[arg-type]


def test_a_run_that_cannot_finish_names_the_chunks_and_keeps_its_timeline() -> None:
    """Rail 1 of node 0 dies after one of its two chunks."""
    plan = two_nodes()
    with pytest.raises(
        Stuck, match="1 of 4 chunks can't be delivered, every path of theirs is dead: chunks 3;"
    ) as caught:
        simulate(plan, faults=[Fault(30 * MIB, 0, 1)])
    timeline = caught.value.timeline
    assert caught.value.exit_code == 2
    assert timeline.stuck.tolist() == [3]
    assert timeline.chunk_ps.tolist() == [20 * MIB, 20 * MIB, 40 * MIB, -1]
    assert timeline.left.tolist() == [0, MIB // 2]
    assert timeline.completion_ps == 40 * MIB
    assert simulate(plan, faults=[Fault(30 * MIB, 0, 1)], partial=True).stuck.tolist() == [3]


def test_stages_behind_a_dead_one_are_stuck_too() -> None:
    fabric = Fabric.uniform(3, 1)
    plan = Plan(
        fabric,
        Chunks.from_arrays(src=[0, 1], dst=[1, 2], size=[MIB, MIB]),
        np.zeros(2, np.int16),
        stage=np.array([0, 1]),
    )
    timeline = simulate(plan, faults=[Fault(MIB, 0, 0)], partial=True)
    assert timeline.stuck.tolist() == [0, 1]


def test_a_nic_that_dies_and_comes_back() -> None:
    """Rail 1 idle from 10 MiB-times to 50: its 40 MiB-times end at 80."""
    timeline = simulate(
        two_nodes(), faults=[Fault(10 * MIB, 0, 1), Fault(50 * MIB, 0, 1, Fraction(1))]
    )
    assert timeline.chunk_ps.tolist() == [20 * MIB, 60 * MIB, 40 * MIB, 80 * MIB]


def test_a_nic_that_slows_down() -> None:
    timeline = simulate(two_nodes(2), faults=[Fault(10 * MIB, 1, 0, Fraction(1, 2))])
    assert timeline.chunk_ps.tolist() == [30 * MIB, 20 * MIB]


def test_stopping_early_keeps_what_was_delivered() -> None:
    timeline = simulate(two_nodes(), until_ps=30 * MIB)
    assert timeline.chunk_ps.tolist() == [20 * MIB, 20 * MIB, -1, -1]
    assert timeline.left.tolist() == [MIB // 2, MIB // 2]


def test_unknown_stage_rule() -> None:
    with pytest.raises(InputError, match="expected one of barrier, node"):
        simulate(two_nodes(), stages="often")


def test_simulate_is_public() -> None:
    assert railopt.simulate is simulate
