"""Chunks and plans: cutting, validation, exact loads, files."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, Tokens, Traffic, check, plan, synthesise, workloads
from railopt.base.arrays import Value, save_npz
from railopt.base.errors import FormatError, InputError

FABRIC = Fabric.uniform(nodes=3, rails=2)


def some_chunks() -> Chunks:
    return workloads.moe(FABRIC, tokens=500, seed=2).chunks("64KiB")


def test_cutting_and_its_inverse() -> None:
    traffic = workloads.zipf(FABRIC, mean="100KB", seed=1)
    for cap in ("flow", 7777, "1MiB"):
        chunks = traffic.chunks(cap)
        assert np.array_equal(Traffic.from_chunks(chunks).node_matrix, traffic.node_matrix)
        assert cap == "flow" or chunks.largest <= (7777 if cap == 7777 else 1 << 20)
        ends = chunks.offset + chunks.size
        same = chunks.flow[1:] == chunks.flow[:-1]
        assert np.all(np.where(same, chunks.offset[1:] == ends[:-1], chunks.offset[1:] == 0))


@pytest.mark.parametrize("cap", ["0B", 0, -5, "two", "1.5B"])
def test_bad_cap(cap: str | int) -> None:
    with pytest.raises(InputError):
        workloads.uniform(FABRIC).chunks(cap)


def test_loads_and_makespan_are_exact() -> None:
    big = 2**53 + 1  # not a float64
    chunks = Chunks.from_arrays(src=[0, 0, 1], dst=[1, 2, 2], size=[big, 10, 5], nodes=3)
    made = Plan(FABRIC, chunks, [0, 1, 1])
    assert made.send.tolist() == [[big, 10], [0, 5], [0, 0]]
    assert made.recv.tolist() == [[0, 0], [big, 0], [0, 15]]
    assert made.makespan == Fraction(big, 50 * 10**9)
    slow = Plan(
        FABRIC.degraded({(2, 1): "1/1000000"}),
        Chunks.from_arrays(src=[0, 0], dst=[1, 2], size=[99, 10], nodes=3),
        [0, 1],
    )
    assert slow.makespan == Fraction(10, 50_000)
    assert slow.bottleneck == (2, "recv", 1, 10, 50_000)


def test_a_side_is_send_or_recv() -> None:
    made = plan(FABRIC, some_chunks(), "lpt")
    assert made.makespan == max(made.side_time("send"), made.side_time("recv"))
    assert np.array_equal(made.loads("recv"), made.recv)
    assert np.array_equal(FABRIC.rates("send"), FABRIC.tx)
    for wrong in ("tx", "rx", "", 0):
        for ask in (made.loads, made.side_time, FABRIC.rates):
            with pytest.raises(InputError, match="expected 'send' or 'recv'"):
                ask(wrong)  # type: ignore[arg-type]


def test_an_empty_plan_takes_no_time(tmp_path: Path) -> None:
    chunks = Traffic.from_matrix(np.zeros((6, 6), int), FABRIC).chunks("1MiB")
    assert len(chunks) == 0
    made = plan(FABRIC, chunks, "equitable")
    assert made.makespan == 0
    made.save(tmp_path / "p.npz")
    assert Plan.read(tmp_path / "p.npz") == made


def test_plans_refuse_what_can_not_be() -> None:
    chunks = some_chunks()
    zeros = np.zeros(len(chunks), int)
    with pytest.raises(InputError, match="one per chunk"):
        Plan(FABRIC, chunks, zeros[1:])
    with pytest.raises(InputError, match="expected 0 to 1"):
        Plan(FABRIC, chunks, zeros + 2)
    with pytest.raises(InputError, match="3 nodes"):
        Plan(Fabric.uniform(4, 2), chunks, zeros)
    with pytest.raises(InputError, match="dead"):
        Plan(FABRIC.degraded({(1, 0): "0"}), chunks, zeros)
    with pytest.raises(InputError, match="stage"):
        Plan(FABRIC, chunks, zeros, stage=zeros[1:])
    with pytest.raises(InputError, match="chunks is of type Traffic: expected Chunks"):
        Plan(FABRIC, workloads.uniform(FABRIC), zeros)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def values() -> list[Any]:
    """One of each type."""
    traffic = workloads.uniform(FABRIC)
    targets = np.ones((1, 2), np.bool_)
    return [
        FABRIC.degraded({(1, 0): "0"}),
        FABRIC.node,
        traffic,
        Tokens(3, 2, 5, np.array([0]), np.array([1]), np.array([7]), targets),
        some_chunks(),
        plan(FABRIC, traffic),
        synthesise(FABRIC, traffic),
    ]


def arrays_of(value: object) -> list[np.ndarray]:
    """What a value holds, down to what it has computed and kept."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = vars(value).values() if isinstance(value, Value) else ()
    parts = value if isinstance(value, tuple) else parts
    return [array for part in parts for array in arrays_of(part)]


@pytest.mark.parametrize("protocol", [0, 4, 5])
def test_copies_of_values_are_as_frozen_as_they_are(values: list[Any], protocol: int) -> None:
    """A plan that another process sends back can't be changed and then be called optimal."""
    for value in values:
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value
        for kept in ("digest", "moves", "send", "recv", "lengths", "owner", "node_matrix"):
            getattr(value, kept, None)
        back = pickle.loads(pickle.dumps(value, protocol))
        assert vars(back).keys() == vars(replace(value)).keys(), "what was kept travelled along"
        assert getattr(back, "digest", None) == getattr(value, "digest", None)
        assert arrays_of(value)
        for array in (*arrays_of(value), *arrays_of(back)):
            assert not array.flags.writeable


