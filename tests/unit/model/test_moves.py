"""What plans move inside nodes: staged and passed-on bytes, by hand and against a plain loop."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, Traffic, plan
from railopt.base.errors import InputError
from railopt.model.inside import Inside
from railopt.model.plan import rail_costs

FABRIC = Fabric.uniform(3, 4, gpus=4)
SHARED = Fabric.uniform(3, 2, gpus=4)  # GPUs 0 and 1 on NIC 0, GPUs 2 and 3 on NIC 1
SEVERAL = Fabric.uniform(3, 4, gpus=2)  # NICs 0 and 1 of GPU 0, NICs 2 and 3 of GPU 1
ODD = Fabric.uniform(
    3,
    4,
    gpus=3,
    inside=Inside(np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]], np.bool_), 10**9),
)


def random_units(fabric: Fabric, count: int, seed: int) -> Chunks:
    rng = np.random.default_rng(seed)
    src_gpu = rng.integers(0, fabric.nodes * fabric.gpus, count)
    dst = (src_gpu // fabric.gpus + rng.integers(1, fabric.nodes, count)) % fabric.nodes
    targets = rng.random((count, fabric.gpus)) < 0.4
    size = rng.integers(1, 1000, count)
    return Chunks.from_units(fabric, src_gpu=src_gpu, dst=dst, size=size, targets=targets)


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


@pytest.mark.parametrize("fabric", [FABRIC, SHARED, SEVERAL, ODD])
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
    chunks = Chunks.from_units(FABRIC, **unit)
    assert rail_costs(FABRIC, chunks).tolist() == [[3, 3, 3, 3]]
    assert chunks.dst_gpu.tolist() == [8]
    own = plan(FABRIC, chunks, "own-nic")
    assert (own.staged, own.passed_on) == (0, 300)
    target = Plan(FABRIC, chunks, [2])
    assert (target.staged, target.passed_on) == (100, 200)
    assert target.scaleup_time == Fraction(200, FABRIC.scaleup)
    pairs = replace(FABRIC, inside=Inside(FABRIC.node.near, 1000))
    assert Plan(pairs, chunks, [2]).scaleup_time == Fraction(1, 10)


def test_a_unit_without_targets_is_not_passed_on() -> None:
    chunks = Chunks.from_units(FABRIC, src_gpu=[1, 1], dst=[2, 1], size=[100, 50])
    made = Plan(FABRIC, chunks, [3, 1])
    assert (made.staged, made.passed_on) == (100, 0)


def test_traffic_is_units_of_one_target() -> None:
    matrix = np.zeros((12, 12), np.int64)
    matrix[0, 5] = 10
    made = Plan(FABRIC, Traffic(matrix, 3).chunks("flow"), [0])
    assert (made.staged, made.passed_on) == (0, 10)
    assert plan(FABRIC, made.chunks, "pxn").staged == 10
    assert Plan(FABRIC, made.chunks, [2]).moved == 20


def test_units_are_cut_saved_and_taken(tmp_path: Path) -> None:
    chunks = Chunks.from_units(
        FABRIC, src_gpu=[1], dst=[2], size=[250], targets=[[True, False, True, False]], cap=100
    )
    assert chunks.size.tolist() == [100, 100, 50]
    made = Plan(FABRIC, chunks, [0, 1, 2])
    made.save(tmp_path / "plan.npz")
    again = Plan.read(tmp_path / "plan.npz")
    assert again == made
    assert again.chunks.targets is not None
    assert (again.moved, again.chunks) == (made.moved, chunks)
    assert chunks.take(np.array([2])).targets.tolist() == [[True, False, True, False]]  # type: ignore[union-attr]
    assert made.misses(Traffic(np.zeros((12, 12), np.int64), 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dst": [0]}, "from node 0 to itself"),
        ({"dst": [3]}, "expected nodes below 3"),
        ({"size": [0]}, "at least 1 byte"),
        ({"size": [1, 2]}, "as many of each"),
        ({"targets": [[True]]}, "expected truth values of shape"),
        ({"targets": [[1, 0, 1, 1]]}, "expected truth values of shape"),
        ({"src_gpu": [12]}, "expected 0 to 11"),
        ({"size": [1 << 61]}, "beyond int64"),
    ],
)
def test_odd_units_are_refused(change: dict[str, object], words: str) -> None:
    unit = {"src_gpu": [1], "dst": [2], "size": [100], "targets": [[True, True, True, True]]}
    with pytest.raises(InputError, match=words):
        Chunks.from_units(FABRIC, **{**unit, **change})  # type: ignore[arg-type]


def test_chunks_that_name_no_gpu_move_nothing_that_is_known() -> None:
    made = plan(FABRIC, Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=3), "lpt")
    with pytest.raises(InputError, match="name theirs"):
        _ = made.staged


@pytest.mark.parametrize("cap", [0, -1, 2.5])
def test_a_cap_that_is_no_size_is_refused(cap: Any) -> None:
    with pytest.raises(InputError, match="size"):
        Chunks.from_units(Fabric.uniform(2, 2), src_gpu=[0], dst=[1], size=[5], cap=cap)


def test_a_cap_with_its_unit() -> None:
    fabric = Fabric.uniform(2, 2)
    units = Chunks.from_units(fabric, src_gpu=[0], dst=[1], size=[3 << 20], cap="1MiB")
    assert units.size.tolist() == [1 << 20] * 3
