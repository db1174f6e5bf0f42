"""What the simulator refuses, and runs that can't finish."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, Traffic
from railopt.base.errors import InputError
from railopt.sim import Assumptions, Change, Fault, Flows, Stuck, simulate

MIB = 2**20


def flow(size: int = 10, capacity: int = 10, **rest: object) -> Flows:
    return Flows(
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
    with pytest.raises(InputError, match=r"group \(stage\) [01] waits for a circle"):
        flow(needs=np.array(needs))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("weight", np.array([0.0]), "weight holds 0.0: expected 1e-15 or more"),
        ("weight", np.array([np.nan]), "weight holds nan"),
        ("weight", np.array([1e300]), "weight holds 1e\\+300: expected at most 1e"),
        ("weight", ["heavy"], "expected numbers in 1"),
        ("cost", np.array([-1.0]), "cost holds -1.0"),
        ("cost", np.ones(3), "cost has 3 entries: expected 1"),
        ("start_ps", np.array([-1]), "start_ps holds -1"),
        ("start_ps", np.array([2**61]), "start_ps holds 2305843009213693952: expected at most"),
        ("start_ps", np.array([0.5]), "start_ps holds 0.5: expected integers"),
        ("latency_ps", np.array([[0]]), "latency_ps has 2 dimensions"),
        ("changes", [Change(0, 7, 1)], "a port below 1"),
        ("changes", [Change(-1, 0, 1)], "a time from 0"),
        ("changes", [(1, 2)], "expected Change"),
        ("changes", [("a", "b", "c")], "expected Change"),
        ("changes", [Change(0, 0, 2**70)], "a capacity of at least 0"),
        ("needs", np.array([1, 2, 3]), "needs has 1 dimensions: expected 2"),
        ("needs", np.array([[1, 0, 0]]), r"expected \[E, 2\]"),
        ("needs", np.array([[2**31 - 1, 0]]), "needs holds 2147483647: expected at most"),
        ("group", np.array([2**31 - 1]), "group holds 2147483647: expected at most"),
        ("track", np.zeros(2, np.int32), "track has 2 entries: expected 1"),
        ("track", np.array([2**30]), "track holds 1073741824: expected at most"),
        ("fan_in", np.array([1]), "fan_in holds int64"),
        ("fan_in", np.zeros(3, np.bool_), "fan_in has 3 entries"),
        ("goodput", np.zeros(0), "goodput is empty"),
        ("goodput", np.array([0.0]), "goodput holds 0.0"),
        ("goodput", np.array([1.5]), "goodput holds 1.5: expected at most 1"),
    ],
)
def test_malformed_flows(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        flow(**{field: value})


@pytest.mark.parametrize(
    ("mark_first", "mark", "message"),
    [
        ([0, 5], [10], "mark_first must rise from 0 to the 1 marks"),
        ([1, 1], [10], "mark_first must rise from 0"),
        ([0, 1, 1], [10], "mark_first has 3 entries: expected 2"),
        ([0, 1], [11], "mark 0 of flow 0 is at byte 11"),
        ([0, 1], [0], "at byte 0"),
        ([0, 2], [7, 5], "mark 1 of flow 0 is at byte 5"),
        (None, [10], "belong together"),
        ([0, 1], None, "belong together"),
    ],
)
def test_marks_that_lie_outside_their_flow(
    mark_first: list[int] | None, mark: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        flow(
            mark_first=None if mark_first is None else np.array(mark_first),
            mark=None if mark is None else np.array(mark),
        )


@pytest.mark.parametrize(
    ("first", "path", "size", "message"),
    [
        ([0, 2], [0], [5], "first must rise from 0 to 1 in 1 steps"),
        ([0, 0], [], [5], "every flow crosses at least one port"),
        ([0, 1], [3], [5], "ports from 3 to 3: expected 0 to 1"),
        ([0, 1], [-1], [5], "ports from -1 to -1"),
        ([0, 2], [1, 1], [5], "flow 0 crosses a port twice"),
        ([0, 1, 2], [0, 0], [2**62, 1], "bytes in all: expected at most"),
    ],
)
def test_malformed_paths(first: list[int], path: list[int], size: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Flows(np.array([10, 10]), np.array(first), np.array(path, np.int32), np.array(size))


def _spoilt(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The array with one thing wrong, or perhaps not: a value, its length, its type."""
    choice = rng.integers(0, 5)
    if choice == 0 and array.size:
        odd = [-1, 0, 1, 7, 2**31 - 1, -(2**31)]
        array = array.copy()
        array.flat[rng.integers(0, array.size)] = odd[rng.integers(0, len(odd))]
        return array
    if choice == 1:
        return array[: rng.integers(0, len(array) + 1)]
    if choice == 2:
        return np.concatenate([array, array[:1]])
    if choice == 3:
        return array.astype([np.float64, np.int8, object][rng.integers(0, 3)])
    return array[::-1]