def test_a_pickle_of_what_can_not_be_is_refused() -> None:
    changed = plan(FABRIC, some_chunks())
    object.__setattr__(changed, "rail", changed.rail + 2)
    with pytest.raises(InputError, match="expected 0 to 1"):
        pickle.loads(pickle.dumps(changed))


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("src", [3], "expected 0 to 2"),
        ("dst", [0], "itself"),
        ("size", [0], "at least 1 byte"),
        ("size", [0.5], "integers"),
    ],
)
def test_chunks_refuse(column: str, value: list[int], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Chunks.from_arrays(**{"src": [0], "dst": [1], "size": [5], column: value}, nodes=3)  # type: ignore[arg-type]


def test_sums_of_loads_stay_below_two_to_the_62() -> None:
    Chunks.from_arrays(src=[0, 0], dst=[1, 1], size=[2**61, 2**61 - 1], nodes=2)
    with pytest.raises(InputError, match=r"expected less than 2\*\*62"):
        Chunks.from_arrays(src=[0, 0], dst=[1, 1], size=[2**61, 2**61], nodes=2)


def test_more_chunks_than_fit_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match="use larger chunks"):
        workloads.uniform(FABRIC, size="1TiB").chunks("4B")
    with pytest.raises(InputError, match="use larger chunks"):
        workloads.uniform(FABRIC, size=2**56).chunks(1)


@pytest.mark.parametrize("policy", ["a\nb", "\x1b[2J", "x" * 201, 5, None, "\ud800"])
def test_a_policy_is_a_printable_name(policy: object) -> None:
    chunks = some_chunks()
    rails = np.zeros(len(chunks), int)
    with pytest.raises(InputError, match="printable characters"):
        Plan(FABRIC, chunks, rails, policy)  # type: ignore[arg-type]
    assert Plan(FABRIC, chunks, rails, "x" * 200).policy == "x" * 200


def test_files_round_trip_and_a_changed_claim_is_found(tmp_path: Path) -> None:
    made = plan(FABRIC, some_chunks(), "lpt")
    made.save(tmp_path / "p.npz")
    assert Plan.read(tmp_path / "p.npz") == made
    staged = Plan(FABRIC, some_chunks(), made.rail, "staged", stage=np.arange(len(made.rail)) % 3)
    staged.save(tmp_path / "s.npz")
    assert Plan.read(tmp_path / "s.npz") == staged
    assert staged != made
    with pytest.raises(FormatError, match="'plan'"):
        Traffic.read(tmp_path / "p.npz")


def test_htsim_export_names_the_nics_of_the_rail() -> None:
    chunks = Chunks.from_arrays(src=[0, 2], dst=[1, 0], size=[7, 9], nodes=3)
    text = Plan(FABRIC, chunks, [1, 0]).to_cm()
    assert text.splitlines()[2:] == ["3->4 id 1 start 0 size 7", "2->0 id 2 start 0 size 9"]
    staged = Plan(FABRIC, chunks, [1, 0], stage=[0, 5]).to_cm()
    assert staged.splitlines()[3:] == [
        "3->4 id 1 start 0 size 7 send_done_trigger 1",
        "2->0 id 2 trigger 1 size 9",
        "trigger id 1 barrier count 1",
    ]


@pytest.mark.parametrize("gpus", [{"a": 1}, 1.5, "8", 0])
def test_columns_for_an_odd_number_of_gpus_are_refused(gpus: Any) -> None:
    fabric = Fabric.uniform(2, 2)
    chunks = Chunks.from_units(
        fabric, src_gpu=[0], dst=[1], size=[8], targets=np.array([[True, False]])
    )
    with pytest.raises(InputError, match="gpus = "):
        Chunks.from_columns(2, gpus, chunks.columns())


NAMED = replace(FABRIC, hosts=("gpu01", "gpu02", "gpu03"), devices=("mlx5_0", "mlx5_1"))


def test_names_are_saved_with_a_plan_and_change_nothing_else(tmp_path: Path) -> None:
    plain, named = plan(FABRIC, some_chunks(), "lpt"), plan(NAMED, some_chunks(), "lpt")
    assert named == plain
    named.save(tmp_path / "plan.npz")
    again = Plan.read(tmp_path / "plan.npz")
    assert again == plain
    assert (again.fabric.hosts, again.fabric.devices) == (NAMED.hosts, NAMED.devices)
    worst = plain.bottleneck
    assert again.slowest == f"gpu0{worst.node + 1} mlx5_{worst.rail} {worst.side}"
    assert plain.slowest == f"node {worst.node} {worst.side} rail {worst.rail}"
    assert check(tmp_path / "plan.npz").ok


@pytest.mark.parametrize("names", [["gpu01"], {"racks": ["a"]}, {"hosts": ["gpu01"]}])
def test_names_that_can_not_be_right_are_refused(names: Any, tmp_path: Path) -> None:
    made = plan(FABRIC, some_chunks(), "lpt")
    header, arrays = made._content()
    save_npz(tmp_path / "plan.npz", "plan", {**header, "names": names}, arrays)
    with pytest.raises(FormatError, match=r"names|hosts"):
        Plan.read(tmp_path / "plan.npz")
