"""Plans: exact loads, what they move inside nodes, checks, files."""

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
from railopt.model.inside import Inside
from railopt.model.plan import rail_costs
from tests.damage import saved
from tests.drawn import random_units

FABRIC = Fabric.uniform(nodes=3, rails=2)
WIDE = Fabric.uniform(3, 4, gpus=4)
SHARED = Fabric.uniform(3, 2, gpus=4)  # GPUs 0 and 1 on NIC 0, GPUs 2 and 3 on NIC 1
SEVERAL = Fabric.uniform(3, 4, gpus=2)  # NICs 0 and 1 of GPU 0, NICs 2 and 3 of GPU 1
ODD = Fabric.uniform(
    3,
    4,
    gpus=3,
    inside=Inside(np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]], np.bool_), 10**9),
)


def some_chunks() -> Chunks:
    return workloads.moe(FABRIC, tokens=500, seed=2).chunks("64KiB")


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
    header, arrays = saved(made, tmp_path / "true.npz")
    save_npz(tmp_path / "plan.npz", "plan", {**header, "names": names}, arrays)
    with pytest.raises(FormatError, match=r"names|hosts"):
        Plan.read(tmp_path / "plan.npz")


def plain(fabric: Fabric, chunks: Chunks, rail: list[int]) -> tuple[int, int, dict, dict]:  # type: ignore[type-arg]
    """The definition, unit by unit."""
    staged = passed_on = 0
    out: dict[tuple[int, int], int] = {}
    into: dict[tuple[int, int], int] = {}

    def move(node: int, source: int, target: int, size: int) -> None:
        out[node, source] = out.get((node, source), 0) + size
        into[node, target] = into.get((node, target), 0) + size

    for row, n in enumerate(rail):
        size, near = int(chunks.size[row]), np.flatnonzero(fabric.node.near[:, n]).tolist()
        gpu = int(chunks.src_gpu[row]) % fabric.gpus
        if gpu not in near:
            staged += size
            move(int(chunks.src[row]), gpu, near[0], size)
        assert chunks.targets is not None
        needs = np.flatnonzero(chunks.targets[row]).tolist()
        gateway = next((gpu for gpu in needs if gpu in near), near[0])
        for gpu in needs:
            if gpu != gateway:
                passed_on += size
                move(int(chunks.dst[row]), gateway, gpu, size)
    return staged, passed_on, out, into


@pytest.mark.parametrize("fabric", [WIDE, SHARED, SEVERAL, ODD])
def test_moves_are_those_of_the_definition(fabric: Fabric) -> None:
    for seed in range(20):
        chunks = random_units(fabric, 50, seed)
        rail = np.random.default_rng(seed).integers(0, fabric.rails, len(chunks))
        made = Plan(fabric, chunks, rail)
        staged, passed_on, out, into = plain(fabric, chunks, rail.tolist())
        assert (made.staged, made.passed_on, made.moved) == (staged, passed_on, staged + passed_on)
        time = max(Fraction(most, fabric.scaleup) for most in [*out.values(), *into.values()])
        if fabric.node.pair is None:
            assert made.scaleup_time == time
        assert made.scaleup_time >= time
        each = rail_costs(fabric, chunks)[np.arange(len(chunks)), rail].astype(np.int64)
        assert int((each * chunks.size).sum()) == made.moved


def test_one_unit_by_hand() -> None:
    unit = {"src_gpu": [1], "dst": [2], "size": [100], "targets": [[True, False, True, True]]}
    chunks = Chunks.from_units(WIDE, **unit)
    assert rail_costs(WIDE, chunks).tolist() == [[3, 3, 3, 3]]
    assert chunks.dst_gpu.tolist() == [8]
    own = plan(WIDE, chunks, "own-nic")
    assert (own.staged, own.passed_on) == (0, 300)
    target = Plan(WIDE, chunks, [2])
    assert (target.staged, target.passed_on) == (100, 200)
    assert target.scaleup_time == Fraction(200, WIDE.scaleup)
    pairs = replace(WIDE, inside=Inside(WIDE.node.near, 1000))
    assert Plan(pairs, chunks, [2]).scaleup_time == Fraction(1, 10)


def test_a_unit_without_targets_is_not_passed_on() -> None:
    chunks = Chunks.from_units(WIDE, src_gpu=[1, 1], dst=[2, 1], size=[100, 50])
    made = Plan(WIDE, chunks, [3, 1])
    assert (made.staged, made.passed_on) == (100, 0)


def test_traffic_is_units_of_one_target() -> None:
    matrix = np.zeros((12, 12), np.int64)
    matrix[0, 5] = 10
    made = Plan(WIDE, Traffic(matrix, 3).chunks("flow"), [0])
    assert (made.staged, made.passed_on) == (0, 10)
    assert plan(WIDE, made.chunks, "pxn").staged == 10
    assert Plan(WIDE, made.chunks, [2]).moved == 20


def test_units_are_cut_saved_and_taken(tmp_path: Path) -> None:
    chunks = Chunks.from_units(
        WIDE, src_gpu=[1], dst=[2], size=[250], targets=[[True, False, True, False]], cap=100
    )
    assert chunks.size.tolist() == [100, 100, 50]
    made = Plan(WIDE, chunks, [0, 1, 2])
    made.save(tmp_path / "plan.npz")
    again = Plan.read(tmp_path / "plan.npz")
    assert again == made
    assert again.chunks.targets is not None
    assert (again.moved, again.chunks) == (made.moved, chunks)
    assert chunks.take(np.array([2])).targets.tolist() == [[True, False, True, False]]  # type: ignore[union-attr]
    assert made.misses(Traffic(np.zeros((12, 12), np.int64), 3))


def test_chunks_that_name_no_gpu_move_nothing_that_is_known() -> None:
    made = plan(WIDE, Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=3), "lpt")
    with pytest.raises(InputError, match="name theirs"):
        _ = made.staged