@pytest.mark.slow
def test_no_array_of_flows_breaks_a_run() -> None:
    """600 spoilt values: each is refused in a sentence, or runs."""
    rng = np.random.default_rng(2024)
    ran = refused = 0
    for _ in range(600):
        count = int(rng.integers(1, 5))
        arrays: dict[str, np.ndarray] = {
            "capacity": rng.integers(1, 50, 3) * 10**9,
            "first": 2 * np.arange(count + 1),
            "path": np.stack([rng.permutation(3)[:2] for _ in range(count)]).ravel(),
            "size": rng.integers(1, 10**6, count),
            "cost": np.ones(2 * count),
            "weight": np.ones(count),
            "start_ps": rng.integers(0, 10**6, count),
            "latency_ps": np.zeros(count, np.int64),
            "group": np.arange(count),
            "needs": np.stack([np.arange(1, count), np.arange(count - 1)], axis=1),
            "mark_first": np.arange(count + 1),
            "track": np.zeros(count, np.int32),
            "fan_in": np.array([True, False, True]),
            "goodput": np.array([1.0, 0.9, 0.8]),
        }
        arrays["mark"] = arrays["size"].copy()
        name = sorted(arrays)[rng.integers(0, len(arrays))]
        arrays[name] = _spoilt(rng, arrays[name])
        try:
            simulate(Flows(**arrays), partial=True)  # type: ignore[arg-type]
            ran += 1
        except InputError:
            refused += 1
    assert ran > 50
    assert refused > 200


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


def test_a_fault_is_numbers() -> None:
    assert Fault(0, 0, 1, "0.5") == Fault(0, 0, 1, Fraction(1, 2))  # type: ignore[arg-type]
    for odd in ((-1, 0, 0), (0, -1, 0), (0, 0.0, 0), (0, 0, None), ("1us", 0, 0), (0, 0, True)):
        with pytest.raises(InputError, match=r"a fault's .*: expected a whole number"):
            Fault(*odd)  # type: ignore[arg-type]
    for fraction in ("2", -1, None, "half"):
        with pytest.raises(InputError, match="fraction"):
            Fault(0, 0, 0, fraction)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", [None, "plan.npz", np.zeros((4, 4))])
def test_only_plans_traffic_and_flows_are_run(what: Any) -> None:
    with pytest.raises(InputError, match="expected a Plan, Traffic or Flows"):
        simulate(what)
    with pytest.raises(InputError, match="expected a Fabric"):
        simulate(railopt.workloads.uniform(Fabric.uniform(2, 2)), fabric=[what])


def test_assumptions_out_of_range() -> None:
    for bad in ({"alpha_ps": -1}, {"incast": Fraction(-1)}, {"spray": Fraction(0)}):
        with pytest.raises(InputError):
            Assumptions(**bad)  # type: ignore[arg-type]


def test_a_run_that_cannot_finish_names_the_chunks_and_keeps_its_timeline() -> None:
    """Rail 1 of node 0 dies after one of its two chunks."""
    plan = two_nodes()
    with pytest.raises(
        Stuck,
        match=r"1 of 4 chunks can't be delivered, their path is dead or .* is stuck: chunks 3;",
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
        Assumptions(stages="often")


def test_simulate_is_public() -> None:
    assert railopt.simulate is simulate
